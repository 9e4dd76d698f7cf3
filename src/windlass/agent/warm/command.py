"""Takes a command that runs a Python script or module apart, for warm starts. Python 3.9, standard library."""

from __future__ import annotations

import os
import re
from typing import Callable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

_INTERPRETER = re.compile(r"python(\d+(\.\d+)?)?t?d?")
# Those that take no value and change nothing but the interpreter itself.
_FLAGS = frozenset("bBEIOPqsSu")


class WarmRefused(Exception):
    """A command that cannot start warm. `reason` completes the sentence "trials start cold because"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PythonCommand(NamedTuple):
    """A command line taken apart. `program` is the interpreter as written, `interpreter` the file that is meant."""

    interpreter: str
    program: str
    flags: Tuple[str, ...]
    kind: str  # "script" or "module"
    target: str
    arguments: Tuple[str, ...]
    cwd: str


def python_command(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    find_inside: Optional[Callable[[str], Optional[str]]] = None,
) -> PythonCommand:
    """Take a command that runs a Python script or module apart, as the system and the interpreter would.

    `find_inside` finds programs in an environment that has its own. Raises WarmRefused with the reason for every other
    command.
    """

    def find(name: str) -> str:
        # A script of the project is at the same path inside, and is looked at here.
        if find_inside is None or (os.sep in name and os.path.isfile(os.path.join(cwd, name))):
            return _find_program(name, env, cwd)
        found = find_inside(name)
        if found is None:
            raise WarmRefused(f"{name} is not found inside")
        return found

    parts = list(argv)
    if not parts:
        raise WarmRefused("the command is empty")
    path = find(parts[0])
    if os.path.basename(parts[0]) == "env":
        parts = parts[1:]
        if not parts or parts[0].startswith("-") or "=" in parts[0]:
            raise WarmRefused("env is used with more than the name of a program")
        path = find(parts[0])
    if _INTERPRETER.fullmatch(os.path.basename(parts[0])):
        return _parse_arguments(path, parts[0], parts[1:], cwd)
    shebang = _read_shebang(path)
    if not shebang:
        raise WarmRefused(f"{parts[0]} is not a Python script")
    if os.path.basename(shebang[0]) == "env":
        shebang = shebang[1:]
        if shebang[:1] == ["-S"]:
            shebang = shebang[1:]
    if not shebang or not _INTERPRETER.fullmatch(os.path.basename(shebang[0])):
        raise WarmRefused(f"{parts[0]} is not a Python script")
    # The kernel names the script by the path it found; a name without a folder was searched for.
    script = parts[0] if os.sep in parts[0] else path
    interpreter = find(shebang[0])
    return _parse_arguments(interpreter, shebang[0], [*shebang[1:], script, *parts[1:]], cwd)


def _find_program(name: str, env: Mapping[str, str], cwd: str) -> str:
    folders = [""] if os.sep in name else env.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(cwd, folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise WarmRefused(f"{name} is not an executable file")


def _read_shebang(path: str) -> List[str]:
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []


def _parse_arguments(interpreter: str, program: str, parts: List[str], cwd: str) -> PythonCommand:
    """Read the interpreter's own command line: its flags, then a script or ``-m`` and a module."""
    flags: List[str] = []
    rest = list(parts)
    while rest and rest[0].startswith("-"):
        argument = rest.pop(0)
        module = _split_flag(argument, rest, flags)
        if module is not None:
            return PythonCommand(
                interpreter, program, tuple(flags), "module", module, tuple(rest), cwd
            )
    if not rest:
        raise WarmRefused("no script is named")
    script = rest[0]
    _check_script(os.path.join(cwd, script), script)
    return PythonCommand(interpreter, program, tuple(flags), "script", script, tuple(rest[1:]), cwd)


def _split_flag(argument: str, rest: List[str], flags: List[str]) -> Optional[str]:
    """Add one argument of flags, with its value, to `flags`. Returns the module when it is ``-m``."""
    for position, letter in enumerate(argument[1:], 1):
        if letter in _FLAGS:
            continue
        if letter not in "mWX":
            raise WarmRefused(f"python {argument} does not run a script by itself")
        value = argument[position + 1 :]
        if not value and not rest:
            raise WarmRefused(f"python {argument} lacks a value")
        if letter == "m":
            if position > 1:
                flags.append(argument[:position])
            return value or rest.pop(0)
        flags += [argument] if value else [argument, rest.pop(0)]
        if letter == "X" and flags[-1].endswith("importtime"):
            raise WarmRefused("python -X importtime reports on imports")
        return None
    if argument == "-":
        raise WarmRefused("the script is read from stdin")
    flags.append(argument)
    return None


def _check_script(path: str, name: str) -> None:
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        raise WarmRefused(f"{name} cannot be read: {error.strerror}") from None
    if start.startswith(b"PK\3\4") or name.endswith(".pyc"):
        raise WarmRefused(f"{name} is not Python source")
