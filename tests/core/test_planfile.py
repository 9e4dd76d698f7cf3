"""plan.json: whatever was in it is in it after it was read and written, and damage is noticed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from windlass.core.errors import FolderError
from windlass.core.planfile import (
    NO_PLAN,
    PlanFile,
    decode_plan,
    read_plan_file,
    read_plan_if_there,
)

DATA = Path(__file__).parent.parent / "data"


@pytest.mark.parametrize(
    "path", sorted(DATA.rglob("plan.json")), ids=lambda path: str(path.parent.name)
)
def test_plans_of_earlier_versions_are_written_as_they_were_read(path: Path) -> None:
    said = json.loads(path.read_text())
    plan = read_plan_file(str(path))
    assert list(json.loads(plan.encode())) == ["crc", *(key for key in said if key != "crc")]
    assert plan.to_json() == {key: value for key, value in said.items() if key != "crc"}


def test_keys_of_other_versions_stay_and_changed_ones_are_added(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(decode_plan({"version": 1, "name": "s", "of_tomorrow": [1]}).encode())
    plan = dataclasses.replace(read_plan_file(str(path)), code={"key": "k"})
    path.write_bytes(plan.encode())
    again = read_plan_file(str(path))
    assert again.to_json() == {"version": 1, "name": "s", "code": {"key": "k"}, "of_tomorrow": [1]}
    assert (again.lead_s, again.keep, again.unknown) == (120.0, "all", {"of_tomorrow": [1]})


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(PlanFile(name="s").encode().replace(b'"s"', b'"t"'))
    with pytest.raises(FolderError, match="the checksum does not fit"):
        read_plan_file(str(path))
    assert read_plan_file(str(path), is_checked=False).name == "t"
    assert (
        read_plan_if_there(str(path)) is NO_PLAN
        and read_plan_if_there(str(tmp_path / "none")) is NO_PLAN
    )
