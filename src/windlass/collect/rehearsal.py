"""What a rehearsal has shown, and what follows from it: release the rest, refuse, or look on. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.core.counted import counted
from windlass.core.errors import Problem
from windlass.core.journal.events import Bye, Ended, Header, Level, Started, decode_event
from windlass.core.states import STATE_OF, Cause, State
from windlass.core.units import render_about, render_mb

_HEADROOM = 1.2
_ROUND_MB = 100
_RESERVE_S = 60.0  # of a job's time: to start, and to end in order
_OUT_OF_MEMORY = {Cause.HOST_MEMORY.value: "memory", Cause.GPU_MEMORY.value: "GPU memory"}
# How an agent ends that has seen its work through, or as much of it as its job had time for.
_IN_ORDER = (
    "nothing left",
    "the job's time is nearly up",
    "the job's time is too short for another trial",
    "the end of the job's time is near",
)


@dataclass(frozen=True)
class Allowed:
    """What the trials of one agent must do with. None: not known, so not compared."""

    # Of the whole job; None: what the agent says that it could have there.
    memory_mb: float | None = None
    memory_word: str = "asked"
    time_s: float | None = None  # of the job
    waves: int = 1
    checkpoint: bool = False  # a trial may go on in the next job


@dataclass(frozen=True)
class Verdict:
    """Passed where there is no problem. `summary` says what was seen."""

    summary: str
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class Seen:
    """The events of the agent that rehearses, folded."""

    agent: str = ""
    slots: int = 1
    begun: int = 0
    done: int = 0
    failed: int = 0
    # Trial → why its last attempt did not end well.
    causes: dict[int, str] = field(default_factory=dict)
    longest_s: float | None = None  # of those that are done
    largest_mb: float = 0.0  # of one trial, at its end
    level: Mapping[str, Any] | None = None
    bye: str | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        """Take one event of the rehearsing agent."""
        event = decode_event(line)
        if isinstance(event, Header) and event.is_agent:
            self.agent, self.slots = event.id, max(1, event.slots)
        elif isinstance(event, Started):
            self.begun += 1
        elif isinstance(event, Ended):
            self._take_end(event)
        elif isinstance(event, Level):
            self.level = event.fields
        elif isinstance(event, Bye):
            self.bye = event.reason

    def _take_end(self, event: Ended) -> None:
        """Count a trial that has ended, with its memory and time."""
        on_node_mb = event.use.get("node_mb") or event.use.get("mem_mb")
        self.largest_mb = max(self.largest_mb, on_node_mb or event.fields.get("rss_mb") or 0.0)
        if event.cause == Cause.DONE.value:
            self.done += 1
            self.longest_s = max(self.longest_s or 0.0, event.own_s or 0.0)
        elif event.cause in {one.value for one, state in STATE_OF.items() if state is State.FAILED}:
            self.failed += 1
            self.causes[event.number] = event.cause

    @property
    def peak_mb(self) -> float:
        """Of all trials together. Where they were too short to be looked at: as if the largest had met."""
        if self.level is not None:
            return float(self.level["mem_peak_mb"])
        return self.largest_mb * min(self.slots, self.begun)


def judge(seen: Seen, allowed: Allowed, gone: bool = True) -> Verdict | None:
    """What follows from what was seen up to now; None: look on.

    An agent that was interrupted may be followed by another one, unless its job is `gone`.
    """
    found = _find_failures(seen)
    memory = _Quantity.of_memory(seen, allowed)
    gpu = _Quantity.of_gpu(seen)
    found += [
        one.outgrown(seen.slots) for one in (memory, gpu) if one.peak_mb > (one.most_mb or math.inf)
    ]
    summary = _summarise(seen, memory, gpu)
    if found:
        return Verdict(summary, tuple(found))
    ended = seen.bye is not None
    level = seen.level or {}
    if not (ended or level.get("levelled") or level.get("last")):
        return None
    if ended and seen.bye not in _IN_ORDER:
        if not gone:
            return None
        return Verdict(
            summary,
            (Problem(f"the agent ended: {seen.bye}", "`windlass logs` shows what was printed"),),
        )
    problems, warnings = _judgerender_about(seen, allowed)
    if not ended:
        left_s = _left_s(level, allowed)
        for one in (memory, gpu):
            if one.grows and one.after(left_s) > (one.most_mb or math.inf):
                if level["levelled"] and not level["last"]:
                    return None  # so little that it may be nothing: see more of it
                if level["levelled"]:
                    warnings.append(one.might_outgrow(left_s))
                else:
                    problems.append(one.will_outgrow(level, left_s, seen.slots))
            elif one.grows and one.most_mb and not level["levelled"]:
                warnings.append(one.stays_below(left_s))
        if not level["levelled"] and not problems and not warnings:
            after = render_about(level["since_s"])
            warnings.append(
                f"nothing grew lately, but {after} were too short to say that the peak has been reached"
            )
    return Verdict(summary, tuple(problems), tuple(warnings))


def explain_death(seen: Seen, allowed: Allowed, message: str, out_of_memory: bool) -> Problem:
    """The problem of a job that ended although its agent had not recorded an end. `message` is the scheduler's."""
    if not out_of_memory:
        return Problem(
            f"{message}, before its usage had levelled out", "`windlass history` shows more"
        )
    memory = _Quantity.of_memory(seen, allowed)
    seen_of_it = f"; last seen, {memory.used()}{memory.growth()}" if memory.peak_mb else ""
    return Problem(
        f"{message}{seen_of_it}",
        memory.advice(max(memory.peak_mb, memory.most_mb or 0.0), seen.slots),
    )


