"""``windlass init`` understands the help of real scripts and drafts a study that is valid as it stands."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from windlass.core.errors import InputError
from windlass.spec.from_help import HelpOption, parse_help, render_study
from windlass.spec.load import load_study


def by_name(text: str) -> dict[str, HelpOption]:
    return {option.name: option for option in parse_help(text)}


def read(study: str) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(study)
    return loaded


def count_trials(study: dict[str, Any]) -> int:
    total: int = study.get("seeds", 1)
    for values in study.get("parameters", {}).values():
        total *= len(values)
    return total


def argparse_parser(**options: Any) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("train.py", description="Train a network.", **options)
    parser.add_argument("data", help="folder with the data")
    parser.add_argument("--lr", type=float, default=3e-4, help="learning rate")
    parser.add_argument(
        "-b", "--batch-size", type=int, default=64, metavar="N", help="samples in a batch"
    )
    parser.add_argument("--gamma", type=float, default=0.99, help="discount")
    parser.add_argument(
        "-o", "--optimizer", choices=["adam", "sgd"], default="adam", help="what learns"
    )
    parser.add_argument(
        "--amp", action=argparse.BooleanOptionalAction, default=True, help="mixed precision"
    )
    parser.add_argument("--verbose", action="store_true", help="say more")
    parser.add_argument("--layers", type=int, nargs="+", default=[64, 64], help="hidden layers")
    parser.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.999), help="of Adam")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data")
    parser.add_argument("--num-workers", type=int, default=4, help="processes that load data")
    parser.add_argument("--output-dir", required=True, help="where results go")
    parser.add_argument(
        "--a-very-long-name-for-an-option", type=float, default=0.5, help="a long story " * 12
    )
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers")
    return parser


WITH_DEFAULTS = argparse_parser(
    formatter_class=argparse.ArgumentDefaultsHelpFormatter
).format_help()
WITHOUT_DEFAULTS = argparse_parser().format_help()


class TestArgparse:
    def test_defaults_and_kinds(self) -> None:
        found = {
            name: (option.flag, option.default, option.kind)
            for name, option in by_name(WITH_DEFAULTS).items()
        }
        assert found == {
            "lr": ("--lr", "0.0003", "float"),
            "batch_size": ("--batch-size", "64", "int"),
            "gamma": ("--gamma", "0.99", "float"),
            "optimizer": ("--optimizer", "adam", "str"),
            "amp": ("--amp", "True", "bool"),
            "verbose": ("--verbose", "False", "bool"),
            "layers": ("--layers", "[64, 64]", "str"),
            "betas": ("--betas", "(0.9, 0.999)", "str"),
            "epochs": ("--epochs", "10", "int"),
            "num_workers": ("--num-workers", "4", "int"),
            "output_dir": ("--output-dir", None, "str"),
            "a_very_long_name_for_an_option": ("--a-very-long-name-for-an-option", "0.5", "float"),
            "seed": ("--seed", "0", "int"),
            "data": ("", None, "str"),
        }

    def test_without_defaults_the_name_decides(self) -> None:
        options = by_name(WITHOUT_DEFAULTS)
        assert {option.default for option in options.values()} == {None}
        kinds = {
            name: options[name].kind
            for name in ("lr", "batch_size", "gamma", "seed", "output_dir", "verbose")
        }
        assert kinds == {
            "lr": "float",
            "batch_size": "int",
            "gamma": "float",
            "seed": "int",
            "output_dir": "str",
            "verbose": "bool",
        }

    def test_choices_required_and_several(self) -> None:
        options = by_name(WITH_DEFAULTS)
        assert options["optimizer"].choices == ("adam", "sgd")
        assert {name for name, option in options.items() if option.required} == {
            "data",
            "output_dir",
        }
        assert {name for name, option in options.items() if option.several} == {"layers", "betas"}

    def test_wrapped_help_is_joined(self) -> None:
        option = by_name(WITH_DEFAULTS)["a_very_long_name_for_an_option"]
        assert option.help == ("a long story " * 12).strip() + " (default: 0.5)"

    @pytest.mark.parametrize("columns", ["40", "60", "200"])
    def test_any_width(self, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        text = argparse_parser(formatter_class=argparse.ArgumentDefaultsHelpFormatter).format_help()
        facts = {
            name: (option.flag, option.default, option.choices)
            for name, option in by_name(text).items()
        }
        expected = by_name(WITH_DEFAULTS)
        assert facts == {
            name: (option.flag, option.default, option.choices) for name, option in expected.items()
        }

    @pytest.mark.parametrize(
        ("written", "default"),
        [
            ("rate, default: 0.1", "0.1"),
            ("rate (default 0.1)", "0.1"),
            ("rate [default=0.1]", "0.1"),
            ("rate. Defaults to 0.1.", "0.1"),
            ("overrides the default (default: 1e-3)", "1e-3"),
            ("rate (default: None)", None),
            ("use the default rate", None),
            ("name (default: 'a b')", "a b"),
            ("name (default: f(x) or g[y])", "f(x) or g[y]"),
        ],
    )
    def test_defaults_as_people_write_them(self, written: str, default: str | None) -> None:
        parser = argparse.ArgumentParser("x")
        parser.add_argument("--value", help=written)
        assert by_name(parser.format_help())["value"].default == default

    def test_subcommands_are_left_out(self) -> None:
        parser = argparse.ArgumentParser(
            "x", formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        parser.add_argument("--lr", type=float, default=0.1, help="rate")
        commands = parser.add_subparsers(help="what to do")
        commands.add_parser("train", help="train --now")
        commands.add_parser("test", help="test it")
        assert list(by_name(parser.format_help())) == ["lr"]

    def test_groups_and_dotted_names(self) -> None:
        parser = argparse.ArgumentParser(
            "x", formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        group = parser.add_argument_group("optimiser", "all about it")
        group.add_argument("--optim.lr", type=float, default=0.1, help="rate")
        options = by_name(parser.format_help())
        assert (options["optim_lr"].flag, options["optim_lr"].default) == ("--optim.lr", "0.1")


@click.command()
@click.argument("data")
@click.option("--lr", default=0.1, show_default=True, help="Learning rate. " + "It matters. " * 10)
@click.option("--hidden", type=int, default=32, show_default=True)
@click.option("--depth", type=click.IntRange(1, 10), default=3, show_default=True)
@click.option("-o", "--opt", type=click.Choice(["adam", "sgd"]), default="adam", show_default=True)
@click.option("--amp/--no-amp", default=True)
@click.option("--momentum", type=float)
@click.option("--out", type=click.Path(), required=True)
@click.option("-v", "--verbose", is_flag=True)
@click.option("--seed", type=int)
def click_script(**_: object) -> None:
    """Train a network."""


def test_click() -> None:
    options = by_name(CliRunner().invoke(click_script, ["--help"]).output)
    found = {name: (option.default, option.kind) for name, option in options.items()}
    assert found == {
        "lr": ("0.1", "float"),
        "hidden": ("32", "int"),
        "depth": ("3", "int"),
        "opt": ("adam", "str"),
        "amp": (None, "bool"),
        "momentum": (None, "float"),
        "out": (None, "str"),
        "verbose": (None, "bool"),
        "seed": (None, "int"),
        "data": (None, "str"),
    }
    assert options["opt"].choices == ("adam", "sgd")
    assert {name for name, option in options.items() if option.required} == {"out", "data"}


TYPER_BOXES = """
 Usage: t.py [OPTIONS] DATA

