"""Finds modules that a study's program imports and its Python lacks, without executing the program."""

from __future__ import annotations

import ast
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from windlass.bundle.environment import enter_here
from windlass.core.errors import Problem, input_error
from windlass.core.journal.reason import package_of
from windlass.core.processes import ask
from windlass.model import Study
from windlass.search import iterate_trials

_MOST_FILES = 500
_OURS = ("windlass",)  # trials get it from the agent
_OPTIONAL = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
# Executed by the Python that is asked: names on its command line, those that it lacks as JSON.
_ASK = """
import importlib.util, json, sys
missing = []
for name in json.loads(sys.argv[1]):
    try:
        if importlib.util.find_spec(name) is None:
            missing.append(name)
    except (ImportError, ValueError, AttributeError):
        pass
print(json.dumps(missing))
"""
_PATIENCE_S = 300.0
_NOT_AT_START = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.If, ast.Match)
_MOST_TRIALS = 50


@dataclass(frozen=True)
class Import:
    """A module by its first name, and the first place that imports it."""

    name: str
    file: str
    line: int


@dataclass(frozen=True)
class _Said:
    name: str  # dotted
    line: int
    level: int = 0  # dots before it


def find_scripts(arguments: Sequence[str], workdir: str) -> list[str]:
    """The Python files that a command line executes: scripts, and modules after -m."""
    found = []
    for place, argument in enumerate(arguments):
        path = os.path.join(workdir, argument)
        if argument.endswith(".py") and os.path.isfile(path):
            found.append(path)
        elif place and arguments[place - 1] == "-m":
            base = os.path.join(workdir, *argument.split("."))
            found += [
                file
                for file in (f"{base}.py", os.path.join(base, "__main__.py"))
                if os.path.isfile(file)
            ]
    return found


def find_missing_at_start(study: Study) -> list[Problem]:
    """A problem for each module that the Python scripts of a study import at once and that their Python lacks.

    Only of studies whose trials get what is on PATH, or whose environment can be entered here, as a container can: what
    another environment of their own has is not known here.
    """
    is_outside = study.environment is None
    if not is_outside and enter_here(study, os.environ, []) is None:
        return []
    scripts: dict[str, list[str]] = {}
    for trial in itertools.islice(iterate_trials(study), _MOST_TRIALS):
        for _, arguments in trial.stages:
            if os.path.basename(arguments[0]).startswith("python"):
                found = scripts.setdefault(arguments[0], [])
                found += [
                    path for path in find_scripts(arguments[1:], study.workdir) if path not in found
                ]
    problems = []
    for program, paths in scripts.items():
        python = shutil.which(program, path=os.environ.get("PATH")) if is_outside else program
        imports = find_imports(paths, [study.workdir], at_start=True)
        if python is not None and imports:
            problems += find_missing(
                imports, python, os.environ, lambda words: enter_here(study, os.environ, words)
            )
    return problems


def find_imports(
    scripts: Sequence[str], folders: Sequence[str], at_start: bool = False
) -> list[Import]:
    """What the scripts import from elsewhere, through all files of `folders` that they import on the way.

    Imports that may fail (inside ``try``) and those for type checkers are left out; with `at_start`, also those inside
    functions and conditions, which a program may never come to.
    """
    todo, seen, found = list(scripts), set(scripts), dict[str, Import]()
    while todo and len(seen) <= _MOST_FILES:
        path = todo.pop(0)
        for said in _read_imports(path, at_start):
            here = os.path.dirname(path)
            for _ in range(said.level - 1):
                here = os.path.dirname(here)
            own = _own_files(said.name, [here] if said.level else [here, *folders])
            todo += [file for file in own if file not in seen]
            seen.update(own)
            first = said.name.partition(".")[0]
            if not own and not said.level and first not in _OURS:
                found.setdefault(first, Import(first, path, said.line))
    return list(found.values())


def find_missing(
    imports: Sequence[Import],
    python: str,
    env: Mapping[str, str],
    enter: Callable[[list[str]], list[str] | None] = lambda words: None,
) -> list[Problem]:
    """A problem for each module that this Python lacks. Raises InputError where it cannot be asked.

    `enter` puts a command into the environment of the study; None where there is none to enter.
    """
    names = json.dumps([one.name for one in imports])
    words = [python, "-c", _ASK, names]
    answer = ask(enter(words) or words, _PATIENCE_S, env=env)
    try:
        missing = set(json.loads(answer.text.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        said = answer.errors.strip().splitlines()
        raise input_error(
            f"{python} does not run: {said[-1] if said else 'it printed nothing'}"
        ) from None
    return [
        Problem(
            f"imports {one.name}, which {python} does not have",
            f"pip install {package_of(one.name)}, or take it out",
            os.path.relpath(one.file),
            one.line,
        )
        for one in imports
        if one.name in missing
    ]


def _read_imports(path: str, at_start: bool) -> Iterator[_Said]:
    """The imports of a file; nothing where it cannot be read or parsed."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError):
        return
    yield from _walk(tree, at_start)


def _walk(node: ast.AST, at_start: bool) -> Iterator[_Said]:
    """The imports below a node. With `at_start`, only those that are executed when the program starts."""
    if isinstance(node, ast.Import):
        yield from (_Said(alias.name, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = [node.module] if node.module else []
        names = [".".join([*base, alias.name]) for alias in node.names]
        yield from (_Said(name, node.lineno, node.level) for name in [*base, *names])
    else:
        for child in _certain(node, at_start):
            yield from _walk(child, at_start)


def _certain(node: ast.AST, at_start: bool) -> Iterator[ast.AST]:
    """What is executed for certain, or at least not guarded against a module that is missing."""
    if isinstance(node, ast.Try) and any(_catches_import(handler) for handler in node.handlers):
        yield from node.finalbody
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        yield from node.orelse
    elif at_start and isinstance(node, _NOT_AT_START):
        return
    else:
        yield from ast.iter_child_nodes(node)


def _catches_import(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a failed import, which makes the module an optional one."""
    if handler.type is None:
        return True
    names = [node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)]
    return any(name in _OPTIONAL for name in names)


def _own_files(name: str, folders: Sequence[str]) -> list[str]:
    """The project's files that an import of this name executes; none where it comes from elsewhere."""
    parts = name.split(".")
    for folder in folders:
        top = os.path.join(folder, parts[0])
        if not os.path.isfile(f"{top}.py") and not os.path.isdir(top):
            continue
        if os.path.isdir(top) and not any(entry.endswith(".py") for entry in os.listdir(top)):
            continue
        files = []
        for depth in range(1, len(parts) + 1):
            base = os.path.join(folder, *parts[:depth])
            files += [
                file
                for file in (f"{base}.py", os.path.join(base, "__init__.py"))
                if os.path.isfile(file)
            ]
        return files or [top]
    return []
