"""A plan as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.core.counted import counted
from windlass.core.units import (
    render_about,
    render_bytes,
    render_duration,
    render_limit,
    render_mb_limit,
)
from windlass.model import Cost, Environment, PackTerms, Plan, Request, Split, Study, Submitted
from windlass.view.numbers import render_with_unit
from windlass.view.table import pad, render_cell, render_columns

_LABEL_WIDTH = 11  # of the labels on the left: `study`, `agents`, `estimate` and so on


def plan_to_json(plan: Plan, preview: Submitted | None = None) -> dict[str, Any]:
    """Stable keys: study, folder, trials, missing, agents, submits, slots, request, pack, estimate_s, cost, settings, …

    `submits` is the number of agents that `run` would submit now; None where that is not known.
    """
    return {
        "study": plan.study.name,
        "folder": plan.folder,
        "source": plan.study.source,
        "method": plan.study.space.method,
        "trials": plan.trial_count,
        "missing": plan.missing_count,
        "agents": plan.agents,
        "submits": preview.agents if preview is not None else None,
        "agents_because": plan.agents_because,
        "slots": plan.slots,
        "slots_because": plan.slots_because,
        "request": {
            "launcher": plan.launcher,
            "cpus": plan.cpus,
            "cpus_per_slot": plan.cpus_per_slot,
            "gpus": list(plan.gpus),
            **_request_to_json(plan),
        },
        "pack": asdict(plan.pack) if plan.pack is not None else None,
        "estimate_s": plan.estimate_s,
        "estimate_because": plan.estimate_because,
        "cost": asdict(plan.cost) if plan.cost is not None else None,
        "alternatives": [asdict(split) for split in plan.alternatives],
        "settings": {
            key: {"value": one.value, "source": one.source} for key, one in plan.settings.items()
        },
        "warnings": [*plan.study.warnings, *plan.warnings],
        "examples": [
            {
                "id": trial.id,
                "settings": dict(trial.settings),
                "stages": [[name, list(arguments)] for name, arguments in trial.stages],
            }
            for trial in plan.examples
        ],
    }


def _request_to_json(plan: Plan) -> dict[str, Any]:
    """The request of one job for `--json`, with the cluster it goes to; empty where agents are no jobs."""
    if plan.request is None:
        return {}
    units = plan.units
    return {
        **asdict(plan.request),
        "site": plan.site_name,
        "site_asked": plan.site_asked,
        "waves": plan.waves,
        "units": units,
    }


def render_plan_text(plan: Plan, preview: Submitted | None = None, everything: bool = False) -> str:
    """The plan as text: first what the user will want to check, then what was set and where.

    `preview` tells how many agents `run` would submit, where the queue was asked; `everything` includes defaults.
    """
    return "\n".join([*_render_head(plan, preview), *_render_settings(plan, everything)])


def _render_head(plan: Plan, preview: Submitted | None) -> list[str]:
    """How many trials, their commands, where, how long, what it costs, what they read and leave."""
    study = plan.study
    trials = f"{counted(plan.trial_count, 'trial')}, {study.space.method}{_render_rest(plan)}"
    lines = [
        _field("study", f"{study.name}  ({trials})"),
        *_render_commands(plan),
        *_render_config(study),
    ]
    if plan.request is not None:
        lines += _render_jobs(plan, plan.request, preview)
    else:
        lines.append(_field("site", "this machine"))
    lines += _render_launch(plan)
    lines.append(_field("slots", f"{plan.slots} at a time  ({plan.slots_because})"))
    if plan.gpus:
        lines.append(_field("gpus", ", ".join(plan.gpus)))
    lines.append(_field("runs in", render_cell(_render_workdir(plan))))
    lines += _render_environment(study.environment)
    lines += _render_estimate(plan)
    if study.data:
        there = "  (unpacked on each node's own disk)" if plan.request is not None else ""
        lines.append(
            _field("data", f"{render_cell(', '.join(data.path for data in study.data))}{there}")
        )
    lines.append(_field("outputs", render_cell(_render_outputs(plan))))
    if study.metric:
        lines.append(_field("metric", f"{study.metric.name} ({study.metric.goal})"))
    return [*lines, _field("folder", render_cell(plan.folder))]


def _field(label: str, text: str) -> str:
    """A line of the plan: what it is about, and the value."""
    return pad(label, _LABEL_WIDTH) + text


def _render_rest(plan: Plan) -> str:
    """How many of the trials are to be executed, where it is not all of them."""
    if plan.missing_count == plan.trial_count:
        return ""
    return f"; {plan.missing_count:,} to do" if plan.missing_count else "; nothing is left to do"


def _render_commands(plan: Plan) -> list[str]:
    """A few of the commands that are to be executed, the last one among them."""
    if not plan.examples:
        return []
    texts = [[shlex.join(arguments) for _, arguments in trial.stages] for trial in plan.examples]
    between = plan.missing_count - len(texts)
    if between > 0:
        texts.insert(len(texts) - int(plan.shows_last), [f"… {between:,} more"])
    return ["commands", *(f"  {render_cell(text)}" for stages in texts for text in stages)]


def _render_outputs(plan: Plan) -> str:
    """Which files are kept of a trial, and where."""
    if plan.study.outputs:
        return f"{', '.join(plan.study.outputs)}  (`windlass outputs` lists what was kept)"
    if plan.own_folders:
        return "none named; what trials leave in their folders is kept as left-behind (`windlass outputs`)"
    return "none named; files stay where trials write them"


def _render_settings(plan: Plan, everything: bool) -> list[str]:
    """What was set and where; with `everything` the defaults as well. Then what each job asks for, and why."""
    shown = {
        key: one for key, one in plan.settings.items() if everything or one.source != "default"
    }
    lines = ["settings"] if shown else [_field("settings", "all are defaults (`--all` shows them)")]
    rows = [
        (_setting_name(key), render_cell(_render_value(key, one.value)), f"from {one.source}")
        for key, one in shown.items()
    ]
    lines += render_columns(rows, indent="  ")
    if shown and not everything:
        lines.append("  all others are defaults (`--all` shows them)")
    if everything:
        lines.append(_field("threads", f"{plan.cpus_per_slot} a trial"))
    if plan.pack is not None and (
        plan.pack.budgets or plan.pack.budget.gpu_mb or plan.pack.budget.memory_mb
    ):
        lines += _render_pack(plan.pack)
    return lines if plan.request is None else [*lines, *_render_request(plan.request)]


def _setting_name(key: str) -> str:
    """As the study file writes it, without the unit."""
    return key.removesuffix("_s").removesuffix("_mb").removesuffix("_bytes")


def _render_value(key: str, value: Any) -> str:
    """A setting's value with its unit, as a study file would have it."""
    if value is None or value == {}:
        return "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if not isinstance(value, (int, float)):
        return str(value)
    if key.endswith("_s"):
        return render_limit(value)
    if key.endswith("_bytes"):
        return render_bytes(value)
    return render_mb_limit(value) if key.endswith("_mb") else str(value)


