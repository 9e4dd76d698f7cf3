"""Each row of the table of settings works everywhere, and a new row needs no other change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from windlass import settings
from windlass.bundle.folder import render_plan
from windlass.cli import plan as plan_verb
from windlass.cli.request import read_request
from windlass.cli.study_options import (
    CommandWithProgram,
    describe_option,
    parameter_name,
    study_options,
)
from windlass.core.errors import InputError
from windlass.plan.settings import resolve_settings
from windlass.settings import GROUPS, ROWS, Row
from windlass.spec import load_study, render_study_reference
from windlass.spec.document import Problems, parse_document
from windlass.spec.kinds import KINDS, choices_of, default_value, parse_value
from windlass.spec.schema import describe, render_schema
from windlass.spec.structure import check_keys
from windlass.view.plan import render_plan_text

IN_FILE = [row for row in ROWS if row.section is not None and row.kind != "section"]
FLAGGED = [row for row in ROWS if row.flags]
SETTINGS = [row for row in ROWS if row.is_setting]


def ids(rows: list[Row]) -> list[str]:
    return [f"{row.section}.{row.name}" for row in rows]


@pytest.mark.parametrize("row", IN_FILE, ids=ids(IN_FILE))
def test_the_study_file_accepts_the_example_of_each_row(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    line = (
        f"{row.name}: {row.example}"
        if not row.section
        else f"{row.section}:\n  {row.name}: {row.example}"
    )
    text = line.replace(": \n", ":\n") + "\n"
    document, found = parse_document(text, "study.yaml")
    problems = Problems(document, found)
    keys = check_keys(document.value, problems, [])
    assert (
        not problems.found
        and getattr(getattr(keys, row.section) if row.section else keys, row.name) is not None
    )
    if row.is_setting:
        (tmp_path / "study.yaml").write_text(f"command: 'true'\n{text}")
        assert row.plan_key in load_study(str(tmp_path / "study.yaml")).given


@pytest.mark.parametrize("row", IN_FILE, ids=ids(IN_FILE))
def test_each_row_is_in_the_schema_and_in_the_reference(row: Row) -> None:
    properties = render_schema()["properties"]
    inside = properties[row.section]["properties"] if row.section else properties
    assert inside[row.name]["description"] == describe(row)
    assert inside[row.name].get("default", "") == row.default_text
    if choices_of(row):
        assert inside[row.name]["enum"][: len(choices_of(row))] == list(choices_of(row))
    page = render_study_reference()
    part = page.partition(f"## Keys of `{row.section}`")[2] if row.section else page
    entry = part.partition(f"### `{row.name}`\n")[2].partition("\n### ")[0]
    assert (
        entry.strip().startswith(describe(row))
        and f"- default: {row.default_text or 'none'}\n" in entry
    )
    assert all(f"`{flag}`" in entry for flag in row.flags)


@pytest.mark.parametrize("row", FLAGGED, ids=ids(FLAGGED))
def test_each_option_has_the_help_the_default_and_the_choices_of_its_row(row: Row) -> None:
    option = next(one for one in plan_verb.command.params if one.name == parameter_name(row))
    assert isinstance(option, click.Option) and sorted(option.opts) == sorted(row.flags)
    assert option.help == describe_option(row)
    assert row.help.removesuffix(".") in option.help and row.default_text in option.help
    assert not choices_of(row) or isinstance(option.type, click.Choice)
    assert option.group == row.group and row.group in GROUPS  # type: ignore[attr-defined]


def option_text(row: Row) -> str:
    """A value of a row's option: a choice, or its example without what only YAML has."""
    special = {
        "seeds": "1..3",
        "metric": "loss:min",
        "retries": "2",
        "mail_type": "END,FAIL",
        "options": "--nice=100",
    }
    return special.get(row.name, choices_of(row)[-1] if choices_of(row) else row.example)


FLAGGED_SETTINGS = [row for row in FLAGGED if row.is_setting]


