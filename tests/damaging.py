"""Damages a study's folder in many ways and judges every verb's answer by what the trials really computed.

`make damage` tries 3,000 folders; `python -m tests.damaging --folders 200 --seed 7 --processes 2` chooses, and
`--only 123` tries one again. The trials of a small study write what they compute to a file outside of the study, each
execution another number. A study with its retries, cancelled trials, outputs and checkpoints is executed once, and its
folder is kept as it was after each step. Then files are damaged, swapped, emptied, removed, put back as they were after an
earlier step, or taken from another study, several at once. No verb may show a result that its trial never computed,
or leave something out without a warning; none may end with a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.cli import main as windlass_main

EXIT_BUG = 70
SEEDS = (1, 2)
STUDY = """\
name: demo
command: python3 train.py --lr {lr} --seed {seed}
parameters:
  lr: [VALUES]
seeds: 2
metrics: [loss]
metric: {name: loss, goal: minimize}
outputs: [out.txt, big.bin]
checkpoint: {write: "--save-to {checkpoint_dir}", resume: "--load {checkpoint}", pattern: "step-*.json"}
"""
# What a trial computes contains its parameters, so that a value that was moved to another trial is recognised.
PROGRAM = """\
import json, os, random, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
lr, seed = given["--lr"], given["--seed"]
loss = round(float(lr) * 1000 + int(seed) * 10 + random.random(), 6)
end = int(lr in ("0.4", "0.8"))
with open(os.environ["ORACLE"], "a") as file:
    file.write(json.dumps({"lr": float(lr), "seed": int(seed), "loss": loss, "end": end}) + "\\n")
print("some text", "before")
print(f"loss={loss}")
print(f"aux={loss}")
open("out.txt", "w").write(f"{lr} {seed} {loss}")
if lr in ("0.1", "0.5") and seed == "1":
    open("big.bin", "w").write(f"{lr} {seed} {loss} ".ljust(32) * 135000)
with open(os.path.join(given["--save-to"], "step-1.json"), "w") as file:
    json.dump({"lr": lr, "seed": seed}, file)
