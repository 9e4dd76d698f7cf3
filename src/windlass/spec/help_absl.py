"""Reads what the ``--help`` of a program with absl flags prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from windlass.spec.help_option import HelpOption
from windlass.spec.option_names import Kind, kind_of

_ENTRY = re.compile(
    r"  (?:-\w,)?--(?P<negated>\[no\])?(?P<name>[\w.-]+): ?(?:<(?P<choices>[^<>]+)>: ?)?(?P<help>.*)"
)
_DEFAULT = re.compile(r"\(default: (?P<value>.*)\)$")


def absl_options(lines: Sequence[str], source: str) -> Iterator[HelpOption]:
    """Each flag with its type and default. Whether a flag is required, only the script's source tells."""
    required = _required(source)
    entries: list[tuple[re.Match[str], list[str]]] = []
    for line in lines:
        match = _ENTRY.fullmatch(line)
        if match:
            entries.append((match, []))
        elif entries and line.startswith("    "):
            entries[-1][1].append(line.strip())
    for match, about in entries:
        yield _option(match, about, match["name"] in required)


def _option(match: re.Match[str], about: Sequence[str], is_required: bool) -> HelpOption:
    name, flag = re.sub(r"\W", "_", match["name"]), "--" + match["name"]
    texts = " ".join(about)
    found = next((m["value"].strip("'") for line in about if (m := _DEFAULT.match(line))), None)
    default = None if found in (None, "None", "") else found
    choices = tuple(match["choices"].split("|")) if match["choices"] else ()
    several = "separated list" in texts or "repeat this option" in texts
    if match["negated"]:
        kind: Kind = "bool"
    elif several:
        kind = "str"
    elif "integer)" in texts:
        kind = "int"
    elif "number)" in texts:
        kind = "float"
    else:
        kind = kind_of(name, "text", default, choices)
    return HelpOption(
        name, flag, default, choices, kind, match["help"].strip(), is_required, several
    )


def _required(source: str) -> set[str]:
    """Flags that are defined with ``required=True`` or marked as required."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        called = ast.unparse(call.func)
        values = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
        texts = [value for value in values if isinstance(value, str)]
        is_marked = any(
            word.arg == "required" and ast.unparse(word.value) == "True" for word in call.keywords
        )
        if ".DEFINE_" in called and is_marked:
            found.update(texts[:1])
        elif called.endswith(("mark_flag_as_required", "mark_flags_as_required")):
            found.update(texts)
    return found
