"""Why trials failed, put together: those that failed alike are one group, with the settings that they share."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from windlass import __version__
from windlass.collect.index import StudyIndex
from windlass.collect.reconcile import FailureGroup
from windlass.core.claims.ranges import Ranges, contains
from windlass.core.ids import settings_as_given
from windlass.core.journal.reason import describe_failure, reason_key
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause, State
from windlass.core.trialfile import TrialFile

# Trials of a group whose settings are compared; of a larger group nothing is claimed.
_MOST_READ = 2000
_OTHERS_READ = 200
_NAMED = 10


class Failed(NamedTuple):
    """What the index knows of a trial that failed."""

    number: int
    cause: str | None
    exit_code: int | None
    signal: int | None
    stage: str | None
    why: str | None
    note: str | None

    @property
    def reason(self) -> str:
        """Why it failed, in one line, as far as anybody knows."""
        cause = self.cause or Cause.FAILED.value
        text = describe_failure(
            cause, self.exit_code, self.signal, str(self.why or ""), str(self.note or "")
        )
        return f"{text} (in stage {self.stage})" if self.stage else text


def read_failures(
    paths: StudyPaths, index: StudyIndex, current: Ranges
) -> tuple[FailureGroup, ...]:
    """The groups of trials that failed, of those that the study has now; the largest group first.

    They are worked out once and remembered until a journal grows.
    """
    question = json.dumps(["failures", __version__, current])
    found = index.remembered(
        question, lambda: [asdict(group) for group in _find_groups(paths, index, current)]
    )
    return tuple(FailureGroup(**{**group, "trials": tuple(group["trials"])}) for group in found)


def _find_groups(paths: StudyPaths, index: StudyIndex, current: Ranges) -> tuple[FailureGroup, ...]:
    """The failed trials by what they have in common: cause, exit code, signal, stage and reason."""
    key_of = functools.lru_cache(maxsize=4096)(reason_key)
    groups: dict[tuple[Any, ...], list[Failed]] = {}
    for failed in map(Failed._make, index.failed()):
        if contains(current, failed.number):
            key = (
                failed.cause,
                failed.exit_code,
                failed.signal,
                failed.stage,
                key_of(failed.reason),
            )
            groups.setdefault(key, []).append(failed)
    if not groups:
        return ()
    settings = _Settings(
        paths, [n for n in index.numbers((State.DONE, State.FAILED)) if contains(current, n)]
    )
    try:
        found = [_group(members, settings) for members in groups.values()]
    finally:
        settings.close()
    return tuple(sorted(found, key=lambda group: (-group.count, group.trials)))


def _group(members: Sequence[Failed], settings: _Settings) -> FailureGroup:
    """A group of failed trials, with the settings that only they share."""
    first = members[0]
    numbers = [member.number for member in members]
    return FailureGroup(
        count=len(members),
        reason=first.reason,
        cause=first.cause or Cause.FAILED.value,
        is_same=all(member.reason == first.reason for member in members),
        settings=settings.shared_only_by(numbers),
        trials=tuple(numbers[:_NAMED]),
    )


class _Settings:
    """Compares the settings of trials."""

    def __init__(self, paths: StudyPaths, ended: Sequence[int]) -> None:
        self._ended = ended  # trials that are done or failed
        self._trials = TrialFile(paths)

    def close(self) -> None:
        self._trials.close()

    def shared_only_by(self, numbers: Sequence[int]) -> dict[str, Any]:
        """The settings that these trials share, without those that all others have as well. Empty where none ended."""
        members = set(numbers)
        others = [number for number in self._ended if number not in members]
        if not others or len(numbers) > _MOST_READ:
            return {}
        settings = self._read(numbers)
        shared = next(settings)
        for other in settings:
            shared = _agreeing(shared, other)
            if not shared:
                return {}
        spaced = others[:: max(1, len(others) // _OTHERS_READ)]
        return _differing(shared, self._read(spaced))

    def _read(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        return (settings_as_given(trial) for _, trial in self._trials.read_many(numbers))


def _agreeing(settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in settings.items() if name in other and other[name] == value
    }


def _differing(settings: dict[str, Any], others: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Those settings that at least one of the others has otherwise."""
    left = dict(settings)
    found: set[str] = set()
    for other in others:
        changed = [
            name for name, value in left.items() if name not in other or other[name] != value
        ]
        found.update(changed)
        for name in changed:
            del left[name]
    return {name: value for name, value in settings.items() if name in found}
