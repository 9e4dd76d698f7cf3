"""windlass logs: what a trial printed."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click

from windlass.cli.hints import name_study
from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study_and_trials, name_of, study_and_trials, take_one_trial
from windlass.cli.terminal import ProgramOutput
from windlass.collect.attempts import read_attempts, read_retries
from windlass.collect.index import StudyIndex, open_index, read_record
from windlass.collect.joblog import write_joblog
from windlass.collect.output import CUT_OUTPUT, OutputReader, Piece, last_lines, read_ends
from windlass.collect.ranks import only_rank
from windlass.collect.trials import find_trials
from windlass.core.claims.register import RegisterFile
from windlass.core.counted import counted
from windlass.core.damage import has_reported
from windlass.core.errors import input_error
from windlass.core.journal.read import journal_files, writer_of
from windlass.core.journal.reason import from_traceback, reason_key
from windlass.core.journal.records import TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import TrialFile
from windlass.view.escapes import RED, paint
from windlass.view.story import render_verdict
from windlass.view.table import wants_color

Outputs = dict[int, ProgramOutput]
Attempt = tuple[str, int]  # an agent, and the number that it gave an attempt
_FOLLOW_S = 0.3
_NOT_WELL = (State.FAILED, State.INTERRUPTED)
_BATCH = 2000  # trials whose last lines are in memory at a time
_MOST_NUMBERS = 20


@click.command()
@study_and_trials("[STUDY] [TRIAL]")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the trial ends.")
@click.option(
    "--failed",
    is_flag=True,
    help="Show the last lines of all trials that did not end well, equal ones once.",
)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    help="Show only the last N lines of each trial (default with --failed: 10).",
)
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    help="Show only what this rank printed, of a trial that a launcher has started.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show also attempts from before the last `windlass retry` of the trial.",
)
@click.option(
    "--joblog",
    metavar="FILE",
    help="Write the joblog of GNU parallel, with all attempts that have ended.",
)
@folder_option
@json_option
def command(
    arguments: tuple[str, ...],
    follow: bool,
    failed: bool,
    lines: int | None,
    rank: int | None,
    everything: bool,
    joblog: str | None,
    study: str | None,
    folder: str | None,
    as_json: bool,
) -> int:
    """Show a trial's stdout and stderr, also while it runs. Without a trial: of all, with their numbers in front.

    Of a trial with several attempts (another session, an interruption, a failure that was tried again) all are shown,
    in their order; a line on stderr says where each begins.

    On a terminal a program's colours and progress bars pass. Sequences that do more (move the cursor to other lines,
    set the title, write to the clipboard) are shown as text; a pipe or a file gets every byte as it was printed.

    A job's number, as 123_4, shows what the scheduler kept of that job's own output.
    """
    paths, trials = find_study_and_trials(arguments, study, folder)
    trial = take_one_trial(trials)
    if joblog is not None:
        click.echo(f"{joblog}: {counted(write_joblog(joblog, paths), 'attempt')}", err=True)
        return 0
    if trial is not None and re.fullmatch(r"\d+_\d+", trial):
        _show_job(paths, trial)
        return 0
    register = RegisterFile(paths.claims, "reader").read()
    if rank is not None and (trial is None or as_json):
        raise input_error("--rank takes a trial, and no --json", "windlass logs 3 --rank 2")
    if as_json:
        if follow or (trial is None and not failed):
            raise input_error(
                "--json takes a trial or --failed, and does not follow", "windlass logs 3 --json"
            )
        numbers = None if trial is None else find_trials([trial], paths, register.count)
        print(json.dumps(_as_json(paths, numbers, lines, everything), indent=2, ensure_ascii=False))
    elif failed:
        _show_failed(paths, 10 if lines is None else lines)
    elif trial is None:
        _show_all(paths, follow, lines)
    else:
        number = find_trials([trial], paths, register.count)[0]
        _show_one(_Shown(paths, number, rank), follow, lines, everything)
    return 1 if has_reported(CUT_OUTPUT) else 0


def _show_job(paths: StudyPaths, job: str) -> None:
    """Print what the scheduler kept of a job's own output, which is not the output of its trials."""
    path = os.path.join(paths.hpc_outputs, f"{os.path.basename(paths.folder)}_{job}.out")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        raise input_error(f"there is no {path}", "windlass status shows the study's jobs") from None
    empty = (
        f"{path} is empty: the agent had nothing to say; its trials' output is in `windlass logs`"
    )
    print(text.rstrip() or name_study(empty, paths))


