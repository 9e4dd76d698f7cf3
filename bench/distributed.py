"""The start of a trial of 2 nodes with 2 processes each by torchrun, against the same in a bare batch script.

    WINDLASS_TEST_TORCH=/path/to/python python bench/distributed.py [turns]

Both sides are measured from the submission to the moment at which rank 0 has left its first collective, in turns, on
one cluster that is started for the benchmark. The Python that is named has torch; nodes see its folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from common import report, windlass

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from scripts.slurm import Cluster  # noqa: E402

TRAIN = """\
import os, sys, time
began = time.time()
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == 4
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        file.write(f"{began} {time.time()}")
dist.destroy_process_group()
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --time=10 --output={folder}/bare-%j.out
export OMP_NUM_THREADS=1
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=2 bash -c \\
  'exec {python} -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --node-rank=$SLURM_NODEID \\
   --master-addr='$first' --master-port=29511 train.py {folder}/mark'
"""
STUDY = """\
command: {python} train.py {folder}/mark
launch: torchrun
needs: {{cpus: 2, nodes: 2, time: 5m}}
"""


def run_once(words: list[str], folder: Path, env: dict[str, str]) -> tuple[float, float]:
    """Seconds from the submission to the first line of rank 0, and to the end of its first collective."""
    mark = folder / "mark"
    mark.unlink(missing_ok=True)
    began = time.time()
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=200
    )
    if done.returncode or not mark.exists():
        raise SystemExit(f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    first, last = map(float, mark.read_text().split())
    return first - began, last - began


def main() -> None:
    python = os.environ.get("WINDLASS_TEST_TORCH", "")
    if not python:
        raise SystemExit("WINDLASS_TEST_TORCH names no Python with torch")
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as name:
        folder = Path(name)
        shared = [folder, Path(python).parent.parent]
        cluster = Cluster(folder / "slurm", database=False, nodes_apart=True, shared=shared)
        (folder / "train.py").write_text(TRAIN)
        (folder / "bare.sh").write_text(SCRIPT.format(python=python, folder=folder))
        (folder / "config/windlass/sites").mkdir(parents=True)
        (folder / "config/windlass/sites/apart.toml").write_text('clusters = ["windlass"]\n')
        cluster.start()
        try:
            places = {
                "XDG_CONFIG_HOME": str(folder / "config"),
                "XDG_CACHE_HOME": str(folder / "cache"),
            }
            measure(folder, {**os.environ, **cluster.env, **places}, python, turns)
        finally:
            cluster.stop()


def measure(folder: Path, env: dict[str, str], python: str, turns: int) -> None:
    ours, bare = [], []
    study = STUDY.format(python=python, folder=folder)
    for turn in range(turns + 1):
        (folder / "study.yaml").write_text(f"name: turn-{turn}\n{study}")
        by_hand = run_once(["sbatch", "--wait", "bare.sh"], folder, env)
        by_us = run_once(windlass("run", "study.yaml", "--wait"), folder, env)
        if turn:  # the first of each fills the page cache
            bare.append(by_hand)
            ours.append(by_us)
    for at, until in enumerate(("rank 0 executes", "the first collective is over")):
        mine, theirs = (median(times[at] for times in side) for side in (ours, bare))
        report(
            f"2 x 2 torchrun, until {until}, against a batch script",
            f"{mine / theirs:.2f} x ({mine:.1f} s, {theirs:.1f} s)",
            f"1.2 x + 1 s = {1.2 * theirs + 1:.1f} s",
        )


if __name__ == "__main__":
    main()
