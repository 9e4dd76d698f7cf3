"""Which library reads a script's arguments, by what its ``--help`` prints or by what it imports."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """A way to give a program its settings: the library, and how a setting is written."""

    package: str
    written: str
    as_args: bool = False  # all settings together, as `{args}` in the form `k=v`


ARGPARSE = Form("argparse", "--name value")
CLICK = Form("click", "--name value")
TYPER = Form("typer", "--name value")
TYRO = Form("tyro", "--name value")
FIRE = Form("Fire", "--name value")
ABSL = Form("absl", "--name value")
JSONARGPARSE = Form("jsonargparse", "--name value")
LIGHTNING = Form("Lightning CLI", "--name value")
HYDRA = Form("Hydra", "name=value", as_args=True)
UNKNOWN = Form("", "--name value")

# What only one library prints, the most telling first.
_SIGNS = (
    (HYDRA, r"(?m)is powered by Hydra|^== Config ==$"),
    (FIRE, r"(?m)^SYNOPSIS$"),
    (ABSL, r"(?mi)^Try --helpfull to get a list of all flags|^\s*USAGE: .* \[flags\]$"),
    (LIGHTNING, r"(?m)^Lightning Trainer command line tool|^ +--trainer\.max_epochs\b"),
    (JSONARGPARSE, r"(?m)^ +--print_config\b"),
    (TYPER, r"╭─ (?:Options|Arguments|Commands)\b|--install-completion"),
    (TYRO, r"╭─ (?:[\w.]+ )*(?:options|subcommands|positional arguments)\b"),
    (CLICK, r"(?m)^\s*Usage: .*\[OPTIONS\]"),
    (ARGPARSE, r"(?m)^usage:"),
)
# Packages that read arguments, the more special first: typer imports click, and jsonargparse argparse.
_PACKAGES = (
    ("hydra", HYDRA),
    ("lightning.pytorch.cli", LIGHTNING),
    ("pytorch_lightning.cli", LIGHTNING),
    ("jsonargparse", JSONARGPARSE),
    ("tyro", TYRO),
    ("typer", TYPER),
    ("click", CLICK),
    ("fire", FIRE),
    ("absl", ABSL),
    ("argparse", ARGPARSE),
)


def recognise(text: str, source: str = "") -> Form:
    """The form of a help text. `source` is the script itself, which tells libraries with the same look apart."""
    found = next((form for form, sign in _SIGNS if re.search(sign, text)), UNKNOWN)
    if found in (UNKNOWN, CLICK, ARGPARSE):
        imported = find_library(source)
        is_click = found is CLICK and imported is TYPER
        is_argparse = found is ARGPARSE and imported in (TYRO, JSONARGPARSE, LIGHTNING)
        if imported is not None and (is_click or is_argparse):
            return imported
    return found


def find_library(source: str) -> Form | None:
    """The library that a Python script imports to read its arguments; None where there is none, or it is no Python."""
    modules = _imported(source)
    for package, form in _PACKAGES:
        if any(module == package or module.startswith(package + ".") for module in modules):
            return form
    return None


def _imported(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def find_commands(text: str) -> tuple[str, ...]:
    """The commands of a program that has several, such as ``fit`` and ``test``; none where it has none."""
    lines = text.splitlines()
    usage = next((line for line in lines if line.strip().lower().startswith("usage:")), "")
    braces = re.search(r"\{(\w[\w-]*(?:,\w[\w-]*)+)\}(?: \.\.\.)?\s*$", usage)
    if braces:
        return tuple(braces[1].split(","))
    found: list[str] = []
    inside = False
    for line in lines:
        plain = line.strip("│┃╭╮╰╯─ ")
        if re.fullmatch(r"(?i)(?:Sub)?Commands:?", plain):
            inside = True
        elif inside and plain and (line.startswith(("╰", "└")) or line[:1].isalpha()):
            inside = False
        elif inside and (
            match := re.match(r"[│┃]?\s+(?:• )?([A-Za-z][\w-]*)(?:\s{2,}|\s*[│┃]?$)", line)
        ):
            found.append(match[1])
    return tuple(found)
