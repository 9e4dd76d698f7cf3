"""Ranks on one machine, without Slurm: the program around them, ports, and how a trial of several of them ends."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import time

import pytest

from tests.conftest import Project
from windlass.agent.share.placing import Ranks
from windlass.agent.share.ports import hold_port
from windlass.launchers._task import Lines, rank_variables

PYTHON = sys.executable
RANK = """\
import os, sys, time
import windlass
rank, mode = int(os.environ["RANK"]), sys.argv[1]
print("here", rank, os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"], os.environ["NODE_RANK"], flush=True)
windlass.log({f"of_{rank}": rank})
if mode == "exit" and rank == 1:
    sys.exit("rank one cannot")
if mode == "code" and rank == 1:
    sys.exit(5)
if mode == "signal" and rank == 1:
    os.kill(os.getpid(), 6)
if mode != "fine" and (mode != "hang" or rank == 1):
    time.sleep(60)
print("loss: 0.5" if rank == 0 else "loss: 9", flush=True)
"""


def write_study(project: Project, modes: str, more: str = "") -> None:
    project.write("rank.py", RANK)
    project.write(
        "study.yaml",
        f"command: {PYTHON} rank.py {{mode}}\nparameters: {{mode: [{modes}]}}\nlaunch: srun\n"
        f"needs: {{processes: 2, cpus: 2}}\nmetric: loss\nslots: 1\n{more}",
    )


def test_ranks_have_numbers_metrics_and_output_of_their_own(project: Project) -> None:
    write_study(project, "fine")
    project.run("run")
    assert sorted(project.run("logs", "0").stdout.splitlines()) == [
        "[rank0]: here 0 0 2 0",
        "[rank0]: loss: 0.5",
        "[rank1]: here 1 1 2 0",
        "[rank1]: loss: 9",
    ]
    assert project.run("logs", "0", "--rank", "1").stdout.splitlines() == [
        "here 1 1 2 0",
        "loss: 9",
    ]
    (row,) = project.json("results", "--json")
    assert row["loss"] == 0.5, "what the first rank prints counts"
    assert row["of_0"] == 0 and row["of_1"] == 1


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("exit", "rank one cannot"),
        ("code", "exit code 5"),
        ("signal", "signal 6"),
    ],
)
def test_a_rank_that_fails_ends_all(project: Project, mode: str, said: str) -> None:
    write_study(project, mode)
    began = time.monotonic()
    project.run("run", code=None)
    assert time.monotonic() - began < 20, "the other rank would have taken a minute"
    told = project.run("explain", "0").stdout
    assert said in told and "rank 1 on " in told and "the last lines of rank 1" in told, told


def test_a_rank_that_goes_on_alone_is_ended(project: Project) -> None:
    write_study(project, "hang")
    project.env["WINDLASS_LAST_RANKS_S"] = "2"
    project.run("run", code=None)
    told = project.run("explain", "0").stdout
    assert "time limit" in told and "had not ended 2 s after others" in told, told


def test_a_port_is_held_and_can_be_listened_at() -> None:
    held = hold_port()
    port = held.getsockname()[1]
    with socket.socket() as stranger, pytest.raises(OSError):
        stranger.bind(("", port))
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen()
    held.close()


def test_the_rank_that_failed_first_is_not_one_that_was_ended() -> None:
    ranks = Ranks(3)
    ranks.take({"rank": 0, "node": "a", "code": 0, "sig": 15})
    ranks.take({"rank": 2, "node": "b", "code": 7, "sig": 0, "tail": "x"})
    assert ranks.missing == [1]
    first = ranks.first_failure()
    assert first is not None and first[0] == 2 and first[1]["code"] == 7


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4", "SLURM_NODEID": "1"}, "3 1 4 1"),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
             "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_NODE_RANK": "0"},
            "2 0 4 1",
        ),
    ],
)  # fmt: skip
def test_where_ranks_come_from(env: dict[str, str], expected: str) -> None:
    found = rank_variables(env)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK")
    assert " ".join(found[name] for name in names) == expected


def test_lines_are_marked_once_and_bars_are_thinned_out() -> None:
    read, write = os.pipe()
    lines = Lines("1", write)
    lines.feed(b"a\n[rank1]: Traceback\nb")
    lines.feed(b"c\n")
    for step in range(100):
        lines.feed(b"\r%d%%" % step)
    lines.finish()
    os.close(write)
    with os.fdopen(read, "rb") as file:
        printed = file.read().splitlines()
    assert printed[:3] == [b"[rank1]: a", b"[rank1]: Traceback", b"[rank1]: bc"]
    assert printed[-1] == b"[rank1]: 99%" and len(printed) < 8


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed here")
def test_real_torchrun(project: Project) -> None:
    project.write(
        "train.py",
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "x = torch.ones(1) * (dist.get_rank() + 1)\ndist.all_reduce(x)\nprint('sum', x.item())\n"
        "dist.destroy_process_group()\n",
    )
    project.run(
        "run", "--launch", "torchrun", "--processes", "2", "--", PYTHON, "train.py", timeout=120
    )
    assert sorted(project.run("logs", "0").stdout.splitlines())[-2:] == [
        "[rank0]: sum 3.0",
        "[rank1]: sum 3.0",
    ]
