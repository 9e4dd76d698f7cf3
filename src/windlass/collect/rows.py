"""What is known of a trial as a row of the index, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

from windlass.core.journal.events import parse_texts, wire_number
from windlass.core.journal.fold import (
    BEAT,
    CANCEL,
    END,
    RETRY,
    START,
    TrialHistory,
    Verdict,
    before_s,
    cause_of,
    parse_metrics,
    record_of,
    state_of,
    whole_s,
)
from windlass.core.journal.records import SpanFields, TrialRecord
from windlass.core.states import State

Row = tuple[Any, ...]

COLUMNS = (
    "number, state, cause, t, rank, writer, starts, attempt, start, duration_s, exit_code, signal, stage,"
    " output_bytes, rss_mb, cpu_s, step, metrics, note, use, why, round, more"
)
INSERT = f"INSERT OR REPLACE INTO trial VALUES ({', '.join('?' * len(COLUMNS.split(',')))})"
STATE, CAUSE, DURATION_S = 1, 2, 9  # positions in a row that the summary needs

# A row's columns from `attempt` to `round`, by the event's keys; `metrics` and `use` are JSON.
_END_KEYS = (
    "n", "start", "dur", "code", "sig", "stage", "out", "rss_mb", "cpu_s", "step", "m", "note", "use", "why", "round",
)  # fmt: skip
_NOTHING = (None,) * len(_END_KEYS)
_STATES = {state.value: state for state in State}
_CHUNK = 500  # parameters in one query; old SQLite allows 999

_FOUR = [float, float, float, int]  # the types of a metric's last, min, max and count

_encode_plain = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode

# json.loads() takes longer to find out what it was given than to decode it.
_decode = json.JSONDecoder().decode


def render_row(number: int, history: TrialHistory) -> Row:
    """A trial's row: its verdict in columns, and in `more` what else folding needs, seldom anything."""
    verdict = history.shown
    event, rank = verdict.event, verdict.rank
    if rank == END:
        get = event.get
        duration_s = whole_s(event) if "use" in event else get("dur")
        details: Row = (
            get("n"), get("start"), duration_s, get("code"), get("sig"), get("stage"), get("out"),
            get("rss_mb"), get("cpu_s"), get("step"), _render_metrics(get("m")), get("note"),
            _render_use(get("use")), get("why"), get("round"),
        )  # fmt: skip
    elif rank in (START, BEAT):
        step, metrics = event.get("step"), _render_metrics(event.get("m"))
        use = _render_use(event.get("use"))
        details = (
            event.get("n"),
            event.get("t"),
            *_NOTHING[2:9],
            step,
            metrics,
            None,
            use,
            None,
            None,
        )
    else:
        details = (event.get("n"), *_NOTHING[1:])
    state = state_of(verdict).value
    head = (number, state, cause_of(verdict), verdict.t, rank, verdict.writer, history.starts)
    return (*head, *details, _render_more(history, verdict))


def parse_row(row: Row) -> TrialHistory:
    """The inverse of `render_row`."""
    verdict = _parse_verdict(row)
    if row[-1] is not None:
        *verdicts, spans = json.loads(row[-1])
        last, done, retry, cancel = (None if item is None else Verdict(*item) for item in verdicts)
        return TrialHistory(row[6], last, done, retry, _parse_spans(spans), cancel)
    done = verdict if row[CAUSE] == "done" else None
    retry = verdict if verdict.rank == RETRY else None
    cancel = verdict if verdict.rank == CANCEL else None
    return TrialHistory(row[6], verdict, done, retry, _own_span(verdict), cancel)


def parse_record(row: Row) -> TrialRecord:
    """The record of a trial from its row."""
    return _parse_simple(row) or parse_any_record(row)


def _parse_simple(row: Row) -> TrialRecord | None:
    """The record of a trial that one attempt has ended, which is what nearly all rows tell; None for others.

    A command may show a million of these. So the fields are put into the record directly, without the event in between
    and without the frozen class setting each of them; `parse_any_record` returns the same.
    """
    (
        number, state, cause, since, rank, writer, starts, attempt, start, duration_s, exit_code, signal, stage,
        output_bytes, rss_mb, cpu_s, step, wire, note, use, why, _, more,
    ) = row  # fmt: skip
    if rank != END or more is not None or type(duration_s) is not float:
        return None
    used: Mapping[str, Any] = {} if use is None else _decode(use)
    if "before_s" in used:
        return None
    reported = {} if wire is None else _decode(wire)
    metrics = parse_metrics(reported) if reported else {}
    record = object.__new__(TrialRecord)
    vars(record).update(
        number=number, state=_STATES[state], cause=cause, since=since, attempts=starts, agent=writer,
        attempt=0 if attempt is None else attempt, start=start, duration_s=duration_s, exit_code=exit_code,
        signal=signal, stage=stage, step=step, metrics=metrics,
        texts=parse_texts(reported) if len(metrics) < len(reported) else {},
        output_bytes=output_bytes, rss_mb=rss_mb, cpu_s=cpu_s, note=note, why=why, use=used, told=None, spans=(),
    )  # fmt: skip
    return record


