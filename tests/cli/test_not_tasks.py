"""A program is not taken for a file of commands, whose lines would be executed."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from windlass.cli.study_options import CommandWithProgram
from windlass.core.errors import InputError
from windlass.spec import load_study


def refusal(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    with pytest.raises(InputError) as caught:
        load_study(str(folder / name))
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    "name,text,words",
    [
        ("train.py", "import os\nprint(1)\n", ["train.py: this is a program", "windlass run -- python train.py", "windlass init train.py"]),
        ("train.py", "", ["is a program"]),
        ("train.py", "{lr: 1}\n", ["is a program"]),
        ("fit.R", "library(x)\n", ["windlass run -- Rscript fit.R"]),
        ("train", "#!/usr/bin/env python3\nimport os\n", ["train: this is a program", "windlass run -- train"]),
        ("settings.csv", "lr\n0.1\n", ["end in .csv", "ends in .txt"]),
        ("config.toml", "lr = 1\n", ["end in .toml"]),
        ("job.sh", "#!/bin/bash\n#SBATCH -t 10\npython x.py\n", ["job.sh:2", "batch script", "windlass lint job.sh"]),
        ("go.sh", "cd run\npython x.py\n", ["go.sh:1", "`cd`", "windlass run -- bash go.sh"]),
        ("go.sh", "# all of them\nLR=1 python x.py\n", ["go.sh:2"]),
        ("go.sh", "for lr in 1 2; do python x.py $lr; done\n", ["go.sh:1", "`for`"]),
    ],
)  # fmt: skip
def test_a_program_is_refused_with_what_was_meant(
    tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    said = refusal(tmp_path, name, text)
    for word in words:
        assert word in said


@pytest.mark.parametrize("name", ["list.txt", "list.tasks", "list", "list.sh"])
def test_files_of_commands_are_still_files_of_commands(tmp_path: Path, name: str) -> None:
    head = "#!/bin/bash\n" if name == "list.sh" else ""
    (tmp_path / name).write_text(f"{head}# two\npython train.py --lr 1\n./done.sh cd=3\n")
    assert len(load_study(str(tmp_path / name)).tasks) == 2


@pytest.mark.parametrize(
    "args,line",
    [
        (
            ["-j", "2", "python", "train.py", "--lr", "1"],
            "windlass run -j 2 -- python train.py --lr 1",
        ),
        (["train.py", "--lr", "a b"], "windlass run -- python train.py --lr 'a b'"),
        (["study.yaml", "--lr", "1"], ""),
        (["--lr", "1", "--", "python", "train.py"], ""),
    ],
)
def test_a_command_without_two_dashes_is_written_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], line: str
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    verb = CommandWithProgram(
        "run", params=[click.Argument(["study"], required=False), click.Option(["-j"])]
    )
    with pytest.raises(click.UsageError) as caught:
        verb.make_context("run", args)
    _, _, hint = caught.value.message.partition("a command stands behind `--`: ")
    assert hint == line
