"""Folds events into what is known of each trial and agent. Pure; Python 3.9.

Journals may be folded in any order, and each in any number of pieces: the result is the same. That holds
because a trial remembers only maxima (its latest verdict, success and retry), a count of starts, and when each attempt
began and ended. Verdicts are ordered by time, then kind, then writer. Those of one writer are ordered as written, even
where its clock was set back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from windlass.core.journal.events import parse_texts, unwire_number
from windlass.core.journal.records import (
    AgentRecord,
    MetricSummary,
    Note,
    Span,
    SpanFields,
    TrialRecord,
    finite,
)
from windlass.core.states import STATE_OF, Cause, State

# Of two verdicts of the same moment the higher one holds.
RANKS = range(6)
START, BEAT, END, AGAIN, CANCEL, RETRY = RANKS
NUMBER_LIMIT = 1 << 40  # a trial's number is below
# Of an end that an agent of an earlier version wrote: later than all others.
UNKNOWN_ROUND = 1 << 40
_TICK_S = 1e-6  # a writer's next event is at least this much later than the one before
_MOST_SPANS = 20  # attempts of one trial whose times are remembered
_LATEST_S = 1e11  # no clock is that wrong; a larger time is damage
_STATE_OF_TEXT: Dict[str, State] = {cause.value: state for cause, state in STATE_OF.items()}


class Verdict(NamedTuple):
    """An event that decides a trial's state, with its place in the order of all verdicts."""

    t: float
    rank: int
    writer: str
    event: Mapping[str, Any]


class TrialHistory:
    """The maxima that decide what a trial's record is."""

    __slots__ = ("cancel", "done", "last", "retry", "spans", "starts")

    def __init__(
        self,
        starts: int = 0,
        last: Optional[Verdict] = None,
        done: Optional[Verdict] = None,
        retry: Optional[Verdict] = None,
        spans: Tuple[SpanFields, ...] = (),
        cancel: Optional[Verdict] = None,
    ) -> None:
        self.starts = starts
        self.spans = spans  # in no order
        self.last = last
        self.done = done  # the latest success
        self.retry = retry
        self.cancel = cancel

    def add(self, verdict: Verdict) -> None:
        """Take in a verdict; those of one writer come in the order they were written."""
        # Tuples compare by time, rank and writer; no two verdicts agree in all three.
        if self.last is None or verdict > self.last:
            self.last = verdict
        rank = verdict[1]
        if rank == END:
            event = verdict[3]
            # A success of an agent that no longer had the trial counts only where nobody else has begun it.
            is_own = "lost" not in event or event["t"] <= event["lost"]
            if event["cause"] == "done" and is_own and (self.done is None or verdict > self.done):
                self.done = verdict
            start, own_s = event.get("start"), event.get("dur")
            if (
                type(start) is float and type(own_s) is float
            ):  # else: a journal that is damaged, or of the first days
                self.spans = add_span(
                    self.spans, (start, start + own_s, verdict[2], event.get("n", 0))
                )
        elif rank == RETRY and (self.retry is None or verdict > self.retry):
            self.retry = verdict
        elif rank == CANCEL and (self.cancel is None or verdict > self.cancel):
            self.cancel = verdict

    @property
    def shown(self) -> Verdict:
        """The verdict that holds: a success does for good, whatever clocks say, until the user retries it."""
        done, retry = self.done, self.retry
        if done is not None and (retry is None or done > retry):
            return done
        assert self.last is not None  # a history begins with a verdict
        # The agent had not noticed that the trial was cancelled when its attempt was interrupted, or was to be tried
        # again. Nobody begins it before the user retries it.
        is_open = self.last[1] == AGAIN or (
            self.last[1] == END and state_of(self.last) is State.INTERRUPTED
        )
        if is_open and self.cancel is not None and (retry is None or self.cancel > retry):
            return self.cancel
        return self.last

    def record(self, number: int) -> TrialRecord:
        return record_of(number, self.starts, self.shown, self.spans)


@dataclass
class WriterState:
    """What has to be remembered of one journal between two folds."""

    clock: float = 0.0
    malformed: int = 0  # events that lack what their kind needs
    # Attempts under way: number, start.
    open: Dict[int, Tuple[int, float]] = field(default_factory=dict)
    agent: Optional[AgentRecord] = None
    moved: Dict[int, Optional[int]] = field(default_factory=dict)  # see collect/trial_ids.py


@dataclass
class Folded:
    """Everything folded so far."""

    histories: Dict[int, TrialHistory] = field(default_factory=dict)
    writers: Dict[str, WriterState] = field(default_factory=dict)
    notes: List[Note] = field(default_factory=list)
    # Is called with the event of each attempt that ended. An error there would count as damage of the event.
    on_end: Optional[Callable[[Mapping[str, Any]], None]] = None

    @property
    def trials(self) -> Dict[int, TrialRecord]:
        """Trials that any event spoke of; the others wait."""
        return {
            number: history.record(number) for number, history in sorted(self.histories.items())
        }

    @property
    def agents(self) -> Dict[str, AgentRecord]:
        return {name: w.agent for name, w in sorted(self.writers.items()) if w.agent is not None}

    @property
    def malformed(self) -> int:
        return sum(writer.malformed for writer in self.writers.values())


