"""A few hundred of the inputs of tests/fuzzing.py; `make fuzz` runs 20,000."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzzing import Targets, fuzzing_folder, run_one

# Some targets take longer for an input than others: all together stay below a quarter of a minute on a busy machine.
COUNTS = {
    "study": 150, "sweep": 80, "tasks": 80, "settings": 80, "lint": 20, "options": 60, "expressions": 20, "metrics": 200,
    "help": 150, "config": 80,
}  # fmt: skip


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    with fuzzing_folder() as folder:
        yield Targets(folder)


def test_whatever_is_written_the_answer_is_clear(targets: Targets) -> None:
    assert set(COUNTS) == set(targets.all)
    findings = [
        run_one(targets, name, 0, number)
        for name, count in COUNTS.items()
        for number in range(count)
    ]
    assert not [finding for finding in findings if finding is not None]