def _render_config(study: Study) -> list[str]:
    """Which file each trial gets a copy of, and what is set in it."""
    if study.config is None:
        return []
    names = ", ".join(study.config.places) or "nothing"
    about = f"a copy of {study.config.path} for each trial, with {names} set"
    return [_field("{config}", f"{about}; `windlass explain N` shows it")]


def _render_workdir(plan: Plan) -> str:
    """Where trials are executed, and why there."""
    workdir = plan.study.workdir
    if plan.frozen:
        return f"a folder of its own for each trial, with the code of {workdir} as it is now"
    if plan.own_folders:
        key = "outputs" if plan.study.outputs else "checkpoint"
        return f"a folder of its own for each trial, made from {workdir}, because of `{key}:`"
    shared = ", which all trials share; `outputs:` gives each its own" if plan.slots > 1 else ""
    return f"{workdir}{shared}"


def _render_environment(environment: Environment | None) -> list[str]:
    """What trials find around them, as the study or the command line names it; no line where neither does."""
    if environment is None:
        return []
    parts = [f"{environment.kind} {environment.value}".strip()] if environment.kind else []
    if environment.modules:
        parts.append(f"modules {', '.join(environment.modules)}")
    if environment.setup:
        parts.append(f"{counted(len(environment.setup), 'line')} of `setup`")
    return [_field("env", render_cell("; ".join(parts)))] if parts else []


