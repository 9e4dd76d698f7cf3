"""Random input for everything that reads what users write. Whatever it is, the answer is a result or a clear error.

`make fuzz` runs 20,000 inputs; `python -m tests.fuzzing --inputs 500 --target lint --seed 7` chooses. Each input has a
number; with the seed it can be made again: `--only 1234`. A finding is an exception that is not meant for users, or an
input that takes longer than `SLOW_S`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from windlass.agent.report.printed import PrintedMetrics
from windlass.agent.report.progress import Progress
from windlass.cli import windlass as command_line
from windlass.collect.choose import parse_states, parse_where
from windlass.core.errors import WindlassError
from windlass.core.units import (
    parse_duration_s,
    parse_memory_mb,
    parse_size_bytes,
    parse_slurm_time_s,
)
from windlass.lint.script import lint_script
from windlass.places.local import LocalPlace
from windlass.places.slurm.place import SlurmPlace
from windlass.planning import make_plan
from windlass.search import count_trials, iterate_trials
from windlass.settings import rows_of, section_names
from windlass.site.discover import fetch_cluster
from windlass.spec import Overrides, load_study
from windlass.spec.fields import check_metric, check_metrics
from windlass.spec.fields_ladder import check_expect
from windlass.spec.fields_pack import check_progress
from windlass.spec.fields_search import check_seeds
from windlass.spec.help_text import parse_help
from windlass.spec.kinds import kind_label
from windlass.spec.units import parse_headroom
from windlass.view.escapes import show
from windlass.view.plan import plan_to_json, render_plan_text

ROOT = Path(__file__).parent.parent
SLOW_S = 60.0  # generous: machines that run tests are busy
_SITE = "narval"  # a profile that needs no Slurm to be read


class SlowInputError(Exception):
    """An input took longer than `SLOW_S`."""


@dataclass(frozen=True)
class Finding:
    """An input that was answered with something that is not meant for users."""

    target: str
    number: int
    error: str
    text: str


# -- what users may write

ODD_SCALARS = [
    "", "~", "null", "true", "yes", "0", "-0", "-1", "1e400", "-1e400", ".inf", "-.inf", ".nan", "1e-400", "0x1F", "0o17",
    "007", "1_000", "9" * 30, "9" * 400, "9" * 5000, "-" + "9" * 4400, "1e5", ".5", "5.", "+.5e3", "1.2.3", "2020-01-01",
    "12:30:45", "'", '"', "''", "'a b'", '"\\x00"', '"\\e[31m"', '"\\ud800"', "é", "語", "👩‍🔬", "\u202e", "a b", "{x}",
    "{{x}}", "{", "}", "{args}", "{seed}", "{0}", "{x!r}", "{checkpoint}", "$HOME", "${x}", "$(x)", "`x`", "a;b", "a|b",
    "*", "&a 1", "*a", "!!int foo", "!!float x", "!!bool x", "!!binary x", "!!python/name:os.system x", "!x y", "<<", "- x",
    "[1, 2", "[]", "{}", "[[]]", "[{}]", "{a: {b: {c: 1}}}", "[1, 1]", "? x", ": x", "# x", "|", ">", "%", "@", "\t", "\\",
    "1h30m", "90", "1:00:00", "99999999999h", "1.5GiB", "10", "-1GB", "1e3GB", "20%", "next", "1..5", "5..1", "1..99999999999",
    "loss:max", "loss<=0.5", "loss < nan", "a=b", "--x", "-", "=", "\x7f", "\u2028", "\ufeff", "x" * 3000, "../../etc", "~/x",
    "/dev/null", "a/../b", "(", "(?P<x>", "(a)(b)", "[é-ü](x)", r"\N{DASH}(x)", r"(\u2014)", "(?i)(x)", "loss=([0-9.]+)",
]  # fmt: skip
ODD_TEXT = [
    *ODD_SCALARS,
    "\n",
    "  ",
    ":",
    ",",
    "]",
    "}",
    "- ",
    "\r",
    "\x00",
    "\x1b[2J",
    "---\n",
    "...\n",
]
PARAMETERS = [
    "[1, 2, 3]", "[0.1, 1e-3]", "[a, b]", "{min: 0, max: 1}", "{min: 0.0, max: 1}", "{values: [1, 2]}", "{value: 3}",
    "{min: 0, max: 99999999999999999999}", "{distribution: log_uniform, min: -5, max: 0}", "{distribution: normal}",
    "{distribution: log_normal, mu: 800}", "{distribution: q_uniform, min: 0, max: 1e9, q: 1e-3}",
    "{distribution: beta, a: 1e-300, b: 1e300}", "{values: [1, 2], probabilities: [0.5, 0.5]}",
    "{values: [1, 2], probabilities: [1]}", "{values: [0, 0.9], when: {a: 1}}", "{when: {b: 1}, values: [1]}",
    "{parameters: {x: [1]}}", "{x: {y: [1, 2]}}", "settings.csv", "{distribution: constant}", "{min: 1}",
    "{distribution: q_log_uniform_values, min: 1e-300, max: 1e300, q: 1e-300}", "{distribution: uniform, min: 1, max: .inf}",
]  # fmt: skip
NAMES = [
    "a",
    "b",
    "lr",
    "seed",
    "x.y",
    "args",
    "file",
    "repeat",
    "é",
    "x y",
    "-x",
    "trial_id",
    "checkpoint",
]
COMMANDS = [
    "python train.py {args}", "python t.py --lr {lr} --seed {seed}", "echo {a} {b}", "[python, t.py, '{args}']", "true",
    "'unclosed", "a | b", "python t.py {unknown}", "${env} ${interpreter} ${program} ${args}", "python '{a}'", "{args}", "[]",
]  # fmt: skip


def pick_scalar(random_: random.Random) -> str:
    return random_.choice(random_.choice([ODD_SCALARS, PARAMETERS, COMMANDS, NAMES]))


def pick_key(random_: random.Random, known: list[str]) -> str:
    if random_.random() < 0.9:
        return random_.choice(known)
    return random_.choice([*NAMES, "lr ", "Command", "comand", "1", "''", "*a"])


def make_study_text(random_: random.Random) -> str:
    """A study file with a few keys, right or wrong."""
    lines = [f"command: {random_.choice(COMMANDS)}"] if random_.random() < 0.8 else []
    if random_.random() < 0.8:
        lines.append("parameters:")
        names = random_.sample(NAMES, random_.randrange(0, 4)) or ["a"]
        lines += [f"  {name}: {random_.choice([*PARAMETERS, *ODD_SCALARS])}" for name in names]
    for _ in range(random_.randrange(0, 5)):
        key = pick_key(random_, list(rows_of("")))
        if key in section_names() and random_.random() < 0.8:
            inner = list(rows_of(key))
            lines.append(f"{key}:")
            lines += [
                f"  {pick_key(random_, inner)}: {pick_scalar(random_)}"
                for _ in range(random_.randrange(1, 4))
            ]
        elif random_.random() < 0.3:
            lines.append(f"{key}: [{pick_scalar(random_)}, {pick_scalar(random_)}]")
        else:
            lines.append(f"{key}: {pick_scalar(random_)}")
    return "\n".join(lines) + "\n"


# Values that are right by their form, at the ends of what is possible, by a word in the reference's type of a key.
ENDS = {
    "number": ["0", "1", "2", "3", "-1", "1000000", "1000000000", "99999999999999999999", "0.1", "1e-300", "1e300"],
    "duration": ["1s", "0.001s", "100d", "36500d", "00:00:01", "99-23:59:59", "5", "1e300"],
    "size": ["1KB", "1MB", "0GB", "1024PB", "200%", "0%", "next"],
    "text": ["text", "'{a}'", "a b", "'a, b'", "[a, b]", "é", "'\\u202e'", "1"],
    "name": ["loss", "loss:max", "[a]", "[a, b]", "[a, a]", "lr", "{name: loss}", "{loss: '(.)'}", "{loss: '[é-ü](x)'}",
             r"{loss: '\N{DASH}(x)'}", r"{loss: '(\u2014)'}", "{é: null}", "{'a b': '(?i)(x)'}"],
    "expression": [r"'(?P<step>\d+)'", "'[é-ü](?P<step>x)'", r"'\N{DASH}(?P<step>x)'", "{pattern: '(?P<step>.)', steps: 1e300}"],
    "mapping": ["{a: 1}", "{A: '{a}'}", "{killed: 99999999999999999999}", "{constraint: x}", "{a: {b: 1}}"],
    "list": ["[a]", "['*']", "['out/{a}.txt']", "[/]", "['**']", "['[']", "[{path: a}]", "[{a: 1}]", "[{a: [1, 2], lr: 0.1}]"],
    "path": [".", "/", "a/b", "$HOME", "~"],
}  # fmt: skip
GOOD_PARAMETERS = [
    "[1, 2, 3]",
    "[0.1, 1e-3]",
    "[a, b]",
    "{min: 0, max: 9}",
    "{values: [1, 2]}",
    "{value: 3}",
    "[null, true]",
]
# Keys whose examples need more than themselves, or exclude each other.
_NEEDY = (
    "command",
    "program",
    "stages",
    "parameters",
    "zip",
    "exclude",
    "workdir",
    "shell",
    "variants",
    "folder",
)
_NEEDY += ("config", "method", "progress", "ladder", "repeat")


def make_near_study(random_: random.Random) -> str:
    """A study file that is right but for at most one value, and often altogether."""
    lines = ["command: python train.py {args}", "parameters:"]
    lines += [f"  {name}: {random_.choice(GOOD_PARAMETERS)}" for name in ("a", "lr")]
    fields = {name: row for name, row in rows_of("").items() if name not in _NEEDY}
    chosen = random_.sample(list(fields), random_.randrange(0, 3))
    lines += [f"{name}: {fields[name].example}" for name in chosen]
    inner = {
        f"{section}:\n  {name}": row
        for section in section_names()
        for name, row in rows_of(section).items()
        if section not in chosen
    }
    outer = {name: row for name, row in rows_of("").items() if name not in chosen}
    outer.pop("command")
    outer.pop("parameters")
    key, row = random_.choice(list((inner if random_.random() < 0.6 else outer).items()))
    kinds = [kind for kind in ENDS if kind in kind_label(row)]
    words = re.findall(r"`([^`]+)`", kind_label(row))
    values = [value for kind in kinds for value in ENDS[kind]] + words or [row.example]
    lines.append(f"{key}: {random_.choice(values)}")
    return "\n".join(lines) + "\n"


def mutate(random_: random.Random, text: str) -> str:
    """A text with a few changes: pieces removed, repeated, moved, or replaced by odd ones."""
    for _ in range(random_.randrange(1, 5)):
        lines = text.split("\n")
        place = random_.randrange(len(lines))
        kind = random_.randrange(7)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(place, random_.choice(lines))
        elif kind == 2:
            lines[place] = "  " * random_.randrange(3) + lines[place].lstrip()
        elif kind == 3:
            key, colon, _ = lines[place].partition(":")
            lines[place] = f"{key}{colon} {pick_scalar(random_)}"
        elif kind == 4:
            at = random_.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:at] + random_.choice(ODD_TEXT) + lines[place][at:]
        elif kind == 5:
            words = re.split(r"(\W+)", lines[place])
            words[random_.randrange(len(words))] = random_.choice(ODD_TEXT)
            lines[place] = "".join(words)
        else:
            lines = lines[: max(1, place)]
        text = "\n".join(lines)
    return text


def read_corpus(*patterns: str) -> list[str]:
    return [path.read_text() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


# -- targets: each makes an input and has it read


class Targets:
    """Everything that reads what users write, by name."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._studies = read_corpus(
            "examples/*/study.yaml", "tests/data/study-v1/study.yaml", "examples/*/cart*.yaml"
        )
        self._sweeps = [*read_corpus("examples/wandb-sweep/*.yaml"), SWEEP]
        self._tasks = [
            *read_corpus("examples/task-file/tasks.txt"),
            "python t.py --lr 0.1\nbash -c 'a; b' \\\n  c\n# x\n",
        ]
        self._machine = LocalPlace()
        self._cluster = fetch_cluster(_SITE)
        self.all: dict[str, Callable[[random.Random], str]] = {
            "study": self.study,
            "sweep": self.sweep,
            "tasks": self.tasks,
            "settings": self.settings,
            "lint": self.lint,
            "options": self.options,
            "expressions": self.expressions,
            "metrics": self.metrics,
            "help": self.help,
            "config": self.config,
        }

    def _write(self, name: str, text: str) -> str:
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
        return path

    def _read_study(self, path: str, random_: random.Random) -> None:
        overrides = Overrides()
        if random_.random() < 0.2:
            overrides = Overrides(
                params=tuple(
                    f"{random_.choice(NAMES)}={random_.choice(PARAMETERS + ODD_SCALARS)}"
                    for _ in range(1)
                ),
                seeds=random_.choice([None, *ODD_SCALARS]),
                trials=random_.choice([None, 3, -1, 10**20]),
                metric=random_.choice([None, *ODD_SCALARS]),
            )
        study = load_study(path, overrides)
        count_trials(study)
        list(zip(iterate_trials(study), range(3), strict=False))
        patterns = PrintedMetrics([(pattern.name, pattern.regex) for pattern in study.metrics])
        patterns.read(b"step 3 loss=0.5 \xff")
        for make in (
            lambda: make_plan(self._machine, study, {}),
            lambda: make_plan(SlurmPlace(self._cluster), study, {}),
        ):
            with contextlib.suppress(WindlassError):
                plan = make()
                show(render_plan_text(plan, everything=True))
                json.dumps(plan_to_json(plan), ensure_ascii=False)

    def study(self, random_: random.Random) -> str:
        text = make_study_text(random_) if random_.random() < 0.3 else make_near_study(random_)
        if random_.random() < 0.3:
            text = mutate(random_, random_.choice([*self._studies, text]))
        with noted(text):
            self._read_study(
                self._write(random_.choice(["study.yaml", "study.json"]), text), random_
            )
        return text

    def sweep(self, random_: random.Random) -> str:
        text = mutate(random_, random_.choice(self._sweeps))
        with noted(text):
            self._read_study(self._write("sweep.yaml", text), random_)
        return text

    def tasks(self, random_: random.Random) -> str:
        text = mutate(random_, random_.choice(self._tasks))
        with noted(text):
            self._read_study(
                self._write(random_.choice(["tasks.txt", "experiment_configurations.txt"]), text),
                random_,
            )
        return text

    def settings(self, random_: random.Random) -> str:
        rows = [
            [random_.choice(ODD_SCALARS) for _ in range(3)] for _ in range(random_.randrange(1, 5))
        ]
        kind = random_.choice(["csv", "tsv", "json", "jsonl"])
        if kind in ("csv", "tsv"):
            comma = "," if kind == "csv" else "\t"
            text = "\n".join(comma.join(row) for row in [["a", "b", "lr"], *rows])
        else:
            dumped = [json.dumps(dict(zip(NAMES, row, strict=False))) for row in rows]
            text = "[" + ",\n".join(dumped) + "]" if kind == "json" else "\n".join(dumped)
        if random_.random() < 0.6:
            text = mutate(random_, text)
        with noted(text):
            self._write(f"settings.{kind}", text)
            study = f"command: python t.py {{args}}\nparameters: {{file: settings.{kind}}}\n"
            self._read_study(self._write("study.yaml", study), random_)
        return text

    def lint(self, random_: random.Random) -> str:
        text = mutate(random_, SCRIPT)
        data = text.encode("utf-8", "surrogatepass")
        if random_.random() < 0.2:
            data = data.replace(b"\n", random_.choice([b"\r\n", b"\r", b"\n\x00", b"\n\xff"]))
        array = random_.choice([None, None, "0-9", "1,2,", "9-1", "%", "0-9:0", "é", "9" * 5000])
        array = "0-99999999999" if random_.random() < 0.01 else array  # takes a second
        with noted(f"{text}\n--array {array}"):
            found = lint_script(
                data, os.path.join(self.folder, "job.sh"), self.folder, {"HOME": "/root"}, array
            )
            [show(problem.render()) for problem in (*found.problems, *found.remarks)]
        return text

    def options(self, random_: random.Random) -> str:
        """Verbs that only look; none of them may execute what it is given."""
        self._write("study.yaml", "command: echo {args}\nparameters: {a: [1, 2]}\n")
        yesterday = os.path.join(self.folder, ".windlass", "v1")
        if not os.path.isdir(yesterday):
            shutil.copytree(ROOT / "tests/data/study-v1", yesterday)
        verb = random_.choice(
            [
                "plan",
                "plan",
                "plan",
                "results",
                "status",
                "logs",
                "explain",
                "lint",
                "outputs",
                "history",
            ]
        )
        words = [verb]
        if verb == "plan":
            words += ["--on", "local"]
        parameters = [
            param
            for param in command_line.get_command(None, verb).params
            if isinstance(param, click.Option)
        ]  # type: ignore[arg-type,union-attr]
        for option in random_.sample(parameters, random_.randrange(0, min(4, len(parameters)))):
            name = random_.choice(option.opts)
            if (
                "--help" in option.opts
                or "--follow" in option.opts
                or name in ("-o", "--output", "--to", "--joblog")
            ):
                continue
            words.append(name)
            if not option.is_flag:
                words.append(random_.choice([*ODD_SCALARS, *PARAMETERS]))
        if random_.random() < 0.5:
            words.append(random_.choice([*ODD_SCALARS, "study.yaml", "0", "t0"]))
        if verb == "plan" and random_.random() < 0.3:
            words += ["--", *random_.sample(ODD_SCALARS, random_.randrange(0, 3))]
        text = repr(words)
        quiet = (contextlib.redirect_stdout(_nowhere()), contextlib.redirect_stderr(_nowhere()))
        with (
            noted(text),
            quiet[0],
            quiet[1],
            contextlib.suppress(click.exceptions.Exit, click.Abort),
        ):
            command_line.main([word.replace("\x00", "") for word in words], standalone_mode=False)
        return text

    def expressions(self, random_: random.Random) -> str:
        text = random_.choice(ODD_SCALARS)
        for _ in range(random_.randrange(3)):
            at = random_.randrange(len(text) + 1)
            text = (
                text[:at]
                + random_.choice([*ODD_SCALARS, *"0123456789hmsdGBKi:-.%<=> "])
                + text[at:]
            )
        with noted(text):
            for parse in (
                parse_duration_s,
                parse_slurm_time_s,
                parse_size_bytes,
                parse_memory_mb,
                parse_headroom,
            ):
                with contextlib.suppress(ValueError):
                    value = parse(text)
                    assert isinstance(value, str) or (math.isfinite(value) and value >= 0), (
                        parse.__name__,
                        value,
                    )
            for check in (check_metric, check_seeds, check_expect):
                with contextlib.suppress(ValueError):  # WrongValue is one
                    check(text)
            for choose in (parse_states, lambda text: parse_where([text])):
                with contextlib.suppress(WindlassError):
                    choose(text)
        return text

    def metrics(self, random_: random.Random) -> str:
        name = random_.choice([*NAMES, "loss", "val/acc", "a.b", "loss (mean)", "é"])
        line = mutate(
            random_,
            f"step 3: {name}=0.5, 'loss': 1e-3 | 10/100 [00:01<00:02, loss={random_.choice(ODD_SCALARS)}]",
        )
        with noted(repr((name, line))):
            data = line.encode("utf-8", "surrogatepass")
            found = PrintedMetrics([(name, None)]).read(data)
            assert all(isinstance(reading.value, float) for reading in found.values())
            pattern = random_.choice(ODD_SCALARS) + random_.choice(
                ["(x)", "(?P<step>.)", r"(\u2014)", r"\N{EM DASH}(.)", ""]
            )
            with contextlib.suppress(ValueError):
                PrintedMetrics(
                    [(one.name, one.regex) for one in check_metrics({name: pattern})]
                ).read(data)
            with contextlib.suppress(ValueError):
                Progress(check_progress(pattern).pattern).read(data)
        return line

    def help(self, random_: random.Random) -> str:
        text = mutate(random_, HELP)
        with noted(text), contextlib.suppress(WindlassError):
            parse_help(text)
        return text

    def config(self, random_: random.Random) -> str:
        """A configuration file of the program, of which each trial gets a copy with its parameters set."""
        kind = random_.choice(["yaml", "json"])
        text = mutate(
            random_,
            CONFIG if kind == "yaml" else json.dumps({"lr": 0.1, "model": {"size": 3}}, indent=1),
        )
        with noted(text):
            self._write(f"conf.{kind}", text)
            study = f"command: python t.py {{config}}\nconfig: conf.{kind}\nparameters: {{lr: [1e-3], model.size: [1, 2]}}\n"
            self._read_study(self._write("study.yaml", study), random_)
        return text


