"""The best of a study in a line, and what to do where trials did not report the metric. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from windlass.collect.printed import PrintedNumber
from windlass.collect.standing import Missing, Standing
from windlass.core.counted import counted
from windlass.core.meant import nearest_word
from windlass.view.numbers import render_means, render_number, render_numbers
from windlass.view.table import render_cell

_SHOWN_PARAMETERS = 8
_SHOWN_NAMES = 20
_TRAINING = re.compile("train", re.IGNORECASE)


def render_standing(standing: Standing) -> list[str]:
    """Lines for the end of a run: the best, and how many trials did not report the metric."""
    lines = []
    if standing.best is not None:
        lines.append(_render_best(standing))
    return [*lines, *render_missing(standing.missing)]


def _render_best(standing: Standing) -> str:
    """The best trial in one line, or with seeds the best setting and its mean.

    Only the first few parameters are named.
    """
    row, metric = standing.best or {}, standing.metric
    settings = [f"{name}={render_cell(row[name])}" for name in standing.varying if name in row]
    setting = ", ".join(settings[:_SHOWN_PARAMETERS]) + (
        ", …" if len(settings) > _SHOWN_PARAMETERS else ""
    )
    goal = "highest" if metric.goal == "maximize" else "lowest"
    if "mean" in row:
        mean = render_means([(row["mean"], row["ci95"])])[0]
        over = f"mean of {row['n']}, the {goal}"
        return f"best {metric.name}: {mean} ({over})" + (f" with {setting}" if setting else "")
    value = render_numbers([row.get(metric.name, row.get(f"metric.{metric.name}"))])[0]
    return f"best {metric.name}: {value} (the {goal}), trial {row['number']}" + (
        f" with {setting}" if setting else ""
    )


def render_missing(missing: Missing) -> list[str]:
    """Which trials have no value of a metric, and where it may be; nothing where all done trials have one."""
    if not missing.without:
        return []
    metric = render_cell(missing.metric)
    if missing.without < missing.done:
        return [
            f"{missing.without:,} of {counted(missing.done, 'done trial')} did not report {metric}"
        ]
    lines = [
        f"no trial reported {metric}: {counted(missing.done, 'trial')} done, none has a value of it"
    ]
    printed = [one.name for one in missing.listed]
    names = list(dict.fromkeys([*missing.reported, *printed]))
    if not names:
        return [
            *lines,
            f"their output has no numbers with names; print it (`{metric}=0.12`) or call windlass.log",
        ]
    if missing.reported:
        more = ", …" if len(missing.reported) > _SHOWN_NAMES else ""
        lines.append(
            f"they reported: {', '.join(map(render_cell, missing.reported[:_SHOWN_NAMES]))}{more}"
        )
    if missing.listed:
        lines.append(f"their output has: {', '.join(map(_render_number, missing.listed))}")
    closest = _closest(missing.metric, names)
    command = f"`windlass results --metric {shlex.quote(render_cell(closest))}`"
    if closest in missing.reported:
        return [*lines, f"{command} compares the trials by it"]
    return [*lines, f"{command} reads it from there; nothing has to run again"]


def _closest(metric: str, names: Sequence[str]) -> str:
    """The name that was probably meant: a similar one, one that holds the other, or else the first.

    One of the training data is only meant where it is named, or where there is no other.
    """
    if _TRAINING.search(metric):
        return _similar(metric, names) or names[0]
    others = [name for name in names if not _TRAINING.search(name)]
    return _similar(metric, others) or _similar(metric, names) or [*others, *names][0]


def _similar(metric: str, names: Sequence[str]) -> str | None:
    """A name like the metric's, or one that holds the other; None where there is none."""
    lower = metric.lower()
    holding = [name for name in reversed(names) if lower in name.lower() or name.lower() in lower]
    return nearest_word(metric, names) or next(iter(holding), None)


def render_unnamed(listed: Sequence[PrintedNumber]) -> list[str]:
    """For a study that names no metric: which one the output would have."""
    if not listed:
        return []
    first = shlex.quote(render_cell(listed[0].name))
    names = ", ".join(map(_render_number, listed))
    return [
        f"the output has: {names}",
        f"`windlass results --metric {first}` compares the trials by one of them",
    ]


def _render_number(number: PrintedNumber) -> str:
    return f"{render_cell(number.name)} ({render_number(number.value)})"