def _render_jobs(plan: Plan, request: Request, preview: Submitted | None) -> list[str]:
    """Where the jobs go, how many of them, and how long each may last."""
    profile_only = "" if plan.site_asked else "  (as its profile knows it; no scheduler was asked)"
    named = {"account": request.account, "partition": request.partition, "QOS": request.qos}
    where = "".join(f", {what} {name}" for what, name in named.items() if name)
    lines = [_field("site", f"{plan.site_name}{where}{profile_only}")]
    if not plan.missing_count:
        return lines
    there = _render_present(preview.present if preview is not None else 0)
    whole = plan.missing_count == plan.trial_count
    in_turn = f"; each slot takes {plan.waves} in turn" if plan.waves > 1 and whole else ""
    because = f"  ({plan.agents_because})" if plan.agents_because and whole else ""
    if plan.units > 1:
        chain = f"each a chain of {plan.units} units of {render_duration(request.time_s)}"
        lines.append(_field("agents", f"{plan.agents_missing}, {chain}{there}{in_turn}{because}"))
    else:
        jobs = f"{counted(plan.agents_missing, 'job')} of {render_about(request.time_s)}"
        lines.append(_field("agents", f"{jobs}{_render_throttle(plan)}{there}{in_turn}{because}"))
    gpus = f"{counted(request.gpus, f'{request.gpu_type} GPU'.strip())}, " if request.gpus else ""
    nodes = f" on each of {request.nodes} nodes" if request.nodes > 1 else ""
    memory = f"{render_mb_limit(request.memory_mb)} of memory"
    lines.append(_field("each has", f"{gpus}{counted(request.cpus, 'core')}, {memory}{nodes}"))
    return lines


