"""Reads a file that the user names, up to a limit; what is wrong with it becomes a problem that names the file."""

from __future__ import annotations

import os

from windlass.core.errors import InputError, Problem
from windlass.core.meant import nearest_word
from windlass.spec.limits import MOST_FILE_BYTES


def read_text(path: str, otherwise: str) -> str:
    r"""The text of a file, with ``\n`` at the end of its lines.

    Raises InputError where there is no such file (with the hint `otherwise`, unless one has a similar name), where it
    cannot be read, is not UTF-8, or has more bytes than a study may have. A device that never ends is one of these.
    """
    try:
        with open(path, "rb") as stream:
            raw = stream.read(MOST_FILE_BYTES + 1)
    except FileNotFoundError:
        folder, name = os.path.split(path)
        try:
            near = nearest_word(name, os.listdir(folder or "."))
        except OSError:
            near = ""
        hint = f"did you mean {os.path.join(folder, near)}?" if near else otherwise
        raise InputError([Problem("there is no such file", hint, path)]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError([Problem(f"this file cannot be read: {reason}", "", path)]) from None
    if len(raw) > MOST_FILE_BYTES:
        message = f"this is too large for a study: it has more than {MOST_FILE_BYTES >> 20} MB"
        raise InputError([Problem(message, "is it the right file?", path)])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"this is not UTF-8 text: the byte 0x{raw[error.start]:02x}"
        raise InputError([Problem(message, "save the file as UTF-8", path, line, column)]) from None
    return text.replace("\r\n", "\n")