CONFIG = """\
lr: 0.1
model: {size: 3, layers: [1, 2]}
data:
  path: /data  # where it is
  names:
  - a
  - b
"""
SWEEP = """\
program: train.py
method: random
run_cap: 5
metric: {name: loss, goal: minimize}
parameters:
  lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
  layers: {values: [1, 2, 3]}
  dropout: {min: 0.0, max: 0.5}
  optimizer: {parameters: {name: {values: [adam, sgd]}, momentum: {value: 0.9}}}
early_terminate: {type: hyperband, min_iter: 3}
command: ["${env}", "${interpreter}", "${program}", "${args}"]
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --array=0-9%3
#SBATCH --time=1-02:00:00
#SBATCH --mem=4G
#SBATCH --cpus-per-task=2 --gres=gpu:1
#SBATCH -o logs/%x_%A_%a.out
#SBATCH --mail-type=END,FAIL
module load python
cd project && python train.py --config configs/$SLURM_ARRAY_TASK_ID.yaml
sed -n "${SLURM_ARRAY_TASK_ID}p" tasks.txt | bash
"""
HELP = """\
usage: train.py [-h] [--lr LR] [--opt {adam,sgd}] [--seed SEED] data

positional arguments:
  data                  where the data are

options:
  -h, --help            show this help message and exit
  --lr LR               learning rate (default: 0.001)
  --opt {adam,sgd}
                        optimizer (default: adam)
  --seed SEED, -s SEED  seed [default: 1]
  --flag                a flag
"""


