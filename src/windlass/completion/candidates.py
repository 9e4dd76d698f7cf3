"""Values that exist: studies, trials, parameters and their values, sites, files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from windlass.collect.locate import list_studies, locate_study, study_roots
from windlass.core.errors import WindlassError
from windlass.core.paths import FILE_NAMES, TASK_ENDINGS, YAML_ENDINGS, StudyPaths
from windlass.core.states import Cause, State
from windlass.core.trialfile import TrialFile

_MOST = 200  # candidates: nobody reads more
_MOST_READ = 5_000  # lines of trials that are looked at for parameters: the rest has the same ones
_ENTRY_BYTES = 16  # of a trial in trials.idx
_MOST_FILE_BYTES = 1 << 20  # of a study file
_KEY = re.compile(r"^(\s+)(?:-\s+)?(['\"]?)([A-Za-z_][\w.\-/]*)\2\s*:\s*(.*)$")


@dataclass(frozen=True)
class Candidate:
    value: str
    help: str = ""


@dataclass(frozen=True)
class Asked:
    """What the arguments before the cursor tell: which study is meant, and where studies are."""

    study: str | None = None
    folder: str | None = None
    file: str | None = None  # a study file on the command line

    def paths(self) -> StudyPaths | None:
        """The folder of that study, of the file's study, or of the newest one; None where there is none."""
        roots = study_roots(self.folder, os.getcwd(), os.environ.get("SCRATCH"))
        try:
            return locate_study(self.study or self.file, roots)
        except WindlassError:
            return None


def list_study_names(asked: Asked, _beginning: str) -> Iterator[Candidate]:
    """Studies that have been run, the newest first."""
    roots = study_roots(asked.folder, os.getcwd(), os.environ.get("SCRATCH"))
    for path in list_studies(roots):
        yield Candidate(os.path.basename(path), path)


def list_trials(asked: Asked, beginning: str) -> Iterator[Candidate]:
    """Numbers of trials, with their settings as the help."""
    paths = asked.paths()
    if paths is None or not (beginning.isdecimal() or not beginning):
        return
    count = os.path.getsize(paths.trials_index) // _ENTRY_BYTES
    file = TrialFile(paths)
    try:
        for number in _numbers(beginning, count):
            yield Candidate(str(number), _render_settings(file.read(number).get("settings") or {}))
    finally:
        file.close()


def _numbers(beginning: str, count: int) -> Iterator[int]:
    """Numbers below `count` whose digits begin so, in their order, at most `_MOST`."""
    if not beginning:
        yield from range(min(count, _MOST))
        return
    first, width, left = int(beginning), 1, _MOST
    if beginning != str(first):
        return
    while first < count and left > 0:
        stop = min(first + width, count, first + left)
        yield from range(first, stop)
        left -= stop - first
        if beginning == "0":
            return
        first, width = first * 10, width * 10


def _render_settings(settings: dict[str, Any]) -> str:
    return " ".join(f"{name}={_render_value(value)}" for name, value in settings.items())


def _render_value(value: Any) -> str:
    """As `--where` and the results table write it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def list_parameter_names(asked: Asked, beginning: str) -> Iterator[Candidate]:
    """Names with commas between them; those that stand there already are not offered again."""
    before, comma, _ = beginning.rpartition(",")
    given = before.split(",")
    for name in _read_parameters(asked):
        if name not in given:
            yield Candidate(f"{before}{comma}{name}")
    if not comma:
        yield Candidate("all", "all parameters but the seed")


def list_settings(asked: Asked, beginning: str) -> Iterator[Candidate]:
    """`name=`, and once that stands there `name=value`, of the trials that the study has."""
    name, equals, _ = beginning.partition("=")
    parameters = _read_parameters(asked)
    if not equals:
        for known, values in parameters.items():
            yield Candidate(f"{known}=", ", ".join(values[:5]))
        return
    for value in parameters.get(name, ()):
        yield Candidate(f"{name}={value}")


def list_parameters_of_file(asked: Asked, beginning: str) -> Iterator[Candidate]:
    """`name=`, and then the values that the study file has."""
    name, equals, _ = beginning.partition("=")
    parameters = _read_study_file(asked.file)
    if not equals:
        for known, values in parameters.items():
            yield Candidate(f"{known}=", ", ".join(values[:5]))
        return
    for value in parameters.get(name, ()):
        yield Candidate(f"{name}={value}")


def _read_parameters(asked: Asked) -> dict[str, list[str]]:
    """Parameters of a study's trials and the values that they have there, in the order of their appearance."""
    paths = asked.paths()
    if paths is None:
        return {}
    count = os.path.getsize(paths.trials_index) // _ENTRY_BYTES
    found: dict[str, dict[str, None]] = {}
    file = TrialFile(paths)
    try:
        for _, trial in file.iterate(0, min(count, _MOST_READ)):
            for name, value in (trial.get("settings") or {}).items():
                values = found.setdefault(name, {})
                if len(values) < _MOST:
                    values[_render_value(value)] = None
    finally:
        file.close()
    return {name: list(values) for name, values in found.items()}


