"""Placeholders in commands."""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model import ArgsFormat, Stage, Written
from windlass.search.template import Template, fill_text, placeholder_names

# What an argument list can carry: anything but NUL.
ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))


def filled(
    words: tuple[str, ...], settings: dict[str, Any], args_format: ArgsFormat = "--k v"
) -> list[str]:
    template = Template((Stage("main", words, args_format=args_format),), "my-study")
    return list(template.fill(settings, "tabc")[0][1])


def filled_shell(text: str, settings: dict[str, Any]) -> str:
    return Template((Stage("main", (text,), shell=True),), "my-study").fill(settings, "tabc")[0][1][
        -1
    ]


@given(ANY_TEXT)
def test_text_arrives_unchanged(value: str) -> None:
    assert filled(("{x}", "a{x}b", "--x={x}", "{args}"), {"x": value}) == [
        value,
        f"a{value}b",
        f"--x={value}",
        "--x",
        value,
    ]


@given(st.lists(ANY_TEXT, min_size=1, max_size=3))
def test_a_shell_reads_the_same_text(values: list[str]) -> None:
    settings = {f"p{number}": value for number, value in enumerate(values)}
    line = filled_shell(
        "prog " + " ".join(f"{{{name}}}" for name in settings) + " {args}", settings
    )
    expected = list(values)
    for name, value in settings.items():
        expected += [f"--{name}", value]
    assert shlex.split(line) == ["prog", *expected]


def test_a_real_shell_reads_the_same_text() -> None:
    value = 'a\'b "c" $HOME `id` \\ * \n ü;|'
    line = filled_shell("printf %s {x}", {"x": value})
    assert (
        subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
        == value
    )


def test_escapes_and_other_braces() -> None:
    words = ("{{lr}}", '{"lr":{lr}}', "${lr}", "{}", "{ lr }", "{1}", "{a,b}", "{{x}}{lr}")
    assert filled(words, {"lr": 1}) == [
        "{lr}",
        '{"lr":1}',
        "${lr}",
        "{}",
        "{ lr }",
        "{1}",
        "{a,b}",
        "{x}1",
    ]


def test_names_with_dots_dashes_and_slashes() -> None:
    settings = {"model.lr": 1, "batch-size": 2, "db/driver": "x"}
    assert filled(("{model.lr}", "{batch-size}", "{db/driver}"), settings) == ["1", "2", "x"]


@pytest.mark.parametrize(
    ("args_format", "words"),
    [
        ("--k v", ["--lr", "1e-3", "--names", '["a", "b c"]', "--on", "True"]),
        ("--k=v", ["--lr=1e-3", '--names=["a", "b c"]', "--on=True"]),
        ("k=v", ["lr=1e-3", "names=[a,'b c']", "on=true"]),
        ("fire", ["--lr=1e-3", "--names=['a','b c']", "--on=True"]),
    ],
)
def test_formats_of_all_arguments(args_format: ArgsFormat, words: list[str]) -> None:
    settings = {"lr": Written(1e-3, "1e-3"), "names": ["a", "b c"], "on": True}
    assert filled(("p", "{args}", "end"), settings, args_format) == ["p", *words, "end"]


def test_wandb_forms_of_all_arguments() -> None:
    settings = {"on": True, "off": False, "s": "a,b"}
    assert filled(("{args_no_boolean_flags}", "x"), settings) == ["--on", "--s=a,b", "x"]
    assert filled(("{args_no_hyphens}",), settings) == ["on=True", "off=False", "s=a,b"]
    assert filled(("{args_json}",), settings) == ['{"on": true, "off": false, "s": "a,b"}']
    assert filled(("{args_json_file}", "a{envvar:HOME}"), settings) == [
        "{args_json_file}",
        "a{envvar:HOME}",
    ]


def test_built_in_names() -> None:
    assert filled(("{study}/{trial_id}.json", "{trial_id}"), {}) == ["my-study/tabc.json", "tabc"]
    assert filled(("{study}",), {"study": "mine"}) == ["mine"]


def test_words_of_absent_parameters_are_dropped_with_their_flag() -> None:
    words = (
        "p",
        "--momentum",
        "{momentum}",
        "--m={momentum}",
        "--keep",
        "a{momentum}",
        "--lr",
        "{lr}",
        "{args}",
    )
    assert filled(words, {"lr": 1}) == ["p", "--keep", "--lr", "1", "--lr", "1"]
    assert filled(words, {"lr": 1, "momentum": 2})[:7] == [
        "p",
        "--momentum",
        "2",
        "--m=2",
        "--keep",
        "a2",
        "--lr",
    ]


def test_a_value_before_an_absent_parameter_is_not_taken_for_its_flag() -> None:
    assert filled(("{x}", "{gone}"), {"x": "-5"}) == ["-5"]


def test_one_template_serves_trials_with_different_parameters() -> None:
    template = Template((Stage("main", ("{args}",)), Stage("after", ("{a}",))), "s")
    assert template.fill({"a": 1}, "t") == (("main", ("--a", "1")), ("after", ("1",)))
    assert template.fill({"a": 1, "b": 2}, "t")[0][1] == ("--a", "1", "--b", "2")
    assert template.fill({"a": 3}, "t")[0][1] == ("--a", "3")


def test_texts_outside_commands() -> None:
    assert placeholder_names("{a}/{b}-{{c}}") == ["a", "b"]
    assert fill_text("{a}/{trial_id}/{x}", {"a": 1}, {"trial_id": "t1"}) == "1/t1/{x}"