╭─ Arguments ──────────────────────────────────────────────────────────────────╮
│ *    data      TEXT  [required]                                              │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ Options ────────────────────────────────────────────────────────────────────╮
│    --lr                               FLOAT               Learning rate of   │
│                                                           the optimiser,     │
│                                                           wrapped somewhere  │
│                                                           [default: 0.1]     │
│    --hidden                           INTEGER             [default: 32]      │
│    --opt                              [adam|sgd]          [default: adam]    │
│    --amp                  --no-amp                        [default: no-amp]  │
│    --verbose          -v                                                     │
│ *  --out                              TEXT                [required]         │
│    --drop-rate                        FLOAT RANGE         [default: 0.1]     │
│                                       [0<=x<=1]                              │
│    --install-comple…                                      Install completion │
│    --help                                                 Show this message  │
│                                                           and exit.          │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
TYPER_BOXES_NEWER = (
    TYPER_BOXES.replace("FLOAT RANGE  ", "<float range>")
    .replace("FLOAT  ", "<float>")
    .replace("INTEGER", "<int>  ")
    .replace("[adam|sgd]", "<adam|sgd>")
    .replace("TEXT ", "<str>")
    .replace(" DATA", " {data}")
)
TYPER_PLAIN = """Usage: t.py [OPTIONS] {data}

Arguments:
  data <str>  [required]

Options:
  --lr <float>               Learning rate of the optimiser, which is a long
                             text that will be wrapped somewhere  [default:
                             0.1]
  --hidden <int>             [default: 32]
  --opt <adam|sgd>           [default: adam]
  --amp / --no-amp           [default: no-amp]
  -v, --verbose
  --out <str>                [required]
  --drop-rate <float range>  [default: 0.1; 0<=x<=1]
  --install-completion       Install completion for the current shell.
  --help                     Show this message and exit.
"""


