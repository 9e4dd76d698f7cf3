"""The journal's vocabulary: what each kind of line says. The agent needs it: Python 3.9, standard library.

Every line is one JSON object with ``e`` (kind) and ``t`` (Unix time, seconds). The first line of a file is its header
(``agent`` or ``client``) and carries ``v``, the version of the format.

agent   {e,t,v,id,host,machine,boot,pid,began,slots,cpus,gpus,code,rounds[,job]}
                               an agent is there; `boot`, `pid` and `began` name the process; `cpus` and `gpus` say how
                               many it may use; `job` is {id, array, task,
                               restart, node, sub} where it is in a job of Slurm's: `id` its own number, `array` and
                               `task` what squeue shows as array_task (task null outside arrays), `sub` the submission;
                               `code` is {key, commit, dirty} of the frozen code that its trials are executed with, or
                               {live, commit, dirty} of the project itself as it was when the agent began; `rounds`
                               says that its ends have `round`, which those of earlier versions lack
client  {e,t,v,id,host,machine,boot,pid,began}         the command line wrote this file
start   {e,t,i,n,s,id}         attempt `n` of this agent began: trial `i` in slot `s`; `id` is the beginning of the
                               trial's id (ID_LETTERS). Absent in journals of earlier versions
ready   {e,t,in_s}             the agent may begin trials; `in_s` maps the steps of its stage-in (code, data,
                               environment), in order, to seconds
end     {e,t,i,n,cause,code,sig,start,dur,stage,stage_s,out_s,out,rss_mb,cpu_s,step,m,from,use,why,note,round}
                               it ended; `m` maps a metric to [last, min, max, count], or to
                               [text] where it is text, with those of
                               the sessions that it went on from, `from` is the checkpoint it
                               went on from, `stage_s` has the seconds of each stage where there are several, `out_s`
                               those of copying its outputs; absent keys are unknown. `why` is the line of its output
                               that says why it failed. `round` is how often the trial had come back to the list
                               after it had ended or been cancelled; absent where that is 0. `use` is what it
                               used, where it was looked at:
                               {mem_mb, mem_src, gpu_mb, gpu_src, gpu_pct, cores, first_s, rate, steps, read_mb,
                               written_mb, k, before_s}: peaks of its whole tree, `gpu_pct` and `cores` on average,
                               `first_s` to its first step, `rate` steps a second, `k` trials on its device at a time,
                               `before_s` seconds of the earlier sessions that led to `from`. With a launcher also
                               {ranks, rank_mb, rank_cores, rank_gpu_mb}: how many ranks, and the most that one of
                               them took; memory and cores are then sums over its nodes, and {node_mb, node_cores,
                               node_gpu_mb} are those of the node with most, where there are several
beat    {e,t,live}             the agent is alive; `live` maps trial `i` to {step, m, p, mem, gpu, pct} for attempts
                               under way: `p` is [step, of how many, seconds left], `mem` and `gpu` are MB now
level   {e,t,trials,slots,since_s,mem_mb,mem_peak_mb,most_mb,gpu_mb,gpu_total_mb,levelled,growing_mb_per_min,
         gpu_growing_mb_per_min,left_s,trial_s,last}
                               an agent that rehearses tells every few seconds what `trials` of `slots` take together,
                               itself included: `mem_mb` now, `mem_peak_mb` at most so far, `most_mb` that it could have
                               there; `gpu_mb` is the peak of the device with the least room, of `gpu_total_mb`; null:
                               not known, or not growing. `left_s` is of the trial with most left, `trial_s` low, middle
                               and high of the whole of it. With `last` the agent has stopped looking
note    {e,t,text[,i]}         something worth telling the user
bye     {e,t,reason}           the agent ended in order
cleaned {e,t,s[,exit]}         after `bye`: it has removed what it made on the node, in `s` seconds, and ends with
                               the exit code `exit`; absent where an error of its own ended it
cancel  {e,t,r}                the user cancelled the trials of the ranges `r` ([first, last+1] pairs)
retry   {e,t,r}                the user put these trials back
submit  {e,t,sub,agents,first,request}
                               the client is about to hand an array of so many agents to sbatch, as submission `sub`
submitted {e,t,sub,job}        the scheduler took it as job `job`
refused {e,t,sub,text}         the scheduler did not take it, and never will
again   {e,t,i,n}              attempt `n` failed and the agent itself will try trial `i` again
Numbers that JSON cannot write are written as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional

JOURNAL_VERSION = 1
ID_LETTERS = 8  # of a trial's id in `start`: enough to tell trials apart


def wire_number(value: float) -> Any:
    """A float as strict JSON can carry it."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def finite_number(value: Any) -> Optional[float]:
    """A float that can be counted with; None for all else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def parse_texts(metrics: Mapping[str, Any]) -> Dict[str, str]:
    """The texts among metrics as journals carry them: a list of one text each."""
    return {
        name: entry[0]
        for name, entry in metrics.items()
        if isinstance(entry, list) and len(entry) == 1 and isinstance(entry[0], str)
    }


def unwire_number(value: Any) -> float:
    """The inverse of `wire_number`."""
    return float(value)


# -- events as values, for everybody but the fold, which reads the lines of large studies as they are


@dataclass(frozen=True)
class Event:
    """One line of a journal: when it was written, by its writer's clock, and all of its keys."""

    t: float
    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Header(Event):
    """The first line of a journal: the agent or the client that writes it."""

    id: str
    is_agent: bool
    slots: int
    notice: float  # when the agent takes no more trials, by its clock; infinite where its job has no end
    ends: float


