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


def run_study(folder: Path, warm: str, trials: int) -> tuple[float, float, str]:
    """Seconds of the whole `windlass run`, of its trials from first start to last end, and what they printed."""
    study = folder / f"{warm}.yaml"
    keys = {
        "command": [sys.executable, "train.py", "{n}"],
        "parameters": {"n": list(range(trials))},
        "warm": warm,
        "env": {"OMP_NUM_THREADS": "1"},
    }
    study.write_text(json.dumps(keys))
    words = windlass(
        "run", str(study), "--slots", "2", "--quiet", "--folder", str(folder / "studies")
    )
    seconds = timed(words, cwd=folder)
    logs = [
        windlass("logs", str(n), "--study", warm, "--folder", str(folder / "studies"))
        for n in range(0, trials, 7)
    ]
    journal = next((folder / "studies" / warm / "journal").glob("*.jsonl")).read_text().splitlines()
    ends = [event for event in map(json.loads, journal) if event["e"] == "end"]
    trials_s = max(event["t"] for event in ends) - min(event["start"] for event in ends)
    printed = [
        subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in logs
    ]
    return seconds, trials_s, "".join(printed)


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        sys.exit("bench/warm.py needs torch: pip install torch")
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with workplace() as folder:
        (folder / "train.py").write_text(SCRIPT)
        timed(
            [sys.executable, "train.py", "0"], cwd=folder
        )  # so that neither side reads torch from the disk
        warm_s, warm_trials_s, warm_output = run_study(folder, "auto", trials)
        cold_s, cold_trials_s, cold_output = run_study(folder, "off", trials)
    if warm_output != cold_output:
        sys.exit("warm and cold trials printed different things")
    print(f"cold {cold_s:.1f} s, warm {warm_s:.1f} s")
    report(
        f"{trials} torch trials from first start to last end, cold / warm",
        f"{cold_trials_s / warm_trials_s:.1f} ×",
        "20 ×",
    )
    report("the whole of `windlass run`, cold / warm", f"{cold_s / warm_s:.1f} ×", "–")


if __name__ == "__main__":
    main()