def _read_study_file(path: str | None) -> dict[str, list[str]]:
    """Names below `parameters:` and the values of those that are lists on one line.

    This looks at lines and does not parse: the YAML reader alone takes longer to import than an answer may take. What
    it does not recognise is not offered.
    """
    path = path or next((name for name in FILE_NAMES if os.path.isfile(name)), None)
    if (
        path is None
        or not path.endswith(YAML_ENDINGS[:2])
        or os.path.getsize(path) > _MOST_FILE_BYTES
    ):
        return {}
    found: dict[str, list[str]] = {}
    inside, indent = False, ""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not line[0].isspace():
                inside, indent = line.startswith(("parameters:", "space:")), ""
                continue
            match = _KEY.match(line.rstrip("\n")) if inside else None
            if match is None:
                continue
            indent = indent or match[1]
            if match[1] == indent:
                found[match[3]] = _split_list(match[4])
    return found


def _split_list(text: str) -> list[str]:
    """The values of `[0.1, 0.01]`; nothing where the text is something else."""
    text = text.split(" #", maxsplit=1)[0].strip()
    if not (text.startswith("[") and text.endswith("]")) or any(
        mark in text[1:-1] for mark in "[{"
    ):
        return []
    return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]


def list_states(_asked: Asked, beginning: str) -> Iterator[Candidate]:
    """States and causes, with commas between them."""
    before, comma, _ = beginning.rpartition(",")
    for name in dict.fromkeys(
        [*(state.value for state in State), *(cause.value for cause in Cause)]
    ):
        yield Candidate(f"{before}{comma}{name}")


def list_sites(_asked: Asked, _beginning: str) -> Iterator[Candidate]:
    """Profiles of clusters that come with Windlass, and those of the user."""
    own = os.path.join(
        os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "windlass", "sites"
    )
    shipped = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "site", "profiles"
    )
    for folder in (own, shipped):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        for name in sorted(names):
            if name.endswith(".toml"):
                yield Candidate(name.removesuffix(".toml"))


def list_study_files(_asked: Asked, beginning: str) -> Iterator[Candidate]:
    return _list_files(beginning, (*YAML_ENDINGS, *TASK_ENDINGS))


def list_scripts(_asked: Asked, beginning: str) -> Iterator[Candidate]:
    return _list_files(beginning, (".py", ".sh"))


def _list_files(beginning: str, endings: tuple[str, ...]) -> Iterator[Candidate]:
    """Files with these endings, and folders, in the folder that the beginning names."""
    folder = os.path.dirname(beginning)
    shown = os.path.join(folder, "")
    with os.scandir(os.path.expanduser(folder) or ".") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith(".") and not os.path.basename(beginning).startswith("."):
                continue
            if entry.is_dir():
                yield Candidate(f"{shown}{entry.name}/")
            elif entry.name.endswith(endings):
                yield Candidate(f"{shown}{entry.name}")


def list_studies_and_trials(asked: Asked, beginning: str) -> Iterator[Candidate]:
    """The studies and the trials of the newest one; behind a study, its trials."""
    if asked.study is None:
        yield from list_study_names(asked, beginning)
    yield from list_trials(asked, beginning)


KINDS: dict[str, Callable[[Asked, str], Iterable[Candidate]]] = {
    "study": list_study_names,
    "study-file": list_study_files,
    "trial": list_trials,
    "study-or-trial": list_studies_and_trials,
    "parameters": list_parameter_names,
    "setting": list_settings,
    "parameter": list_parameters_of_file,
    "states": list_states,
    "site": list_sites,
    "script": list_scripts,
}
