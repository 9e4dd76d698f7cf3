"""Reads the files that environments are built from, into one text that does not change with what is of no matter."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from windlass.environments.base import Unusable

if sys.version_info >= (3, 11):  # only the client reads these files
    import tomllib

# Looked for in this order where a folder is named.
BUILD_FILES = (
    "Pipfile",
    "pyproject.toml",
    "requirements.txt",
    "environment.yml",
    "environment.yaml",
)
_PASSWORD = re.compile(r"://[^/@\s$]+:[^/@\s$]+@")
_OPTION = re.compile(
    r"^(-r|--requirement|-c|--constraint|-e|--editable|-f|--find-links)(?:\s+|=|(?=[^-\s=]))(.+)$"
)

Export = Callable[[str], str]  # the folder of a project with uv.lock → lines of requirements


@dataclass(frozen=True)
class BuildFile:
    """What is to be in an environment, and which tool makes it."""

    path: str
    engine: Literal["pip", "conda"]
    text: str
    constraints: str = ""


def read_build_file(path: str, export: Export) -> BuildFile:
    """`path` may be a folder. Raises Unusable."""
    if os.path.isdir(path):
        found = next(
            (name for name in BUILD_FILES if os.path.isfile(os.path.join(path, name))), None
        )
        if found is None:
            raise Unusable(
                f"{path} has none of {', '.join(BUILD_FILES)}", "name the file to build from"
            )
        path = os.path.join(path, found)
    name = os.path.basename(path)
    try:
        if name.endswith((".yml", ".yaml")):
            return BuildFile(path, "conda", _plain_lines(_read(path)))
        if name == "pyproject.toml":
            lines = _pyproject(path, export)
        elif name in ("Pipfile", "Pipfile.lock"):
            lines = _pipfile(os.path.dirname(path))
        else:
            return _requirements(path)
    except OSError as error:
        raise Unusable(
            f"{error.filename or path}: {error.strerror}", "make it, or name another file"
        ) from None
    except ValueError as error:
        raise Unusable(f"{path} cannot be read: {error}") from None
    text = "".join(f"{line}\n" for line in lines)
    _refuse_passwords(path, text)
    return BuildFile(path, "pip", text)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _plain_lines(text: str) -> str:
    lines = (line.rstrip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.lstrip().startswith("#"))


def _refuse_passwords(path: str, text: str) -> None:
    if _PASSWORD.search(text):
        raise Unusable(
            f"{path} holds a password, which would be copied",
            "put it into ~/.netrc, or write ${NAME} and export it",
        )


# -- requirements.txt


def _requirements(path: str) -> BuildFile:
    lines: list[str] = []
    constraints: list[str] = []
    for line in _follow(path, constraints, ()):
        lines.append(line)
    text, limits = ("".join(f"{line}\n" for line in part) for part in (lines, constraints))
    _refuse_passwords(path, text + limits)
    return BuildFile(path, "pip", text, limits)


def _follow(path: str, constraints: list[str], above: tuple[str, ...]) -> Iterator[str]:
    """The lines of a file and of those it includes."""
    if path in above:
        raise Unusable(f"{path} includes itself")
    folder = os.path.dirname(path)
    for number, line in _joined_lines(_read(path)):
        match = _OPTION.match(line)
        option, value = (match[1], match[2].strip().strip("\"'")) if match else ("", line)
        inside = os.path.join(folder, value)
        if option in ("-r", "--requirement"):
            yield from _follow(inside, constraints, (*above, path))
        elif option in ("-c", "--constraint"):
            constraints += _follow(inside, constraints, (*above, path))
        elif option in ("-f", "--find-links"):
            yield (
                f"--find-links {shlex.quote(os.path.abspath(inside))}"
                if "://" not in value
                else line
            )
        elif option in ("-e", "--editable") and "://" not in value:
            raise _own_code(path, number, line)
        elif not option and not line.startswith("-"):
            yield _requirement(path, number, line)
        else:
            yield line


def _requirement(path: str, number: int, line: str) -> str:
    """A line of requirements; a file that it names is named by its whole path and by its content."""
    target = line.partition(";")[0].strip()
    place = os.path.join(os.path.dirname(path), target)
    if "://" in target or not (target.startswith((".", "/")) or os.path.isfile(place)):
        return line
    if os.path.isdir(place):
        raise _own_code(path, number, line)
    with open(place, "rb") as file:
        return f"{os.path.abspath(place)}  # {hashlib.sha256(file.read()).hexdigest()}"


def _own_code(path: str, number: int, line: str) -> Unusable:
    return Unusable(
        f"{path}:{number}: `{line}` would install code that may change while the environment stays",
        "leave it out: trials are executed in the project, and `env: {PYTHONPATH: src}` makes its packages known",
        number,
    )


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, those that end with a backslash joined."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        first = first if whole else number
        whole += re.sub(r"(^|\s)#.*$", "", line)
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        if whole.strip():
            yield first, " ".join(whole.split())
        whole = ""
    if whole.strip():
        yield first, " ".join(whole.split())


# -- pyproject.toml


def _pyproject(path: str, export: Export) -> list[str]:
    """Pins of the lock beside it, or else the dependencies as declared. The project itself is not installed."""
    folder = os.path.dirname(path)
    if os.path.isfile(os.path.join(folder, "uv.lock")):
        return [line for _, line in _joined_lines(export(folder))]
    if os.path.isfile(os.path.join(folder, "poetry.lock")):
        return list(_poetry_pins(tomllib.loads(_read(os.path.join(folder, "poetry.lock")))))
    document = tomllib.loads(_read(path))
    project = document.get("project", {})
    if "dependencies" in project.get("dynamic", ()):
        raise Unusable(f"{path}: its dependencies are dynamic", "`uv lock` writes them down")
    if "dependencies" not in project and "poetry" in document.get("tool", {}):
        raise Unusable(
            f"{path}: Poetry's dependencies are read from poetry.lock", "`poetry lock` writes it"
        )
    if not project:
        raise Unusable(f"{path} has no [project]", "name the file that lists the dependencies")
    return sorted(project.get("dependencies", ()))


def _poetry_pins(lock: Mapping[str, Any]) -> Iterator[str]:
    for package in lock.get("package", ()):
        if package.get("optional") or "main" not in package.get("groups", ["main"]):
            continue
        markers = package.get("markers", "")
        markers = markers.get("main", "") if isinstance(markers, dict) else markers
        source = package.get("source", {})
        if source.get("type") in ("directory", "file"):
            continue
        name = package["name"]
        if source.get("type") == "git":
            pin = f"{name} @ git+{source['url']}@{source.get('resolved_reference', '')}"
        else:
            pin = f"{name}=={package['version']}"
        yield f"{pin} ; {markers}" if markers else pin


# -- Pipfile


def _pipfile(folder: str) -> list[str]:
    """Pins of Pipfile.lock, or else the packages of Pipfile."""
    lock = os.path.join(folder, "Pipfile.lock")
    if os.path.isfile(lock):
        packages = json.loads(_read(lock)).get("default", {})
    else:
        packages = tomllib.loads(_read(os.path.join(folder, "Pipfile"))).get("packages", {})
    return [
        _pipfile_line(folder, name, requirement) for name, requirement in sorted(packages.items())
    ]


def _pipfile_line(folder: str, name: str, requirement: Any) -> str:
    if isinstance(requirement, str):
        return name if requirement == "*" else f"{name}{requirement}"
    if "path" in requirement or "file" in requirement:
        raise Unusable(f"{os.path.join(folder, 'Pipfile')}: {name} is a path", "leave it out")
    extras = f"[{','.join(requirement['extras'])}]" if requirement.get("extras") else ""
    version = requirement.get("version", "*")
    if "git" in requirement:
        line = f"{name}{extras} @ git+{requirement['git']}" + (
            f"@{requirement['ref']}" if "ref" in requirement else ""
        )
    else:
        line = f"{name}{extras}" + ("" if version == "*" else version)
    return f"{line} ; {requirement['markers']}" if requirement.get("markers") else line