def _render_launch(plan: Plan) -> list[str]:
    """How the processes of a trial are started, and what each of them has."""
    launch = plan.settings["launch"].value
    if launch == "plain":
        return []
    gpus, cpus = int(plan.settings["gpus"].value or 0), plan.cpus_per_slot
    processes = plan.settings["processes"].value or gpus or cpus
    nodes = (plan.request.nodes if plan.request is not None else 1) // plan.groups
    each = counted(max(1, cpus // processes), "core")
    if gpus:
        each += " and 1 GPU" if gpus == processes else f" and {gpus / processes:g} GPUs"
    started = counted(processes, "process", "processes")
    started += f" on each of {nodes} nodes" if nodes > 1 else ""
    tasks = ""
    if plan.request is not None:
        size = f"{counted(plan.request.cpus_per_task, 'core')} a task"
        tasks = f"; jobs ask for {counted(plan.request.tasks, 'task')} a node, {size}"
    return [_field("launch", f"{launch}: {started}, {each} each{tasks}")]


def _render_present(present: int) -> str:
    return f", {present} of them there already" if present else ""


def _render_throttle(plan: Plan) -> str:
    """The limit of jobs at a time, where there are more of them."""
    limit = plan.request.throttle if plan.request is not None else None
    return f", {limit} at a time" if limit and limit < plan.agents_missing else ""


def _render_request(request: Request) -> list[str]:
    """What each job asks for, and why."""
    asked = {
        "time_s": render_limit(request.time_s),
        "cpus": counted(request.cpus, "core"),
        "memory_mb": render_mb_limit(request.memory_mb),
        "gpus": counted(request.gpus, "GPU") if request.gpus or "gpus" in request.because else "",
        "gpu_type": request.gpu_type,
        "account": request.account or "",
        "partition": request.partition or "",
        "qos": request.qos or "",
    }
    rows = [(text, request.because.get(key, "")) for key, text in asked.items() if text]
    return ["each job", *render_columns(rows, indent="  ")]


def _render_pack(pack: PackTerms) -> list[str]:
    """What each trial is given, by variant where they differ."""
    given = [(", ".join(map(str, budget.variant)), budget) for budget in pack.budgets] or [
        ("a trial", pack.budget)
    ]
    rows = []
    for name, budget in given:
        parts = [f"{render_mb_limit(budget.gpu_mb)} of GPU memory"] if budget.gpu_mb else []
        if budget.memory_mb:
            parts.append(f"{render_mb_limit(budget.memory_mb)} of memory")
        rows.append((name, ", ".join(parts) or "not known"))
    lines = ["budget", *render_columns(rows, indent="  ")]
    return [*lines, "  with NVIDIA MPS"] if pack.mps else lines


def _render_estimate(plan: Plan) -> list[str]:
    """How long the trials that are missing will take, what that costs, and other ways to split the work into jobs."""
    if not plan.missing_count:
        return []
    lines = []
    if plan.estimate_s is None:
        lines.append(
            _field(
                "estimate",
                "not known: `--time` gives the time of one trial, `windlass measure` finds it out",
            )
        )
    else:
        at_once = " if all start at once"
        if plan.request is None:
            at_once = ""
        elif plan.request.throttle and _render_throttle(plan) and plan.units == 1:
            at_once = f" with {counted(plan.request.throttle, 'job')} at a time"
        if plan.estimate_because:
            at_once = f" {plan.estimate_because}"
        lines.append(_field("estimate", f"about {render_about(plan.estimate_s)}{at_once}"))
    if plan.cost is not None:
        lines.append(_field("cost", render_cost(plan.cost)))
    return [*lines, *_render_splits(plan.alternatives)]


def _render_splits(splits: Sequence[Split]) -> list[str]:
    """Other numbers of jobs for the same trials, a line each: the option, the cost and the time."""
    rows = []
    for split in splits:
        jobs = f"{counted(split.agents, 'job')} of {render_about(split.time_s)}"
        costs = f"{render_cost(split.cost)}, about {render_about(split.estimate_s)}"
        rows.append((jobs, f"--agents {split.agents}", costs))
    labels = ["instead", *["or"] * len(splits)]
    return [
        pad(label, _LABEL_WIDTH) + line
        for label, line in zip(labels, render_columns(rows), strict=False)
    ]


def render_cost(cost: Cost) -> str:
    """In GPU-hours or core-hours, and in the site's own unit."""
    main = (cost.gpu_hours, "GPU-hours") if cost.gpu_hours else (cost.core_hours, "core-hours")
    billed = ""
    if cost.billed is not None and (
        cost.unit != main[1] or round(cost.billed, 2) != round(main[0], 2)
    ):
        billed = f" ({render_with_unit(cost.billed, cost.unit)})"
    return f"{'at most ' if cost.at_most else ''}{render_with_unit(*main)}{billed}"


def render_cost_line(plan: Plan, present: int = 0) -> str:
    """One line for `run`, before anything is submitted: the jobs for what is missing, of which `present` are there."""
    if plan.request is None or plan.cost is None:
        return ""
    time = render_about(plan.request.time_s)
    if plan.units > 1:
        jobs = f"{counted(plan.agents_missing, 'chain')} of {plan.units} jobs of {time}, one after another"
    else:
        jobs = f"{counted(plan.agents_missing, 'job')} of {time}{_render_throttle(plan)}"
    jobs += _render_present(present)
    assumed = plan.estimate_because or "once they start"
    done = (
        f", about {render_about(plan.estimate_s)} {assumed}" if plan.estimate_s is not None else ""
    )
    split = next(iter(plan.alternatives), None)
    other = (
        f"; or {split.agents} of {render_about(split.time_s)} (--agents {split.agents})"
        if split
        else ""
    )
    return f"{jobs}: {render_cost(plan.cost)}{done}{other}"


def render_submitted(submitted: Submitted) -> str:
    """What `run` has done, and how to follow it."""
    lines = list(submitted.settled)
    if submitted.outdated:
        agents = counted(submitted.outdated, "agent")
        lines.append(
            f"{agents} at work began with the former code or settings: "
            "trials under way are finished there, and no more are taken"
        )
    if submitted.jobs:
        jobs = ", ".join(str(job) for job in submitted.jobs)
        beside = f" beside the {submitted.present} already there" if submitted.present else ""
        lines.append(
            f"submitted {counted(submitted.agents, 'agent')}{beside} as job {jobs}; follow with `windlass status`"
        )
    elif submitted.present:
        lines.append(
            f"{counted(submitted.present, 'agent is', 'agents are')} on it already; nothing was submitted"
        )
    else:
        lines.append("nothing is left to do; nothing was submitted")
    return "\n".join(lines)
