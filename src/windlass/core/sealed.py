"""Lines and files that show whether they are whole: a checksum before everything else. The agent needs it: Python 3.9.

A JSON object `{"a":1}` is sealed as `{"crc":"0a1b2c3d","a":1}`, where crc is the CRC-32 of all that follows it, without
a newline at the end. It is still a JSON object, so that every program can read it. Objects that earlier versions of
Windlass wrote have no checksum.
"""

from __future__ import annotations

import binascii

_SEAL_BYTES = 18  # of {"crc":"01234567",
_MARK = b'{"crc"'


def seal(line: bytes) -> bytes:
    """A JSON object with at least one key, with a checksum as its first key."""
    rest = line[1:]
    return b'{"crc":"%08x",' % binascii.crc32(rest.rstrip(b"\n")) + rest


def unseal(line: bytes) -> bytes | None:
    """What `seal` was given; None where the line was changed since. A line without a checksum is returned as it is."""
    if not line.startswith(_MARK):
        return line
    rest = line[_SEAL_BYTES:]
    if line[:_SEAL_BYTES] != b'{"crc":"%08x",' % binascii.crc32(rest.rstrip(b"\n")):
        return None
    return b"{" + rest
