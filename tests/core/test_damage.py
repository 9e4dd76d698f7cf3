"""Whatever is damaged in a study's folder: no traceback, and no result that is wrong without a warning.

A few folders of the many that `make damage` tries; see tests/damaging.py.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.damaging import VERBS, Base, try_folder

FOLDERS = 16
SEED = 12


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(Path(tmp_path_factory.mktemp("damage")) / "place")


def test_no_damage_gives_a_traceback_or_a_wrong_result(base: Base) -> None:
    findings = []
    for number in range(FOLDERS):
        chance = random.Random(f"verbs-{number}")
        verbs = sorted(chance.sample(VERBS, 8), key=VERBS.index)
        findings += try_folder(base, SEED, number, verbs, runs=number % 8 == 0)
    assert not findings, f"{len(findings)} findings:\n" + "\n".join(findings)