def parse_any_record(row: Row) -> TrialRecord:
    """The record of a trial from its row, by way of the event that decides it."""
    more = row[-1]
    return record_of(
        row[0],
        row[6],
        _parse_verdict(row),
        () if more is None else _parse_spans(json.loads(more)[-1]),
    )


def _parse_spans(items: Iterable[Iterable[Any]]) -> tuple[SpanFields, ...]:
    return tuple((start, end, agent, attempt) for start, end, agent, attempt in items)


def _own_span(verdict: Verdict) -> tuple[SpanFields, ...]:
    """The times of the one attempt of a trial."""
    start, own_s = verdict.event.get("start"), verdict.event.get("dur")
    if verdict.rank != END or type(start) is not float or type(own_s) is not float:
        return ()
    return ((start, start + own_s, verdict.writer, verdict.event.get("n", 0)),)


def plain_row(row: Row) -> Row:
    """A row with everything SQLite has no type for turned into text; for damaged journals."""
    return tuple(_plain(value) for value in row)


def chunks(numbers: Iterable[int], slack: int = 1) -> Iterator[tuple[str, tuple[int, ...]]]:
    """SQL conditions, with their parameters, that together select these numbers in ascending order.

    With more `slack`, one condition may select up to so many times as many.
    """
    if isinstance(numbers, range) and numbers.step == 1:
        yield "number >= ? AND number < ?", (numbers.start, numbers.stop)
        return
    ordered = sorted(set(numbers))
    if ordered and ordered[-1] - ordered[0] < slack * len(ordered):
        yield "number >= ? AND number < ?", (ordered[0], ordered[-1] + 1)
        return
    for begin in range(0, len(ordered), _CHUNK):
        part = tuple(ordered[begin : begin + _CHUNK])
        yield f"number IN ({', '.join('?' * len(part))})", part


def _parse_verdict(row: Row) -> Verdict:
    """The event that decides a trial's state, from its row."""
    rank = row[4]
    event: dict[str, Any] = {}
    for key, value in zip(_END_KEYS, row[7:22], strict=True):
        if value is not None:
            event[key] = _decode(value) if key in ("m", "use") else value
    if rank == END:
        event["cause"] = row[CAUSE]
        if isinstance(event.get("dur"), (int, float)):
            event["dur"] -= before_s(event)
    elif rank in (START, BEAT):
        event["t"] = event.pop("start", None)
    return Verdict(row[3], rank, row[5], event)


def _render_more(history: TrialHistory, shown: Verdict) -> str | None:
    """What a row cannot hold in its columns, as JSON; None for the many trials with a simple history."""
    last, done, retry, cancel = history.last, history.done, history.retry, history.cancel
    is_plain = last is shown and all(one is None or one is shown for one in (done, retry, cancel))
    is_weak = shown.rank == END and shown.event["cause"] == "done" and done is None
    if is_plain and not is_weak and len(history.spans) <= (shown.rank == END):
        return None
    return json.dumps([last, done, retry, cancel, history.spans])


def _render_metrics(metrics: Mapping[str, Any] | None) -> str | None:
    """Metrics in strict JSON, as journals carry them, so that SQLite can look inside."""
    if not metrics:
        return None
    if len(metrics) == 1:
        ((name, values),) = metrics.items()
        if (
            type(values) is list
            and list(map(type, values)) == _FOUR
            and name.isidentifier()
            and name.isascii()
        ):
            last, low, high, count = values
            if isfinite(last) and isfinite(low) and isfinite(high):
                return f'{{"{name}":[{last!r},{low!r},{high!r},{count}]}}'  # the same text, several times as fast
    try:
        return _encode_plain(metrics)
    except ValueError:
        return _encode_plain({name: _strict(values) for name, values in metrics.items()})


def _render_use(use: Any) -> str | None:
    """What an attempt used, in strict JSON; in a damaged journal it may be anything."""
    return _render_metrics(use) if isinstance(use, dict) else None


def _strict(value: Any) -> Any:
    """The value with numbers that JSON does not have (NaN, infinity) in their form for files."""
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    return wire_number(value) if isinstance(value, float) else value


def _plain(value: Any) -> Any:
    """The value as SQLite can hold it: text without broken characters, integers of at most 64 bits."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if (
        value is None
        or isinstance(value, float)
        or (isinstance(value, int) and abs(value) < 1 << 63)
    ):
        return value
    return str(value)
