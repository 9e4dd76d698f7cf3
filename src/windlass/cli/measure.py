"""windlass measure: what one trial needs, and how many share a device best."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from windlass.bundle.folder import remember_place
from windlass.cli.examples import check_example
from windlass.cli.options import json_option, place_options
from windlass.cli.request import Asked, read_request, warn
from windlass.cli.study_options import CommandWithProgram, study_options
from windlass.core.counted import counted
from windlass.core.errors import input_error
from windlass.core.paths import StudyPaths
from windlass.core.units import parse_duration_s, render_duration
from windlass.flow import Reporter, check_plan
from windlass.measure.scaling import (
    kept_aside,
    parse_counts,
    point_of,
    write_scaling,
)
from windlass.measure.spread import Spread, choose_spread
from windlass.measure.start import (
    Wish,
    measure_study,
)
from windlass.measured import Measurement, Scaling
from windlass.view.curve import render_measurement
from windlass.view.curve_svg import render_curve_svg
from windlass.view.scaling import render_scaling, render_scaling_svg

_LEAST_S = 1.0
_PLOT_HINT = "--plot FILE.svg names a file that can be written"


@click.command(cls=CommandWithProgram)
@study_options
@place_options
@click.option("--here", is_flag=True, help="With --on local: execute trials even on a login host.")
@click.option(
    "--limit",
    default="5m",
    metavar="TIME",
    show_default=True,
    help="How long the whole measurement may take.",
)
@click.option(
    "--trial-limit",
    default="60s",
    metavar="TIME",
    show_default=True,
    help="How long one trial alone may be measured.",
)
@click.option(
    "--no-curve",
    is_flag=True,
    help="Measure only what one trial needs, not how many share a device best.",
)
@click.option(
    "--scaling",
    metavar="N,N,…",
    help="With a launcher: measure one trial with each of these numbers of processes, e.g. 1,2,4.",
)
@click.option("--plot", metavar="FILE", help="Also draw the curve into this SVG file.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    limit: str,
    trial_limit: str,
    no_curve: bool,
    scaling: str | None,
    plot: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure a few trials of a study: what one needs, and how many side by side bring most.

    \b
    windlass measure study.yaml
    windlass measure study.yaml --on slurm -G a100

    Trials are ended as soon as they have shown enough; their results do not count. What is found stands in the
    study's folder, and `plan` and `run` ask for exactly that. On a cluster it takes one short job with one GPU.
    """
    wish = _read_wish(limit, trial_limit, not no_curve)
    if scaling is not None:
        return _scale(ctx.meta["arguments"], options, wish, scaling, plot, as_json)
    if plot is not None:
        _check_plot(plot, wish)
    asked = _read_request(ctx.meta["arguments"], options)
    check_example(asked.study)
    spread = choose_spread(asked.study, asked.study.variants)
    if spread.left_out:
        others = counted(spread.left_out, "more variant is", "more variants are")
        warn([f"{others} not measured; the largest stand for all"])
    measurement = _measure(asked, spread, wish)
    remember_place(asked.plan)
    if as_json:
        print(json.dumps(dataclasses.asdict(measurement), indent=2, ensure_ascii=False))
    else:
        plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        print(
            render_measurement(measurement, _study_words(asked, options), plain), end="", flush=True
        )
    if plot is not None:
        _draw(measurement, plot, asked.study.name)
    return 0


def _scale(
    arguments: tuple[str, ...],
    options: dict[str, Any],
    wish: Wish,
    scaling: str,
    plot: str | None,
    as_json: bool,
) -> int:
    """Measure one trial alone with each number of processes, and say what more of them bring."""
    counts = parse_counts(scaling)
    if plot is not None:
        _check_plot(plot, wish)
    asked = read_request(arguments, dict(options))
    kind = "gpus" if asked.plan.settings["gpus"].value else "processes"
    paths = StudyPaths(asked.plan.folder)
    points = []
    with kept_aside(paths.measured):
        for count in counts:
            _say(f"{counted(count, 'process', 'processes')}:")
            sized = (
                {"gpus": float(count)} if kind == "gpus" else {"processes": count, "cpus": count}
            )
            one = read_request(arguments, {**options, **sized})
            spread = dataclasses.replace(choose_spread(one.study, ()), alone=1)
            alone = dataclasses.replace(wish, curve=False)
            points.append(point_of(count, _measure(one, spread, alone)))
    result = Scaling(kind, tuple(points))
    write_scaling(paths.folder, result)
    if as_json:
        print(json.dumps(dataclasses.asdict(result), indent=2))
    else:
        print(render_scaling(result), end="", flush=True)
    if plot is not None:
        _write_plot(plot, render_scaling_svg(result, asked.study.name))
    return 0


