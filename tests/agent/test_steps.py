"""What trials that start job steps with `srun` are given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from windlass.agent.child import asks_slurm
from windlass.agent.share.steps import share_job, write_task_prolog


@pytest.mark.parametrize(
    ("own", "given", "rank", "visible"),
    [
        ("2", "0,1,2,3", 0, "2"),
        ("2", "0,1,2,3", 1, "2"),
        ("2,3", "0,1,2,3", 0, "2,3"),
        ("2,3", "0", 0, "2"),
        ("2,3", "1", 1, "3"),
        ("4,5,6,7", "0,1", 1, "6,7"),
        ("GPU-a", "0", 3, "GPU-a"),
        ("", "0,1", 0, ""),
        ("1", "", 0, None),  # the step asked for no GPU
        (None, "0,1", 0, None),  # the trial has all of them
    ],
)
def test_ranks_see_the_gpus_of_their_trial(
    tmp_path: Path, own: str | None, given: str, rank: int, visible: str | None
) -> None:
    env = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": given, "SLURM_LOCALID": str(rank)}
    if own is not None:
        env["WINDLASS_GPUS"] = own
    done = subprocess.run(
        [write_task_prolog(str(tmp_path))], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == ("" if visible is None else f"export CUDA_VISIBLE_DEVICES={visible}\n")


def test_what_the_study_or_the_command_asks_for_comes_first(tmp_path: Path) -> None:
    assert share_job(str(tmp_path), {}).keys() == {"SLURM_OVERLAP", "SLURM_TASK_PROLOG"}
    assert share_job(str(tmp_path), {"SLURM_TASK_PROLOG": "mine"}) == {"SLURM_OVERLAP": "1"}
    for words in (["srun", "python", "a.py"], ["python", "--exact"], ["srun", "-n2", "a"]):
        assert not asks_slurm(words)
    assert asks_slurm(["/usr/bin/srun", "--exact", "-c2", "--mem=1G", "a"])
