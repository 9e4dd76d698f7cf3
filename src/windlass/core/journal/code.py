"""Which code and settings trials have, as plan.json and agents' headers carry it. Python 3.9, standard library."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

_COMMIT_LENGTH = 10


def code_facts(code: Mapping[str, Any]) -> Dict[str, Any]:
    """What an agent records of the frozen code that it begins with: which archive, and what git reported of it."""
    return {"key": code["key"], "commit": code.get("commit"), "dirty": bool(code.get("dirty"))}


def code_key(code: Optional[Mapping[str, Any]]) -> str:
    """The name of frozen code, as plan.json or a header has it; "" where trials are executed in the project itself."""
    return str((code or {}).get("key", ""))


def has_other_settings(began_with: Optional[str], now: Optional[str]) -> bool:
    """Whether the `settings_key` of plan.json is another one now than the one that an agent began with.

    False where one of them was written by a version that had no such key: then nobody knows.
    """
    return bool(began_with and now and began_with != now)


def render_code(code: Optional[Mapping[str, Any]]) -> str:
    """Such as ``commit 1a2b3c4d5e + uncommitted (code-0123456789ab)``; "" where nothing was recorded.

    The name of the archive tells two versions apart that have the same commit.
    """
    if not code:
        return ""
    commit = str(code["commit"])[:_COMMIT_LENGTH] if code.get("commit") else ""
    text = f"commit {commit}" if commit else "no commit"
    if commit and code.get("dirty"):
        text += " + uncommitted"
    if code.get("live"):
        return f"{text}, live"
    return text if commit and not code.get("dirty") else f"{text} ({code.get('key', '?')})"
