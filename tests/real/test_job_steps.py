"""Trials that share a job and use `srun`: their steps run at the same time, each with its own trial's GPUs."""

from __future__ import annotations

import json

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.study import wait_until_idle

pytestmark = pytest.mark.slow
# Each rank waits for those of all other trials: steps that ran one after the other would never end.
STEP = """\
import json, os, sys, time
number, where, count = sys.argv[1:]
rank = f"{number}-{os.environ['SLURM_PROCID']}"
with open(os.path.join(where, f"rank-{rank}.new"), "w") as file:
    json.dump([number, os.environ["CUDA_VISIBLE_DEVICES"]], file)
os.rename(os.path.join(where, f"rank-{rank}.new"), os.path.join(where, f"rank-{rank}"))
while len([name for name in os.listdir(where) if name.startswith("rank-") and "." not in name]) < int(count):
    time.sleep(0.05)
"""


def test_steps_of_trials_that_share_a_job_run_at_the_same_time(
    cluster_project: Project, slurm: Cluster
) -> None:
    """A plain srun, one with several ranks, one with a GPU a rank, one with cores."""
    project = cluster_project
    project.write("step.py", STEP)
    for number, options in enumerate(
        ["", "--ntasks=2", "--ntasks=2 --gpus-per-task=1", "--ntasks=1 --cpus-per-task=1"]
    ):
        project.write(f"step-{number}.sh", f'srun {options} python3 step.py "$@"\n')
    where = project.folder / "ranks"
    where.mkdir()
    project.write(
        "study.yaml",
        "command: sh step-{number}.sh {number} {where} 6\n"
        f"parameters: {{number: [0, 1, 2, 3], where: [{json.dumps(str(where))}]}}\n"
        "needs: {gpus: 1, cpus: 2, memory: 500MB, time: 10m}\nslurm: {agents: 1, gpus_per_job: 4}\n",
    )
    project.run("run")
    wait_for(lambda: len([path for path in where.iterdir() if not path.suffix]) == 6)
    wait_until_idle(slurm)
    assert project.counts() == {"done": 4}
    seen = sorted(json.loads(path.read_text()) for path in where.iterdir())
    assert [number for number, _ in seen] == ["0", "1", "1", "2", "2", "3"]
    assert len({gpus for _, gpus in seen}) == 4 and len({tuple(rank) for rank in seen}) == 4, seen
    assert all(gpus.isdigit() for _, gpus in seen), "one GPU each"
