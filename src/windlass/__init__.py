"""Windlass hauls experiments from a laptop to Slurm clusters. In a trial: ``windlass.log(step=1, loss=0.5)``."""

from pkgutil import extend_path

# A trial finds this package in the shipped agent.pyz even where Windlass is not installed; where it is, both
# places together make up the package, so that the `windlass` command keeps working inside a trial.
__path__ = extend_path(__path__, __name__)

from windlass.track.log import log

__version__ = "0.1.0"
__all__ = ["__version__", "log"]
