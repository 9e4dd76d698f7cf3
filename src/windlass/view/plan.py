"""A plan as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.counted import counted
from windlass.model import Cost, PackTerms, Plan, Request, Split, Study, Submitted, Trial
from windlass.view.progress import render_duration

_OF_JOBS = ("patience_s", "nodes", "mail_type", "safety")  # settings that mean nothing without a scheduler
_OF_GPUS = ("prefer", "headroom", "mps")


def plan_to_json(plan: Plan, examples: Sequence[Trial]) -> dict[str, Any]:
    """Stable keys: study, folder, trials, agents, slots, request, pack, estimate_s, cost, alternatives, settings."""
    return {
        "study": plan.study.name,
        "folder": plan.folder,
        "source": plan.study.source,
        "method": plan.study.space.method,
        "trials": plan.trial_count,
        "agents": plan.agents,
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
        "settings": {key: {"value": one.value, "source": one.source} for key, one in plan.settings.items()},
        "warnings": [*plan.study.warnings, *plan.warnings],
        "examples": [
            {
                "id": trial.id,
                "settings": dict(trial.settings),
                "stages": [[name, list(words)] for name, words in trial.stages],
            }
            for trial in examples
        ],
    }


def _request_to_json(plan: Plan) -> dict[str, Any]:
    if plan.request is None:
        return {}
    units = plan.terms.units if plan.terms is not None else 1
    return {
        **asdict(plan.request),
        "site": plan.site_name,
        "site_asked": plan.site_asked,
        "waves": plan.waves,
        "units": units,
    }


def render_plan_text(plan: Plan, examples: Sequence[Trial]) -> str:
    study = plan.study
    lines = [
        f"study      {study.name}  ({counted(plan.trial_count, 'trial')}, {study.space.method})",
        f"folder     {plan.folder}",
        f"runs in    {_render_workdir(plan)}",
        *_render_config(study),
        f"slots      {plan.slots} at a time  ({plan.slots_because})",
        f"threads    {plan.cpus_per_slot} a trial",
    ]
    if plan.gpus:
        lines.append(f"gpus       {', '.join(plan.gpus)}")
    if plan.pack is not None and (plan.pack.budgets or plan.pack.budget.gpu_mb or plan.pack.budget.memory_mb):
        lines += _render_pack(plan.pack)
    if plan.request is not None:
        lines += _render_request(plan, plan.request)
    lines += _render_estimate(plan)
    if study.metric:
        lines.append(f"metric     {study.metric.name} ({study.metric.goal})")
    lines.append("settings")
    shown = {key: one for key, one in plan.settings.items() if one.source != "default" or one.value not in (None, {})}
    if plan.request is None:
        shown = {key: one for key, one in shown.items() if one.source != "default" or key not in _OF_JOBS}
    if not plan.gpus and (plan.request is None or not plan.request.gpus):
        shown = {key: one for key, one in shown.items() if one.source != "default" or key not in _OF_GPUS}
    width = max(len(key) for key in shown)
    lines += [f"  {key:<{width}}  {_value(one.value):<12} from {one.source}" for key, one in shown.items()]
    lines.append("first trials" if plan.trial_count > len(examples) else "trials")
    for trial in examples:
        lines += [f"  {trial.id}  {shlex.join(words)}" for _, words in trial.stages]
    if plan.trial_count > len(examples):
        lines.append(f"  … and {plan.trial_count - len(examples)} more")
    return "\n".join(lines)


def _render_config(study: Study) -> list[str]:
    """Which file each trial gets a copy of, and what is set in it."""
    if study.config is None:
        return []
    names = ", ".join(study.config.places) or "nothing"
    about = f"a copy of {study.config.path} for each trial, with {names} set"
    return [f"{{config}}   {about}; `windlass explain N` shows it"]


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


def _render_request(plan: Plan, request: Request) -> list[str]:
    """What each job asks for, and why."""
    throttle = f", {request.throttle} at a time" if request.throttle else ""
    in_turn = f"; each slot takes {plan.waves} in turn" if plan.waves > 1 else ""
    chain = ""
    if _units(plan) > 1:
        chain = f", each a chain of {_units(plan)} units of {_render_unit(request.time_s)}"
        throttle = ""
    profile_only = "" if plan.site_asked else "  (as its profile knows it; no scheduler was asked)"
    because = f"  ({plan.agents_because})" if plan.agents_because else ""
    lines = [
        f"site       {plan.site_name}{profile_only}",
        f"agents     {plan.agents}{chain}{throttle}{in_turn}{because}",
    ]
    asked = {
        "time_s": render_duration(request.time_s),
        "cpus": counted(request.cpus, "core"),
        "memory_mb": f"{request.memory_mb} MB",
        "gpus": counted(request.gpus, "GPU") if request.gpus or "gpus" in request.because else "",
        "gpu_type": request.gpu_type,
        "account": request.account or "",
        "partition": request.partition or "",
        "qos": request.qos or "",
    }
    lines.append("each job")
    lines += [f"  {text:<14} {request.because.get(key, '')}".rstrip() for key, text in asked.items() if text]
    return lines


def _render_pack(pack: PackTerms) -> list[str]:
    """What each trial is given, by variant where they differ."""
    given = [(", ".join(map(str, budget.variant)), budget) for budget in pack.budgets] or [("a trial", pack.budget)]
    width = max(len(name) for name, _ in given)
    lines = ["budget"]
    for name, budget in given:
        parts = [f"{budget.gpu_mb} MB of GPU memory"] if budget.gpu_mb else []
        parts += [f"{budget.memory_mb} MB of memory"] if budget.memory_mb else []
        lines.append(f"  {name:<{width}}  {', '.join(parts) or 'not known'}")
    return [*lines, "  with NVIDIA MPS"] if pack.mps else lines


def _render_estimate(plan: Plan) -> list[str]:
    lines = []
    if plan.estimate_s is not None:
        at_once = " if all start at once"
        if plan.request is None:
            at_once = ""
        elif plan.request.throttle and _units(plan) == 1:
            at_once = f" with {counted(plan.request.throttle, 'job')} at a time"
        if plan.estimate_because:
            at_once = f" {plan.estimate_because}"
        lines.append(f"estimate   about {_render_about(plan.estimate_s)}{at_once}")
    if plan.cost is not None:
        lines.append(f"cost       {render_cost(plan.cost)}")
    lines += [
        f"{'or' if number else 'instead':<11}{_render_split(one)}" for number, one in enumerate(plan.alternatives)
    ]
    return lines


def _render_split(split: Split) -> str:
    jobs = f"{counted(split.agents, 'job')} of {_render_about(split.time_s)}"
    return f"{jobs:<18}--agents {split.agents:<5}{render_cost(split.cost)}, about {_render_about(split.estimate_s)}"


def render_cost(cost: Cost) -> str:
    """In GPU-hours or core-hours, and in the site's own unit."""
    main = (cost.gpu_hours, "GPU-hours") if cost.gpu_hours else (cost.core_hours, "core-hours")
    billed = ""
    if cost.billed is not None and (cost.unit != main[1] or round(cost.billed, 2) != round(main[0], 2)):
        billed = f" ({_render_amount(cost.billed)} {cost.unit})"
    return f"{'at most ' if cost.at_most else ''}{_render_amount(main[0])} {main[1]}{billed}"


