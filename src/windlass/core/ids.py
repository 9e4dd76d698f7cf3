"""Names for trials and agents, and settings as they are shown. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from typing import Any, Dict, Mapping, Optional

_PADDED = re.compile(r"[+-]?0[0-9_]+")
_BASE_32 = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyz234567", b"0123456789abcdefghijklmnopqrstuv")
_BASE_32_TEXT = str.maketrans(
    "abcdefghijklmnopqrstuvwxyz234567", "0123456789abcdefghijklmnopqrstuv"
)
_ID = re.compile("t[a-z2-7]{12}")

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def trial_id(settings: Any, command: str) -> str:
    """Stable name of one setting of one command: ``t`` and 12 base32 letters (60 bits).

    `command` is the canonical text of the command before parameters are filled in, so that writing ``1e-3`` as
    ``0.001`` names the same trial.
    """
    import base64  # commands that only look at a study need no new ids

    digest = hashlib.blake2b(
        (_canonical(settings) + "\0" + command).encode("utf-8", "surrogatepass"), digest_size=10
    )
    return "t" + base64.b32encode(digest.digest())[:12].decode("ascii").lower()


def agent_id() -> str:
    """A name no other agent has, that sorts by start time."""
    return agent_id_at(time.time()) + os.urandom(3).hex()


def agent_id_at(moment: float) -> str:
    """What the names of agents that begin at a moment begin with."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(moment))


def slug(text: str) -> str:
    """Any text as a safe folder name; never empty."""
    cleaned = re.sub(r"[^\w.+-]+", "-", text.strip()).strip("-.")
    return cleaned[:80] or "study"


# -- ids as 64-bit numbers, which the index of trials has


def id_number(trial_id: str) -> int:
    """A trial's id as a 64-bit number; two trials have the same number only if they have the same id.

    Works for the beginning of an id, too: the ids that begin so have the numbers from this one up to
    `id_number_stop`.
    """
    if _ID.fullmatch(trial_id):
        return int(trial_id[1:].translate(_BASE_32_TEXT), 32) << 4
    import base64

    return int.from_bytes(base64.b32decode(trial_id[1:].upper().ljust(13, "A") + "==="), "big")


def id_number_stop(beginning: str) -> int:
    """The first number that no id beginning so has."""
    return id_number(beginning) + (1 << (64 - 5 * len(beginning[1:])))


def beginning_number(beginning: str) -> Optional[int]:
    """`id_number` of an id or its beginning, much faster; None where it is none."""
    try:
        return int(beginning[1:].translate(_BASE_32_TEXT), 32) << (69 - 5 * len(beginning))
    except (ValueError, AttributeError, TypeError):
        return None


def id_beginning(identifier: int, letters: int) -> str:
    """The first letters of the id that has this number."""
    return "t" + letters_of(identifier)[: letters - 1].decode("ascii")


def letters_number(letters: bytes) -> int:
    """`id_number` of the twelve letters after the t; much faster."""
    return int(letters.translate(_BASE_32), 32) << 4


def letters_of(identifier: int) -> bytes:
    """The inverse of `letters_number`."""
    import base64

    return base64.b32encode(identifier.to_bytes(8, "big"))[:12].lower()


def settings_as_given(trial: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings in a trial's line as they are shown: a whole number with leading zeros, 007, is text.

    Other notations (1e-3, 0x10, 1_000) stay numbers, so that what reads tables can count with them.
    """
    settings: Dict[str, Any] = trial["settings"]
    written = trial.get("written")
    if not written:
        return settings
    padded = {
        name: text for name, text in written.items() if name in settings and _PADDED.fullmatch(text)
    }
    return {**settings, **padded}
