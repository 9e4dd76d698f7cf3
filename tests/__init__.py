"""The tests, in the folders of src/windlass. `real/` needs a Slurm, `gpu/` a GPU."""

from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
DATA = HERE / "data"
