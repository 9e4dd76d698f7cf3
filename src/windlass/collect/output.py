"""Puts the output of one trial together again from the agents' logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from windlass.journal.pieces import PIECE
from windlass.paths import StudyPaths

_INDEX_BYTES = PIECE.size * 65536


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

    def read(self, number: int | None = None, attempt: int | None = None) -> Iterator[Piece]:
        """New pieces of one trial, one attempt at it, or of all."""
        try:
            with open(self._index_path, "rb") as index, open(self._log_path, "rb") as log:
                index.seek(self._position)
                while block := index.read(_INDEX_BYTES):
                    whole = len(block) - len(block) % PIECE.size
                    self._position += whole
                    for offset, when, length, owner, owner_attempt, stream in PIECE.iter_unpack(block[:whole]):
                        if (number is None or owner == number) and (attempt is None or owner_attempt == attempt):
                            data = os.pread(log.fileno(), length, offset)
                            yield Piece(owner, owner_attempt, stream, when, data)
                    if whole < len(block):
                        return
        except FileNotFoundError:
            return


def last_lines(pieces: Iterator[Piece], lines: int) -> bytes:
    """The end of what was printed, without holding all of it."""
    kept = b""
    for piece in pieces:
        kept += piece.data
        if len(kept) > 1 << 20:
            kept = kept[-(1 << 19) :]
    return b"".join(kept.splitlines(keepends=True)[-lines:]) if lines else b""