def _show_one(shown: _Shown, follow: bool, lines: int | None, everything: bool) -> None:
    """Print the output of one trial, and with `follow` what it prints from now on.

    With `follow`, wait for a trial that has not started; without, raise InputError.
    """
    paths, number = shown.paths, shown.number
    record = read_record(paths, number)
    while record is None or not (record.agent or (record.attempts and not follow)):
        if not follow:
            raise input_error(f"trial {number} has not run yet", f"windlass explain {number}")
        time.sleep(_FOLLOW_S)
        record = read_record(paths, number)
    attempts, left_out = _attempts(paths, record, everything)
    if left_out:
        hint = f"windlass logs {name_of(paths)} {number} --all"
        click.echo(
            f"== attempts before the last `windlass retry` that are left out: {left_out} (`{hint}`)",
            err=True,
        )
    if lines is not None:
        _write(last_lines(shown.pieces(attempts), lines))
    with _open_outputs() as outputs:
        if lines is None:
            _print_pieces(shown.pieces(attempts), outputs)
        if follow:
            _follow(attempts, shown, outputs)


def _follow(attempts: list[Attempt], shown: _Shown, outputs: Outputs) -> None:
    """Print what a trial prints until it ends, whichever agent executes it."""
    while True:
        record_now = read_record(shown.paths, shown.number)
        if record_now is not None and record_now.agent and record_now.state is not State.WAITING:
            attempts = list(dict.fromkeys([*attempts, (record_now.agent, record_now.attempt)]))
        _print_pieces(shown.pieces(attempts), outputs)
        if record_now is None or not _goes_on(record_now):
            return
        time.sleep(_FOLLOW_S)


def _goes_on(record: TrialRecord) -> bool:
    """Also between two sessions, when the agent that ended one of them is about to begin the next."""
    return record.state is State.RUNNING or (record.state is State.WAITING and bool(record.agent))


def _attempts(
    paths: StudyPaths, record: TrialRecord, everything: bool
) -> tuple[list[Attempt], int]:
    """The attempts at a trial to be shown, in their order, and how many earlier ones are left out."""
    if record.attempts < 2 and record.state is not State.WAITING:
        return [(record.agent, record.attempt)], 0
    stories = read_attempts(paths, record.number)
    since = 0.0 if everything else read_retries(paths).get(record.number, 0.0)
    shown = [(story.agent, story.attempt) for story in stories if story.start >= since]
    if not shown:  # none since it was put back: the latest is shown
        shown = [(story.agent, story.attempt) for story in stories[-1:]] or [
            (record.agent, record.attempt)
        ]
    return shown, max(0, len(stories) - len(shown))


class _Shown:
    """Reads what several attempts at one trial printed, each from where it last stopped."""

    def __init__(self, paths: StudyPaths, number: int, rank: int | None = None) -> None:
        """With `rank`, only what that rank printed."""
        self.paths = paths
        self.number = number
        self._rank = rank
        self._readers: dict[Attempt, OutputReader] = {}

    def pieces(self, attempts: list[Attempt]) -> Iterator[Piece]:
        """New pieces. Where there are several attempts, a line on stderr says which one begins."""
        for place, (agent, attempt) in enumerate(attempts):
            if (agent, attempt) not in self._readers:
                self._readers[agent, attempt] = OutputReader(self.paths, agent)
                if len(attempts) > 1:
                    click.echo(
                        f"== attempt {place + 1} of {len(attempts)}, by agent {agent}", err=True
                    )
            pieces = self._readers[agent, attempt].read({attempt: self.number})
            yield from pieces if self._rank is None else only_rank(pieces, self._rank)


@dataclass
class _Alike:
    """Trials that did not end well in the same way."""

    verdict: str
    text: bytes  # the last lines of the first one
    is_same: bool = True  # whether the others printed exactly the same
    trials: list[tuple[int, str]] = field(default_factory=list)  # number and id


def _show_failed(paths: StudyPaths, lines: int) -> None:
    """The last lines of trials that did not end well; once where several ended alike."""
    index = StudyIndex(paths)
    index.refresh()
    trials = TrialFile(paths)
    groups: dict[tuple[str, str], _Alike] = {}
    records = index.records(states=_NOT_WELL)
    while batch := list(itertools.islice(records, _BATCH)):
        attempts = [
            (record.agent, record.number, record.attempt) for record in batch if record.agent
        ]
        ends = read_ends(paths, attempts, lines)
        ids = {
            number: str(trial["id"])
            for number, trial in trials.read_many(record.number for record in batch)
        }
        for record in batch:
            text = ends.get((record.number, record.attempt), b"")
            verdict = render_verdict(record)
            shown = from_traceback(text.decode("utf-8", "replace"))
            alike = groups.setdefault((verdict, reason_key(shown)), _Alike(verdict, text))
            alike.is_same = alike.is_same and text == alike.text
            alike.trials.append((record.number, ids[record.number]))
    index.close()
    trials.close()
    color = RED if wants_color(sys.stdout) else ""
    for alike in groups.values():
        print(paint(_head(alike), color), flush=True)
        _write(alike.text)