def _nowhere() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")


_noted: list[str] = [""]


@contextlib.contextmanager
def noted(text: str) -> Iterator[None]:
    """Keep the input, so that a finding can show it."""
    _noted[0] = text
    yield


def run_one(targets: Targets, name: str, seed: int, number: int) -> Finding | None:
    """Make input `number` of a target and have it read. Returns what was found, if anything."""

    def interrupt(_signal: int, _frame: Any) -> None:
        raise SlowInputError(f"more than {SLOW_S:.0f} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, SLOW_S)
    try:
        targets.all[name](random.Random(f"{seed}:{name}:{number}"))
    except (WindlassError, click.ClickException) as error:
        text = show(str(error))
        if not text.strip() or "Traceback" in text:
            return Finding(name, number, f"an error without words: {error!r}", _noted[0])
    except Exception:
        return Finding(name, number, traceback.format_exc(limit=-4), _noted[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


@contextlib.contextmanager
def fuzzing_folder() -> Iterator[str]:
    """A folder of its own, in which nothing of the machine is found."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(here)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--inputs", type=int, default=20_000, help="in all, dealt out to the targets"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append")
    parser.add_argument("--only", type=int, help="this input alone")
    given = parser.parse_args()
    findings: list[Finding] = []
    with fuzzing_folder() as folder:
        targets = Targets(folder)
        names = given.target or list(targets.all)
        for name in names:
            numbers = [given.only] if given.only is not None else range(given.inputs // len(names))
            began, count = time.monotonic(), len(findings)
            findings += filter(
                None, (run_one(targets, name, given.seed, number) for number in numbers)
            )
            print(
                f"{name}: {len(numbers):,} inputs, {len(findings) - count} findings, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    seen: set[str] = set()
    for finding in findings:
        kind = (
            finding.error.strip().splitlines()[-2:][0] + finding.error.strip().splitlines()[-1][:60]
        )
        if kind not in seen:
            seen.add(kind)
            print(
                f"\n== {finding.target} {finding.number}\n{finding.text[:1000]!r}\n{finding.error}"
            )
    print(f"\n{len(findings)} findings of {len(seen)} kinds")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
