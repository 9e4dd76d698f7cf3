"""windlass measure: what one trial needs, and how many share a device best."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
import time
from typing import Any

import click

from windlass.bundle.environment import prepare_environment
from windlass.bundle.folder import remember_place
from windlass.cli.examples import check_example
from windlass.cli.options import CommandWithWords, json_option, place_options, study_options
from windlass.cli.request import Asked, read_request, warn
from windlass.counted import counted
from windlass.durations import spell_duration
from windlass.errors import input_error
from windlass.measure.spread import Spread, choose_spread
from windlass.measure.start import (
    Wish,
    follow_measuring,
    measure_here,
    measuring_folder,
    plan_job,
    submit_measuring,
)
from windlass.measure.turn import MeasuringTurn
from windlass.measured import Measurement
from windlass.refusals import check_local_plan, check_slurm_plan
from windlass.site.local import fetch_local_site
from windlass.spec.units import parse_duration_s
from windlass.view.curve import render_measurement
from windlass.view.curve_svg import render_curve_svg

_LEAST_S = 1.0
_PLOT_HINT = "--plot FILE.svg names a file that can be written"


@click.command(cls=CommandWithWords)
@study_options
@place_options
@click.option("--here", is_flag=True, help="With --on local: also on a login host.")
@click.option("--limit", default="5m", metavar="TIME", show_default=True, help="The whole measurement, at most.")
@click.option("--trial-limit", default="60s", metavar="TIME", show_default=True, help="One trial alone, at most.")
@click.option("--no-curve", is_flag=True, help="Only what one trial needs, not how many share a device best.")
@click.option("--plot", metavar="FILE", help="Also draw the curve into this SVG file.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    limit: str,
    trial_limit: str,
    no_curve: bool,
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
    if plot is not None:
        _check_plot(plot, wish)
    asked = _read_request(ctx.meta["words"], options)
    check_example(asked.study)
    warn(asked.study.warnings)
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
        print(render_measurement(measurement, _study_words(asked, options), plain), end="", flush=True)
    if plot is not None:
        _draw(measurement, plot, asked.study.name)
    return 0


def _read_request(words: tuple[str, ...], options: dict[str, Any]) -> Asked:
    """A study that says nothing of GPUs is measured on one where this machine has any: it may find it anyway."""
    asked = read_request(words, dict(options))
    if asked.cluster is None and asked.plan.settings["gpus"].value is None and fetch_local_site().gpus:
        return read_request(words, {**options, "gpus": 1.0})
    return asked


def _read_wish(limit: str, trial_limit: str, curve: bool) -> Wish:
    try:
        wish = Wish(parse_duration_s(limit), parse_duration_s(trial_limit), curve)
    except ValueError as error:
        raise input_error(str(error), "write --limit 5m --trial-limit 60s") from None
    if min(wish.limit_s, wish.trial_limit_s) < _LEAST_S:
        raise input_error(f"in less than {_LEAST_S:g} s nothing can be measured", "write --limit 5m --trial-limit 60s")
    return wish


def _check_plot(path: str, wish: Wish) -> None:
    """Before anything is started: a measurement takes minutes."""
    if not wish.curve:
        raise input_error("--plot draws the curve, and --no-curve asks for none", "leave one of them out")
    where = os.path.abspath(path)
    folder = os.path.dirname(where)
    if os.path.isdir(where):
        raise input_error(f"--plot {path}: this is a folder", _PLOT_HINT)
    if not os.path.isdir(folder):
        raise input_error(f"--plot {path}: there is no folder {folder}", f"mkdir -p {shlex.quote(folder)}")
    if not os.access(where if os.path.exists(where) else folder, os.W_OK):
        raise input_error(f"--plot {path}: you may not write there", _PLOT_HINT)


def _study_words(asked: Asked, options: dict[str, Any]) -> list[str]:
    """What names this study and its folder; nothing where it was all said on the command line."""
    if not asked.study.source:
        return []
    said = (("--folder", options["folder"]), ("--name", options["name"]))
    return [asked.study.source, *(word for option, value in said if value is not None for word in (option, value))]


def _measure(asked: Asked, spread: Spread, wish: Wish) -> Measurement:
    began = time.time()
    if asked.cluster is None:
        warn(check_local_plan(asked.plan))
        then = ", then several at a time" if wish.curve and len(spread.trials) > 1 else ""
        with MeasuringTurn(measuring_folder(asked.plan)):
            _say(f"measuring {counted(spread.alone, 'trial')} on this machine{then}")
            return measure_here(asked.plan, spread, wish, _say)
    asked.require_scheduler()
    plan, fitting = plan_job(asked.plan, asked.cluster, wish)
    if plan.request is not None and fitting.limit_s < wish.limit_s:
        lasts, gets, asks = map(spell_duration, (plan.request.time_s, fitting.limit_s, wish.limit_s))
        warn([f"a job lasts {lasts} at most there: the measurement gets {gets}, not --limit {asks}"])
    warn(check_slurm_plan(dataclasses.replace(plan, slots=1), asked.cluster))  # the job has room for one trial at least
    prepare_environment(plan, asked.cluster.internet, _say)
    with MeasuringTurn(measuring_folder(plan)):
        paths, submitted = submit_measuring(plan, spread, fitting)
        jobs = ", ".join(map(str, submitted.jobs))
        _say(f"measuring {counted(spread.alone, 'trial')} in job {jobs}; Ctrl-C cancels it")
        return follow_measuring(plan, spread, paths, began, _say)


def _draw(measurement: Measurement, path: str, title: str) -> None:
    try:
        text = render_curve_svg(measurement, title)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except ValueError as error:
        warn([f"nothing to draw: {error}"])
    except OSError as error:
        raise input_error(f"{path}: {error.strerror}", _PLOT_HINT) from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
