"""What was typed in a recorded shell, and what it means for a study's environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windlass.core.errors import FolderError
from windlass.secrets import find_secrets, secret_variables

_INSTALLS = re.compile(r"(?:^|\s)(?:pip[\d.]*|conda|mamba|micromamba|uv)\s+(?:install|add|sync)\b")
_MODULE = re.compile(r"(?:module\s+(?:load|add|swap|unload|purge|use)|ml)\b")
_ACTIVATES = re.compile(
    r"(?:(?:source|\.)\s+\S*\bactivate|(?:conda|mamba|micromamba)\s+(?:de)?activate|deactivate)\b"
)
# Lines that change the shell they are typed in: these are what every trial's shell would need, too.
_CHANGES = re.compile(r"(?:export|unset|source|\.|ulimit|umask|declare\s+-x|eval|shopt|set)\s")
_NOT_WORTH_A_WORD = re.compile(
    r"(?:_|SHLVL|PWD|OLDPWD|PS1|\w*PATH|XDG_\w*|LOADEDMODULES|VIRTUAL_ENV\w*|BASH_FUNC.*|_?LM\w*|MODULE\w*|__MODULES\w*|__LMOD\w*"
    r"|_ModuleTable\w*|_?CONDA\w*|_CE_\w*|EB(?:ROOT|VERSION|DEVEL)\w*)\Z"
)


@dataclass(frozen=True)
class Typed:
    """A line that was typed, and the exit code it ended with."""

    line: str
    code: int


@dataclass(frozen=True)
class Draft:
    """What a study needs so that its trials find what the shell had."""

    modules: tuple[str, ...] = ()
    kind: str = ""  # venv or conda
    value: str = ""
    setup: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()  # lines that put packages somewhere
    tried: tuple[Typed, ...] = ()  # the rest
    unexplained: tuple[str, ...] = ()  # variables that changed by none of the lines above
    left_out: tuple[str, ...] = ()  # secrets, described


def read_recording(folder: str) -> Draft:
    """Raises FolderError where the shell did not come to its end."""
    try:
        before, after = (
            _read_environment(os.path.join(folder, name)) for name in ("before", "after")
        )
    except OSError as error:
        raise FolderError(
            f"{error.filename}: {error.strerror}\n  hint: the shell was killed; record again"
        ) from error
    try:
        with open(os.path.join(folder, "commands"), "rb") as file:
            entries = [
                entry.decode("utf-8", "replace") for entry in file.read().split(b"\0") if entry
            ]
    except FileNotFoundError:
        entries = []
    typed = [
        Typed(line, int(code)) for code, _, line in (entry.partition(" ") for entry in entries)
    ]
    return draft_environment(typed, before, after)


def draft_environment(
    typed: Sequence[Typed], before: Mapping[str, str], after: Mapping[str, str]
) -> Draft:
    """Sort the lines by what they are for; what failed is for nothing."""
    setup: list[str] = []
    installed: list[str] = []
    tried: list[Typed] = []
    left_out: list[str] = []
    for one in typed:
        secrets = find_secrets([one.line], {**before, **after})
        if secrets:
            left_out += secrets
        elif one.code == 0 and _INSTALLS.search(one.line):
            installed.append(one.line)
        elif one.code == 0 and (_MODULE.match(one.line) or _ACTIVATES.match(one.line)):
            continue
        elif one.code == 0 and _CHANGES.match(one.line):
            setup.append(one.line)
        elif one.line not in ("exit", "logout"):
            tried.append(one)
    kind, value = _find_environment(before, after)
    return Draft(
        modules=_find_modules(typed, before, after),
        kind=kind,
        value=value,
        setup=tuple(dict.fromkeys(setup)),
        installed=tuple(dict.fromkeys(installed)),
        tried=tuple(tried),
        unexplained=_find_unexplained(setup, before, after),
        left_out=tuple(dict.fromkeys(left_out)),
    )


def _find_modules(
    typed: Sequence[Typed], before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[str, ...]:
    """As the module command counts them, else as they were typed."""
    if "LOADEDMODULES" in after:
        had = before.get("LOADEDMODULES", "").split(":")
        return tuple(name for name in after["LOADEDMODULES"].split(":") if name and name not in had)
    loads = [
        one.line
        for one in typed
        if one.code == 0 and re.match(r"(?:module\s+(?:load|add)|ml)\s", one.line)
    ]
    names = [
        word
        for line in loads
        for word in re.split(r"\s+", re.sub(r"^(?:module\s+\w+|ml)\s+", "", line.strip()))
    ]
    return tuple(dict.fromkeys(name for name in names if name and not name.startswith("-")))


def _find_environment(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, str]:
    """The kind and value of the environment that was activated while the shell was recorded; "" twice for none."""
    if after.get("VIRTUAL_ENV") and after.get("VIRTUAL_ENV") != before.get("VIRTUAL_ENV"):
        return "venv", after["VIRTUAL_ENV"]
    if after.get("CONDA_PREFIX") and after.get("CONDA_PREFIX") != before.get("CONDA_PREFIX"):
        return "conda", after.get("CONDA_DEFAULT_ENV") or after["CONDA_PREFIX"]
    return "", ""


def _find_unexplained(
    setup: Sequence[str], before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[str, ...]:
    """Of files that were read in, nobody knows what they set: then all is explained."""
    if any(re.match(r"(?:source|\.|eval)\s", line) for line in setup):
        return ()
    mentioned = {name for line in setup for name in re.findall(r"\b([A-Za-z_]\w*)(?==|$|\s)", line)}
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    changed -= {*mentioned, *secret_variables(before), *secret_variables(after)}
    return tuple(sorted(name for name in changed if not _NOT_WORTH_A_WORD.match(name)))


def _read_environment(path: str) -> dict[str, str]:
    """The variables of a shell, as `env -0` wrote them."""
    with open(path, "rb") as file:
        entries = file.read().split(b"\0")
    pairs = (
        entry.decode("utf-8", "surrogateescape").partition("=")
        for entry in entries
        if b"=" in entry
    )
    return {name: value for name, _, value in pairs}
