"""Executes a short real study once for each of its file-system calls, and lets that call fail; see faults.c.

    python -m tests.faulty                          every call, every error, once and for a while: hours
    python -m tests.faulty --errors EIO --every 10  every tenth call, with one error

After each run with a fault come `status`, `results` and `run` again without one. What must hold each time:
an exit code and a message, never a traceback; each result is right, or the trial is shown as not done; exit code 0 only
where all trials are done; no trial executed twice at the same time; and the later `run` finishes the study.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.preloaded import get_server

ERRORS = ("ESTALE", "EIO", "EINTR", "ENOSPC", "EDQUOT")
ROLES = ("client", "agent")
TRIALS = 4
_LIMIT_S = 240.0  # only keeps a run that hangs from hanging for ever
_PROGRAM = """\
echo "begin $1 $$ $(date +%s.%N)" >> "$WITNESS"
mkdir -p out
echo "result of $1" > out/$1.txt
echo "state $1" > "$WINDLASS_CHECKPOINT_DIR/state.bin"
echo "loss: $(($1 * 7 + 1))"
echo "end $1 $$ $(date +%s.%N)" >> "$WITNESS"
"""
_STUDY = """\
name: faulty
command: sh trial.sh {x}
parameters: {x: [0, 1, 2, 3]}
metrics: [loss]
metric: loss
outputs: [out/*.txt]
checkpoint: {pattern: '*.bin'}
"""


@dataclass(frozen=True)
class Fault:
    """The nth call of a client or an agent fails, once or for a while; `after`: although it was made."""

    role: str
    at: int
    error: str
    for_ms: int = 0
    after: bool = False

    def __str__(self) -> str:
        while_ = f" for {self.for_ms} ms" if self.for_ms else ""
        return f"{self.role} call {self.at} {self.error}{while_}{' after it was made' if self.after else ''}"

    def variables(self) -> dict[str, str]:
        return {
            "FAULT_ROLE": self.role,
            "FAULT_AT": str(self.at),
            "FAULT_ERRNO": str(getattr(errno, self.error)),
            "FAULT_MS": str(self.for_ms),
            "FAULT_AFTER": str(int(self.after)),
        }


def build_library(folder: Path) -> str:
    """Compile faults.c. Returns the path of the library."""
    target = folder / "libfaults.so"
    source = Path(__file__).with_name("faults.c")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wno-nonnull-compare"]
    subprocess.run(["cc", *flags, "-o", str(target), str(source), "-ldl"], check=True)
    return str(target)


class FaultyStudy:
    """A project and a folder for its study, both new; `problems` says what did not hold."""

    def __init__(self, place: Path, library: str) -> None:
        self.project, self.studies = place / "project", place / "studies"
        self.project.mkdir(parents=True)
        self.studies.mkdir()
        self.witness, self.log = place / "witness", place / "calls"
        (self.project / "trial.sh").write_text(_PROGRAM)
        (self.project / "study.yaml").write_text(_STUDY)
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("WINDLASS", "SLURM", "SCRATCH"))
        }
        self._env = {
            **kept,
            "WITNESS": str(self.witness),
            "XDG_CONFIG_HOME": str(place / "config"),
            "XDG_CACHE_HOME": str(place / "cache"),
            "TMPDIR": str(place),
        }
        self.patience_s = 60.0
        self._faulty = {
            "LD_PRELOAD": library,
            "FAULT_FOLDER": str(self.studies),
            "FAULT_LOG": str(self.log),
        }
        self.problems: list[str] = []

    def windlass(self, *words: str, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        try:
            done = self._execute(words, fault)
        except subprocess.TimeoutExpired as late:
            self.problems.append(f"`{words[0]}` did not end within {_LIMIT_S:g} s")
            return subprocess.CompletedProcess(list(words), 124, "", str(late.stderr))
        self._judge_end(words, done)
        return done

    def _execute(
        self, words: Sequence[str], fault: Fault | None
    ) -> subprocess.CompletedProcess[str]:
        env = self._variables(fault)
        if fault is None and get_server().fits(
            env
        ):  # forked, without what it takes to start an interpreter
            code, *texts = get_server().run(words, self.project, env, _LIMIT_S)
            output, errors = (text.decode("utf-8", "replace") for text in texts)
            return subprocess.CompletedProcess(list(words), code, output, errors)
        return subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            cwd=self.project,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_LIMIT_S,
            check=False,
        )

    def _variables(self, fault: Fault | None) -> dict[str, str]:
        more = {} if fault is None else {**self._faulty, **fault.variables()}
        return {**self._env, "WINDLASS_PATIENCE_S": str(self.patience_s), **more}

    def start(self, *words: str, fault: Fault) -> subprocess.Popen[str]:
        """A command whose messages are read while it goes on."""
        return subprocess.Popen(
            [sys.executable, "-m", "windlass", *words],
            cwd=self.project,
            env=self._variables(fault),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, fault: Fault | None = None) -> subprocess.CompletedProcess[str]:
        return self.windlass(
            "run",
            "study.yaml",
            "--folder",
            str(self.studies),
            "--on",
            "local",
            "-j",
            "2",
            fault=fault,
        )

    def _judge_end(self, words: Sequence[str], done: subprocess.CompletedProcess[str]) -> None:
        if done.returncode not in (0, 1, 2, 130):
            self.problems.append(
                f"`{words[0]}` ended with {done.returncode}: {done.stderr.strip()}"
            )
        if "Traceback" in done.stderr or "bug in windlass" in done.stderr:
            self.problems.append(f"`{words[0]}` shows a traceback: {done.stderr.strip()}")
        if done.returncode == 2 and "error:" not in done.stderr:
            self.problems.append(
                f"`{words[0]}` does not say why it failed: {done.stderr.strip()!r}"
            )
        if done.returncode == 2 and words[0] == "run" and "there is no study" in done.stderr:
            self.problems.append(
                f"`{words[0]}` takes a fault for a study that is not there: {done.stderr.strip()!r}"
            )

    def calls(self, role: str) -> int:
        """The most calls that a process of this role has made."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        return max((int(words[2]) for words in lines if words[:2] == ["calls", role]), default=0)

    def hits(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(("hit", "of"))]

    def rows(self) -> dict[int, dict[str, Any]]:
        """Parameter → row of `results`, without faults; nothing where there is no study yet."""
        done = self.windlass("results", "--json", "--folder", str(self.studies))
        if done.returncode == 2 and "there is no study" in done.stderr:
            return {}
        if done.returncode not in (0, 1) or not done.stdout:
            self.problems.append(f"`results` ended with {done.returncode}: {done.stderr.strip()}")
            return {}
        found = json.loads(done.stdout)
        return {int(row["x"]): row for row in found}

    def judge_results(self, everything: bool) -> None:
        rows = self.rows()
        for x, row in rows.items():
            if row["state"] == "done" and row["loss"] != x * 7 + 1:
                self.problems.append(f"a wrong result: {row}")
        done = sorted(x for x, row in rows.items() if row["state"] == "done")
        if everything and done != list(range(TRIALS)):
            self.problems.append(f"not all are done: {rows}")

    def judge_outputs(self) -> None:
        target = self.project / "taken"
        shutil.rmtree(target, ignore_errors=True)
        self.windlass("outputs", "--folder", str(self.studies), "--to", str(target))
        texts = sorted(path.read_text().strip() for path in target.rglob("*.txt"))
        if texts != [f"result of {x}" for x in range(TRIALS)]:
            self.problems.append(f"kept outputs are {texts}")

    def judge_witness(self) -> None:
        """No trial was executed twice at the same time, and each was executed."""
        lines = (
            [line.split() for line in self.witness.read_text().splitlines()]
            if self.witness.exists()
            else []
        )
        begun: dict[str, str] = {}
        under_way: dict[str, str] = {}
        for kind, x, pid, _ in sorted(lines, key=lambda words: float(words[3])):
            if kind == "end":
                if under_way.get(x) == pid:
                    del under_way[x]
                continue
            if x in under_way and (
                _is_running(under_way[x])
                or ["end", x, under_way[x]] in [line[:3] for line in lines]
            ):
                self.problems.append(f"trial {x} ran twice at the same time")
            begun[x] = under_way[x] = pid
        if sorted(begun) != [str(x) for x in range(TRIALS)]:
            self.problems.append(f"executed were only {sorted(begun)}")


def _is_running(pid: str) -> bool:
    """Whether a process still executes something. One that has ended may stay listed until its parent asks for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def try_fault(place: Path, library: str, fault: Fault) -> FaultyStudy:
    """Execute a study with one fault and once more without. The object that is returned has all that did not hold."""
    study = FaultyStudy(place, library)
    first = study.run(fault)
    study.judge_results(everything=first.returncode == 0)
    if first.returncode != 2:
        study.windlass("status", "--folder", str(study.studies))
    second = study.run()
    if second.returncode != 0:
        text = f"{first.stderr.strip()}\n--- and then\n{second.stderr.strip()}"
        study.problems.append(f"a later run ended with {second.returncode}: {text}")
    study.judge_results(everything=True)
    study.judge_outputs()
    study.judge_witness()
    if not study.hits():
        study.problems.append("no call was hit")
    return study


# Commands that only look. What they print must not depend on a fault.
LOOKS = (
    ("status", "--json"),
    ("results", "--json"),
    ("results", "--best"),
    ("logs", "0"),
    ("explain", "1"),
    ("history",),
    ("outputs",),
    ("plan", "study.yaml", "--on", "local"),
    ("efficiency",),
)


class Looks:
    """A study that is done, and what each command prints of it without faults."""

    def __init__(self, place: Path, library: str) -> None:
        self._study = FaultyStudy(place, library)
        assert self._study.run().returncode == 0
        self._index = [place / f"windlass-{os.getuid()}", place / "cache"]
        self._plain = {words: self._look(words, None) for words in LOOKS}
        assert not self._study.problems, self._study.problems

    def _look(self, words: Sequence[str], fault: Fault | None) -> tuple[int, str]:
        for path in self._index:  # with an index there is little to read
            shutil.rmtree(path, ignore_errors=True)
        done = self._study.windlass(*words, "--folder", str(self._study.studies), fault=fault)
        self._last_errors = done.stderr.strip()
        return done.returncode, done.stdout

    def count_calls(self, words: Sequence[str]) -> int:
        self._study.log.unlink(missing_ok=True)
        self._look(words, Fault("client", 0, "EIO"))
        return self._study.calls("client")

    def find_problems(self, words: Sequence[str], fault: Fault) -> tuple[list[str], list[str]]:
        """What did not hold when a command met a fault, and the calls that were hit."""
        self._study.problems.clear()
        self._study.log.unlink(missing_ok=True)
        code, text = self._look(words, fault)
        problems = list(self._study.problems)
        plain_code, plain_text = self._plain[tuple(words)]
        if code == plain_code and text != plain_text:
            problems.append(
                f"another answer, as if nothing had been wrong: {text[:2000]!r} and not {plain_text[:2000]!r}"
            )
        elif code != plain_code and fault.error not in ("ENOSPC", "EDQUOT"):
            problems.append(f"no patience: exit code {code}, {self._last_errors}")
        elif code not in (plain_code, 2):
            problems.append(f"exit code {code}, {self._last_errors}")
        return problems, self._study.hits()


def choose_looks(
    looks: Looks, errors: Sequence[str], every: int
) -> Iterator[tuple[Sequence[str], Fault]]:
    """All faults of all commands that look, in an order by chance, always the same one."""
    faults = [
        (words, Fault("client", at, error, for_ms))
        for words in LOOKS
        for at in range(1, looks.count_calls(words) + 1, every)
        for error in errors
        for for_ms in ((0,) if error in ("ENOSPC", "EDQUOT") else (0, 300))
    ]
    random.Random(2).shuffle(faults)
    yield from faults


def count_calls(place: Path, library: str) -> dict[str, int]:
    """How many calls a process of each role makes in a study without faults."""
    found = {}
    for role in ROLES:
        study = FaultyStudy(place / role, library)
        done = study.run(Fault(role, 0, "EIO"))
        assert done.returncode == 0, done.stderr
        found[role] = study.calls(role)
    return found


def choose(
    calls: dict[str, int], errors: Sequence[str], every: int, share: int, shares: int
) -> Iterator[Fault]:
    """All faults of a sweep in an order by chance, always the same one, so that a part of it is a fair sample."""
    faults = []
    for role, count in calls.items():
        for at in range(1, count + 1, every):
            for error in errors:
                faults.append(Fault(role, at, error))
                if error not in ("ENOSPC", "EDQUOT"):
                    faults.append(Fault(role, at, error, for_ms=1000))
            if "EIO" in errors:
                faults.append(Fault(role, at, "EIO", after=True))
    random.Random(1).shuffle(faults)
    yield from faults[share::shares]


def sweep_looks(errors: Sequence[str], every: int, minutes: float) -> int:
    deadline = time.monotonic() + 60 * minutes
    tried = bad = 0
    with tempfile.TemporaryDirectory(prefix="windlass-faults-") as temporary:
        place = Path(os.path.realpath(temporary))
        looks = Looks(place / "study", build_library(place))
        for words, fault in choose_looks(looks, errors, every):
            if time.monotonic() > deadline:
                break
            problems, hits = looks.find_problems(words, fault)
            tried += 1
            if problems:
                bad += 1
                print(
                    f"== {' '.join(words)}: {fault}", *hits[:2], *problems, sep="\n   ", flush=True
                )
    print(f"{tried} faults, {bad} with problems", flush=True)
    return 1 if bad or not tried else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--errors", nargs="+", default=list(ERRORS))
    parser.add_argument("--roles", nargs="+", default=list(ROLES))
    parser.add_argument("--every", type=int, default=1, help="only every nth call")
    parser.add_argument("--share", default="0/1", help="which of how many equal parts, e.g. 0/4")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after so many")
    parser.add_argument("--at", type=int, nargs="*", help="these calls alone")
    parser.add_argument("--once", action="store_true", help="no faults that last")
    parser.add_argument(
        "--looks",
        action="store_true",
        help="commands that look at a study, in place of a whole study",
    )
    options = parser.parse_args()
    if options.looks:
        return sweep_looks(options.errors, options.every, options.minutes)
    share, shares = map(int, options.share.split("/"))
    deadline = time.monotonic() + 60 * options.minutes
    tried = bad = missed = 0
    with tempfile.TemporaryDirectory(prefix="windlass-faults-") as temporary:
        place = Path(os.path.realpath(temporary))
        library = build_library(place)
        calls = {
            role: n
            for role, n in count_calls(place / "count", library).items()
            if role in options.roles
        }
        print("calls on the study's folder:", calls, flush=True)
        for fault in choose(calls, options.errors, options.every, share, shares):
            if (options.at and fault.at not in options.at) or (options.once and fault.for_ms):
                continue
            if time.monotonic() > deadline:
                break
            study = try_fault(place / "study", library, fault)
            tried += 1
            missed += study.problems == ["no call was hit"]
            if study.problems and study.problems != ["no call was hit"]:
                bad += 1
                print(f"== {fault}", *study.hits()[:2], *study.problems, sep="\n   ", flush=True)
            shutil.rmtree(place / "study")
    print(f"{tried} faults, {bad} with problems, {missed} that hit no call", flush=True)
    return 1 if bad or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
