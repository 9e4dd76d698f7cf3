"""The packing example on a real cluster, whole: never more trials on a GPU than it has room for."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

from tests.conftest import Project

PACKING = Path(__file__).parent.parent.parent / "examples/packing"
A_GPU = 4  # trials of 3 GB on a GPU of 12 GB

# Stands in for `python`: says which GPU of which node it was given, before and after. Lines this short are written whole.
# Outside of jobs it is asked for the modules that there are, before anything is submitted.
WITNESS = """#!/bin/sh
[ -n "$SLURM_JOB_ID" ] || exec "$PYTHON" "$@"
place="$SLURMD_NODENAME:$CUDA_VISIBLE_DEVICES"
echo "begin $place" >> "$WITNESSED"
"$PYTHON" "$@" --plain --steps 20  # how well they learn is tested elsewhere
code=$?
echo "end $place" >> "$WITNESSED"
exit $code
"""


def test_four_to_a_gpu(cluster_project: Project) -> None:
    project = cluster_project
    shutil.copytree(PACKING, project.folder, dirs_exist_ok=True)
    project.write("bin/python", WITNESS).chmod(0o755)
    witnessed = project.folder / "witnessed"
    project.env |= {"WITNESSED": str(witnessed), "PYTHON": sys.executable}
    project.env["PATH"] = f"{project.folder}/bin:{project.env['PATH']}"
    done = project.run("run", "study.yaml", "--partition", "short", "--throttle", "25", "--wait")
    assert "submitted 25 agents" in done.stderr
    assert project.counts() == {"done": 100}
    most, now = count_together(witnessed)
    assert sum(now.values()) == 0, "who began has ended"
    assert {place.split(":")[0] for place in most} <= {"node1", "node4"}, "only there are p100s"
    assert max(most.values()) == A_GPU, "GPUs are full, and never more than full"
    best = project.json("results", "--by", "lr,hidden", "--json")
    assert len(best) == 20


def count_together(witnessed: Path) -> tuple[Counter[str], Counter[str]]:
    """For each GPU: the most trials it had at a time, and those it has still."""
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for line in witnessed.read_text().splitlines():
        word, place = line.split()
        assert place.split(":")[1].isdigit(), f"a trial sees one GPU: {place}"
        now[place] += 1 if word == "begin" else -1
        most[place] = max(most[place], now[place])
    return most, now
