"""What a batch script of ours says is what a real sbatch understands, whatever the names are."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scripts.slurm import Cluster

from tests.conftest import wait_for, write_program
from windlass.model import Request
from windlass.places.slurm.script import render_script
from windlass.slurm.options import render_pattern

REQUEST = Request(job_name="packing", time_s=420, cpus=2, memory_mb=1001, gpus=2, gpu_type="a100")
AWKWARD = [
    "plain", "a b", "it's", 'say "so"', "back\\slash", "#1", "100%", "%j_%A", "é 日本", "$HOME", "a\tb", "'", "\\", " x ", "a;b|c&d", "~",
]  # fmt: skip


def send(cluster: Cluster, text: str, *words: str) -> str:
    done = subprocess.run(
        ["sbatch", "--parsable", *words],
        input=text,
        env={**os.environ, **cluster.env},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def script(folder: Path, request: Request = REQUEST, **changes: Any) -> str:
    values: dict[str, Any] = {
        "agents": 1,
        "output": f"{render_pattern(str(folder))}/log_%A_%a.out",
        "comment": "windlass:s1",
        "python": sys.executable,
        "agent": str(folder / "agent.pyz"),
        "digest": "",
        "folder": str(folder),
        "submission": "s1",
        "chdir": str(folder),
    }
    return render_script(request, **{**values, **changes})


@pytest.mark.parametrize("text", AWKWARD)
def test_awkward_values_arrive(slurm: Cluster, tmp_path: Path, text: str) -> None:
    request = dataclasses.replace(REQUEST, job_name=text)
    number = send(slurm, script(tmp_path, request, comment=text), "--hold")
    name, comment = (
        slurm.run("squeue", "-h", "-o", "%j\x1f%k", "-j", number).removesuffix("\n").split("\x1f")
    )
    slurm.run("scancel", number)
    assert (name, comment) == (text, text)


@pytest.mark.parametrize("name", [name for name in AWKWARD if "\\" not in name])
def test_awkward_folders_work(slurm: Cluster, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    digest = write_program(folder / "agent.pyz", "print(json.dumps([os.getcwd(), *sys.argv[1:]]))")
    number = send(slurm, script(folder, digest=digest))
    log = folder / f"log_{number}_0.out"
    wait_for(lambda: "JobState=COMPLETED" in slurm.run("scontrol", "show", "job", number))
    assert json.loads(log.read_text()) == [str(folder), str(folder), "--job", "s1"]
    assert sorted(os.listdir(folder)) == ["agent.pyz", log.name]


def test_the_request_is_what_is_asked_for(slurm: Cluster, tmp_path: Path) -> None:
    request = dataclasses.replace(
        REQUEST, account="rrg-lab", partition="long", qos="normal", throttle=2, mail_user="me@example.org",
        mail_types=("END", "FAIL"), options={"exclude": "node1", "nice": 5, "hold": True},
    )  # fmt: skip
    for form, memory in (("gres", "mem"), ("gpus-per-node", "mem-per-cpu")):
        changed = dataclasses.replace(request, gpu_form=form, memory_form=memory)
        number = send(slurm, script(tmp_path, changed, agents=5))
        said = slurm.run("scontrol", "show", "job", number)
        slurm.run("scancel", number)
        told = dict(re.findall(r"(\w+)=(\S*)", said))
        assert told["TimeLimit"] == "00:07:00"
        assert (told["Account"], told["Partition"], told["QOS"]) == ("rrg-lab", "long", "normal")
        assert told["ArrayTaskId"] == "0-4%2"
        assert "gpu:a100:2" in said or "gres:gpu:a100=2" in said or "gpu:a100=2" in said
        assert told["NumCPUs"] == "2"
        assert told["WorkDir"] == str(tmp_path)
        assert told["Requeue"] == "1"
        assert (told["MinMemoryNode"] if memory == "mem" else told["MinMemoryCPU"]) == (
            "1001M" if memory == "mem" else "501M"
        )
