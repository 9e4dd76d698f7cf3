"""What the attempts of a study used, from its journals: evidence for the next request."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from windlass.collect.index import StudyIndex
from windlass.collect.look import read_register
from windlass.core.claims import ranges as rs
from windlass.core.claims.ranges import Ranges
from windlass.core.errors import FolderError
from windlass.core.journal.records import TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import TrialFile
from windlass.usage import Usage, VariantUse

_ENDED = (State.DONE, State.FAILED, State.INTERRUPTED)
# Whose setup counts: what the environment and the data were long ago says little.
_LAST_AGENTS = 100
# A shorter attempt does not show how many cores it uses: its processor time is too coarse.
_SHORTEST_S = 1.0


def read_usage(paths: StudyPaths, variants: Sequence[str] = ()) -> Usage | None:
    """What real trials of the study used, by the values of its `variants`; None where none has ended yet.

    Of a trial that was tried several times, the attempt that holds counts.
    """
    index = StudyIndex(paths)
    try:
        index.refresh()
        current = read_register(paths).current
        question = json.dumps(["usage", list(variants), current])
        found = index.remembered(
            question, lambda: _to_json(fold_usage(_attempts(paths, index, current, variants)))
        )
        setups = [
            agent.setup_s for agent in index.agents() if agent.job and agent.setup_s is not None
        ]
    except (FolderError, OSError):
        return None
    finally:
        index.close()
    return (
        None
        if found is None
        else replace(_from_json(found), setup_s=max(setups[-_LAST_AGENTS:], default=None))
    )


def _attempts(
    paths: StudyPaths, index: StudyIndex, current: Ranges, variants: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], TrialRecord]]:
    """The trials that have ended, each with its values of the parameters that make variants."""
    trials = TrialFile(paths) if variants else None
    try:
        for record in index.records(states=_ENDED):
            if rs.contains(current, record.number):
                settings = trials.read(record.number)["settings"] if trials is not None else {}
                yield tuple(settings.get(name) for name in variants), record
    finally:
        if trials is not None:
            trials.close()


def fold_usage(attempts: Iterable[tuple[tuple[Any, ...], TrialRecord]]) -> Usage | None:
    """What these attempts used together, and those of each variant."""
    groups: dict[str, tuple[tuple[Any, ...], list[TrialRecord]]] = {}
    everything: list[TrialRecord] = []
    for variant, record in attempts:
        groups.setdefault(json.dumps(variant, default=str), (variant, []))[1].append(record)
        everything.append(record)
    if not everything:
        return None
    company = Counter(
        int(k) for record in everything if (k := used(record, "k")) is not None and k >= 1
    )
    percents = sorted(p for record in everything if (p := used(record, "gpu_pct")) is not None)
    variants = tuple(_fold_variant(*group) for group in groups.values())
    # With a single variant this is all there is, and going through hundreds of thousands of trials again takes seconds.
    overall = (
        replace(variants[0], variant=()) if len(variants) == 1 else _fold_variant((), everything)
    )
    return Usage(
        attempts=len(everything),
        done=overall.done,
        variants=variants,
        k=company.most_common(1)[0][0] if company else None,
        gpu_percent=percentile(percents, 0.5),
        overall=overall,
    )


def _fold_variant(variant: tuple[Any, ...], records: Sequence[TrialRecord]) -> VariantUse:
    """What the trials of one variant used: the highest memory, the cores of nine in ten, and times."""
    done = [record for record in records if record.state is State.DONE]
    # A duration that is only an upper bound, because nobody could look when the trial ended, is no evidence.
    timed = [record for record in done if not used(record, "late_s")]
    times = sorted(s for record in timed if (s := as_number(record.duration_s)) is not None)
    cores = sorted(c for record in records if (c := node_cores_of(record)) is not None)
    return VariantUse(
        variant=variant,
        done=len(done),
        memory_mb=max(
            (mb for record in records if (mb := node_mb_of(record)) is not None), default=None
        ),
        gpu_mb=max(
            (mb for record in records if (mb := node_gpu_mb_of(record)) is not None), default=None
        ),
        cores=percentile(cores, 0.9),
        time_s=_three(times),
    )


def _three(times: Sequence[float]) -> tuple[float, float, float] | None:
    median, high = percentile(times, 0.5), percentile(times, 0.9)
    return None if median is None or high is None else (median, high, times[-1])


def as_number(value: Any) -> float | None:
    """A finite number that is not negative; None for anything else a damaged journal may hold."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value < 0
    ):
        return None
    return float(value)


def used(record: TrialRecord, key: str) -> float | None:
    """One figure of what an attempt used."""
    value = record.use.get(key)
    return None if value is None else as_number(value)


def memory_mb_of(record: TrialRecord) -> float | None:
    """Peak memory, the sum over its nodes: of all processes where it was sampled, else of the largest one."""
    sampled = used(record, "mem_mb")
    return sampled if sampled is not None else as_number(record.rss_mb)


def node_mb_of(record: TrialRecord) -> float | None:
    """Peak memory on the node where it was highest: a request names what one node needs."""
    on_node = used(record, "node_mb")
    return on_node if on_node is not None else memory_mb_of(record)


def node_gpu_mb_of(record: TrialRecord) -> float | None:
    """GPU memory on the node where it was highest."""
    on_node = used(record, "node_gpu_mb")
    return on_node if on_node is not None else used(record, "gpu_mb")


def node_cores_of(record: TrialRecord) -> float | None:
    """Cores used on the node where most were."""
    on_node = used(record, "node_cores")
    return on_node if on_node is not None else cores_of(record)


def cores_of(record: TrialRecord) -> float | None:
    """Cores used on average: as sampled, else processor time by duration."""
    sampled = used(record, "cores")
    if sampled is not None:
        return sampled
    if used(record, "late_s"):
        return None
    cpu_s, duration_s = as_number(record.cpu_s), as_number(record.duration_s)
    own_s = (duration_s or 0.0) - (used(record, "before_s") or 0.0)
    return None if cpu_s is None or own_s < _SHORTEST_S else cpu_s / own_s


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The value that this share of all does not exceed; the median of two is their mean."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _to_json(usage: Usage | None) -> dict[str, Any] | None:
    return None if usage is None else asdict(usage)


def _from_json(data: Mapping[str, Any]) -> Usage:
    variants = tuple(_variant_from_json(variant) for variant in data["variants"])
    return Usage(**{**data, "variants": variants, "overall": _variant_from_json(data["overall"])})


def _variant_from_json(data: Mapping[str, Any]) -> VariantUse:
    """The use of a variant, as it was remembered in the index."""
    time_s = data["time_s"]
    variant = tuple(data["variant"])
    return VariantUse(
        **{**data, "variant": variant, "time_s": None if time_s is None else tuple(time_s)}
    )
