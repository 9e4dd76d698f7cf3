"""Windlass hauls experiments from a laptop to Slurm clusters. In a trial: ``windlass.log(step=1, loss=0.5)``."""

import os
import sys

from windlass.trial.log import log
from windlass.trial.session import checkpoint_dir, remaining_s, should_stop

# A trial finds this package in the shipped agent.pyz even where Windlass is not installed; where it is, both places
# together make up the package, so that the `windlass` command keeps working inside a trial.
if not os.path.isdir(__path__[0]):
    __path__ += [
        path
        for path in (os.path.join(entry, "windlass") for entry in sys.path)
        if os.path.isdir(path)
    ]

__version__ = "0.1.0"
__all__ = ["__version__", "checkpoint_dir", "log", "remaining_s", "should_stop"]
