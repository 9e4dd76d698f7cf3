"""Why a program failed, from what it printed last; which reasons are alike; what to install. Python 3.9."""

from __future__ import annotations

import re
from typing import List, Optional

from windlass.core.states import Cause

LONGEST = 300  # characters of a reason
LAST_LINE = "last line: "
_HEAD = "Traceback (most recent call last)"
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
# As Python prints an exception behind its traceback: "ValueError", "torch.cuda.OutOfMemoryError: CUDA out of memory".
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Warning)(?::.*)?$"
)
_SPEAKS_OF_ERROR = re.compile(
    r"\b(?:error|fatal|failed|not found|no such|denied|abort\w*)\b", re.IGNORECASE
)
# Programs that start others report the failure of those; what the other one printed says more.
_OF_ANOTHER = ("CalledProcessError", "ChildFailedError", "SystemExit")
# Around the tracebacks of Rich, and beside those of exception groups.
_FRAME = "│", "╭", "╰", "|", "+"
# What differs between failures of one kind: addresses, names of temporary files, hashes, numbers.
_DIFFERS = re.compile(
    r"0x[0-9a-fA-F]+|/tmp/[^\s'\",:)]+|\b(?=[a-f]*\d)[0-9a-f]{8,}\b|[-+]?\d+(?:[.,_]\d+)*(?:[eE][-+]?\d+)?"
)
# Packages whose name is not that of their module.
_PACKAGES = {
    "cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image",
    "yaml": "pyyaml", "bs4": "beautifulsoup4", "dotenv": "python-dotenv", "Crypto": "pycryptodome",
    "pl_bolts": "lightning-bolts", "git": "gitpython", "dateutil": "python-dateutil", "attr": "attrs",
}  # fmt: skip


def find_reason(errors: bytes, printed: bytes) -> str:
    """The line that says why a program failed, from the ends of standard error and output; "" without any line.

    That line is the exception of the last traceback, else the last line that looks like an exception, else the last
    one that speaks of an error, else the last one of standard error. The last line of standard output may be about
    anything, and is marked as what it is.
    """
    streams = [_lines(errors), _lines(printed)]
    for find in (_after_traceback, _exception, _error):
        for lines in streams:
            found = find(lines)
            if found:
                return shorten(found)
    if streams[0]:
        return shorten(streams[0][-1])
    return shorten(LAST_LINE + streams[1][-1].strip()) if streams[1] else ""


def describe_failure(
    cause: str, code: Optional[int], number: Optional[int], why: str, note: str = ""
) -> str:
    """Why a trial failed, in one line: in its own words where they say more than its cause.

    `code` and `number` are its exit code and the signal that ended it, `note` is what the agent found out.
    """
    if cause == Cause.DIVERGED.value:
        return f"{cause}: {note}" if note else cause
    if cause not in (Cause.FAILED.value, Cause.KILLED.value):
        return cause
    how = f"killed by signal {number}" if number else f"exit code {code}"
    if why and not number and not why.startswith(LAST_LINE):
        return why
    return f"{how}, {why}" if why else f"{how}, without a message"


def reason_key(text: str) -> str:
    """The same text for reasons that differ in numbers, addresses or names of temporary files only."""
    return _DIFFERS.sub("#", text)


def package_of(module: str) -> str:
    """The name under which `pip` knows the package that has a module."""
    name = module.partition(".")[0]
    return _PACKAGES.get(name, name)


def shorten(text: str) -> str:
    """One line without control characters, of bounded length."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text.strip())
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1].rstrip() + "…"


def from_traceback(text: str) -> str:
    """The last traceback in a text and what follows it; the whole text where there is none."""
    begin = text.rfind(_HEAD)
    return text if begin < 0 else text[begin:]


def _lines(text: bytes) -> List[str]:
    plain = _ESCAPE.sub("", text.decode("utf-8", "replace")).replace("\r", "\n")
    return [line.rstrip() for line in plain.split("\n") if line.strip()]


def _after_traceback(lines: List[str]) -> Optional[str]:
    """The exception of the last traceback, or of the one before it where the last is about another program's end."""
    found: List[str] = []
    waiting = False
    for line in lines:
        if _HEAD in line:
            waiting = True
        elif waiting and not line.startswith((" ", "\t", *_FRAME)):
            found.append(line)
            waiting = False
    of_its_own = [line for line in found if not line.split(":")[0].endswith(_OF_ANOTHER)]
    candidates = of_its_own or found
    return candidates[-1] if candidates else None


def _exception(lines: List[str]) -> Optional[str]:
    bare = (line.strip(" \t|") for line in reversed(lines))
    return next((line for line in bare if _EXCEPTION.match(line)), None)


def _error(lines: List[str]) -> Optional[str]:
    return next((line for line in reversed(lines) if _SPEAKS_OF_ERROR.search(line)), None)
