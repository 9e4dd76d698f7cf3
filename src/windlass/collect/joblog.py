"""Writes GNU parallel's joblog, for scripts that read it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any, TextIO

from windlass.collect.trial_ids import Moved, TrialIds, renumber
from windlass.core.errors import input_error
from windlass.core.journal.events import Ended, decode_event
from windlass.core.journal.read import JournalReader, journal_files
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile

_HEADER = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"


class Joblog:
    """One line an attempt, in the order they ended. Trial 0 is Seq 1."""

    def __init__(self, path: str, paths: StudyPaths) -> None:
        try:
            self._file: TextIO = open(path, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        except OSError as error:
            raise input_error(
                f"--joblog: {path} cannot be written: {error.strerror}", "name another file"
            ) from None
        self._file.write(_HEADER)
        self._trials = TrialFile(paths)

    def add(self, _cause: str, event: Mapping[str, Any]) -> None:
        """Add a line for an attempt that has ended, in the columns of GNU parallel."""
        stages = self._trials.read(event["i"])["stages"]
        command = (
            " && ".join(shlex.join(words) for _, words in stages)
            .replace("\n", " ")
            .replace("\t", " ")
        )
        fields = [
            event["i"] + 1,
            ":",
            f"{event['start']:.3f}",
            f"{event['dur']:10.3f}",
            0,
            event.get("out", 0),
            event["code"],
            event.get("sig", 0),
            command,
        ]
        self._file.write("\t".join(map(str, fields)) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        self._trials.close()


def read_ended(paths: StudyPaths) -> list[Mapping[str, Any]]:
    """All attempts that have ended so far, in the order they ended."""
    ended: list[Mapping[str, Any]] = []
    ids = TrialIds(paths)
    for journal in journal_files(paths.journal):
        reader, moved = JournalReader(journal), Moved()
        while events := reader.read():
            ended += [
                event.fields
                for event in map(decode_event, renumber(ids, moved, events))
                if isinstance(event, Ended)
            ]
    return sorted(ended, key=lambda event: float(event["start"]) + float(event["dur"]))


def write_joblog(path: str, paths: StudyPaths) -> int:
    """Write the joblog of all attempts that have ended so far. Returns how many."""
    ended = read_ended(paths)
    log = Joblog(path, paths)
    try:
        for event in ended:
            log.add(str(event["cause"]), event)
    finally:
        log.close()
    return len(ended)


class GrowingJoblog:
    """The joblog of a study while it runs: the attempts of former runs first, then each that ends.

    The file is written when the first attempt ends, because the study's folder is there then.
    """

    def __init__(self, path: str, paths: StudyPaths) -> None:
        self._path = path
        self._paths = paths
        self._log: Joblog | None = None
        self._before = read_ended(paths) if os.path.isdir(paths.journal) else []
        self._known = {_identity(event) for event in self._before}

    def __call__(self, cause: str, event: Mapping[str, Any]) -> None:
        log = self._open()
        if _identity(event) not in self._known:
            log.add(cause, event)

    def _open(self) -> Joblog:
        if self._log is None:
            self._log = Joblog(self._path, self._paths)
            for event in self._before:
                self._log.add(str(event["cause"]), event)
        return self._log

    def complete(self) -> None:
        """The run is over. Where nothing was left to do, the file has the attempts of former runs."""
        if self._before:
            self._open()

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


def _identity(event: Mapping[str, Any]) -> tuple[Any, ...]:
    return event["i"], event["n"], event["start"], event["dur"]
