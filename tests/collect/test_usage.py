"""What real attempts used: folded from journals old and new, by variant, and from the index."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.collect.test_index import finished, write
from windlass.collect.index import StudyIndex
from windlass.collect.usage import fold_usage, percentile, read_usage
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.ids import trial_id
from windlass.core.journal.records import LiveProgress, TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trialfile import append_trials


def done(number: int, duration_s: float = 10.0, **use: Any) -> TrialRecord:
    return TrialRecord(number, State.DONE, cause="done", duration_s=duration_s, use=use)


def test_peaks_are_maxima_also_of_attempts_that_failed() -> None:
    failed = TrialRecord(
        9, State.FAILED, cause="out of memory", duration_s=3.0, use={"mem_mb": 900.0, "gpu_mb": 50}
    )
    records = [done(0, 10.0, mem_mb=100.0, gpu_mb=2000.0), done(1, 20.0, mem_mb=300.0), failed]
    usage = fold_usage(((), record) for record in records)
    assert usage is not None
    assert (usage.attempts, usage.done) == (3, 2)
    assert (usage.overall.memory_mb, usage.overall.gpu_mb) == (900.0, 2000.0)
    assert usage.overall.time_s == (15.0, 19.0, 20.0)  # of those that are done


def test_variants_are_kept_apart_and_company_is_the_most_frequent() -> None:
    records = [(("a",), done(n, mem_mb=100.0 + n, k=4, gpu_pct=50.0)) for n in range(3)]
    records += [(("b",), done(5, mem_mb=700.0, k=2, gpu_pct=90.0))]
    usage = fold_usage(records)
    assert usage is not None
    assert {use.variant: (use.done, use.memory_mb) for use in usage.variants} == {
        ("a",): (3, 102.0),
        ("b",): (1, 700.0),
    }
    assert (usage.k, usage.gpu_percent) == (4, 50.0)
    a, b = usage.of(("a",)), usage.of(("b",))
    assert a is not None and b is not None and a.is_evidence and not b.is_evidence
    assert usage.of(("c",)) is None


def test_a_journal_of_before_tells_memory_and_cores_all_the_same() -> None:
    record = TrialRecord(0, State.DONE, cause="done", duration_s=10.0, rss_mb=64.0, cpu_s=25.0)
    usage = fold_usage([((), record)])
    assert usage is not None
    assert (usage.overall.memory_mb, usage.overall.cores, usage.overall.gpu_mb, usage.k) == (
        64.0,
        2.5,
        None,
        None,
    )


@pytest.mark.parametrize("damage", ["much", -1, float("nan"), True, None, [1]])
def test_what_is_no_figure_is_left_out(damage: Any) -> None:
    usage = fold_usage([((), done(0, mem_mb=damage, gpu_mb=damage, cores=damage, k=damage))])
    assert usage is not None
    assert (usage.overall.memory_mb, usage.overall.gpu_mb, usage.overall.cores, usage.k) == (
        None,
        None,
        None,
        None,
    )


def test_percentiles() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0], 0.9) == 3.0
    assert percentile([1.0, 2.0], 0.5) == 1.5
    assert percentile([float(n) for n in range(11)], 0.9) == 9.0


@pytest.fixture
def study(tmp_path: Path) -> StudyPaths:
    """Ten trials; the settings of each say which variant it is."""
    paths = StudyPaths(str(tmp_path / "study"))
    for folder in paths.folders():
        os.makedirs(folder, exist_ok=True)
    lines = []
    for number in range(10):
        settings = {"algo": "abc"[number % 3], "lr": number}
        name = trial_id(settings, "x")
        line = {"id": name, "stages": [["main", ["true"]]], "settings": settings}
        lines.append((name, json.dumps(line).encode() + b"\n"))
    append_trials(paths, 0, lines)
    RegisterFile(paths.claims, "test").begin_anew(Register(10, [(0, 10)], [], {}, []))
    return paths


def test_usage_is_read_from_a_study_and_follows_its_journals(study: StudyPaths) -> None:
    assert read_usage(study) is None
    write(study, "a", finished(0, 6, use={"mem_mb": 50.0, "gpu_mb": 1500.0, "k": 2}))
    first = read_usage(study, ["algo"])
    assert first is not None and first.overall.gpu_mb == 1500.0 and first.k == 2
    assert {use.variant: use.done for use in first.variants} == {("a",): 2, ("b",): 2, ("c",): 2}
    write(study, "b", finished(6, 7, use={"mem_mb": 80.0}))
    second = read_usage(study, ["algo"])
    assert second is not None and second.overall.memory_mb == 80.0
    a = second.of(("a",))
    assert a is not None and (a.done, a.memory_mb) == (3, 80.0)


def test_how_far_a_trial_is_comes_from_the_beat(study: StudyPaths) -> None:
    header = {"e": "agent", "t": 1.0, "v": 1, "id": "a"}
    start = {"e": "start", "t": 2.0, "i": 3, "n": 1, "s": 0}
    beat = {
        "e": "beat",
        "t": 9.0,
        "live": {"3": {"step": 7, "p": [7, 70, 63.5], "mem": 12.5, "gpu": 300}},
    }
    write(study, "a", [header, start, beat])
    index = StudyIndex(study)
    index.refresh()
    (record,) = index.running()
    assert record.progress == LiveProgress(7.0, 70.0, 63.5)
    assert (record.use["mem"], record.use["gpu"], record.told, record.start) == (
        12.5,
        300,
        9.0,
        2.0,
    )
    index.close()
