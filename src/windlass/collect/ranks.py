"""What one rank of a trial printed, out of what all of them did. A launcher marks each line with its rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from windlass.collect.output import Piece


def only_rank(pieces: Iterator[Piece], rank: int) -> Iterator[Piece]:
    """The lines of one rank, without its mark. Lines that no rank printed are left out."""
    mark = f"[rank{rank}]:".encode()
    rests: dict[tuple[int, int], bytes] = {}  # of an attempt's stream: the beginning of a line
    for piece in pieces:
        of = (piece.attempt, piece.stream)
        *lines, rests[of] = (rests.get(of, b"") + piece.data).split(b"\n")
        mine = [line[len(mark) :].removeprefix(b" ") for line in lines if line.startswith(mark)]
        if mine:
            yield replace(piece, data=b"".join(line + b"\n" for line in mine))