@dataclass(frozen=True)
class _Quantity:
    """Memory, or the memory of a GPU: how much of it, of how much, and how fast it grows."""

    name: str
    peak_mb: float
    most_mb: float | None
    most_word: str
    growing_mb_per_min: float | None

    @classmethod
    def of_memory(cls, seen: Seen, allowed: Allowed) -> _Quantity:
        """The memory of the job: what its trials use together, and what it may use."""
        level = seen.level or {}
        most_mb = allowed.memory_mb if allowed.memory_mb is not None else level.get("most_mb")
        return cls(
            "memory", seen.peak_mb, most_mb, allowed.memory_word, level.get("growing_mb_per_min")
        )

    @classmethod
    def of_gpu(cls, seen: Seen) -> _Quantity:
        """The memory of the GPU: what is used of it, and what it has."""
        level = seen.level or {}
        growing = level.get("gpu_growing_mb_per_min")
        return cls(
            "GPU memory",
            level.get("gpu_mb") or 0.0,
            level.get("gpu_total_mb"),
            "that a GPU has",
            growing,
        )

    @property
    def grows(self) -> bool:
        return bool(self.growing_mb_per_min)

    def after(self, left_s: float) -> float:
        return self.peak_mb + (self.growing_mb_per_min or 0.0) * left_s / 60

    def used(self) -> str:
        most = f" of {render_mb(self.most_mb)} {self.most_word}" if self.most_mb is not None else ""
        return f"{self.name}: {render_mb(self.peak_mb)} used{most}"

    def growth(self) -> str:
        return f", still growing at {self.growing_mb_per_min:.0f} MB/min" if self.grows else ""

    def outgrown(self, slots: int) -> Problem:
        return Problem(self.used() + self.growth(), self.advice(self.peak_mb, slots))

    def will_outgrow(self, level: Mapping[str, Any], left_s: float, slots: int) -> Problem:
        """The problem of memory that will be too much before the trials end, with what to ask for instead."""
        after_s = level["since_s"]
        text = f"{self.used()}{self.growth()} after {render_about(after_s)}"
        text += f": too much in {render_about(self._until_s())}"
        if level.get("left_s") is None:
            grown_mb = self.after(min(left_s, self._until_s() * 2))
            return Problem(
                text, f"it may grow for ever: find what it keeps, or {self.advice(grown_mb, slots)}"
            )
        return Problem(
            f"{text}, and a trial has {render_about(left_s)} left",
            self.advice(self.after(left_s), slots),
        )

    def might_outgrow(self, left_s: float) -> str:
        return f"{self.used()}{self.growth()}: if that goes on, it is too much in {render_about(self._until_s())}"

    def stays_below(self, left_s: float) -> str:
        return f"{self.used()}{self.growth()}: {render_mb(self.after(left_s))} at the end, if that goes on"

    def _until_s(self) -> float:
        return (
            max(0.0, (self.most_mb or 0.0) - self.peak_mb) / (self.growing_mb_per_min or 1.0) * 60
        )

    def advice(self, wanted_mb: float, slots: int) -> str:
        """What to change so that `wanted_mb` is enough. Memory is rounded up, with some room."""
        if self.name != "memory":
            return "let fewer trials share a GPU: `pack: {most: …}`"
        each_mb = math.ceil(wanted_mb * _HEADROOM / slots / _ROUND_MB) * _ROUND_MB
        if self.most_word != "asked":
            return f"write `needs: {{memory: {each_mb}MB}}`, so that fewer are here at a time"
        return f"ask for `needs: {{memory: {each_mb}MB}}`"