def _head(alike: _Alike) -> str:
    """The heading above output that several trials share."""
    (number, identifier), *others = alike.trials
    if not others:
        return f"== {number} {identifier} {alike.verdict}"
    numbers = " ".join(str(number) for number, _ in alike.trials[:_MOST_NUMBERS])
    more = " …" if len(alike.trials) > _MOST_NUMBERS else ""
    of_which = "all printed this" if alike.is_same else f"alike; this is of trial {number}"
    return f"== {len(alike.trials)} trials {alike.verdict}: {numbers}{more} ({of_which})"


def _as_json(
    paths: StudyPaths, numbers: list[int] | None, lines: int | None, everything: bool
) -> list[dict[str, Any]]:
    """Stable keys: number, id, state, cause, agent, attempt, attempts, stdout, stderr.

    Of a trial that was named, what all of its attempts printed; of each failure, what the last one printed.
    """
    index = StudyIndex(paths)
    index.refresh()
    trials = TrialFile(paths)
    records = index.records(numbers) if numbers is not None else index.records(states=_NOT_WELL)
    found = []
    for record in records:
        texts = {1: b"", 2: b"", 3: b""}
        attempts = [(record.agent, record.attempt)] if record.agent else []
        if attempts and numbers is not None:
            attempts, _ = _attempts(paths, record, everything)
        for agent, attempt in attempts:
            for piece in OutputReader(paths, agent).read({attempt: record.number}):
                texts[piece.stream] += piece.data
        if lines is not None:
            texts = {stream: _end_of(text, lines) for stream, text in texts.items()}
        found.append(
            {
                "number": record.number,
                "id": trials.read(record.number)["id"],
                "state": record.state.value,
                "cause": record.cause,
                "agent": record.agent,
                "attempt": record.attempt,
                "attempts": len(attempts),
                "stdout": texts[1].decode("utf-8", "replace"),
                "stderr": (texts[2] + texts[3]).decode("utf-8", "replace"),
            }
        )
    index.close()
    trials.close()
    return found


def _read_numbers(paths: StudyPaths) -> dict[str, Mapping[int, int | None]]:
    """By agent, the numbers in its files whose trials have others now; None where the study has no such trial."""
    with open_index(paths) as index:
        return {
            writer_of(path): index.moved(writer_of(path)) for path in journal_files(paths.journal)
        }


def _show_all(paths: StudyPaths, follow: bool, lines: int | None) -> None:
    """Print the output of all trials, each line with the number of its trial, in the order in which agents wrote it."""
    readers: dict[str, OutputReader] = {}
    moved = _read_numbers(paths)
    if lines is not None:
        _show_ends(paths, readers, lines, moved)
    while True:
        for path in journal_files(paths.journal):
            agent = writer_of(path)
            for piece in readers.setdefault(agent, OutputReader(paths, agent)).read():
                number = moved.get(agent, {}).get(piece.number, piece.number)
                if number is None:
                    continue
                tag = f"[{number}] ".encode()
                _write(b"".join(tag + line + b"\n" for line in piece.data.splitlines()))
        if not follow or not RegisterFile(paths.claims, "reader").read().held:
            return
        time.sleep(_FOLLOW_S)


def _show_ends(
    paths: StudyPaths,
    readers: dict[str, OutputReader],
    lines: int,
    moved: dict[str, Mapping[int, int | None]],
) -> None:
    """The last lines of each trial, by number."""
    ends: dict[int, bytes] = {}
    for path in journal_files(paths.journal):
        agent = writer_of(path)
        for piece in readers.setdefault(agent, OutputReader(paths, agent)).read():
            number = moved.get(agent, {}).get(piece.number, piece.number)
            if number is not None:
                ends[number] = _end_of(ends.get(number, b"") + piece.data, lines)
    for number, text in sorted(ends.items()):
        _write(b"".join(b"[%d] %s\n" % (number, line) for line in text.splitlines()))


def _end_of(text: bytes, lines: int) -> bytes:
    return b"".join(text.splitlines(keepends=True)[-lines:]) if lines else b""


def _print_pieces(pieces: Iterator[Piece], outputs: Outputs) -> None:
    """Each stream to where it belongs, so that `2>/dev/null` does what one expects."""
    for piece in pieces:
        outputs[min(piece.stream, 2)].write(piece.data)


@contextmanager
def _open_outputs() -> Iterator[Outputs]:
    """Standard output and standard error for what a trial printed on its own, by their numbers."""
    outputs = {1: ProgramOutput(sys.stdout), 2: ProgramOutput(sys.stderr)}
    try:
        yield outputs
    finally:
        for output in outputs.values():
            output.close()


def _write(data: bytes) -> None:
    output = ProgramOutput(sys.stdout)
    output.write(data if not data or data.endswith(b"\n") else data + b"\n")
    output.close()
