r"""What may reach a terminal: text, and the colours that we choose ourselves.

Parameters, names of files and jobs, and what programs print may hold sequences that move the cursor, change the title
of the window or write to the clipboard. Everything that is printed passes through `show`, which writes them as text
(``\x1b``). Our own colours carry a mark that no input can know.
"""

from __future__ import annotations

import os
import re
import unicodedata

_MARK = f"\x1b<{os.urandom(8).hex()}>"
BOLD, DIM, RED, GREEN, RESET = (f"{_MARK}{code}m" for code in (1, 2, 31, 32, 0))
REDRAW = f"{_MARK}Km"  # back to the beginning of the line, which is erased

# Control characters but newline and tab, those of ISO 6429 beyond ASCII, characters that reverse the order of a line,
# and halves of characters, which stand for bytes that are not text.
_ACTIVE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# What programs may send to a terminal through `windlass logs`: colours, and moves within the line, as progress bars
# use them. The rest is in the group.
_OUTPUT = re.compile(
    rb"\x1b\[[0-9;:]*m|\x1b\[[012]?K|([\x00-\x07\x0b-\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f])"
)
_UNFINISHED = re.compile(rb"(?:\x1b(?:\[[0-9;:]{0,64})?|\xc2)\Z")
_PLAIN = b"\x1b[0m"


def escape(text: str) -> str:
    r"""The text with everything that a terminal would act on written as ``\x1b`` or ``\u009b``; lines stay lines.

    What comes out is still valid inside a JSON string if the text was.
    """
    return _ACTIVE.sub(_escape_one, text)


def _escape_one(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"


def escape_line(text: str) -> str:
    """The same for a text that is to stay on one line, such as a cell of a table."""
    if text.isprintable():
        return text
    return "".join(
        one if _is_harmless(one) else one.encode("unicode_escape").decode("ascii") for one in text
    )


def _is_harmless(character: str) -> bool:
    # Joins parts of one character, among others.
    is_format = unicodedata.category(character) == "Cf"
    return character.isprintable() or (is_format and not _ACTIVE.match(character))


def show(text: str) -> str:
    """What is sent to a terminal or a file for a text of ours: escaped, except for our own colours."""
    first, *rest = text.split(_MARK)
    shown = [escape(first)]
    for part in rest:
        code, _, after = part.partition("m")
        shown.append("\r\x1b[K" if code == "K" else f"\x1b[{code}m")
        shown.append(escape(after))
    return "".join(shown)


def paint(text: str, color: str) -> str:
    """The text in a colour; as it is with "" for the colour. A colour only repeats what the text shows."""
    return f"{color}{text}{RESET}" if color and text else text


class OutputFilter:
    """What a program printed, for a terminal: its colours pass, everything else that a terminal acts on is escaped."""

    def __init__(self) -> None:
        self._held = b""  # the beginning of a sequence whose end has not come yet
        self._is_colored = False

    def feed(self, data: bytes) -> bytes:
        """The next piece of output, as it can be shown."""
        data = self._held + data
        unfinished = _UNFINISHED.search(data)
        self._held = unfinished[0] if unfinished else b""
        whole = data[: len(data) - len(self._held)]
        self._is_colored = self._is_colored or b"\x1b[" in whole
        return _OUTPUT.sub(_escape_output, whole)

    def end(self) -> bytes:
        """What is left to be shown; colours end with it."""
        rest = _OUTPUT.sub(_escape_output, self._held)
        self._held = b""
        return rest + (_PLAIN if self._is_colored else b"")


def _escape_output(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        return match[0]
    code = match[1][-1]
    return b"\\x%02x" % code if len(match[1]) == 1 else b"\\u%04x" % code
