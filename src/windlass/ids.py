"""Names for trials and agents. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from typing import Any

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def trial_id(settings: Any, command: str) -> str:
    """Stable name of one setting of one command: ``t`` and 12 base32 letters (60 bits).

    `command` is the canonical text of the command before parameters are filled in, so that writing ``1e-3`` as
    ``0.001`` names the same trial.
    """
    digest = hashlib.blake2b((_canonical(settings) + "\0" + command).encode("utf-8", "surrogatepass"), digest_size=10)
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