def fold_events(folded: Folded, writer: str, events: Iterable[Mapping[str, Any]]) -> None:
    """Take the next events of one writer's journal into `folded`, in place."""
    state = folded.writers.get(writer)
    if state is None:
        state = folded.writers[writer] = WriterState()
    before = state.clock
    for event in events:
        try:
            time_s = event["t"]
            if not 0 <= time_s < _LATEST_S:
                raise ValueError(time_s)
            state.clock = clock = time_s if time_s > state.clock else state.clock + _TICK_S
            handler = _HANDLERS.get(event["e"])
            if handler is not None:  # a kind this version does not know is none of its business
                handler(folded, state, writer, clock, event)
        except (KeyError, TypeError, ValueError, AttributeError):
            state.malformed += 1
    if state.agent is not None and state.clock != before:
        state.agent = _changed(state.agent, last_seen=state.clock)


def _changed(agent: AgentRecord, **changes: Any) -> AgentRecord:
    return AgentRecord(**{**vars(agent), **changes})


def _add(folded: Folded, number: int, verdict: Verdict) -> TrialHistory:
    history = folded.histories.get(number)
    if history is None:
        history = folded.histories[number] = TrialHistory()
    history.add(verdict)
    return history


def parse_number(value: Any) -> int:
    """A trial's number, if it is one; raises ValueError."""
    if type(value) is not int or not 0 <= value < NUMBER_LIMIT:
        raise ValueError(value)
    return value