@dataclass(frozen=True)
class Started(Event):
    number: int
    attempt: int


@dataclass(frozen=True)
class Ended(Event):
    number: int
    attempt: int
    cause: str
    own_s: Optional[float]  # without the sessions that it went on from
    use: Mapping[str, Any]


@dataclass(frozen=True)
class Again(Event):
    number: int
    attempt: int


@dataclass(frozen=True)
class Ranges(Event):
    """The user cancelled trials, or put them back."""

    is_retry: bool
    ranges: List[List[int]]


@dataclass(frozen=True)
class Noted(Event):
    text: str
    number: Optional[int]
    is_routine: bool


@dataclass(frozen=True)
class Bye(Event):
    reason: str


@dataclass(frozen=True)
class Level(Event):
    """What trials of an agent that rehearses take together; see `fields`."""


@dataclass(frozen=True)
class Ready(Event):
    in_s: Mapping[str, float]


@dataclass(frozen=True)
class Cleaned(Event):
    seconds: Optional[float]


@dataclass(frozen=True)
class Submitting(Event):
    """An array is about to be handed to the scheduler."""

    submission: str
    agents: int
    first: int
    request: Mapping[str, Any]


@dataclass(frozen=True)
class Settled(Event):
    """The scheduler took a submission as `job`, or refused it."""

    submission: str
    job: Optional[int]
    refused: Optional[str]


def decode_event(line: Mapping[str, Any]) -> Optional[Event]:
    """The event in a line of a journal; None for a kind that this version does not know, and for a malformed line."""
    try:
        decode = _DECODERS.get(line.get("e"))
        return None if decode is None else decode(line)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _decode_header(line: Mapping[str, Any]) -> Event:
    return Header(
        line["t"],
        line,
        id=line["id"],
        is_agent=line["e"] == "agent",
        slots=int(line.get("slots") or 1),
        notice=float(line.get("notice") or math.inf),
        ends=float(line.get("ends") or math.inf),
    )


def _decode_end(line: Mapping[str, Any]) -> Event:
    use = line.get("use") or {}
    own_s = finite_number(line.get("dur"))
    return Ended(line["t"], line, _trial_of(line), line.get("n", 0), str(line["cause"]), own_s, use)


def _trial_of(line: Mapping[str, Any]) -> int:
    """The number of the trial that a line is about. Raises KeyError or ValueError where it has none."""
    number = line["i"]
    if type(number) is not int:
        raise ValueError(number)
    return number


def _decode_note(line: Mapping[str, Any]) -> Event:
    return Noted(line["t"], line, str(line["text"]), line.get("i"), bool(line.get("routine")))


def _decode_submit(line: Mapping[str, Any]) -> Event:
    return Submitting(
        line["t"], line, line["sub"], line["agents"], line["first"], line.get("request") or {}
    )


_DECODERS: Dict[Any, Callable[[Mapping[str, Any]], Event]] = {
    "agent": _decode_header,
    "client": _decode_header,
    "start": lambda line: Started(line["t"], line, _trial_of(line), line.get("n", 0)),
    "end": _decode_end,
    "again": lambda line: Again(line["t"], line, _trial_of(line), line.get("n", 0)),
    "cancel": lambda line: Ranges(line["t"], line, False, line["r"]),
    "retry": lambda line: Ranges(line["t"], line, True, line["r"]),
    "note": _decode_note,
    "bye": lambda line: Bye(line["t"], line, str(line.get("reason", ""))),
    "level": lambda line: Level(line["t"], line),
    "ready": lambda line: Ready(line["t"], line, line.get("in_s") or {}),
    "cleaned": lambda line: Cleaned(line["t"], line, line.get("s")),
    "submit": _decode_submit,
    "submitted": lambda line: Settled(float(line["t"]), line, line["sub"], line["job"], None),
    "refused": lambda line: Settled(float(line["t"]), line, line["sub"], None, str(line["text"])),
}