def render_cost_line(plan: Plan) -> str:
    """One line for `run`, before anything is submitted; empty where nothing is."""
    if plan.request is None or plan.cost is None:
        return ""
    time = _render_about(plan.request.time_s)
    if _units(plan) > 1:
        jobs = f"{counted(plan.agents, 'chain')} of {_units(plan)} jobs of {time}, one after another"
    else:
        throttle = f", {plan.request.throttle} at a time" if plan.request.throttle else ""
        jobs = f"{counted(plan.agents, 'job')} of {time}{throttle}"
    assumed = plan.estimate_because or "once they start"
    done = f", about {_render_about(plan.estimate_s)} {assumed}" if plan.estimate_s is not None else ""
    split = next(iter(plan.alternatives), None)
    other = f"; or {split.agents} of {_render_about(split.time_s)} (--agents {split.agents})" if split else ""
    return f"{jobs}: {render_cost(plan.cost)}{done}{other}"


def _units(plan: Plan) -> int:
    """How many jobs make a chain; 1 where they do not go on from one another."""
    return 1 if plan.terms is None else plan.terms.units


def _render_amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _render_about(seconds: float) -> str:
    """As much of a duration as an estimate deserves: 40 min, 3 h, 2.5 days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.2g} h" if seconds < 48 * 3600 else f"{seconds / 86400:.3g} days"


def _render_unit(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def _value(value: Any) -> str:
    return "–" if value is None or value == {} else str(value)


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
        lines.append(f"{counted(submitted.present, 'agent is', 'agents are')} on it already; nothing was submitted")
    else:
        lines.append("nothing is left to do; nothing was submitted")
    return "\n".join(lines)