def _fold_start(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    number = parse_number(event["i"])
    state.open[number] = (event.get("n", 0), event["t"])
    _add(folded, number, Verdict(t, START, writer, event)).starts += 1


def _fold_end(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    number = parse_number(event["i"])
    if type(event["cause"]) is not str or type(event.get("m", _NO_METRICS)) is not dict:
        raise TypeError(event)
    state.open.pop(number, None)
    if folded.on_end is not None:
        folded.on_end(event)
    if state.agent is None or not state.agent.rounds:
        event = {**event, "round": UNKNOWN_ROUND}
    lost = finite(event.get("lost"))
    # Others may have had the trial since then: what this agent reports of it later does not replace what they report.
    _add(folded, number, Verdict(t if lost is None else min(t, lost), END, writer, event))


def _fold_again(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    number = parse_number(event["i"])
    state.open.pop(number, None)
    _add(folded, number, Verdict(t, AGAIN, writer, event))


def _fold_beat(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    for key, live in (event.get("live") or {}).items():
        number = parse_number(int(key))
        attempt, start = state.open.get(number, (0, None))
        use = {key: live[key] for key in _LIVE_USE if live.get(key) is not None}
        live_event = {
            "n": attempt,
            "t": start,
            "step": live.get("step"),
            "m": live.get("m") or {},
            "use": use,
        }
        _add(folded, number, Verdict(t, BEAT, writer, live_event))


def _fold_ranges(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    verdict = Verdict(t, CANCEL if event["e"] == "cancel" else RETRY, writer, _NO_METRICS)
    for first, stop in [(parse_number(first), parse_number(stop)) for first, stop in event["r"]]:
        for number in range(first, stop):
            _add(folded, number, verdict)


def _fold_note(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    number = event.get("i")
    trial = None if number is None else parse_number(number)
    folded.notes.append(Note(t, writer, str(event["text"]), trial, bool(event.get("routine"))))


def _fold_agent(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    state.agent = AgentRecord(
        id=writer,
        host=str(event.get("host", "")),
        machine=str(event.get("machine", "")),
        boot=str(event.get("boot", "")),
        pid=int(event.get("pid") or 0),
        began=event.get("began"),
        slots=int(event.get("slots") or 0),
        cpus=event.get("cpus"),
        gpus=event.get("gpus"),
        version=str(event.get("version", "")),
        job=event.get("job") if isinstance(event.get("job"), dict) else None,
        code=event.get("code") if isinstance(event.get("code"), dict) else None,
        start=event["t"],
        last_seen=t,
        clock_s=event.get("clock_s"),
        rounds=event.get("rounds") is True,
    )


def _fold_bye(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    agent = state.agent if state.agent is not None else AgentRecord(id=writer)
    state.agent = _changed(
        agent, ended=True, reason=str(event.get("reason", "")), failed=int(event.get("failed") or 0)
    )


def _fold_ready(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    agent = state.agent if state.agent is not None else AgentRecord(id=writer)
    state.agent = _changed(agent, setup_s=float(sum(event["in_s"].values())))


def _fold_cleaned(
    folded: Folded, state: WriterState, writer: str, t: float, event: Mapping[str, Any]
) -> None:
    agent = state.agent if state.agent is not None else AgentRecord(id=writer)
    code = event.get("exit")
    if isinstance(code, int):
        state.agent = _changed(agent, exit_code=code)


_NO_METRICS: Dict[str, Any] = {}
_LIVE_USE = ("p", "mem", "gpu")
_HANDLERS = {
    "start": _fold_start,
    "end": _fold_end,
    "beat": _fold_beat,
    "again": _fold_again,
    "cancel": _fold_ranges,
    "retry": _fold_ranges,
    "note": _fold_note,
    "agent": _fold_agent,
    "bye": _fold_bye,
    "ready": _fold_ready,
    "cleaned": _fold_cleaned,
}


def state_of(verdict: Verdict) -> State:
    """What a verdict makes of a trial. A cause that this version does not know is no success."""
    if verdict.rank == END:
        return _STATE_OF_TEXT.get(verdict.event["cause"], State.FAILED)
    if verdict.rank in (START, BEAT):
        return State.RUNNING
    return State.CANCELLED if verdict.rank == CANCEL else State.WAITING


def cause_of(verdict: Verdict) -> Optional[str]:
    """Why a trial is not on its way; None where it is."""
    if verdict.rank == END:
        return str(verdict.event["cause"])
    return Cause.CANCELLED.value if verdict.rank == CANCEL else None


def parse_metrics(wire: Mapping[str, Any]) -> Dict[str, MetricSummary]:
    """Metrics as journals carry them, as numbers; what is not four numbers is left out."""
    metrics = {}
    for name, values in wire.items():
        try:
            last, low, high, count = values
            numbers = (unwire_number(last), unwire_number(low), unwire_number(high))
            metrics[name] = (*numbers, int(count))
        except (TypeError, ValueError):
            continue
    return metrics


def _use_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    use = event.get("use")
    return use if isinstance(use, dict) else {}


def before_s(event: Mapping[str, Any]) -> float:
    """Seconds spent in earlier sessions, up to the checkpoint this attempt resumed from."""
    return finite(_use_of(event).get("before_s")) or 0.0


def whole_s(event: Mapping[str, Any]) -> Any:
    """How long an attempt took, with the earlier sessions that it resumed from."""
    own_s, before = event.get("dur"), before_s(event)
    return own_s + before if before and isinstance(own_s, (int, float)) else own_s


def add_span(spans: Tuple[SpanFields, ...], span: SpanFields) -> Tuple[SpanFields, ...]:
    """With one more; of very many the latest."""
    if len(spans) < _MOST_SPANS:
        return (*spans, span)
    return tuple(sorted((*spans, span))[1:])


def record_of(
    number: int, starts: int, verdict: Verdict, ended: Sequence[SpanFields] = ()
) -> TrialRecord:
    """What is shown of a trial whose deciding verdict is `verdict`, after `starts` starts.

    `ended` are the spans of its attempts, in any order. They are part of the record only where there are several, since
    only then two of them can overlap.
    """
    spans = tuple(Span(*fields) for fields in sorted(ended)) if len(ended) > 1 else ()
    event, rank = verdict.event, verdict.rank
    if rank == END:
        return TrialRecord(
            number=number,
            state=state_of(verdict),
            cause=cause_of(verdict),
            since=verdict.t,
            attempts=starts,
            agent=verdict.writer,
            attempt=event.get("n", 0),
            start=event.get("start"),
            duration_s=whole_s(event),
            exit_code=event.get("code"),
            signal=event.get("sig"),
            stage=event.get("stage"),
            step=event.get("step"),
            metrics=parse_metrics(event.get("m") or {}),
            texts=parse_texts(event.get("m") or {}),
            output_bytes=event.get("out"),
            rss_mb=event.get("rss_mb"),
            cpu_s=event.get("cpu_s"),
            note=event.get("note"),
            why=event.get("why"),
            use=_use_of(event),
            spans=spans,
        )
    if rank in (START, BEAT):
        began = event.get("t")
        return TrialRecord(
            number=number,
            state=State.RUNNING,
            since=verdict.t if began is None else began,
            attempts=starts,
            agent=verdict.writer,
            attempt=event.get("n", 0),
            start=began,
            step=event.get("step"),
            metrics=parse_metrics(event.get("m") or {}),
            texts=parse_texts(event.get("m") or {}),
            use=_use_of(event),
            told=verdict.t if rank == BEAT else None,
            spans=spans,
        )
    agent = verdict.writer if rank == AGAIN else ""
    return TrialRecord(
        number, state_of(verdict), cause_of(verdict), verdict.t, starts, agent, spans=spans
    )
