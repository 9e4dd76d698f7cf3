"""Whether the first trials of a study all fail alike, as agents report it in the register. Pure, Python 3.9.

In the register, among what agents have learned: {"first": {"alike": key, "reason": text, "failed": {agent: n}}} while
all that has failed has failed alike, and {"first": {"going": true}} once a trial is done, one failed otherwise, or the
user asked to go on in any case. The second is final until the next `run` or `retry`. Where the study has more than one
setting, seeds and repetitions aside, "settings" has the names of those that have failed, two of them at most.
"""

from __future__ import annotations

from typing import Any, Collection, Dict, Mapping, NamedTuple, Optional

LEAST = 3  # trials that fail alike before a study stops
_LEAST_SETTINGS = 2  # that they have among them, where the study has several
# How the reason begins that an agent gives for its end.
FAILED_ALIKE = "the first trials all failed: "
_NAME = "first"
Learned = Mapping[str, Any]


class Stop(NamedTuple):
    """No more trials begin: so many, and these were the first, have failed for one reason."""

    failed: int
    reason: str


def report_failures(
    learned: Learned,
    agent: str,
    failed: int,
    key: str,
    reason: str,
    settings: Optional[Collection[str]] = None,
) -> Dict[str, Any]:
    """`learned`, and that the first trials of an agent have failed alike: `failed` of them until now.

    `settings` are the names of the settings that they had; None where the study has only one.
    """
    first = _read(learned)
    if first.get("going"):
        return dict(learned)
    if first.get("alike", key) != key:
        return report_going(learned)
    counts = {**first.get("failed", {}), agent: failed}
    now = {"alike": key, "reason": first.get("reason", reason), "failed": counts}
    if settings is not None:
        now["settings"] = sorted({*first.get("settings", ()), *settings})[:_LEAST_SETTINGS]
    return {**learned, _NAME: now}


def report_going(learned: Learned) -> Dict[str, Any]:
    """`learned`, and that the study is worth going on with."""
    return {**learned, _NAME: {"going": True}}


def forget_first(learned: Learned, going: bool) -> Dict[str, Any]:
    """`learned` when the user starts a study anew: its trials are on trial again, unless it is known to be `going`."""
    if going:
        return report_going(learned)
    return {name: value for name, value in learned.items() if name != _NAME}


def is_going(learned: Learned) -> bool:
    return bool(_read(learned).get("going"))


def find_stop(learned: Learned) -> Optional[Stop]:
    """Why no more trials begin; None where they may."""
    first = _read(learned)
    counts = first.get("failed")
    if not isinstance(counts, dict) or first.get("going"):
        return None
    if has_one_setting(learned):
        return None
    failed = _count_failed(first)
    return Stop(failed, str(first.get("reason", ""))) if failed >= LEAST else None


def needs_another_setting(learned: Learned) -> bool:
    """Whether the next failure would be enough to stop, but for the setting that all failures share."""
    return has_one_setting(learned) and _count_failed(_read(learned)) >= LEAST - 1


def has_one_setting(learned: Learned) -> bool:
    """Whether all that has failed until now had one setting, and the study has others that may work."""
    settings = _read(learned).get("settings")
    return isinstance(settings, list) and len(settings) < _LEAST_SETTINGS


def _count_failed(first: Mapping[str, Any]) -> int:
    counts = first.get("failed")
    if not isinstance(counts, dict):
        return 0
    return sum(count for count in counts.values() if isinstance(count, int))


def _read(learned: Learned) -> Mapping[str, Any]:
    first = learned.get(_NAME)
    return first if isinstance(first, dict) else {}
