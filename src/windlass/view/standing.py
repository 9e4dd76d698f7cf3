"""The best of a study in a line, and what to do where trials did not report the metric. Pure."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence

from windlass.collect.printed import PrintedNumber
from windlass.collect.standing import Missing, Standing
from windlass.counted import counted
from windlass.view.numbers import render_means, render_numbers
from windlass.view.table import render_cell

_SHOWN_PARAMETERS = 8


def render_standing(standing: Standing) -> list[str]:
    """Lines for the end of a run: the best, and how many trials did not report the metric."""
    lines = []
    if standing.best is not None:
        lines.append(_render_best(standing))
    return [*lines, *render_missing(standing.missing)]


def _render_best(standing: Standing) -> str:
    row, metric = standing.best or {}, standing.metric
    settings = [f"{name}={render_cell(row[name])}" for name in standing.varying if name in row]
    setting = ", ".join(settings[:_SHOWN_PARAMETERS]) + (", …" if len(settings) > _SHOWN_PARAMETERS else "")
    goal = "highest" if metric.goal == "maximize" else "lowest"
    if "mean" in row:
        mean = render_means([(row["mean"], row["ci95"])])[0]
        over = f"mean of {row['n']}, the {goal}"
        return f"best {metric.name}: {mean} ({over})" + (f" with {setting}" if setting else "")
    value = render_numbers([row.get(metric.name, row.get(f"metric.{metric.name}"))])[0]
    return f"best {metric.name}: {value} (the {goal}), trial {row['number']}" + (f" with {setting}" if setting else "")


def render_missing(missing: Missing) -> list[str]:
    """Which trials have no value of a metric, and where it may be; nothing where all done trials have one."""
    if not missing.without:
        return []
    metric = render_cell(missing.metric)
    if missing.without < missing.done:
        return [f"{missing.without:,} of {counted(missing.done, 'done trial')} did not report {metric}"]
    lines = [f"no trial reported {metric}: {counted(missing.done, 'trial')} done, none has a value of it"]
    if not missing.listed:
        return [*lines, f"their output has no numbers with names; print it (`{metric}=0.12`) or call windlass.log"]
    first = shlex.quote(render_cell(_closest(missing.metric, [one.name for one in missing.listed])))
    return [
        *lines,
        f"their output has: {', '.join(map(_render_number, missing.listed))}",
        f"`windlass results --metric {first}` reads it from there; nothing has to run again",
    ]


def _closest(metric: str, names: Sequence[str]) -> str:
    """The name that was probably meant: a similar one, one that holds the other, or else the first."""
    similar = difflib.get_close_matches(metric, names, 1)
    holding = [name for name in names if metric.lower() in name.lower() or name.lower() in metric.lower()]
    return [*similar, *holding, *names][0]


def render_unnamed(listed: Sequence[PrintedNumber]) -> list[str]:
    """For a study that names no metric: which one the output would have."""
    if not listed:
        return []
    first = shlex.quote(render_cell(listed[0].name))
    names = ", ".join(map(_render_number, listed))
    return [f"the output has: {names}", f"`windlass results --metric {first}` compares the trials by one of them"]


def _render_number(number: PrintedNumber) -> str:
    return f"{render_cell(number.name)} ({number.value:.4g})"
