"""Whatever is damaged in a study's folder: no traceback, and no result that is wrong without a warning.

A small study is executed once. Its folder is damaged in many ways, by a generator with a seed, and all verbs are used on
it in this process. WINDLASS_DAMAGED_FOLDERS says how many folders are tried (default: a few dozen).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from windlass.bundle.folder import prepare_folder
from windlass.cli import main
from windlass.damage import forget_reports
from windlass.errors import WindlassError
from windlass.paths import StudyPaths
from windlass.planning import done_numbers, make_plan
from windlass.search import iterate_trials
from windlass.site.local import fetch_local_site
from windlass.spec import load_study
from windlass.trialfile import TrialFile

FOLDERS = int(os.environ.get("WINDLASS_DAMAGED_FOLDERS", "16"))
FIRST = int(os.environ.get("WINDLASS_FIRST_FOLDER", "0"))
SEED = int(os.environ.get("WINDLASS_DAMAGE_SEED", "12"))
EXIT_BUG = 70
STUDY = """\
name: demo
command: python3 train.py --lr {lr} --seed {seed}
parameters:
  lr: [0.1, 0.2, 0.3, 0.4]
seeds: 2
metrics: [loss]
metric: {name: loss, goal: minimize}
outputs: [out.txt]
"""
PROGRAM = """\
import sys
lr = float(sys.argv[2])
seed = int(sys.argv[4])
print("some words", "before")
print(f"loss={lr * 10 + seed}")
open("out.txt", "w").write(str(lr))
sys.exit(lr == 0.4)
"""
VERBS = [
    "status",
    "status --json",
    "results --format json",
    "results",
    "results --best",
    "results --by all",
    "results --failed",
    "results --usage --all --format csv",
    "logs 0",
    "logs --failed",
    "logs --joblog log.txt",
    "explain",
    "explain 1",
    "history",
    "history --all",
    "diff",
    "efficiency",
    "outputs",
    "outputs 0 --to taken",
    "ticket 2",
    "watch",
    "plan study.yaml",
    "clean",
    "throttle 3",
    "retry --failed --no-run",
    "cancel 1 --yes",
]


class Truth:
    """The study as it was before it was damaged."""

    def __init__(self, project: Project) -> None:
        self.root = project.folder
        self.folder = project.folder / ".windlass" / "demo"
        rows = project.json("results", "--format", "json")
        self.rows: dict[str, dict[str, Any]] = {row["id"]: row for row in rows}
        self.done = sum(row["state"] == "done" for row in rows)
        assert (len(rows), self.done) == (8, 6)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    project = Project(tmp_path_factory.mktemp("damage") / "project")
    project.folder.mkdir()
    project.write("study.yaml", STUDY)
    project.write("train.py", PROGRAM)
    project.run("run", "study.yaml", "--on", "local", "-j", "2", code=1)
    return Truth(project)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def call(words: str) -> tuple[int, str, str]:
    """A command in this process: its exit code and what it printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2))
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words.split())
        except SystemExit as end:
            code = int(end.code or 0)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


# -- ways of damage


def truncate(chance: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size + 1)])


def empty(_: random.Random, path: Path) -> None:
    path.write_bytes(b"")


def flip(chance: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 3, 30)) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def remove(_: random.Random, path: Path) -> None:
    path.unlink()


