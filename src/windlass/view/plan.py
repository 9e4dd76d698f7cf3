"""A plan as text and as JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from windlass.counted import counted
from windlass.durations import spell_duration
from windlass.model import Cost, PackTerms, Plan, Request, Split, Study, Submitted
from windlass.view.numbers import render_amount
from windlass.view.progress import render_duration
from windlass.view.table import render_cell


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
        "settings": {key: {"value": one.value, "source": one.source} for key, one in plan.settings.items()},
        "warnings": [*plan.study.warnings, *plan.warnings],
        "examples": [
            {
                "id": trial.id,
                "settings": dict(trial.settings),
                "stages": [[name, list(words)] for name, words in trial.stages],
            }
            for trial in plan.examples
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


def render_plan_text(plan: Plan, preview: Submitted | None = None, everything: bool = False) -> str:
    """The plan as text: first what the user will want to check, then what was set and where.

    `preview` tells how many agents `run` would submit, where the queue was asked; `everything` includes defaults.
    """
    return "\n".join([*_render_head(plan, preview), *_render_settings(plan, everything)])


def _render_head(plan: Plan, preview: Submitted | None) -> list[str]:
    """How many trials, their commands, where, how long, what it costs, what they read and leave."""
    study = plan.study
    trials = f"{counted(plan.trial_count, 'trial')}, {study.space.method}{_render_rest(plan)}"
    lines = [f"study      {study.name}  ({trials})", *_render_commands(plan), *_render_config(study)]
    if plan.request is not None:
        lines += _render_jobs(plan, plan.request, preview)
    else:
        lines.append("site       this machine")
    lines.append(f"slots      {plan.slots} at a time  ({plan.slots_because})")
    if plan.gpus:
        lines.append(f"gpus       {', '.join(plan.gpus)}")
    lines.append(f"runs in    {render_cell(_render_workdir(plan))}")
    lines += _render_estimate(plan)
    if study.data:
        there = "  (unpacked on each node's own disk)" if plan.request is not None else ""
        lines.append(f"data       {render_cell(', '.join(data.path for data in study.data))}{there}")
    lines.append(f"outputs    {render_cell(_render_outputs(plan))}")
    if study.metric:
        lines.append(f"metric     {study.metric.name} ({study.metric.goal})")
    return [*lines, f"folder     {render_cell(plan.folder)}"]


def _render_rest(plan: Plan) -> str:
    """How many of the trials are to be executed, where it is not all of them."""
    if plan.missing_count == plan.trial_count:
        return ""
    return f"; {plan.missing_count:,} to do" if plan.missing_count else "; nothing is left to do"


def _render_commands(plan: Plan) -> list[str]:
    """A few of the commands that are to be executed, the last one among them."""
    if not plan.examples:
        return []
    texts = [[shlex.join(words) for _, words in trial.stages] for trial in plan.examples]
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
    shown = {key: one for key, one in plan.settings.items() if everything or one.source != "default"}
    lines = ["settings"] if shown else ["settings   all are defaults (`--all` shows them)"]
    rows = [(_setting_name(key), render_cell(_render_value(key, one.value)), one.source) for key, one in shown.items()]
    width = max((len(name) for name, _, _ in rows), default=0)
    lines += [f"  {name:<{width}}  {value:<12} from {source}" for name, value, source in rows]
    if shown and not everything:
        lines.append("  all others are defaults (`--all` shows them)")
    if everything:
        lines.append(f"threads    {plan.cpus_per_slot} a trial")
    if plan.pack is not None and (plan.pack.budgets or plan.pack.budget.gpu_mb or plan.pack.budget.memory_mb):
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
        return spell_duration(value)
    if key.endswith("_bytes"):
        return f"{value / (1 << 30):.3g} GB" if value >= 1 << 30 else f"{value / (1 << 20):.3g} MB"
    return f"{value:g} MB" if key.endswith("_mb") else str(value)


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


def _render_jobs(plan: Plan, request: Request, preview: Submitted | None) -> list[str]:
    """Where the jobs go, how many of them, and how long each may last."""
    profile_only = "" if plan.site_asked else "  (as its profile knows it; no scheduler was asked)"
    named = {"account": request.account, "partition": request.partition, "QOS": request.qos}
    where = "".join(f", {what} {name}" for what, name in named.items() if name)
    lines = [f"site       {plan.site_name}{where}{profile_only}"]
    if not plan.missing_count:
        return lines
    there = _render_present(preview.present if preview is not None else 0)
    whole = plan.missing_count == plan.trial_count
    in_turn = f"; each slot takes {plan.waves} in turn" if plan.waves > 1 and whole else ""
    because = f"  ({plan.agents_because})" if plan.agents_because and whole else ""
    if _units(plan) > 1:
        chain = f"each a chain of {_units(plan)} units of {_render_unit(request.time_s)}"
        lines.append(f"agents     {plan.agents_missing}, {chain}{there}{in_turn}{because}")
    else:
        jobs = f"{counted(plan.agents_missing, 'job')} of {_render_about(request.time_s)}"
        lines.append(f"agents     {jobs}{_render_throttle(plan)}{there}{in_turn}{because}")
    gpus = f"{counted(request.gpus, f'{request.gpu_type} GPU'.strip())}, " if request.gpus else ""
    nodes = f" on each of {request.nodes} nodes" if request.nodes > 1 else ""
    return [*lines, f"each has   {gpus}{counted(request.cpus, 'core')}, {request.memory_mb} MB of memory{nodes}"]


def _render_present(present: int) -> str:
    return f", {present} of them there already" if present else ""


def _render_throttle(plan: Plan) -> str:
    """The limit of jobs at a time, where there are more of them."""
    limit = plan.request.throttle if plan.request is not None else None
    return f", {limit} at a time" if limit and limit < plan.agents_missing else ""


def _render_request(request: Request) -> list[str]:
    """What each job asks for, and why."""
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
    lines = [f"  {text:<14} {request.because.get(key, '')}".rstrip() for key, text in asked.items() if text]
    return ["each job", *lines]


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
    if not plan.missing_count:
        return []
    lines = []
    if plan.estimate_s is None:
        lines.append("estimate   not known: `--time` gives the time of one trial, `windlass measure` finds it out")
    else:
        at_once = " if all start at once"
        if plan.request is None:
            at_once = ""
        elif plan.request.throttle and _render_throttle(plan) and _units(plan) == 1:
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
        billed = f" ({render_amount(cost.billed)} {cost.unit})"
    return f"{'at most ' if cost.at_most else ''}{render_amount(main[0])} {main[1]}{billed}"


def render_cost_line(plan: Plan, present: int = 0) -> str:
    """One line for `run`, before anything is submitted: the jobs for what is missing, of which `present` are there."""
    if plan.request is None or plan.cost is None:
        return ""
    time = _render_about(plan.request.time_s)
    if _units(plan) > 1:
        jobs = f"{counted(plan.agents_missing, 'chain')} of {_units(plan)} jobs of {time}, one after another"
    else:
        jobs = f"{counted(plan.agents_missing, 'job')} of {time}{_render_throttle(plan)}"
    jobs += _render_present(present)
    assumed = plan.estimate_because or "once they start"
    done = f", about {_render_about(plan.estimate_s)} {assumed}" if plan.estimate_s is not None else ""
    split = next(iter(plan.alternatives), None)
    other = f"; or {split.agents} of {_render_about(split.time_s)} (--agents {split.agents})" if split else ""
    return f"{jobs}: {render_cost(plan.cost)}{done}{other}"


def _units(plan: Plan) -> int:
    """How many jobs make a chain; 1 where they do not go on from one another."""
    return 1 if plan.terms is None else plan.terms.units


def _render_about(seconds: float) -> str:
    """As much of a duration as an estimate deserves: 40 min, 3 h, 2.5 days."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.2g} h" if seconds < 48 * 3600 else f"{seconds / 86400:.3g} days"


def _render_unit(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


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