@pytest.mark.parametrize("text", [TYPER_BOXES, TYPER_BOXES_NEWER, TYPER_PLAIN])
def test_typer(text: str) -> None:
    options = by_name(text)
    assert {name: (option.default, option.kind) for name, option in options.items()} == {
        "lr": ("0.1", "float"),
        "hidden": ("32", "int"),
        "opt": ("adam", "str"),
        "amp": ("no-amp", "bool"),
        "verbose": (None, "bool"),
        "out": (None, "str"),
        "drop_rate": ("0.1", "float"),
        "data": (None, "str"),
    }
    assert options["opt"].choices == ("adam", "sgd")
    assert {name for name, option in options.items() if option.required} == {"out", "data"}


FIRE = """INFO: Showing help with the command 'f.py -- --help'.

NAME
    f.py - Train the network.

SYNOPSIS
    f.py DATA <flags>

DESCRIPTION
    Train the network.

POSITIONAL ARGUMENTS
    DATA
        where the data is

FLAGS
    -l, --lr=LR
        Type: float
        Default: 0.1
        learning rate of the optimiser
    -h, --hidden=HIDDEN
        Default: 32
    --opt=OPT
        Default: 'adam'
    -a, --amp=AMP
        Default: False
    -s, --seed=SEED
        Type: Optional[]
        Default: None
    -o, --out=OUT (required)

NOTES
    You can also use flags syntax for POSITIONAL ARGUMENTS
"""


def test_fire() -> None:
    options = by_name(FIRE)
    assert {
        name: (option.flag, option.default, option.kind) for name, option in options.items()
    } == {
        "data": ("--data", None, "str"),
        "lr": ("--lr", "0.1", "float"),
        "hidden": ("--hidden", "32", "int"),
        "opt": ("--opt", "adam", "str"),
        "amp": ("--amp", "False", "bool"),
        "seed": ("--seed", None, "int"),
        "out": ("--out", None, "str"),
    }
    assert options["lr"].help == "learning rate of the optimiser"
    assert {name for name, option in options.items() if option.required} == {"out", "data"}