@pytest.mark.parametrize("row", FLAGGED_SETTINGS, ids=ids(FLAGGED_SETTINGS))
def test_each_flag_of_a_setting_beats_the_study_and_the_site(row: Row) -> None:
    written = option_text(row)
    value = (written,) if row.several else written
    resolved = resolve_settings(
        {row.short_name: value}, {row.plan_key: "of the study"} if not row.several else {}, {}, ""
    )
    assert resolved[row.plan_key].source == "command line"
    assert resolved[row.plan_key].value == parse_value(row, value)


def test_every_setting_is_in_the_full_plan_with_its_default(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("command: 'true'\n")
    (plan,) = plans(tmp_path)
    lines = render_plan_text(plan, None, True).splitlines()
    for row in SETTINGS:
        line = next(line for line in lines if line.startswith(f"  {row.short_name} "))
        if row.default is not None:
            assert plan.settings[row.plan_key].value == default_value(row) and line.endswith(
                "from default"
            )


def plans(folder: Path, *words: str) -> list[Any]:
    """The plan of a command line, with the options that the table has at this moment."""
    found = []

    @click.command(cls=CommandWithProgram)
    @study_options
    @click.pass_context
    def verb(ctx: click.Context, /, **options: Any) -> None:
        found.append(
            read_request(ctx.meta["arguments"], {**options, "on": "local", "site": None}).plan
        )

    verb.main([str(folder / "study.yaml"), *words], standalone_mode=False)
    return found


def test_the_table_is_sound() -> None:
    words = [row.short_name for row in SETTINGS]
    flags = [flag for row in FLAGGED for flag in row.flags]
    assert len(set(words)) == len(words) and len(set(flags)) == len(flags)
    assert len({(row.section, row.name) for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.kind in KINDS, f"{row.name}: spec/kinds.py has no kind {row.kind}"
        assert row.help[0].isupper() and row.help.endswith("."), (
            f"{row.name}: help is no sentence or phrase"
        )
        assert row.section is None or row.example, f"{row.name}: the reference needs an example"
        assert row.default is None or default_value(row) is not None
    assert {row.section for row in ROWS} <= {None, "", *settings.section_names()}


NEW_SETTING = Row(
    "cooldown",
    "",
    "duration",
    "How long a slot rests between two trials.",
    ("--cooldown",),
    default="1s",
    example="2m",
    is_setting=True,
    key="cooldown_s",
    for_agent=True,
)
NEW_KEY = Row(
    "colour",
    "checkpoint",
    "choice",
    "The colour of checkpoints.",
    ("--colour",),
    ("red", "blue"),
    example="red",
)


def test_a_new_row_needs_no_other_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ROWS", (*ROWS, NEW_SETTING, NEW_KEY))
    study = tmp_path / "study.yaml"
    study.write_text("command: 'true'\ncooldown: 5m\n")
    (plan,) = plans(tmp_path)
    assert (plan.settings["cooldown_s"].value, plan.settings["cooldown_s"].source) == (
        300.0,
        "study",
    )
    (plan,) = plans(tmp_path, "--cooldown", "1h", "--colour", "blue")
    assert (plan.settings["cooldown_s"].value, plan.settings["cooldown_s"].source) == (
        3600.0,
        "command line",
    )
    assert "cooldown" in render_plan_text(plan, None, True)
    with pytest.raises(click.UsageError, match="'red', 'blue'"):
        plans(tmp_path, "--colour", "green")
    study.write_text("command: 'true'\ncheckpoint: {colour: green}\ncooldown: soon\n")
    with pytest.raises(InputError) as caught:
        load_study(str(study))
    text = "\n".join(problem.render() for problem in caught.value.problems)
    assert (
        "'green' is not one of red, blue" in text and "cooldown: 'soon' is not a duration" in text
    )
    assert "### `cooldown`" in render_study_reference()
    assert json.loads(json.dumps(render_schema()))["properties"]["cooldown"]["default"] == "1s"
    assert render_plan(plan).to_json()["cooldown_s"] == 3600.0
