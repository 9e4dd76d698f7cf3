"""Puts the output of one trial together again from the agents' logs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from windlass.core.damage import report_damage
from windlass.core.journal.pieces import OURS, PIECE, is_whole, is_whole_entry
from windlass.core.journal.read import for_each
from windlass.core.paths import StudyPaths

_INDEX_BYTES = PIECE.size * 65536
_END_BYTES = 32 << 10
_WRITING_S = 60.0  # an agent writes the log first, and its index at once after that
CUT_OUTPUT = "output"  # damage of this kind: something that trials printed is missing


@dataclass(frozen=True)
class Piece:
    """Some bytes a trial printed."""

    number: int
    attempt: int
    stream: int  # 1 stdout, 2 stderr, 3 a line of Windlass itself
    time: float
    data: bytes
    is_cut: bool = False  # something is missing here


GAP = Piece(-1, -1, OURS, 0.0, b"", is_cut=True)  # nobody knows of which trial


class OutputReader:
    """Reads what one agent's trials printed, from where it last stopped."""

    def __init__(self, paths: StudyPaths, agent: str) -> None:
        self._agent = agent
        self._log_path = paths.output_of(agent)
        self._index_path = paths.output_index_of(agent)
        self._position = 0
        self._end = 0  # of the piece that was read last: the next one begins there

    def read(self, attempts: Mapping[int, int] | None = None) -> Iterator[Piece]:
        """New pieces of these attempts of the agent, or of all.

        `attempts` maps an attempt to the number that its trial has now, which may be another than when it printed.
        What is not as it was written is reported and left out. A piece that is cut comes in its place; GAP where it is
        not known which trial it was of.
        """
        try:
            with open(self._index_path, "rb") as index, open(self._log_path, "rb") as log:
                index.seek(self._position)
                while block := index.read(_INDEX_BYTES):
                    whole = len(block) - len(block) % PIECE.size
                    self._position += whole
                    for at in range(0, whole, PIECE.size):
                        yield from self._read_entry(log, block[at : at + PIECE.size], attempts)
                    if whole < len(block):
                        return
                status = os.fstat(log.fileno())
                if status.st_size > self._end and time.time() - status.st_mtime > _WRITING_S:
                    self._report(
                        self._index_path, "is cut short: the end of what trials printed is missing"
                    )
        except FileNotFoundError:
            # An agent whose trials printed nothing has neither file. It makes the log first, so that one alone may also
            # be that of an agent that has just begun.
            for path, other in (
                (self._log_path, self._index_path),
                (self._index_path, self._log_path),
            ):
                if not os.path.exists(path) and _has_content(other):
                    self._report(path, "is gone: what trials printed is missing")

    def _read_entry(
        self, log: BinaryIO, entry: bytes, attempts: Mapping[int, int] | None
    ) -> Iterator[Piece]:
        """The piece of output that an entry of the index describes.

        A damaged entry becomes a gap, and is reported once.
        """
        offset, when, length, number, attempt, stream, _ = PIECE.unpack(entry)
        if not is_whole_entry(self._agent, entry) or offset != self._end:
            self._report(self._index_path, "is damaged: some of what trials printed is left out")
            yield GAP
            if not is_whole_entry(self._agent, entry) or offset < self._end:
                return
        self._end = offset + length
        if attempts is not None and attempt not in attempts:
            return
        present = number if attempts is None else attempts[attempt]
        size = os.fstat(log.fileno()).st_size
        data = os.pread(log.fileno(), min(length, size - offset), offset) if offset < size else b""
        if len(data) < length:
            self._report(self._log_path, "is cut short: the end of what trials printed is missing")
            yield Piece(present, attempt, stream, when, data, is_cut=True)
        elif is_whole(self._agent, entry, data):
            yield Piece(present, attempt, stream, when, data)
        else:
            self._report(self._log_path, "has changed since it was written: some of it is left out")
            yield Piece(present, attempt, stream, when, b"", is_cut=True)

    def _report(self, path: str, problem: str) -> None:
        remedy = "a backup may have it; what trials reported and how they ended is in the journals"
        report_damage(path, problem, remedy, CUT_OUTPUT)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def read_ends(
    paths: StudyPaths, attempts: Iterable[tuple[str, int, int]], lines: int
) -> dict[tuple[int, int], bytes]:
    """The last lines of several attempts, each an agent, a trial and a number, by trial and number.

    Each agent's index is read once. Of an attempt, the last 32 KB at most are looked at.
    """
    wanted: dict[str, dict[int, int]] = {}
    for agent, number, attempt in attempts:
        wanted.setdefault(agent, {})[attempt] = number

    def read(agent: str) -> dict[tuple[int, int], bytes]:
        """The last lines of each wanted attempt of one agent."""
        ends: dict[tuple[int, int], bytes] = {}
        for piece in OutputReader(paths, agent).read(wanted[agent]):
            key = (piece.number, piece.attempt)
            ends[key] = (ends.get(key, b"") + piece.data)[-_END_BYTES:]
        return {key: _last(text, lines) for key, text in ends.items()}

    return {key: text for ends in for_each(read, list(wanted)) for key, text in ends.items()}


def last_lines(pieces: Iterator[Piece], lines: int) -> bytes:
    """The end of what was printed, without holding all of it."""
    kept = b""
    for piece in pieces:
        kept += piece.data
        if len(kept) > 1 << 20:
            kept = kept[-(1 << 19) :]
    return _last(kept, lines)


def _last(text: bytes, lines: int) -> bytes:
    return b"".join(text.splitlines(keepends=True)[-lines:]) if lines else b""