def test_fire_in_bold_letters() -> None:
    bold = FIRE.replace("NAME\n", "\x1b[1mNAME\x1b[0m\n").replace(
        "--lr=LR", "--lr=\x1b[4mLR\x1b[0m"
    )
    assert by_name(bold)["lr"].default == "0.1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "Traceback (most recent call last):\n  File x\nImportError: y\n",
        "NAME\n\nSYNOPSIS\n",
    ],
)
def test_what_cannot_be_read_is_said_with_a_study_to_copy(text: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_help(text)
    (problem,) = raised.value.problems
    assert "no options found" in problem.message
    lines = problem.hint.splitlines()[1:]
    assert read("\n".join(line[4:] for line in lines))["parameters"] == {"lr": [0.1, 0.01]}


class TestStudy:
    def test_the_whole_text(self) -> None:
        assert render_study("train.py", parse_help(WITH_DEFAULTS), ["python"]) == (
            "# A study of train.py, drafted from its --help. `windlass plan` shows what it would do.\n"
            "# 3 lr x 3 batch_size x 3 gamma x 5 seeds = 135 trials\n"
            "# Fill in by hand: TO_FILL_DATA\n"
            "# Each trial writes to a place of its own, by {trial_id}.\n"
            "command: python train.py TO_FILL_DATA --output-dir outputs/{trial_id} --lr {lr} --batch-size {batch_size}"
            " --gamma {gamma} --seed {seed}\n"
            "\n"
            "parameters:\n"
            "  lr: [3e-05, 0.0003, 0.003]  # default 0.0003\n"
            "  batch_size: [32, 64, 128]  # default 64\n"
            "  gamma: [0.98, 0.99, 0.995]  # default 0.99\n"
            "  # To try one of these as well, uncomment it and add its flag to the command:\n"
            "  # optimizer: [adam, sgd]  # --optimizer {optimizer}\n"
            "  # epochs: [5, 10, 20]  # --epochs {epochs}\n"
            "  # num_workers: [2, 4, 8]  # --num-workers {num_workers}\n"
            "  # a_very_long_name_for_an_option: [0.25, 0.5, 1.0]"
            "  # --a-very-long-name-for-an-option {a_very_long_name_for_an_option}\n"
            "# Other options of the script: --amp --verbose --layers --betas\n"
            "\n"
            "seeds: 5  # every setting is repeated with this many different seeds\n"
            "\n"
            "# What the best setting is chosen by. The script reports it with windlass.log(step=…, loss=…); without that,"
            '\n# it is read from output such as "loss=0.12":\n'
            "# metric: {name: loss, goal: minimize}\n"
            "# Other values that are read from output:\n"
            "# metrics: [accuracy]\n"
        )

    @pytest.mark.parametrize(
        "text", [WITH_DEFAULTS, WITHOUT_DEFAULTS, TYPER_BOXES, TYPER_PLAIN, FIRE]
    )
    def test_the_command_uses_each_parameter_once_and_the_count_is_true(self, text: str) -> None:
        written = render_study("train.py", parse_help(text), ["python"])
        study = read(written)
        names = [*study["parameters"], *(["seed"] if "seeds" in study else [])]
        placeholders = [
            word.strip("{}") for word in shlex.split(study["command"]) if word.startswith("{")
        ]
        assert sorted(placeholders) == sorted(names)
        assert 1 <= len(study["parameters"]) <= 3
        assert f"= {count_trials(study)} trials\n" in written

    @pytest.mark.parametrize(
        "text", [WITH_DEFAULTS, WITHOUT_DEFAULTS, TYPER_BOXES, TYPER_PLAIN, FIRE]
    )
    def test_it_is_a_valid_study(self, text: str, tmp_path: Path) -> None:
        file = tmp_path / "study.yaml"
        file.write_text(render_study("train.py", parse_help(text), ["python"]), encoding="utf-8")
        study = load_study(str(file))
        assert {parameter.name for parameter in study.space.parameters} == set(
            read(file.read_text())["parameters"]
        )

    def test_every_commented_parameter_can_be_uncommented(self) -> None:
        written = render_study("train.py", parse_help(WITH_DEFAULTS), ["python"])
        opened = "\n".join(
            line.replace("  # ", "  ", 1) if line.startswith("  # ") and "--" in line else line
            for line in written.splitlines()
        )
        assert len(read(opened)["parameters"]) == 7

    def test_script_and_interpreter_arrive_as_they_are(self, tmp_path: Path) -> None:
        words = ["/opt/my python/bin/python", "-u", 'it\'s a {lr} #1: "draft".py']
        text = render_study(words[-1], parse_help(FIRE), words[:-1])
        (tmp_path / "study.yaml").write_text(text, encoding="utf-8")
        study = load_study(str(tmp_path / "study.yaml"))
        assert [
            word.replace("{{", "{").replace("}}", "}") for word in study.stages[0].words[:3]
        ] == words

    def test_nothing_to_sweep_still_gives_a_study(self) -> None:
        parser = argparse.ArgumentParser("x")
        parser.add_argument("--verbose", action="store_true")
        parser.add_argument("--epochs", type=int, help="passes (default: 3)")
        written = render_study("x.py", parse_help(parser.format_help()), ["python"])
        assert read(written) == {"command": "python x.py"}
        assert "# 1 trial\n" in written
        assert "# epochs: [1, 3, 6]  # --epochs {epochs}" in written

    @pytest.mark.parametrize(
        ("flag", "default", "values"),
        [
            ("--lr", "1e-3", [0.0001, 0.001, 0.01]),
            ("--lr", "1", [0.1, 1, 10]),
            ("--weight-decay", "0", [0, 0.0001, 0.01]),
            ("--dropout", "0.0", [0, 0.1, 0.2]),
            ("--momentum", "0.9", [0.8, 0.9, 0.95]),
            ("--hidden", "1", [1, 2]),
            ("--shift", "-2", [-4, -2, -1]),
            ("--skip", "0", [0, 1, 2]),
            ("--scale", ".5", [0.25, 0.5, 1.0]),
        ],
    )
    def test_values_around_a_default(self, flag: str, default: str, values: list[float]) -> None:
        parser = argparse.ArgumentParser(
            "x", formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        parser.add_argument(flag, default=default, help="a number")
        study = read(render_study("x.py", parse_help(parser.format_help()), ["python"]))
        assert list(study["parameters"].values()) == [values]

    @pytest.mark.parametrize(
        "choice", ["true", "no", "null", "007", "1e", "a b", "ok-1", 'a"b', "a: b", "é"]
    )
    def test_choices_that_yaml_would_misread_stay_words(self, choice: str) -> None:
        option = HelpOption("mode", "--mode", None, (choice, "other"), "str", "")
        study = read(render_study("x.py", [option], ["python"]))
        assert study["parameters"] == {"mode": [choice, "other"]}

    @pytest.mark.parametrize(
        "name", ["num_workers", "device", "gpu_id", "max_steps", "log_dir", "port", "args"]
    )
    def test_what_is_no_hyper_parameter_is_not_swept(self, name: str) -> None:
        option = HelpOption(name, f"--{name}", "4", (), "int", "")
        assert "parameters" not in read(render_study("x.py", [option], ["python"]))

    def test_trials_write_to_places_of_their_own_also_where_the_help_tells_no_defaults(
        self,
    ) -> None:
        lr, folder = (
            HelpOption("lr", "--lr", None, (), "float", ""),
            HelpOption("output_dir", "--output-dir", None, (), "str", ""),
        )
        file = HelpOption("log_file", "--log-file", None, (), "str", "")
        drafted = render_study("x.py", [lr, folder, file], [])
        assert "command: x.py --output-dir outputs/{trial_id} " in drafted
        assert "apart: --log-file\n" in drafted, (
            "it may be a file that the script writes only when asked to"
        )
        shown = HelpOption("lr", "--lr", "0.1", (), "float", "")
        drafted = render_study("x.py", [shown, folder], [])
        assert "apart: --output-dir\n" in drafted, "the others have defaults, and this one has none"

    def test_names_that_mean_something_else_in_a_command_are_no_parameters(self) -> None:
        option = HelpOption("args", "--args", None, ("a", "b"), "str", "")
        drafted = render_study("x.py", [option], [])
        assert "{args}" not in drafted and "Other options of the script: --args" in drafted

    def test_another_name_for_the_seed(self) -> None:
        option = HelpOption("random_seed", "--random-seed", None, (), "int", "")
        study = read(render_study("x.py", [option], []))
        assert study == {"command": "x.py --random-seed {seed}", "seeds": 5}