sys.exit(end)
"""
VERBS = [
    "status",
    "status --json",
    "results --format json",
    "results",
    "results --best --format json",
    "results --by all",
    "results --failed",
    "results --usage --all --format csv",
    "results --metric aux --format json",
    "logs 0",
    "logs 3",
    "logs",
    "logs --failed",
    "logs --joblog log.txt",
    "explain",
    "explain 1",
    "history",
    "history --all",
    "diff",
    "efficiency",
    "outputs",
    "outputs --to taken",
    "explain 2 --ticket",
    "watch",
    "plan study.yaml",
    "clean",
    "throttle 3",
    "retry --failed --no-run",
    "cancel 1 --yes",
]
RUN = "run study.yaml --on local -j 2 --keep-going"
Executed = dict[tuple[float, int], list[tuple[float, int]]]


def read_oracle(path: Path) -> Executed:
    """What each execution computed, by parameters: loss and exit code, in order."""
    executed: Executed = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        executed.setdefault((entry["lr"], entry["seed"]), []).append((entry["loss"], entry["end"]))
    return executed


@contextlib.contextmanager
def inside(folder: Path, oracle: Path) -> Iterator[None]:
    before, environment = os.getcwd(), dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("WINDLASS", "SLURM", "SCRATCH")):
            del os.environ[name]
    os.environ["ORACLE"] = str(oracle)
    os.environ["XDG_CONFIG_HOME"] = str(folder.parent / "config")
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


def call(words: str) -> tuple[int, str, str]:
    """A command in this process: its exit code and what it printed."""
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2)
    )
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            windlass_main(words.split())
        except SystemExit as end:
            code = int(end.code or 0)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return code, texts[0], texts[1]


@dataclass
class Shown:
    """What `results` and `status` show."""

    rows: dict[str, dict[str, Any]]  # by id
    counts: dict[str, int]


class Base:
    """A study that was executed, its folder after each step, and another study of the same name."""

    def __init__(self, place: Path) -> None:
        self.root = (
            place / "project"
        )  # where the study is executed, and damaged: a copy elsewhere would be another one
        self.kept = place / "kept"
        self.oracle = place / "oracle"
        self.steps: list[Path] = []
        self.shown: dict[str, Shown] = {}  # what was so after each step
        self.root.mkdir(parents=True)
        self.oracle.touch()
        self._execute("0.5, 0.6, 0.7, 0.8", [RUN, "cancel 1 --yes"])
        self.other = self.steps.pop()
        self.ids = self._read_ids()
        shutil.rmtree(self.root / ".windlass")
        self.shown.clear()
        self._execute("0.1, 0.2, 0.4", [RUN])
        self._execute("0.1, 0.2, 0.4", ["retry --failed --no-run", "cancel 4 --yes"])
        self._execute("0.1, 0.2, 0.3, 0.4", [RUN])
        self._execute("0.1, 0.2, 0.3, 0.4", ["retry 0 --on local --quiet"])
        self.ids.update(self._read_ids())
        self.now = self.shown[self.steps[-1].name]
        states = Counter(row["state"] for row in self.now.rows.values())
        assert states == {"done": 6, "failed": 1, "cancelled": 1}, states
        os.rename(self.root, self.kept)
        self.executed = read_oracle(self.oracle)

    def _execute(self, values: str, commands: Iterable[str]) -> None:
        (self.root / "train.py").write_text(PROGRAM)
        (self.root / "study.yaml").write_text(STUDY.replace("VALUES", values))
        with inside(self.root, self.oracle):
            for words in commands:
                code, out, err = call(words)
                assert code in (0, 1), f"{words}: {out} {err}"
            rows = {row["id"]: row for row in json.loads(call("results --format json")[1])}
            shown = Shown(rows, json.loads(call("status --json")[1])["counts"])
        step = self.root.parent / f"step-{len(self.steps)}-{values[:3]}"
        shutil.copytree(self.root / ".windlass" / "demo", step, symlinks=True)
        self.steps.append(step)
        self.shown[step.name] = shown

    def _read_ids(self) -> dict[str, tuple[float, int]]:
        with inside(self.root, self.oracle):
            rows = json.loads(call("results --all --format json")[1])
        return {row["id"]: (row["lr"], row["seed"]) for row in rows}


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


def change_digit(chance: random.Random, path: Path) -> None:
    """One digit of a text becomes another: the kind of damage that still looks whole."""
    data = bytearray(path.read_bytes()[: 1 << 20])
    places = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if places:
        with open(path, "r+b") as file:
            file.seek(chance.choice(places))
            file.write(str(chance.randrange(10)).encode())


def remove(_: random.Random, path: Path) -> None:
    path.unlink()


def make_folder(_: random.Random, path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace(chance: random.Random, path: Path) -> None:
    texts = (
        "[]",
        "null",
        "3",
        '"text"',
        "{}",
        '{"v": "x"}',
        '{"version": []}',
        "[[[[",
        '{"e": 1, "t": "now"}\n',
        "\0",
    )
    path.write_text(chance.choice(texts) + chance.choice(("", "\n")))


def cut_out(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    path.write_bytes(data[:first] + data[last:])


def repeat(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    path.write_bytes(data[:last] + data[first:])


def swap_lines(chance: random.Random, path: Path) -> None:
    """Lines, or entries of 16 or 32 bytes, in another order; one may be gone or be there twice."""
    data = path.read_bytes()[: 1 << 16]
    size = 16 if path.name == "trials.idx" else 32
    is_text = b"\n" in data and path.suffix != ".idx"
    lines = (
        data.splitlines(keepends=True)
        if is_text
        else [data[at : at + size] for at in range(0, len(data), size)]
    )
    if len(lines) > 1:
        one, two = chance.sample(range(len(lines)), 2)
        lines[one], lines[two] = lines[two], lines[chance.choice((one, two))]
        path.write_bytes(b"".join(lines))


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
    truncate, empty, flip, flip, change_digit, change_digit, remove, make_folder, replace, cut_out, repeat, swap_lines,
    forbid, remove_folder, change_types,
]  # fmt: skip


def _list_files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("agent")
    )


def _copy(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    elif target.exists():
        target.unlink()
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def put_back(chance: random.Random, folder: Path, base: Base) -> str:
    """A file, a folder, or all but one as they were after an earlier step; what was not there then is gone."""
    step = chance.choice(base.steps)
    names = sorted(
        {
            path.name
            for path in [*folder.iterdir(), *step.iterdir()]
            if not path.name.startswith("agent")
        }
    )
    files = [str(path.relative_to(folder)) for path in _list_files(folder)]
    chosen = chance.choice(
        [[chance.choice(names)], [chance.choice(files)] if files else [], chance.sample(names, 3)]
    )
    for name in chosen:
        _copy(step / name, folder / name)
    return f"put_back {step.name} {chosen}"


def take_other(chance: random.Random, folder: Path, base: Base) -> str:
    """A file of another study, in the place of one of the same kind or beside it; or all of a folder."""
    if chance.random() < 0.3:
        name = chance.choice(["claims", "journal", "output", "outputs", "checkpoints"])
        _copy(base.other / name, folder / name)
        return f"take_other {name}"
    source = chance.choice(_list_files(base.other))
    name = source.relative_to(base.other)
    alike = [
        path
        for path in _list_files(folder)
        if path.parent.name == source.parent.name or path.name == source.name
    ]
    alike = [path for path in alike if path.suffix == source.suffix]
    target = chance.choice(alike) if alike and chance.random() < 0.7 else folder / name
    _copy(source, target)
    return f"take_other {name} as {target.relative_to(folder)}"


def swap(chance: random.Random, folder: Path, _: Base) -> str:
    """Two files of one kind in each other's place."""
    files = _list_files(folder)
    pairs = [
        (one, two) for one, two in itertools.combinations(files, 2) if one.suffix == two.suffix
    ]
    if not pairs:
        return "swap nothing"
    one, two = chance.choice(pairs)
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    return f"swap {one.relative_to(folder)} {two.relative_to(folder)}"


