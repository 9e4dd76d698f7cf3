"""Fifty trials of a script that imports torch and takes three optimiser steps: `warm: auto` against cold starts.

Both through `windlass run`, two trials at a time. The warm side begins with nothing: its time holds the server's start,
the first trial and learning what it imports. Usage: python bench/warm.py [trials]
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from common import report, timed, windlass, workplace

SCRIPT = """\
import sys
import torch

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(8, 1)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    optimiser.zero_grad()
    loss = (model(torch.randn(16, 8)) ** 2).mean()
    loss.backward()
    optimiser.step()
print(loss.item())
"""


def run_study(folder: Path, warm: str, trials: int) -> tuple[float, str]:
    """Seconds of the whole `windlass run`, and all that its trials printed."""
    study = folder / f"{warm}.yaml"
    keys = {
        "command": [sys.executable, "train.py", "{n}"],
        "parameters": {"n": list(range(trials))},
        "warm": warm,
        "env": {"OMP_NUM_THREADS": "1"},
    }
    study.write_text(json.dumps(keys))
    words = windlass("run", str(study), "--slots", "2", "--quiet", "--folder", str(folder / "studies"))
    seconds = timed(words, cwd=folder)
    logs = [windlass("logs", str(n), "--study", warm, "--folder", str(folder / "studies")) for n in range(0, trials, 7)]
    printed = [subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in logs]
    return seconds, "".join(printed)


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        sys.exit("bench/warm.py needs torch: pip install torch")
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with workplace() as folder:
        (folder / "train.py").write_text(SCRIPT)
        timed([sys.executable, "train.py", "0"], cwd=folder)  # so that neither side reads torch from the disk
        warm_s, warm_output = run_study(folder, "auto", trials)
        cold_s, cold_output = run_study(folder, "off", trials)
    if warm_output != cold_output:
        sys.exit("warm and cold trials printed different things")
    print(f"cold {cold_s:.1f} s, warm {warm_s:.1f} s")
    report(f"{trials} torch trials, cold against warm", f"{cold_s / warm_s:.1f} ×", "20 ×")


if __name__ == "__main__":
    main()
