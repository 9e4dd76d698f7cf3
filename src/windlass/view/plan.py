"""A plan as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.model import Plan, Request, Submitted, Trial
from windlass.view.progress import render_duration

_OF_JOBS = ("patience_s", "nodes", "mail_type")  # settings that mean nothing without a scheduler


def plan_to_json(plan: Plan, examples: Sequence[Trial]) -> dict[str, Any]:
    """Stable keys: study, folder, trials, agents, slots, request, settings, examples."""
    return {
        "study": plan.study.name,
        "folder": plan.folder,
        "source": plan.study.source,
        "method": plan.study.space.method,
        "trials": plan.trial_count,
        "agents": plan.agents,
        "slots": plan.slots,
        "slots_because": plan.slots_because,
        "request": {
            "launcher": plan.launcher,
            "cpus": plan.cpus,
            "cpus_per_slot": plan.cpus_per_slot,
            "gpus": list(plan.gpus),
            **_request_to_json(plan),
        },
        "settings": {key: {"value": one.value, "source": one.source} for key, one in plan.settings.items()},
        "warnings": list(plan.study.warnings),
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
    return {**asdict(plan.request), "site": plan.site_name, "waves": plan.waves, "units": units}


def render_plan_text(plan: Plan, examples: Sequence[Trial]) -> str:
    study = plan.study
    lines = [
        f"study      {study.name}  ({plan.trial_count} trials, {study.space.method})",
        f"folder     {plan.folder}",
        f"runs in    {study.workdir}",
        f"slots      {plan.slots} at a time  ({plan.slots_because})",
        f"threads    {plan.cpus_per_slot} a trial",
    ]
    if plan.gpus:
        lines.append(f"gpus       {', '.join(plan.gpus)}")
    if plan.request is not None:
        lines += _render_request(plan, plan.request)
    if study.metric:
        lines.append(f"metric     {study.metric.name} ({study.metric.goal})")
    lines.append("settings")
    shown = {key: one for key, one in plan.settings.items() if one.source != "default" or one.value not in (None, {})}
    if plan.request is None:
        shown = {key: one for key, one in shown.items() if one.source != "default" or key not in _OF_JOBS}
    width = max(len(key) for key in shown)
    lines += [f"  {key:<{width}}  {_value(one.value):<12} from {one.source}" for key, one in shown.items()]
    lines.append("first trials" if plan.trial_count > len(examples) else "trials")
    for trial in examples:
        lines += [f"  {trial.id}  {shlex.join(words)}" for _, words in trial.stages]
    if plan.trial_count > len(examples):
        lines.append(f"  … and {plan.trial_count - len(examples)} more")
    return "\n".join(lines)


def _render_request(plan: Plan, request: Request) -> list[str]:
    """What each job asks for, and why."""
    throttle = f", {request.throttle} at a time" if request.throttle else ""
    in_turn = f"; each slot takes {plan.waves} in turn" if plan.waves > 1 else ""
    chain = ""
    if plan.terms is not None and plan.terms.units > 1:
        chain = f", each a chain of {plan.terms.units} units of {_render_unit(request.time_s)}"
        throttle = ""
    lines = [f"site       {plan.site_name}", f"agents     {plan.agents}{chain}{throttle}{in_turn}"]
    asked = {
        "time_s": render_duration(request.time_s),
        "cpus": f"{request.cpus} cores",
        "memory_mb": f"{request.memory_mb} MB",
        "gpus": f"{request.gpus} GPU(s)" if request.gpus else "",
        "gpu_type": request.gpu_type,
        "account": request.account or "",
        "partition": request.partition or "",
        "qos": request.qos or "",
    }
    lines.append("each job")
    lines += [f"  {text:<14} {request.because.get(key, '')}".rstrip() for key, text in asked.items() if text]
    return lines


def _render_unit(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def _value(value: Any) -> str:
    return "–" if value is None or value == {} else str(value)


def render_submitted(submitted: Submitted) -> str:
    """What `run` has done, and how to follow it."""
    lines = list(submitted.settled)
    if submitted.jobs:
        jobs = ", ".join(str(job) for job in submitted.jobs)
        beside = f" beside {submitted.present} that are there" if submitted.present else ""
        lines.append(f"submitted {submitted.agents} agent(s){beside} as job {jobs}; follow with `windlass status`")
    elif submitted.present:
        lines.append(f"{submitted.present} agent(s) are on it already; nothing was submitted")
    else:
        lines.append("nothing is left to do; nothing was submitted")
    return "\n".join(lines)
