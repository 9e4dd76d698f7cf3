"""The batch script: complete, in a fixed order, and sound for the shells that will read it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_program
from windlass.core.errors import InputError
from windlass.core.verified import agent_command
from windlass.model import Request
from windlass.places.slurm.script import merge_options, render_script
from windlass.slurm.options import (
    VALUES,
    find_options,
    option_name,
    render_pattern,
    render_time,
    render_value,
)

REQUEST = Request(
    job_name="packing", time_s=3600, cpus=4, memory_mb=10_001, gpus=2, gpu_type="a100"
)
AWKWARD = """/a b/it's "so" 100%/#1\\é$(touch x)`touch y`;&|<>*?![]{}~"""


def script(request: Request = REQUEST, **changes: Any) -> str:
    values: dict[str, Any] = {
        "agents": 25,
        "output": "/scratch/hpc_outputs/packing_%A_%a.out",
        "comment": "windlass:s1",
        "python": "/usr/bin/python3",
        "agent": "/scratch/packing/agent.pyz",
        "digest": "c0ffee",
        "folder": "/scratch/packing",
        "submission": "s1",
        "chdir": "/home/me/project",
    }
    return render_script(request, **{**values, **changes})


def directives(text: str) -> list[str]:
    return [
        line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")
    ]


def test_everything_in_its_order() -> None:
    request = dataclasses.replace(
        REQUEST,
        account="def-prof",
        partition="long",
        qos="normal",
        nodes=2,
        throttle=10,
        mail_user="me@example.org",
        mail_types=("END", "FAIL"),
        options={"signal": "B:USR1@60", "exclude": ["n1", "n2"], "contiguous": True, "hold": False},
    )
    options, exec_, command = script(request).partition("exec ")
    assert options + exec_ == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=packing\n"
        "#SBATCH --account=def-prof\n"
        "#SBATCH --partition=long\n"
        "#SBATCH --qos=normal\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --cpus-per-task=4\n"
        "#SBATCH --mem=10001M\n"
        "#SBATCH --gres=gpu:a100:2\n"
        "#SBATCH --time=0-01:00:00\n"
        "#SBATCH --array=0-24%10\n"
        "#SBATCH --output=/scratch/hpc_outputs/packing_%A_%a.out\n"
        "#SBATCH --open-mode=append\n"
        "#SBATCH --signal=B:USR1@60\n"
        "#SBATCH --requeue\n"
        "#SBATCH --comment=windlass:s1\n"
        "#SBATCH --chdir=/home/me/project\n"
        "#SBATCH --mail-user=me@example.org\n"
        "#SBATCH --mail-type=END,FAIL\n"
        "#SBATCH --contiguous\n"
        "#SBATCH --exclude=n1,n2\n"
        "\n"
        "# One agent: it takes trials until none is left. It is compared with its checksum first.\n"
        "exec "
    )
    words = agent_command(
        "/usr/bin/python3",
        "/scratch/packing/agent.pyz",
        "c0ffee",
        ["/scratch/packing", "--job", "s1"],
    )
    assert shlex.split(command) == words