def damage_file(chance: random.Random, folder: Path, _: Base) -> str:
    files = _list_files(folder)
    # The newest state of the register is hit as often as a file that there is only one of.
    newest = max((path for path in files if path.parent.name == "claims"), default=None)
    files = [
        path
        for path in files
        if path.parent.name != "claims" or path == newest or chance.random() < 0.1
    ]
    if not files:
        return "nothing left"
    path, way = chance.choice(files), chance.choice(WAYS)
    way(chance, path)
    return f"{way.__name__} {path.relative_to(folder)}"


def damage(chance: random.Random, folder: Path, base: Base) -> list[str]:
    """Damage one file, often several. Returns what was done."""
    done = []
    for _ in range(chance.choice((1, 1, 2, 2, 3, 5))):
        way = chance.choice((damage_file, damage_file, damage_file, put_back, take_other, swap))
        done.append(way(chance, folder, base))
    for path in (folder / "claims").glob("*"):
        os.utime(path, (time.time() - 60, time.time() - 60))
    return done


# -- what must hold


def find_true(base: Base, done: list[str]) -> Shown:
    """What is so in a damaged folder.

    Claims and journals that were put back together are whole and tell of an earlier moment. Nothing in the folder
    contradicts them, unless trials were added since.
    """
    for text in done:
        words = re.fullmatch(r"put_back (\S+) (.*)", text)
        if words is not None and "'claims'" in words[2] and "'journal'" in words[2]:
            earlier = base.shown[words[1]]
            return earlier if len(earlier.rows) == len(base.now.rows) else base.now
    return base.now


@dataclass
class Judge:
    """Says what is wrong with an answer of a verb; "" where nothing is."""

    base: Base
    executed: Executed
    true: Shown  # what is so by all that is left

    def judge(self, words: str, code: int, out: str, err: str) -> str:
        if code == EXIT_BUG or "Traceback" in err:
            return f"a traceback: {err}"
        if code == 2 and "error: " not in err:
            return "an error without a message"
        if code not in (0, 1, 2):
            return f"exit code {code}"
        check = {
            "results --format json": self._judge_rows,
            "results --metric aux --format json": self._judge_values,
            "results --best --format json": self._judge_best,
            "status --json": self._judge_counts,
            "outputs --to taken": self._judge_taken,
        }.get(words)
        if check is not None and code in (0, 1) and out.strip():
            return check(out, err)
        if (
            words.startswith("logs ") and "is cut short" not in err
        ):  # what is left of a line is shown, and reported
            return self._judge_logs(words, out)
        if words == "outputs --to taken":
            return self._judge_taken(out, err)
        return ""

    def _judge_values(self, out: str, err: str) -> str:
        """Whatever is shown of a trial is what it computed."""
        for row in json.loads(out):
            own = self.base.ids.get(row["id"])
            if own is None or own != (row["lr"], row["seed"]):
                return f"another trial: {row}"
            values = {loss for loss, _ in self.executed.get(own, ())}
            ended_well = {loss for loss, end in self.executed.get(own, ()) if end == 0}
            for name in ("loss", "aux"):
                if row.get(name) is not None and row[name] not in values:
                    return f"a value that it never computed: {row}"
            if (
                row["state"] == "done"
                and row.get("loss") is not None
                and row["loss"] not in ended_well
            ):
                return f"another result: {row}"
        return ""

    def _judge_rows(self, out: str, err: str) -> str:
        problem = self._judge_values(out, err)
        rows = {row["id"]: row for row in json.loads(out)}
        if problem or "warning: " in err:
            return problem
        for trial, true in self.true.rows.items():
            row = rows.get(trial)
            if row is None:
                return f"{len(rows)} of {len(self.true.rows)} rows without a warning"
            if row["number"] != true["number"]:
                return f"another number without a warning: {row}"
            if row["state"] != true["state"]:
                return f"another state without a warning: {row}"
            if row.get("loss") != true.get("loss"):
                return f"an earlier result without a warning: {row}"
        return ""

    def _judge_best(self, out: str, err: str) -> str:
        for row in json.loads(out):
            values = [
                [loss for loss, _ in self.executed.get((row["lr"], seed), ())] for seed in SEEDS
            ]
            means = {sum(some) / len(some) for count in (1, 2) for group in itertools.combinations(values, count)
                     for some in itertools.product(*group)}  # fmt: skip
            if not any(abs(mean - row["mean"]) < 1e-6 for mean in means):
                return f"a mean that no executions have: {row}"
            if "warning: " not in err and row["lr"] != 0.1:
                return f"not the best, without a warning: {row}"
        return ""

    def _judge_counts(self, out: str, err: str) -> str:
        counts = json.loads(out)["counts"]
        if "warning: " not in err and counts != self.true.counts:
            return f"other counts without a warning: {counts}"
        return ""

    def _judge_taken(self, _out: str, _err: str) -> str:
        for path in Path("taken").rglob("*.*"):
            if path.name not in ("out.txt", "big.bin"):
                continue
            own = self.base.ids.get(path.relative_to("taken").parts[0])
            text = path.read_text(errors="replace")
            whole = text if path.name == "out.txt" else text[:32].strip()
            is_whole = path.name == "out.txt" or text == text[:32] * 135000
            known = {
                f"{lr} {seed} {loss}"
                for lr, seed in [own]
                if own
                for loss, _ in self.executed.get(own, ())
            }
            if not is_whole or whole not in known:
                return f"{path} has another content: {text[:80]!r}"
        return ""

    def _judge_logs(self, words: str, out: str) -> str:
        if not re.fullmatch(r"logs \d+", words) or not out:
            return ""
        found = {
            float(value) for value in re.findall(r"^(?:loss|aux)=(\d+\.\d+)$", out, re.MULTILINE)
        }
        number = int(words.split()[1])
        rows = [row for row in self._rows_now() if row["number"] == number]
        known = {
            loss for row in rows for loss, _ in self.executed.get((row["lr"], row["seed"]), ())
        }
        return f"output of another trial: {sorted(found - known)}" if rows and found - known else ""

    def _rows_now(self) -> list[dict[str, Any]]:
        code, out, _ = call("results --all --format json")
        rows: list[dict[str, Any]] = json.loads(out) if code == 0 and out.strip() else []
        return rows


