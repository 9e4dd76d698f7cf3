"""Splitting into words as a shell does."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.spec.words import UnclosedQuoteError, first_operator, mentions_variable, split_words


def texts(line: str, comments: bool = False) -> list[str]:
    return [word.text for word in split_words(line, comments)]


@pytest.mark.parametrize(
    "line",
    [
        r"""python train.py --name 'a b' --x="c d" """,
        r"""a\ b "it's" 'say "hi"' "back\\slash" "q\"q" ''""",
        r"""--layers 64,64 --pattern '*.py' "" x''y""",
        r"""printf '%s' "a\xb" """,
    ],
)
def test_splits_as_the_standard_library(line: str) -> None:
    assert texts(line) == shlex.split(line)


def test_splits_as_a_real_shell() -> None:
    line = r"""a 'b c' "d \"e\" \$f \\ g" h\ i "" j#k "x\y" """
    shell = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True
    )
    assert texts(line) == shell.stdout.split("\n")[:-1]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")), max_size=6
    )
)
@settings(max_examples=200)
def test_quoted_words_come_back(words: list[str]) -> None:
    assert texts(shlex.join(words)) == words


def test_comments_begin_only_at_the_start_of_a_word() -> None:
    assert texts("a b#c '#d' # e f", comments=True) == ["a", "b#c", "#d"]
    assert texts("a # b") == ["a", "#", "b"]


def test_continued_lines() -> None:
    assert texts("python \\\n  a.py \\\n") == ["python", "a.py"]
    assert texts("ab\\\ncd") == ["abcd"]


@pytest.mark.parametrize(("line", "position"), [("a 'b", 2), ('ab"', 2), ("a b\\", 3)])
def test_an_open_quote_says_where_it_opens(line: str, position: int) -> None:
    with pytest.raises(UnclosedQuoteError) as caught:
        split_words(line)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("line", "operator"),
    [
        ("a | b", "|"),
        ("a && b", "&&"),
        ("a; b", "a;"),
        ("a >file", ">file"),
        ("a 2>&1", "2>&1"),
        ("a '|' b", None),
        ("a \\; b", None),
        ("a --x=>y", None),
    ],
)
def test_operators_of_the_shell(line: str, operator: str | None) -> None:
    assert first_operator(split_words(line)) == operator


@pytest.mark.parametrize(
    ("line", "variable"),
    [
        ("a $HOME/x", "$HOME"),
        ("a ${SCRATCH}/x", "$SCRATCH"),
        ("a $5", None),
        ("a 5$", None),
        ("abc", None),
        ("a ${SLURM_TMPDIR}/x", None),
        ("a $SLURM_TMPDIR/$HOME", "$HOME"),
        ("bash -c 'ls $HOME'", None),
    ],
)
def test_variables_of_the_shell(line: str, variable: str | None) -> None:
    assert mentions_variable([word.text for word in split_words(line)]) == variable
