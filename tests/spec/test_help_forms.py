"""`windlass init` knows the usual libraries by what they print: the files in data/help are what the real ones printed.

Each script there is executed with its library where that is installed, so that a new version of it is noticed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HERE
from windlass.core.errors import InputError
from windlass.search.trials import iterate_trials
from windlass.spec.from_help import render_study
from windlass.spec.help_forms import find_commands, find_library, recognise
from windlass.spec.help_text import parse_help
from windlass.spec.load import load_study
from windlass.spec.option_names import is_output_place

DATA = HERE / "data" / "help"
# Name → the library, the first trial's words behind the script, and what stands before --help.
FORMS = {
    "argparse": ("argparse", "--save-path model-ID.pt --lr 0.0001 --hidden-size 32 --optimizer adam --seed 1", ()),
    "click": ("click", "TO_FILL_DATASET --output-dir runs/ID --lr 0.0001 --hidden-size 32 --optimizer adam --seed 1", ()),
    "typer": ("typer", "--output-dir outputs/ID --lr 0.0001 --hidden-size 32 --optimizer adam --seed 1", ()),
    "tyro": ("tyro", "--output-dir outputs/ID --hidden-size 32 --optimizer.lr 0.0001 --seed 1", ()),
    "fire": ("Fire", "--output_dir out/ID --lr 0.0001 --hidden 32 --seed 1", ()),
    "absl": ("absl", "--workdir outputs/ID --hidden_size 32 --lr 0.0001 --optimizer adam --seed 1", ()),
    "jsonargparse": ("jsonargparse", "--output_dir runs/ID --hidden_size 32 --optimizer.lr 0.0001 --seed 1", ()),
    "lightning": ("Lightning CLI", "fit --trainer.default_root_dir outputs/ID --model.lr 0.0001 --model.hidden 32 --seed_everything 1", ("fit",)),
    "hydra": ("Hydra", "output_dir=runs/ID hydra.run.dir=outputs/ID optimizer=adam optimizer.lr=0.0001 hidden=32 seed=1", ()),
}  # fmt: skip


def recorded(name: str) -> tuple[str, str]:
    return (DATA / f"{name}.txt").read_text(), (DATA / f"{name}.script").read_text()


@pytest.mark.parametrize("name", FORMS)
def test_the_first_trial_of_the_draft_is_in_the_form_of_the_library(
    name: str, tmp_path: Path
) -> None:
    library, wanted, words = FORMS[name]
    text, source = recorded(name)
    form = recognise(text, source)
    assert form.package == library and find_library(source) == form
    draft = render_study(
        "train.py", parse_help(text, source, "train.py", words), ["python"], form, words
    )
    assert f"drafted from its --help ({library}: " in draft.splitlines()[0]
    study = tmp_path / "study.yaml"
    study.write_text(draft)
    trial = next(iterate_trials(load_study(str(study))))
    assert " ".join(trial.stages[0][1][2:]).replace(trial.id, "ID") == wanted


def test_commands_of_a_script_are_named() -> None:
    wanted = {
        "clickgroup": ("evaluate", "train"),
        "firedict": ("train", "evaluate"),
        "tyrosub": ("train", "eval"),
        "lightning_commands": ("fit", "validate", "test", "predict"),
    }
    for name, commands in wanted.items():
        text = (DATA / f"{name}.txt").read_text()
        assert find_commands(text) == commands
        likely = "fit" if "fit" in commands else "train"
        with pytest.raises(InputError, match=f"windlass init my.py {likely}"):
            parse_help(text, script="my.py")
    assert [find_commands(recorded(name)[0]) for name in FORMS] == [()] * len(FORMS)


def test_a_library_that_is_not_installed_is_named() -> None:
    text = "Traceback (most recent call last)\nModuleNotFoundError: No module named 'tyro'\n"
    with pytest.raises(InputError, match=r"--help fails \(it uses tyro\): ModuleNotFoundError"):
        parse_help(text, "import tyro\n")
    assert find_library("import argparse, click\nfrom typer import run") == recognise(
        *recorded("typer")
    )
    assert find_library("def no python") is None is find_library("import numpy")


def test_required_flags_of_absl_and_open_values_of_hydra_are_to_be_filled_in() -> None:
    text, source = recorded("absl")
    source += "flags.mark_flags_as_required(['lr', 'seed'])\n"
    assert {option.name for option in parse_help(text, source) if option.required} == {
        "workdir",
        "lr",
        "seed",
    }
    text = "x is powered by Hydra.\n\n== Config ==\nOverride anything in the config (foo.bar=value)\n\nmodel:\n  root: ???\nlr: 1.0e-05\n"
    draft = render_study("x.py", parse_help(text), ["python"], recognise(text))
    assert (
        "command: python x.py model.root=TO_FILL_MODEL_ROOT hydra.run.dir=outputs/{trial_id} {args}\nargs: k=v\n"
        in draft
    )
    assert "  lr: [1e-06, 1.0e-05, 0.0001]" in draft


def test_places_that_a_script_writes_to_are_told_from_those_that_it_reads() -> None:
    written = "output out outputs output_dir out_dir log_dir logdir save_path results_dir checkpoint_dir output_file run_dir trainer_default_root_dir"
    read = "data_dir model_path checkpoint_path ckpt_path load_dir resume_from_checkpoint_dir input_file cache_dir outer_lr output_size log_interval pretrained_dir"
    assert [name for name in written.split() if not is_output_place(name)] == []
    assert [name for name in read.split() if is_output_place(name)] == []


@pytest.mark.parametrize("name", ["click", "argparse"])
def test_the_installed_library_prints_what_was_recorded(name: str) -> None:
    """click comes with Windlass. Of the others a version that prints otherwise is noticed by who has it installed."""
    env = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}
    words = [sys.executable, str(DATA / f"{name}.script"), "--help"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    _, source = recorded(name)
    live = parse_help(done.stdout, source)
    assert live == parse_help(*recorded(name)) and recognise(done.stdout, source).package == name
