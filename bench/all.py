"""Runs every benchmark of this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

for name in (
    "dispatch",
    "grid",
    "files",
    "journal",
    "look",
    "warm",
    "slurm",
    "staging",
    "folders",
    "meter",
    "containers",
    "distributed",
):
    print(f"== {name}", flush=True)
    subprocess.run([sys.executable, str(Path(__file__).with_name(f"{name}.py"))], check=False)
