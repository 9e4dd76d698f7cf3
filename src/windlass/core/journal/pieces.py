"""The format of an agent's output files: what it writes and the command line reads. Python 3.9.

<agent>.log   the bytes, as they came (progress bars that redraw themselves are thinned out)
<agent>.idx   32 bytes a piece: offset, time, length, trial number, attempt, stream; then a byte of the CRC-32 of all
              that, and two bytes of the CRC-32 of all that and of the piece itself. Both begin with the agent's name,
              so that files under another name are noticed. In files of earlier versions these three bytes are zeros.
"""

from __future__ import annotations

import binascii
import struct

PIECE = struct.Struct("<QdIIIB3s")
STDOUT, STDERR, OURS = 1, 2, 3  # OURS: a line of Windlass about the trial
_HEAD = struct.Struct("<QdIIIB")
_UNKNOWN = b"\0\0\0"


def render_piece(
    agent: str, offset: int, when: float, number: int, attempt: int, stream: int, data: bytes
) -> bytes:
    """The entry of the index for a piece of output."""
    head = _HEAD.pack(offset, when, len(data), number, attempt, stream)
    return head + _checksum(agent, head, data)


def is_whole_entry(agent: str, entry: bytes) -> bool:
    """Whether an entry of the index is as it was written, as far as can be seen without the piece."""
    if entry[_HEAD.size - 1] not in (STDOUT, STDERR, OURS):
        return False  # Of 256 damaged entries, one has the right byte of the checksum by chance.
    return (
        entry[_HEAD.size :] == _UNKNOWN
        or entry[_HEAD.size] == _head_sum(agent, entry[: _HEAD.size]) & 0xFF
    )


def is_whole(agent: str, entry: bytes, data: bytes) -> bool:
    """Whether an entry of the index and the piece of output that it leads to are as they were written."""
    return entry[_HEAD.size :] in (_UNKNOWN, _checksum(agent, entry[: _HEAD.size], data))


def _head_sum(agent: str, head: bytes) -> int:
    return binascii.crc32(head, binascii.crc32(agent.encode("utf-8", "surrogateescape")))


def _checksum(agent: str, head: bytes, data: bytes) -> bytes:
    own = _head_sum(agent, head)
    whole = binascii.crc32(data, own) & 0xFFFF
    return bytes((own & 0xFF,)) + ((whole or 1).to_bytes(2, "little"))
