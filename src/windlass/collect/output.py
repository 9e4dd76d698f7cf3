"""Puts the output of one trial together again from the agents' logs."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from windlass.damage import report_damage
from windlass.journal.pieces import PIECE
from windlass.journal.read import for_each
from windlass.paths import StudyPaths

_INDEX_BYTES = PIECE.size * 65536
_END_BYTES = 32 << 10
CUT_OUTPUT = "output"  # damage of this kind: something that trials printed is missing


@dataclass(frozen=True)
class Piece:
    """Some bytes a trial printed."""

    number: int
    attempt: int
    stream: int  # 1 stdout, 2 stderr, 3 a word of Windlass
    time: float
    data: bytes


class OutputReader:
    """Reads what one agent's trials printed, from where it last stopped."""

    def __init__(self, paths: StudyPaths, agent: str) -> None:
        self._log_path = paths.output_of(agent)
        self._index_path = paths.output_index_of(agent)
        self._position = 0

    def read(
        self, number: int | None = None, attempt: int | None = None, chosen: Container[tuple[int, int]] | None = None
    ) -> Iterator[Piece]:
        """New pieces of one trial, of one attempt at it, of the `chosen` pairs of trial and attempt, or of all."""
        try:
            with open(self._index_path, "rb") as index, open(self._log_path, "rb") as log:
                index.seek(self._position)
                while block := index.read(_INDEX_BYTES):
                    whole = len(block) - len(block) % PIECE.size
                    self._position += whole
                    for offset, when, length, owner, owner_attempt, stream in PIECE.iter_unpack(block[:whole]):
                        wanted = (number is None or owner == number) and (attempt is None or owner_attempt == attempt)
                        if wanted and (chosen is None or (owner, owner_attempt) in chosen):
                            data = os.pread(log.fileno(), length, offset)
                            if len(data) < length:
                                self._report(self._log_path, "is cut short: the end of what trials printed is missing")
                            yield Piece(owner, owner_attempt, stream, when, data)
                    if whole < len(block):
                        return
        except FileNotFoundError:
            # An agent whose trials printed nothing has neither file. It makes the log first, so that one alone may also
            # be that of an agent that has just begun.
            for path, other in ((self._log_path, self._index_path), (self._index_path, self._log_path)):
                if not os.path.exists(path) and _has_content(other):
                    self._report(path, "is gone: what trials printed is missing")

    def _report(self, path: str, problem: str) -> None:
        remedy = "a backup may have it; what trials reported and how they ended is in the journals"
        report_damage(path, problem, remedy, CUT_OUTPUT)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def read_ends(paths: StudyPaths, attempts: Iterable[tuple[str, int, int]], lines: int) -> dict[tuple[int, int], bytes]:
    """The last lines of several attempts, each an agent, a trial and a number, by trial and number.

    Each agent's index is read once. Of an attempt, the last 32 KB at most are looked at.
    """
    wanted: dict[str, set[tuple[int, int]]] = {}
    for agent, number, attempt in attempts:
        wanted.setdefault(agent, set()).add((number, attempt))

    def read(agent: str) -> dict[tuple[int, int], bytes]:
        ends: dict[tuple[int, int], bytes] = {}
        for piece in OutputReader(paths, agent).read(chosen=wanted[agent]):
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
