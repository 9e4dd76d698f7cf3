"""Writes GNU parallel's joblog, for scripts that read it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, TextIO

from windlass.errors import input_error
from windlass.journal.read import JournalReader, journal_files
from windlass.paths import StudyPaths
from windlass.trialfile import TrialFile

_HEADER = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"


class Joblog:
    """One line an attempt, in the order they ended. Trial 0 is Seq 1."""

    def __init__(self, path: str, paths: StudyPaths) -> None:
        try:
            self._file: TextIO = open(path, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        except OSError as error:
            raise input_error(f"--joblog: {path} cannot be written: {error.strerror}", "name another file") from None
        self._file.write(_HEADER)
        self._trials = TrialFile(paths)

    def add(self, _cause: str, event: Mapping[str, Any]) -> None:
        stages = self._trials.read(event["i"])["stages"]
        command = " && ".join(shlex.join(words) for _, words in stages).replace("\n", " ").replace("\t", " ")
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


def write_joblog(path: str, paths: StudyPaths) -> int:
    """Write the joblog of all attempts that have ended so far, in the order they ended. Returns how many."""
    ended: list[Mapping[str, Any]] = []
    for journal in journal_files(paths.journal):
        reader = JournalReader(journal)
        while events := reader.read():
            ended += [event for event in events if event.get("e") == "end"]
    log = Joblog(path, paths)
    try:
        for event in sorted(ended, key=lambda event: float(event["start"]) + float(event["dur"])):
            log.add(str(event["cause"]), event)
    finally:
        log.close()
    return len(ended)
