"""YAML text to values that know where they stand."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from windlass.bundle.trialwriter import _render_line
from windlass.core.errors import InputError
from windlass.core.ids import trial_id
from windlass.model import Trial, Written, WrittenInt
from windlass.search.values import render_fire, render_hydra, render_json, render_value
from windlass.spec.document import parse_document, parse_scalar


def value_of(text: str) -> Any:
    document, problems = parse_document(text, "study.yaml")
    assert not problems
    return document.value


def syntax_problem(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_document(text, "study.yaml")
    return caught.value.problems[0].render()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("1e-3", "1e-3"),
        ("0.10", "0.10"),
        ("1.", "1."),
        ("1E5", "1E5"),
        ("-.5e3", "-.5e3"),
        (".inf", "inf"),
        ("-.inf", "-inf"),
        (".nan", "nan"),
        ("1_000.5", "1_000.5"),
    ],
)
def test_floats_keep_their_text(written: str, text: str) -> None:
    value = value_of(f"a: {written}")["a"]
    assert isinstance(value, Written)
    assert value.text == text


def test_whole_numbers_keep_their_text_where_it_is_not_the_usual_one() -> None:
    numbers = {
        "007": 7,
        "08": 8,
        "00123": 123,
        "0x10": 16,
        "1_000": 1000,
        "+5": 5,
        "0o17": 15,
        "-0": 0,
        "-08": -8,
    }
    for text, number in numbers.items():
        for value in (value_of(f"a: {text}")["a"], parse_scalar(text)):
            assert value == number and isinstance(value, WrittenInt) and value.text == text
            assert render_value(value) == render_hydra(value) == render_fire(value) == text
            assert copy.deepcopy(value).text == text
            assert json.dumps(value) == str(number) and render_json([value]) == f"[{number}]"
        plain, odd = ({"s": found, "t": 1} for found in (number, value))
        assert trial_id(plain, "") == trial_id(odd, ""), "the same trial as before"
        line = json.loads(_render_line(Trial("t", odd, ())))
        assert line["written"] == {"s": text} and line["settings"] == plain
    assert type(parse_scalar("7")) is int and type(value_of("a: 7")["a"]) is int


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("-5", -5),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("1:30", "1:30"),
        ("off", "off"),
        ("yes", "yes"),
        ("true", True),
        ("~", None),
        ("", None),
        ("2020-01-01", "2020-01-01"),
        ("[1, [a, {b: c}]]", [1, ["a", {"b": "c"}]]),
    ],
)
def test_other_values_follow_yaml_1_2(written: str, value: Any) -> None:
    found = value_of(f"a: {written}")["a"]
    assert found == value
    assert type(found) is type(value)


def test_anchors_and_merge_keys() -> None:
    text = "base: &base {a: 1, b: 2}\nother:\n  <<: *base\n  b: 3\nmany:\n  <<: [*base, {c: 4}]\n"
    value = value_of(text)
    assert value["other"] == {"a": 1, "b": 3}
    assert value["many"] == {"a": 1, "b": 2, "c": 4}


def test_duplicate_keys_name_both_lines() -> None:
    document, problems = parse_document("a: 1\nb: 2\na: 3\n", "study.yaml")
    assert document.value == {"a": 1, "b": 2}
    assert (
        problems[0]
        .render()
        .startswith("study.yaml:3:1: the key 'a' stands here twice, first in line 1")
    )


def test_places_of_keys_and_values() -> None:
    document, _ = parse_document("a:\n  b: [10,\n      {c: 1}]\n", "f")
    assert (
        document.problem(("a", "b", 1, "c"), "").line,
        document.problem(("a", "b", 1, "c"), "").column,
    ) == (3, 11)
    key = document.problem(("a", "b"), "", key=True)
    assert (key.line, key.column) == (2, 3)
    missing = document.problem(("a", "nothing", 3), "")
    assert (missing.line, missing.column) == (2, 3)


def test_syntax_errors_have_a_place_and_a_remedy() -> None:
    assert syntax_problem("a:\n\t- 1") == (
        "study.yaml:2:1: not valid YAML: a tab stands where YAML wants spaces\n  hint: indent with spaces"
    )
    assert syntax_problem("a: [1").startswith("study.yaml:1:6: not valid YAML: expected ',' or ']'")
    assert "single quotes" in syntax_problem("command: @foo")
    assert syntax_problem("a: 1\n---\nb: 2").startswith(
        "study.yaml:2:1: not valid YAML: a study file holds one"
    )
    assert syntax_problem("a: *b").startswith("study.yaml:1:4")
    assert "a list item needs a space" in syntax_problem("a:\n  - 1\n  -0.5\n")
    assert syntax_problem("a: 1\nb: \x07").startswith("study.yaml:2: this is not a text file")


def test_what_contains_itself_or_has_a_foreign_tag_is_a_problem() -> None:
    assert "contains itself" in parse_document("x: &a [*a]", "f")[1][0].message
    assert "tag !foo" in parse_document("x: !foo 1", "f")[1][0].message
    assert "must be a word" in parse_document("[1]: 2", "f")[1][0].message
