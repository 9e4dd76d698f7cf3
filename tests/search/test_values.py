"""Values as text in each argument format."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.ids import trial_id
from windlass.model import Written
from windlass.search.values import render_fire, render_hydra, render_json, render_value, value_key

LR = Written(1e-3, "1e-3")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "a b"),
        (1, "1"),
        (0.5, "0.5"),
        (LR, "1e-3"),
        (True, "True"),
        (None, "None"),
        ([1, "x", None, LR], '[1, "x", null, 1e-3]'),
        ({"a": [True]}, '{"a": [true]}'),
        ("ü ☃", "ü ☃"),
    ],
)
def test_plain(value: Any, text: str) -> None:
    assert render_value(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("adam", "adam"),
        ("/data/x.y-z", "/data/x.y-z"),
        ("a,b", "'a,b'"),
        ("it's", r"'it\'s'"),
        ("é", "'é'"),
        ("true", "'true'"),
        ("12", "'12'"),
        ("", "''"),
        ("end\\", r"'end\\'"),
        (True, "true"),
        (None, "null"),
        (LR, "1e-3"),
        ([1, 2, "a b"], "[1,2,'a b']"),
        ({"k": 1, "a b": "c"}, r"{k:1,a\ b:c}"),
    ],
)
def test_hydra(value: Any, text: str) -> None:
    assert render_hydra(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("adam", "adam"),
        ("a-b c", "a-b c"),
        ("12", "'12'"),
        ("True", "'True'"),
        ("a,b", "'a,b'"),
        ([64, 64], "[64,64]"),
        ({"a": None}, "{'a':None}"),
        (LR, "1e-3"),
    ],
)
def test_fire(value: Any, text: str) -> None:
    assert render_fire(value) == text


def test_fire_literals_evaluate_to_the_value() -> None:
    value = {"a": [1, 2.5, "x'y", None, True], "b": {"c": "d"}}
    assert ast.literal_eval(render_fire(value)) == value


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_json_is_json(value: Any) -> None:
    assert json.loads(render_json(value)) == value


def test_a_number_is_the_same_trial_however_it_is_written() -> None:
    assert trial_id({"lr": LR}, "c") == trial_id({"lr": 0.001}, "c")


def test_keys_tell_truth_from_numbers() -> None:
    assert value_key(1) == value_key(1.0) == value_key(Written(1.0, "1e0"))
    assert value_key(1) != value_key(True)
    assert value_key("1") != value_key(1)
    assert value_key([1]) == value_key([1])