def _read_request(arguments: tuple[str, ...], options: dict[str, Any]) -> Asked:
    """A study that does not ask for GPUs is measured on one where this machine has any: it may find it anyway."""
    asked = read_request(arguments, dict(options))
    if asked.plan.settings["gpus"].value is None and asked.place.has_free_gpus():
        return read_request(arguments, {**options, "gpus": 1.0})
    return asked


def _read_wish(limit: str, trial_limit: str, curve: bool) -> Wish:
    """The limits that the user gave.

    Raises InputError for a duration that cannot be read or is too short to measure anything.
    """
    try:
        wish = Wish(parse_duration_s(limit), parse_duration_s(trial_limit), curve)
    except ValueError as error:
        raise input_error(str(error), "write --limit 5m --trial-limit 60s") from None
    if min(wish.limit_s, wish.trial_limit_s) < _LEAST_S:
        raise input_error(
            f"in less than {_LEAST_S:g} s nothing can be measured",
            "write --limit 5m --trial-limit 60s",
        )
    return wish


def _check_plot(path: str, wish: Wish) -> None:
    """Before anything is started: a measurement takes minutes."""
    if not wish.curve:
        raise input_error(
            "--plot draws the curve, and --no-curve asks for none", "leave one of them out"
        )
    where = os.path.abspath(path)
    folder = os.path.dirname(where)
    if os.path.isdir(where):
        raise input_error(f"--plot {path}: this is a folder", _PLOT_HINT)
    if not os.path.isdir(folder):
        raise input_error(
            f"--plot {path}: there is no folder {folder}", f"mkdir -p {shlex.quote(folder)}"
        )
    if not os.access(where if os.path.exists(where) else folder, os.W_OK):
        raise input_error(f"--plot {path}: you may not write there", _PLOT_HINT)


def _study_words(asked: Asked, options: dict[str, Any]) -> list[str]:
    """What names this study and its folder; nothing where all was given on the command line."""
    if not asked.study.source:
        return []
    named = (("--folder", options["folder"]), ("--name", options["name"]))
    return [
        asked.study.source,
        *(argument for option, value in named if value is not None for argument in (option, value)),
    ]


def _measure(asked: Asked, spread: Spread, wish: Wish) -> Measurement:
    """Measure at the place where the study would run, and return what was found.

    A job that may not last as long as --limit gets as much as there is, with a warning.
    """
    place = asked.place
    place.require()
    plan, limit_s = place.plan_measuring(asked.plan, wish.limit_s)
    if plan.request is not None and limit_s < wish.limit_s:
        lasts, gets, asks = map(render_duration, (plan.request.time_s, limit_s, wish.limit_s))
        warn(
            [f"a job lasts {lasts} at most there: the measurement gets {gets}, not --limit {asks}"]
        )
    # A job has room for one trial at least.
    check_plan(place, dataclasses.replace(plan, slots=1), _Warner())
    return measure_study(place, plan, spread, dataclasses.replace(wish, limit_s=limit_s), _say)


class _Warner(Reporter):
    """Shows what is found before anything is measured."""

    def warn(self, warnings: Sequence[str]) -> None:
        warn(warnings)

    def say(self, text: str) -> None:
        _say(text)


def _draw(measurement: Measurement, path: str, title: str) -> None:
    """Write the curve as a picture. A measurement without a curve only causes a warning."""
    try:
        _write_plot(path, render_curve_svg(measurement, title))
    except ValueError as error:
        warn([f"nothing to draw: {error}"])


def _write_plot(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise input_error(f"{path}: {error.strerror}", _PLOT_HINT) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