def test_what_is_not_said_is_left_out() -> None:
    names = [
        line.partition("=")[0] for line in directives(script(dataclasses.replace(REQUEST, gpus=0)))
    ]
    assert names == [
        "--job-name", "--cpus-per-task", "--mem", "--time", "--array", "--output", "--open-mode", "--requeue",
        "--comment", "--chdir",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change,expected",
    [
        ({"gpu_form": "gpus-per-node"}, "--gpus-per-node=a100:2"),
        ({"gpu_form": "gpus-per-node", "gpu_type": ""}, "--gpus-per-node=2"),
        ({"gpu_type": ""}, "--gres=gpu:2"),
        ({"memory_form": "mem-per-cpu"}, "--mem-per-cpu=2501M"),
        ({"time_s": 2 * 86400 + 3 * 3600 + 4 * 60 + 5}, "--time=2-03:04:05"),
        ({"throttle": 25}, "--array=0-24"),
        ({"throttle": 24}, "--array=0-24%24"),
        ({"options": {"mem": "3G"}}, "--mem=3G"),
        ({"options": {"--mem_per_cpu": "3G"}}, "--mem-per-cpu=3G"),
        ({"options": {"gres": "tmp:10"}}, "--gres=gpu:a100:2,tmp:10"),
        ({"options": {"gres": "gpu:3"}, "gpu_form": "gpus-per-node"}, "--gres=gpu:3"),
        ({"options": {"G": 3}}, "--gpus=3"),
        ({"options": {"no-requeue": True}}, "--no-requeue"),
        ({"options": {"t": "5"}}, "--time=5"),
    ],
)
def test_forms_and_what_the_user_says_instead(change: dict[str, Any], expected: str) -> None:
    lines = directives(script(dataclasses.replace(REQUEST, **change)))
    assert expected in lines
    kinds = [
        {"--mem", "--mem-per-cpu"}, {"--gres", "--gpus-per-node", "--gpus"}, {"--requeue", "--no-requeue"}, {"--time"},
    ]  # fmt: skip
    for kind in kinds:
        assert len([line for line in lines if line.partition("=")[0] in kind]) == 1, lines


def test_memory_for_each_core_is_never_less_in_all() -> None:
    for memory_mb in range(1, 40):
        request = dataclasses.replace(
            REQUEST, memory_mb=memory_mb, cpus=7, memory_form="mem-per-cpu"
        )
        (line,) = [line for line in directives(script(request)) if line.startswith("--mem")]
        assert 0 <= int(line.removeprefix("--mem-per-cpu=").removesuffix("M")) * 7 - memory_mb < 7


def test_one_agent_is_an_array_too() -> None:
    assert "--array=0-0" in directives(script(agents=1))


def test_no_takes_ours_out() -> None:
    assert merge_options({"requeue": True, "chdir": "/x"}, {"requeue": False}) == {"chdir": "/x"}


def test_a_line_break_is_refused_and_all_are_named() -> None:
    with pytest.raises(InputError) as caught:
        script(comment="a\nb", chdir="/c\nd")
    assert len(caught.value.problems) == 2
    with pytest.raises(InputError, match="backslash"):
        script(output="/a\\b/%A_%a.out")


@pytest.mark.parametrize("shell", ["bash", "zsh", "sh"])
def test_the_shells_read_it_as_meant(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    agent = tmp_path / AWKWARD.replace("/", "_") / "agent.pyz"
    agent.parent.mkdir()
    digest = write_program(agent, "print(json.dumps(sys.argv))")
    text = script(
        folder=AWKWARD, agent=str(agent), digest=digest, python=sys.executable, submission="s 1"
    )
    assert (
        subprocess.run(
            [shell, "-n"], input=text, text=True, capture_output=True, check=False
        ).returncode
        == 0
    )
    said = subprocess.run(
        [shell], input=text, text=True, capture_output=True, check=True, cwd=tmp_path
    ).stdout
    assert json.loads(said) == [str(agent), AWKWARD, "--job", "s 1"]
    assert os.listdir(tmp_path) == [agent.parent.name]


def test_a_dozen_lines_or_so() -> None:
    command = agent_command(
        "/usr/bin/python3", "/scratch/packing/agent.pyz", "c0ffee", ["/scratch/packing"]
    )
    assert len(script().splitlines()) - len(shlex.join(command).splitlines()) <= 17


def test_names_of_options() -> None:
    assert [option_name(word) for word in ("-p", "p", "--mem_per_cpu", "mem-per-cpu")] == [
        "partition", "partition", "mem-per-cpu", "mem-per-cpu",
    ]  # fmt: skip
    assert find_options("part") == ["partition"]
    assert find_options("mem") == ["mem"]
    assert len(find_options("gpu")) > 1
    assert find_options("memory") == []
    assert VALUES["exclusive"] == "?" and VALUES["requeue"] == "" and VALUES["time"] == "="


def test_values() -> None:
    assert render_value("a b") == '"a b"'
    assert render_value("it's #1") == '"it\'s #1"'
    assert render_value('a"\\') == '"a\\"\\\\"'
    assert render_pattern("/a%b") == "/a%%b"
    assert render_time(59.9) == "0-00:01:00"
