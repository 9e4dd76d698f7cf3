"""How many agents share the trials, and how long their jobs may last. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from windlass.core.counted import counted
from windlass.core.units import render_limit
from windlass.plan.capacity import Capacity
from windlass.plan.chain import Chain, plan_chain
from windlass.plan.draft import Draft, whole_minutes
from windlass.plan.sharing import OneTrial
from windlass.site.merge import GUESS

_DEFAULT_TIME_S = 3600
_LEAST_WORK_S = 120.0  # of trials in a job: for less, starting one is not worth it


@dataclass(frozen=True)
class Agents:
    count: int
    waves: int  # trials that each slot takes in turn
    time_s: int  # of one job
    expect_s: float | None = None  # that it will really last; None: nobody knows
    because: str = ""  # why so many


def choose_agents(draft: Draft, width: int, one: OneTrial | None, capacity: Capacity) -> Agents:
    """`width`: trials that an agent has at a time; `one`: the time that one of them takes there."""
    trials, given, limit_s = draft.trial_count, _given_agents(draft), draft.limit_s
    most = most_agents(draft, math.ceil(trials / width))
    if one is None:
        return _without_time(draft, width, given, most)
    count, because = (
        (given, _explain_given(draft, width, given))
        if given
        else _weigh(draft, width, one, capacity, most)
    )
    waves = max(1, math.ceil(trials / (width * count)))
    unit_s, longest_s = draft.value("unit_s"), one.expect_s(1) * one.safety
    if draft.checkpoints:
        if plan_chain(one.expect_s(waves), unit_s, limit_s, one.around_s) is not None:
            return replace(_chain_agents(draft, width, count, one), because=because)
    elif longest_s > unit_s and (limit_s is None or longest_s <= limit_s):
        parts = math.ceil(longest_s / unit_s)
        draft.warnings.append(
            f"a job of {render_limit(longest_s)} waits long and loses everything when it is cut off; "
            f"with `checkpoint:` it becomes {parts} units of {render_limit(unit_s)}"
        )
    whole_s = one.ask_s(waves)
    draft.because["time_s"] = (
        f"{one.because}, {waves} in turn; setup and the notice before the end are on top"
    )
    if limit_s is not None and whole_s > limit_s >= one.expect_s(1):
        draft.warnings.append(_warn_of_limit(draft, count, limit_s, one.expect_s(waves) > limit_s))
        whole_s = limit_s
    return Agents(count, waves, whole_minutes(whole_s), min(whole_s, one.expect_s(waves)), because)


def _weigh(
    draft: Draft, width: int, one: OneTrial, capacity: Capacity, most: int
) -> tuple[int, str]:
    """How many agents where the user does not say it, and why.

    Few jobs wait less in all and begin their environment less often; beside idle devices more of them are through
    sooner. Jobs that fit now do not wait, so trials are spread over them, until a job has too little to do.
    """
    trials, cluster = draft.trial_count, draft.cluster
    together = _fit(one, min(cluster.min_job_s, draft.limit_s or math.inf))
    grouped = max(1, min(most, math.ceil(trials / (width * together))))
    apart = math.ceil(trials / width)
    if draft.declared("throttle"):
        allowed = int(draft.value("throttle"))
        asked = min(allowed, apart, most)
        if asked > grouped:
            enough = "" if asked == allowed else f", and {asked} are enough for all trials at once"
            return asked, f"{draft.settings['throttle'].source}: {allowed} at a time{enough}"
        return grouped, ""
    if grouped >= min(apart, most) or capacity.free is None:
        return grouped, ""
    shortest = f"jobs of about {render_limit(cluster.min_job_s)} or less work"
    if cluster.sources.get("min_job_s", GUESS) != GUESS:
        return (
            grouped,
            f"{cluster.profile} wants no jobs shorter than {render_limit(cluster.min_job_s)}",
        )
    busy = math.ceil(trials * one.middle_s / (width * _LEAST_WORK_S))
    spread = min(capacity.free, cluster.throttle, busy, apart, most)
    if spread <= grouped:
        return (
            grouped,
            f"{shortest}; no more would start at once" if capacity.free <= grouped else "",
        )
    fits = counted(capacity.free, "such job fits", "such jobs fit")
    return spread, f"spread over {capacity.what} that are idle now, where {fits}"


def _explain_given(draft: Draft, width: int, given: int) -> str:
    """Why fewer agents are submitted than the user asks for; "" where that is not so."""
    enough = math.ceil(draft.trial_count / width)
    if enough >= given:
        return ""
    have = "job has" if enough == 1 else "jobs have"
    source = draft.settings["agents"].source
    return f"{source}: {given}, and {enough} {have} room for all {counted(draft.trial_count, 'trial')} at once"


def _given_agents(draft: Draft) -> int | None:
    """Return how many agents the user asks for, at most `max_jobs`; None where the user gives no number."""
    given: int | None = draft.value("agents")
    most: int | None = draft.value("max_jobs")
    if not given or not most or given <= most:
        return given
    draft.warnings.append(
        f"{given} agents are asked for, and max_jobs is {most}: the smaller one counts"
    )
    return most


def _warn_of_limit(draft: Draft, agents: int, limit_s: float, too_short: bool) -> str:
    if too_short:
        return (
            f"{counted(agents, 'agent')} of at most {render_limit(limit_s)} cannot take all "
            f"{draft.trial_count:,} trials; run again for the rest, or allow more agents"
        )
    return (
        f"jobs may last {render_limit(limit_s)} at most, little more than the trials themselves: one that "
        "takes longer than expected, or that begins late after a slow setup, is cut off"
    )


def _fit(one: OneTrial, room_s: float) -> int:
    """How many in turn a job of that length takes; at least one."""
    return max(1, 1 + int((room_s - one.ask_s(1)) // (one.middle_s * one.safety)))


def _without_time(draft: Draft, width: int, given: int | None, most: int) -> Agents:
    """Nobody knows how long a trial takes: few jobs of a usual length, and agents that take what they can."""
    time = draft.settings["time_s"]
    job_s = whole_minutes(min(time.value or _DEFAULT_TIME_S, draft.limit_s or math.inf))
    draft.because["time_s"] = (
        time.source if time.value else "default: how long a trial takes is not known"
    )
    count = given or min(most, draft.value("throttle") or draft.cluster.throttle)
    because = _explain_given(draft, width, given) if given else ""
    return Agents(count, math.ceil(draft.trial_count / (width * count)), job_s, because=because)


def _chain_agents(draft: Draft, width: int, count: int, one: OneTrial) -> Agents:
    """As many chains as may run at a time; each is an array of its own, one task after another.

    Without the safety: what a chain is short of, the next `run` adds.
    """
    limit_s, unit_s = draft.limit_s, draft.value("unit_s")
    single = plan_chain(one.expect_s(1), unit_s, limit_s, one.around_s)
    single = single or Chain(1, whole_minutes(min(one.ask_s(1), unit_s)))
    count = min(count, draft.value("throttle") or draft.cluster.throttle)
    if draft.cluster.max_submit is not None:
        count = max(1, min(count, draft.cluster.max_submit // single.units))
    waves = max(1, math.ceil(draft.trial_count / (width * count)))
    chain = plan_chain(one.expect_s(waves), unit_s, limit_s, one.around_s) or single
    most = (
        max(1, draft.cluster.max_submit // count)
        if draft.cluster.max_submit is not None
        else chain.units
    )
    if draft.cluster.max_submit is not None and most < chain.units:
        draft.warnings.append(
            f"you may have {counted(draft.cluster.max_submit, 'job')} in the queue, and this takes "
            f"{count * chain.units}; run again for the rest"
        )
        chain = replace(chain, units=most)
    draft.units = chain.units
    draft.because["time_s"] = (
        f"{chain.units} units of {render_limit(chain.unit_s)}, each with its setup and the notice before its end: "
        f"{render_limit(one.high_s)} a trial, {waves} in turn"
    )
    return Agents(count, waves, chain.unit_s, min(one.expect_s(waves), chain.units * chain.unit_s))


def most_agents(draft: Draft, wanted: int) -> int:
    limits = (draft.settings["max_jobs"].value, draft.cluster.max_submit, wanted)
    return max(1, min(int(limit) for limit in limits if limit is not None))


def choose_throttle(draft: Draft, agents: int) -> int | None:
    given = draft.settings["throttle"]
    draft.because["throttle"] = given.source if given.value else "good manners"
    throttle = given.value or draft.cluster.throttle
    return int(throttle) if throttle < agents else None