def make_folder(_: random.Random, path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace(chance: random.Random, path: Path) -> None:
    texts = ("[]", "null", "3", '"text"', "{}", '{"v": "x"}', '{"version": []}', "[[[[", '{"e": 1, "t": "now"}\n', "\0")
    path.write_text(chance.choice(texts) + chance.choice(("", "\n")))


def cut_out(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    path.write_bytes(data[:first] + data[last:])


def repeat(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    path.write_bytes(data[:last] + data[first:])


def forbid(_: random.Random, path: Path) -> None:
    path.chmod(0)  # nothing happens for root


def remove_folder(_: random.Random, path: Path) -> None:
    shutil.rmtree(path.parent) if path.parent.name != "demo" else path.unlink()


def change_types(chance: random.Random, path: Path) -> None:
    """Values of other types in a JSON file that is valid otherwise; the checksum, if there is one, does not fit."""
    lines = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
    place = chance.randrange(len(lines)) if lines else 0
    try:
        value = json.loads(lines[place])
        key = chance.choice(sorted(value))
        value[key] = chance.choice((None, [], {}, "text", -1, 1e300, True, [[1]]))
        lines[place] = json.dumps(value).encode()
    except (ValueError, IndexError, TypeError):
        return
    path.write_bytes(b"\n".join(lines) + b"\n")


WAYS: list[Callable[[random.Random, Path], None]] = [
    truncate, empty, flip, remove, make_folder, replace, cut_out, repeat, forbid, remove_folder, change_types,
]  # fmt: skip


def damage(chance: random.Random, folder: Path) -> list[str]:
    """Damage one file, sometimes several. Returns what was done."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "agent.pyz")
        # The newest state of the register is hit as often as a file that there is only one of.
        newest = max((path for path in files if path.parent.name == "claims"), default=None)
        files = [path for path in files if path.parent.name != "claims" or path == newest or chance.random() < 0.1]
        if not files:
            break
        path, way = chance.choice(files), chance.choice(WAYS)
        way(chance, path)
        done.append(f"{way.__name__} {path.relative_to(folder)}")
    for path in (folder / "claims").glob("*"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    return done


# -- what must hold


def find_wrong(truth: Truth, words: str, code: int, out: str, err: str) -> str:
    """What is wrong with the answer of a verb; "" where nothing is."""
    if code == EXIT_BUG or "Traceback" in err + out:
        return f"a traceback: {err}"
    if code == 2 and "error: " not in err:
        return "an error without a message"
    if code == 0 and words == "results --format json":
        rows = json.loads(out)
        for row in rows:
            true = truth.rows.get(row["id"])
            if true is None or any(row.get(name) != true[name] for name in ("lr", "seed", "number")):
                return f"another trial: {row}"
            if row["state"] == "done" and (true["state"] != "done" or row.get("loss") != true["loss"]):
                return f"another result: {row}"
            if row["state"] != true["state"] and "warning: " not in err:
                return f"another state without a warning: {row}"
        if len(rows) < len(truth.rows) and "warning: " not in err:
            return f"{len(rows)} of {len(truth.rows)} rows without a warning"
    if code == 0 and words == "status --json":
        counts = json.loads(out)["counts"]
        if counts["done"] != truth.done and "warning: " not in err:
            return f"other counts without a warning: {counts}"
    return ""


def check_prepared(truth: Truth, root: Path) -> str:
    """Whether what `run` would execute is what the study says; "" if so."""
    study = load_study(str(root / "study.yaml"))
    paths = StudyPaths(str(root / ".windlass" / "demo"))
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        forget_reports()
        try:
            plan = make_plan(study, {"slots": 2}, fetch_local_site())
            register = prepare_folder(plan, iterate_trials(study), lambda: done_numbers(paths), "test").register
        except WindlassError as error:
            return "" if str(paths.folder) in str(error) else f"an error that names no file: {error}"
    trials = TrialFile(paths)
    numbers = [number for first, stop in register.todo for number in range(first, stop)]
    again = 0
    for number in numbers:
        trial = trials.read(number)
        true = truth.rows[trial["id"]]
        words = ["python3", "train.py", "--lr", str(true["lr"]), "--seed", str(true["seed"])]
        if trial["settings"] != {"lr": true["lr"], "seed": true["seed"]} or trial["stages"] != [["main", words]]:
            return f"another trial would be executed as {number}: {trial}"
        again += true["state"] == "done"
    if again and "warning: " not in err.getvalue():
        return f"{again} done trials would be executed again without a warning"
    return ""


def test_no_damage_gives_a_traceback_or_a_wrong_result(truth: Truth, tmp_path: Path) -> None:
    findings = []
    for number in range(FIRST, FIRST + FOLDERS):
        chance = random.Random(f"{SEED}-{number}")
        root = tmp_path / "project"
        shutil.copytree(truth.root, root, symlinks=True)
        done = damage(chance, root / ".windlass" / "demo")
        verbs = VERBS if FOLDERS > 100 else sorted(chance.sample(VERBS, 8), key=VERBS.index)
        with inside(root):
            for words in verbs:
                problem = find_wrong(truth, words, *call(words))
                if problem:
                    findings.append(f"folder {number} ({', '.join(done)}): windlass {words}: {problem}")
            problem = check_prepared(truth, root)
            if problem:
                findings.append(f"folder {number} ({', '.join(done)}): run: {problem}")
        for path in root.rglob("*"):
            if path.is_file() and not path.stat().st_mode & 0o400:
                path.chmod(0o600)
        shutil.rmtree(root)
    assert not findings, f"{len(findings)} findings:\n" + "\n".join(findings)
