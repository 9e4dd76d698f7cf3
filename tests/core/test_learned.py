"""What agents learn for the rest of a study: figures only rise, in whatever order they come, and old registers load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.test_fate import BEAT_S, JOB, agent, paths, scheduler_said
from windlass.core.claims.coroner import Coroner
from windlass.core.claims.learned import learn_budget, learn_fault, merge_learned
from windlass.core.claims.recover import recover
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.journal.read import read_header
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause

__all__ = ["paths"]  # a fixture

budgets = st.fixed_dictionaries(
    {"variant": st.sampled_from([[], ["ppo"], ["sac", 64]])},
    optional={"gpu_mb": st.integers(1, 9), "memory_mb": st.integers(1, 9)},
)
learned = st.fixed_dictionaries(
    {},
    optional={
        "budgets": st.lists(budgets, max_size=3),
        "mps_faults": st.integers(0, 3),
        "mps_off": st.booleans(),
        "memory_kills": st.integers(0, 3),
    },
)


def settled(value: dict[str, Any]) -> dict[str, Any]:
    """In one order, to be compared; what says nothing left out."""
    merged = merge_learned(value, {})
    return {
        key: sorted(map(str, item)) if key == "budgets" else item
        for key, item in merged.items()
        if item
    }


@given(learned, learned, learned)
def test_the_order_does_not_matter(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    both = merge_learned(one, two)
    assert settled(both) == settled(merge_learned(two, one))
    assert settled(merge_learned(both, three)) == settled(
        merge_learned(one, merge_learned(two, three))
    )
    assert settled(merge_learned(both, one)) == settled(both)


def test_figures_only_rise() -> None:
    known = learn_budget({}, ["ppo"], "gpu_mb", 3000)
    known = learn_budget(known, ["ppo"], "gpu_mb", 2000)
    known = learn_budget(known, ["ppo"], "memory_mb", 500)
    known = learn_budget(known, ["sac"], "gpu_mb", 7000)
    assert known == {
        "budgets": [
            {"variant": ["ppo"], "gpu_mb": 3000, "memory_mb": 500},
            {"variant": ["sac"], "gpu_mb": 7000},
        ]
    }


def test_the_second_fault_gives_mps_up() -> None:
    once = learn_fault({})
    assert (once["mps_faults"], bool(once.get("mps_off"))) == (1, False)
    assert learn_fault(once) == {"mps_faults": 2, "mps_off": True}


def test_what_a_later_windlass_adds_is_kept() -> None:
    assert merge_learned({"new": 1}, {"mps_faults": 1})["new"] == 1


def test_the_register_keeps_it_and_old_registers_load(tmp_path: Path) -> None:
    register_file = RegisterFile(str(tmp_path), "test")
    register_file.update(lambda r: Register(1, [(0, 1)], [(0, 1)], {}, []))
    [old] = [path for path in tmp_path.iterdir() if path.name.isdigit()]
    assert "learned" not in json.loads(old.read_text()), "nothing learned, nothing written"
    assert register_file.read().learned == {}

    def learn(register: Register) -> Register:
        register.learned = learn_fault(register.learned)
        return register

    register_file.update(learn)
    register_file.update(lambda register: register)
    assert RegisterFile(str(tmp_path), "other").read().learned == learn_fault({})


@pytest.mark.parametrize("state,kills", [("OUT_OF_MEMORY", 1), ("TIMEOUT", None)])
def test_an_agent_whose_job_ran_out_of_memory(
    paths: StudyPaths, state: str, kills: int | None
) -> None:
    """Its trials go back to everybody, and whoever takes them knows to give them more memory."""
    agent(paths, 2 * BEAT_S, job=JOB)
    scheduler_said(paths, state)
    register_file = RegisterFile(paths.claims, "test")
    register_file.update(lambda r: Register(2, [(0, 2)], [], {"far": [(0, 2)]}, []))
    assert recover(paths, register_file).dead == ["far"]
    after = register_file.read()
    assert after.todo == [(0, 2)]
    assert after.learned.get("memory_kills") == kills
    assert recover(paths, register_file).dead == []
    assert register_file.read().learned.get("memory_kills") == kills, "counted once"


@pytest.mark.parametrize(
    "state,cause",
    [
        ("OUT_OF_MEMORY", Cause.HOST_MEMORY),
        ("PREEMPTED", Cause.PREEMPTED),
        ("NODE_FAIL", Cause.NODE),
        ("TIMEOUT", Cause.LOST),
    ],
)
def test_what_ended_the_job_of_an_agent_that_recorded_nothing(
    paths: StudyPaths, state: str, cause: Cause
) -> None:
    agent(paths, 2 * BEAT_S, job=JOB)
    scheduler_said(paths, state)
    header = read_header(paths.journal_of("far"))
    assert header is not None
    assert Coroner(paths).find_cause(header) is cause
    assert Coroner(paths).find_cause({**header, "job": None}) is Cause.LOST
