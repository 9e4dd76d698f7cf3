"""Folds rows that differ only in their seed into one, with its mean and how sure that is."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.collect.confidence import ci95_half_width
from windlass.core.errors import input_error
from windlass.core.meant import did_you_mean
from windlass.core.states import State

Row = dict[str, Any]

# What every row says of its trial besides its parameters and metrics: parameters stand between the two.
ROW_HEAD = ("id", "number")
ROW_TAIL = ("state", "cause", "attempts", "duration_s", "exit_code")
GROUP_STATISTICS = ("n", "mean", "std", "ci95", "failed", "nan")
_GROUP_KEYS = (*ROW_HEAD, *GROUP_STATISTICS, "command")
_NOT_WELL = frozenset({State.FAILED.value, State.INTERRUPTED.value})
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_STAT_SUFFIX = {"last": "", "min": ".min", "max": ".max"}


@dataclass(frozen=True)
class GroupRow:
    """One setting over all its seeds. Values that are not finite are counted in `nan` and are in no mean."""

    settings: dict[str, Any]
    number: int  # of its first trial
    n: int  # trials that are done, with a finite value
    mean: float | None
    std: float | None  # of the sample; None below two values
    ci95: float | None  # half the width of the 95 % confidence interval of the mean
    failed: int  # trials that failed or were interrupted
    nan: int

    def to_row(self) -> Row:
        settings = {
            reserved_name(name, _GROUP_KEYS): value for name, value in self.settings.items()
        }
        return {**settings, **{key: getattr(self, key) for key in GROUP_STATISTICS}}


def reserved_name(name: str, reserved: Sequence[str]) -> str:
    """The column of a parameter; one that is called as a column of ours gets a prefix."""
    return f"param.{name}" if name in reserved else name


def parameter_names(row: Row, seed_name: str = "seed") -> tuple[str, ...]:
    """The parameters of a result row, without the seed."""
    return _parameter_names(tuple(row), seed_name)


def metric_columns(row: Row, metric: str) -> Mapping[str, str]:
    """The columns of a metric's last, min and max; with a prefix where a parameter has the same name."""
    return _metric_columns(tuple(row), metric)


# A study's rows have few layouts, and asking each row anew would take longer than everything else.
@functools.lru_cache(maxsize=256)
def _parameter_names(layout: tuple[str, ...], seed_name: str) -> tuple[str, ...]:
    before = layout[: layout.index(ROW_TAIL[0])]
    return tuple(name for name in before if name not in ROW_HEAD and name != seed_name)


@functools.lru_cache(maxsize=256)
def _metric_columns(layout: tuple[str, ...], metric: str) -> Mapping[str, str]:
    own = layout[: layout.index(ROW_TAIL[-1]) + 1]
    names = {stat: metric + suffix for stat, suffix in _STAT_SUFFIX.items()}
    taken = any(name in own for name in names.values())
    return {stat: f"metric.{name}" for stat, name in names.items()} if taken else names


def group_rows(
    rows: Iterable[Row],
    by: Sequence[str] | None,
    metric: str,
    stat: str = "last",
    seed_name: str = "seed",
) -> list[GroupRow]:
    """Rows with equal values of the parameters `by` (default: all but the seed) as one, in order."""
    if stat not in _STAT_SUFFIX:
        raise input_error(f"there is no statistic {stat!r}", f"one of: {', '.join(_STAT_SUFFIX)}")
    groups: dict[str, _Group] = {}
    known: dict[str, None] = {}
    for row in rows:
        parameters = parameter_names(row, seed_name)
        known.update(dict.fromkeys(parameters))
        names = parameters if by is None else by
        settings = {name: row[name] for name in names if by is None or name in row}
        key = _canonical(settings)
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(settings, row["number"])
        group.add(row["state"], row.get(metric_columns(row, metric)[stat]))
    if groups and by is not None:
        _check_names(by, [*known, seed_name])
    return [group.finish() for group in groups.values()]


def _check_names(by: Sequence[str], known: Sequence[str]) -> None:
    for name in by:
        if name not in known:
            hint = did_you_mean(name, known) or f"one of: {', '.join(known)}"
            raise input_error(f"there is no parameter {name!r} to group by", hint)


@dataclass
class _Group:
    """A group under way: mean and squared deviations by Welford's method, which keeps its digits."""

    settings: dict[str, Any]
    number: int
    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    failed: int = 0
    nan: int = 0

    def add(self, state: str, value: Any) -> None:
        """Add one trial. Mean and deviation are updated one by one (Welford), so that no values have to be kept."""
        if state in _NOT_WELL:
            self.failed += 1
        if not isinstance(value, (int, float)) or state == State.RUNNING.value:  # none, or text
            return
        if not math.isfinite(value):
            self.nan += 1
        elif state == State.DONE.value:
            self.n += 1
            delta = value - self.mean
            self.mean += delta / self.n
            self.squares += delta * (value - self.mean)

    def finish(self) -> GroupRow:
        """The row of the group. A deviation and an interval need two values at least."""
        enough = self.n >= 2
        std = math.sqrt(self.squares / (self.n - 1)) if enough else None
        return GroupRow(
            settings=self.settings,
            number=self.number,
            n=self.n,
            mean=self.mean if self.n else None,
            std=std,
            ci95=ci95_half_width(std, self.n) if std is not None else None,
            failed=self.failed,
            nan=self.nan,
        )