def _find_failures(seen: Seen) -> list[Problem]:
    """The problem where trials of the rehearsal fail: at once for memory, otherwise when none ends well."""
    for trial, cause in seen.causes.items():
        if cause in _OUT_OF_MEMORY:
            hint = f"it needs more {_OUT_OF_MEMORY[cause]} than it had; `windlass logs {trial}` shows what it printed"
            return [Problem(f"trial {trial}: {cause}", hint)]
    if (
        seen.failed
        and not seen.done
        and (seen.failed >= min(seen.slots, seen.begun) or seen.bye is not None)
    ):
        trial, cause = next(iter(seen.causes.items()))
        some = (
            f"all {seen.failed} trials that ended did not end well"
            if seen.failed > 1
            else f"trial {trial}: {cause}"
        )
        return [Problem(some, f"`windlass logs {trial}` shows what was printed")]
    return []


def _judgerender_about(seen: Seen, allowed: Allowed) -> tuple[list[Problem], list[str]]:
    """One trial must end within its job, unless it can go on in another."""
    told = (seen.level or {}).get("trial_s")
    if told is None and seen.longest_s is not None:
        told = [seen.longest_s] * 3
    if told is None or allowed.time_s is None or allowed.checkpoint:
        return [], []
    low_s, middle_s, _ = told
    one, job = render_about(middle_s), render_about(allowed.time_s)
    if low_s > allowed.time_s - _RESERVE_S:
        hint = f"ask for `needs: {{time: {math.ceil(middle_s * _HEADROOM / 60)}m}}`, or let it go on with `checkpoint:`"
        return [Problem(f"time: a trial takes about {one}, its job has {job}", hint)], []
    if allowed.waves > 1 and middle_s * allowed.waves > allowed.time_s:
        text = f"time: {allowed.waves} trials one after another, {one} each, are more than the {job} of a job"
        return [], [f"{text}: run again for those that are left over"]
    return [], []


def _left_s(level: Mapping[str, Any], allowed: Allowed) -> float:
    """For how long a trial may still grow: for as long as it has, else for as long as its job has."""
    if level.get("left_s") is not None:
        return float(level["left_s"])
    return math.inf if allowed.time_s is None else max(0.0, allowed.time_s - level["since_s"])


def _summarise(seen: Seen, memory: _Quantity, gpu: _Quantity) -> str:
    """What the rehearsal has shown, in one line."""
    parts = [memory.used()] if memory.peak_mb else []
    parts += [gpu.used()] if gpu.peak_mb else []
    level = seen.level or {}
    if level.get("trial_s"):
        parts.append(f"a trial takes about {render_about(level['trial_s'][1])}")
    trials = level.get("trials") or min(seen.slots, seen.begun)
    return f"{counted(trials, 'trial')} at a time; {'; '.join(parts) or 'nothing was seen of what they use'}"
