"""Long lists of plain values, taken out of a YAML text before it is parsed.

The YAML library reads a few thousand values a second. A list of numbers or words needs none of its rules, so each long
run of them is replaced by one item that stands for all, and a million values take seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from windlass.model import Written, WrittenInt

TAG = "!windlass-long-list"
_LONG = 500  # items; fewer are left to the library
_FLOW = re.compile(rf"\[([^\[\]{{}}:#&*!|>%@`\\?]{{{2 * _LONG - 1},}})\]")
_BLOCK_LINE = re.compile(r"( *)- +([^\s#&*!|>%@`{}\[\]?-].*?|-\.?[0-9].*?) *")
# In the order of `_SCALAR`'s groups: whole numbers, other numbers, words, text in quotes.
_SCALAR = re.compile(
    r"([-+]?(?:0|[1-9][0-9]{0,299}))"
    r"|([-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+))"
    r"|([A-Za-z_][A-Za-z0-9_./-]*)"
    r"|(\"[ !#-\[\]-~]*\"|'[ -&(-~]*')"
)
# Words that YAML reads as something else than text.
_SPECIAL_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})

Value = str | int | Written


@dataclass(frozen=True)
class LongList:
    """Values that were taken out, and the line of the first of them (1-based)."""

    values: list[Value]
    line: int
    is_block: bool  # one value a line


def take_out(text: str) -> tuple[str, list[LongList]]:
    """The text with one item in place of each long run of plain values, and those values.

    The item has `TAG` and the number of the run. All else keeps its line. Whoever uses the result must see that every
    run came out as an item of a list: what looked like a list may have been part of a text in quotes.
    """
    found: list[LongList] = []
    if text.count(",") >= _LONG - 1:
        text = _take_flow(text, found)
    if text.count("\n") >= _LONG - 1:
        text = _take_block(text, found)
    return text, found


def _take_flow(text: str, found: list[LongList]) -> str:
    pieces: list[str] = []
    end = 0
    for match in _FLOW.finditer(text):
        items = match[1].split(",")
        if not items[-1].strip():
            items.pop()  # a comma behind the last one
        values = [parse_plain(item.strip()) for item in items]
        if len(values) < _LONG or None in values:
            continue
        line = text.count("\n", 0, match.start()) + 1
        found.append(LongList([value for value in values if value is not None], line, False))
        lines = "\n" * match[0].count("\n")
        pieces += [text[end : match.start()], f"[{TAG} {len(found) - 1}{lines}]"]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _take_block(text: str, found: list[LongList]) -> str:
    lines = text.split("\n")
    kept: list[str] = []
    run: list[Value] = []
    indent = ""
    for number, line in enumerate([*lines, ""]):
        match = _BLOCK_LINE.fullmatch(line)
        value = parse_plain(match[2]) if match else None
        if run and (value is None or match is None or match[1] != indent):
            kept += _end_run(run, indent, lines, number, found)
            run = []
        if value is not None and match is not None:
            indent = match[1]
            run.append(value)
        else:
            kept.append(line)
    return "\n".join(kept[:-1])


def _end_run(
    run: list[Value], indent: str, lines: list[str], stop: int, found: list[LongList]
) -> list[str]:
    """The lines that stand for a run which ends before line `stop`: itself where it is short."""
    first = stop - len(run)
    if len(run) < _LONG:
        return lines[first:stop]
    found.append(LongList(run, first + 1, True))
    return [f"{indent}- {TAG} {len(found) - 1}"] + [""] * (len(run) - 1)


def parse_plain(text: str) -> Value | None:
    """The value of a plain scalar as YAML reads it; None where only the library knows."""
    match = _SCALAR.fullmatch(text)
    if match is None:
        return None
    kind = match.lastindex
    if kind == 1:
        return WrittenInt(int(text), text) if text[0] == "+" or text == "-0" else int(text)
    if kind == 2:
        return Written(float(text), text)
    if kind == 3:
        return text if text.lower() not in _SPECIAL_WORDS else None
    return text[1:-1]