def try_folder(
    base: Base, seed: int, number: int, verbs: list[str] | None = None, runs: bool = True
) -> list[str]:
    """Damage folder `number` and use all verbs on it, or these. Returns what is wrong."""
    chance = random.Random(f"{seed}-{number}")
    shutil.copytree(base.kept, base.root, symlinks=True)
    oracle = base.root.parent / f"oracle-{number}"
    shutil.copyfile(base.oracle, oracle)
    done = damage(chance, base.root / ".windlass" / "demo", base)
    findings = []
    true = find_true(base, done)
    try:
        with inside(base.root, oracle):
            for words in [*(VERBS if verbs is None else verbs), *([RUN] if runs else [])]:
                problem = Judge(base, base.executed, true).judge(words, *call(words))
                if problem:
                    findings.append(f"windlass {words}: {problem}")
            if runs:
                executed = read_oracle(oracle)
                code, out, err = call("results --format json")
                problem = (
                    Judge(base, executed, true)._judge_values(out, err) if code == 0 and out else ""
                )
                findings += [f"after run: {problem}"] if problem else []
    finally:
        for path in base.root.rglob("*"):
            if path.is_file() and not path.stat().st_mode & 0o400:
                path.chmod(0o600)
        shutil.rmtree(base.root)
        oracle.unlink()
    return [f"folder {number} ({'; '.join(done)}): {finding}" for finding in findings]


def _work(given: argparse.Namespace, part: int) -> int:
    findings = 0
    with tempfile.TemporaryDirectory() as place:
        base = Base(Path(place))
        numbers = (
            [given.only]
            if given.only is not None
            else range(given.first + part, given.first + given.folders, given.processes)
        )
        for at, number in enumerate(numbers):
            for finding in try_folder(base, given.seed, number, None, number % given.run_each == 0):
                findings += 1
                print(finding, flush=True)
            if at % 100 == 99:
                print(f"part {part}: {at + 1} folders, {findings} findings", flush=True)
    return findings


def _work_part(given: argparse.Namespace, part: int, answers: Any) -> None:
    answers.put(_work(given, part))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folders", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--run-each", type=int, default=20, help="`windlass run` in each so-manieth folder"
    )
    parser.add_argument("--only", type=int, help="this folder alone")
    given = parser.parse_args()
    if given.only is not None:
        given.processes = given.run_each = 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its processes end with it
    answers: Any = multiprocessing.Queue()
    parts = [
        multiprocessing.Process(target=_work_part, args=(given, part, answers), daemon=True)
        for part in range(given.processes)
    ]
    for process in parts:
        process.start()
    for process in parts:
        process.join()
    if any(process.exitcode for process in parts):
        print("a part of the work ended early")
        return 1
    findings = sum(answers.get() for _ in parts)
    print(f"{given.folders if given.only is None else 1:,} damaged folders, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
