"""The examples that come with Windlass: which there are, what each shows, and a copy of one that stands by itself.

What an example shows and how it is started stands once, in the comment at the top of its study file.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from windlass.check.imports import find_imports, find_missing_at_start
from windlass.core.errors import InputError, input_error
from windlass.core.journal.reason import package_of
from windlass.core.paths import find_study_file
from windlass.model import Study

ALIASES = {"simple": "quickstart", "array": "task-file"}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# In a wheel; in the repository.
_PLACES = (
    os.path.join(_PACKAGE, "_examples"),
    os.path.join(_PACKAGE, os.pardir, os.pardir, "examples"),
)
_TASKS = "tasks.txt"
_BORROWED = re.compile(r"\.\./([\w-]+)/([\w.-]+)")  # a file of another example
_SCRIPT = re.compile(r"[\w./-]+\.py\b")
_LITTER = ("__pycache__", ".windlass", "*.pyc", "*~")


@dataclass(frozen=True)
class Example:
    name: str
    folder: str
    about: str
    # What to type inside a copy, perhaps with an explanation behind wide space.
    steps: tuple[str, ...]
    needs: tuple[str, ...] = ()  # packages that have to be installed before

    def commands(self) -> list[str]:
        return [re.split(r"\s{3,}", step)[0] for step in self.steps]


def _find_place() -> str | None:
    return next((place for place in _PLACES if os.path.isdir(place)), None)


def read_examples() -> dict[str, Example]:
    """All examples by name."""
    place = _find_place()
    if place is None:
        raise input_error(
            "this installation has no examples",
            "install Windlass again, from its wheel or from a clone of its repository",
        )
    found = {}
    for name in sorted(os.listdir(place)):
        folder = os.path.join(place, name)
        file = find_study_file(folder) or os.path.join(folder, _TASKS)
        if os.path.isfile(file):
            with open(file, encoding="utf-8") as stream:
                text = stream.read()
            found[name] = replace(_parse_head(name, folder, text), needs=_find_needs(folder, text))
    return found


def _find_needs(folder: str, text: str) -> tuple[str, ...]:
    """Packages that the scripts of a study file import at once; none where the study brings an environment."""
    if re.search(r"^environment:", text, re.MULTILINE):
        return ()
    scripts = [
        os.path.normpath(os.path.join(folder, path))
        for path in dict.fromkeys(_SCRIPT.findall(text))
    ]
    imports = find_imports(
        [path for path in scripts if os.path.isfile(path)], [folder], at_start=True
    )
    return tuple(package_of(one.name) for one in imports if one.name not in sys.stdlib_module_names)


def check_example(study: Study) -> None:
    """Raise InputError where a study is one of our examples and this machine lacks what it needs.

    A study of the user's own is not judged so: its imports may come from anywhere.
    """
    first = study.source_text.split("\n", 1)[0]
    if first.startswith("# ") and first in _first_lines():
        problems = find_missing_at_start(study)
        if problems:
            raise InputError(problems)


def _first_lines() -> set[str]:
    """The first line of each study file of the examples, which tells them apart from studies of the user's own."""
    lines = set()
    place = _find_place() or ""
    for path in glob.glob(os.path.join(glob.escape(place), "*", "*.yaml")) if place else ():
        with open(path, encoding="utf-8") as file:
            lines.add(file.readline().rstrip("\n"))
    return lines


def choose_example(name: str) -> Example:
    """The example of that name. Raises InputError where there is none."""
    examples = read_examples()
    chosen = examples.get(ALIASES.get(name, name))
    if chosen is None:
        raise input_error(
            f"there is no example {name!r}", f"there are {', '.join([*ALIASES, *examples])}"
        )
    return chosen


def _parse_head(name: str, folder: str, text: str) -> Example:
    """The first lines of a study file: a comment that says what it is, then indented ones with commands."""
    about, steps = "", []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        if line.startswith("#   "):
            steps.append(_from_inside(name, line[1:].strip()))
        elif not about:
            about = line[1:].strip()
    return Example(name, folder, about, tuple(steps))


def _from_inside(name: str, text: str) -> str:
    return text.replace(f"examples/{name}/", "")


def copy_example(example: Example, target: str) -> None:
    """Write the example to a new or empty folder, with the files it shares with others beside it."""
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise input_error(
            f"{target} is there already, and not empty",
            f"windlass init --example {example.name} NEW_FOLDER",
        )
    try:
        left_out = _left_out(example.folder)
        shutil.copytree(
            example.folder,
            target,
            ignore=left_out,
            copy_function=shutil.copyfile,
            dirs_exist_ok=True,
        )
        # The installation may be read-only.
        os.chmod(target, os.stat(target).st_mode | stat.S_IWUSR)
        for file in sorted(os.listdir(target)):
            if file.endswith((".yaml", ".txt")):
                _settle(example, os.path.join(target, file))
    except (OSError, shutil.Error) as error:
        raise input_error(
            f"the example cannot be written to {target}: {error}", "name another folder"
        ) from None


def _left_out(folder: str) -> Callable[[str, list[str]], set[str]]:
    """What an example makes when it is executed: what its .gitignore names."""
    try:
        with open(os.path.join(folder, ".gitignore"), encoding="utf-8") as file:
            ignored = [
                line.strip().strip("/")
                for line in file
                if line.strip() and not line.startswith("#")
            ]
    except FileNotFoundError:
        ignored = []
    return shutil.ignore_patterns(*_LITTER, *ignored)


def _settle(example: Example, path: str) -> None:
    """Let a study file speak of files beside it, and put those there that it borrows."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for other, name in set(_BORROWED.findall(text)):
        shutil.copyfile(
            os.path.join(example.folder, os.pardir, other, name),
            os.path.join(os.path.dirname(path), name),
        )
    with open(path, "w", encoding="utf-8") as file:
        file.write(_from_inside(example.name, _BORROWED.sub(r"\2", text)))
