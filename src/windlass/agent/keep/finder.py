"""Finds the files that a study's `outputs:` mean for one trial. Python 3.9, standard library."""

from __future__ import annotations

import glob
import json
import os
import re
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from windlass.agent.child import Trial

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
OF_TRIALS = ("source_dir", "PWD", "PYTHONPATH")  # variables that lead to a trial's own folder
Found = Dict[str, str]  # name under which a file is kept → its path
# Path → size and time of files outside of working folders.
State = Dict[str, Optional[Tuple[int, int]]]


class Place(NamedTuple):
    """Where one trial was executed, and what it wrote there."""

    project: str  # its copy of the project
    workdir: str  # the folder in it where its command was executed
    written: Set[str]  # paths of files and links, absolute
    made: AbstractSet[str] = frozenset()  # paths of folders, absolute


class Finder:
    """Finds the files that the patterns mean for one trial: those that it wrote, and no others."""

    def __init__(self, patterns: List[str], env: Mapping[str, str]) -> None:
        env = {name: value for name, value in env.items() if name not in OF_TRIALS}
        self.local = os.path.abspath(env["SLURM_TMPDIR"]) if env.get("SLURM_TMPDIR") else ""
        study = glob.escape(env.get("WINDLASS_STUDY", "{study}"))
        self.patterns = [
            _fill_variables(pattern, env).replace("{study}", study) for pattern in patterns
        ]
        # Only these can lead out of the trial's own folder.
        self._outside = [pattern for pattern in self.patterns if pattern.startswith(("/", "$"))]

    def look_outside(self, trial: Trial, variables: Mapping[bytes, bytes]) -> State:
        """The files outside of working folders that the patterns mean already, before the trial begins."""
        found: State = {}
        for pattern in self._outside:
            for text in _fill_settings(_fill_variables(pattern, _decode(variables)), trial):
                for path in glob.glob(text, recursive=True):
                    for file in _entries_below(path):
                        found[os.path.abspath(file)] = _state(file)
        return found

    def find(
        self, trial: Trial, variables: Mapping[bytes, bytes], place: Place, before: State
    ) -> Tuple[Found, List[str]]:
        """The files that the trial wrote, and the patterns that none of them matches."""
        own = _decode(variables)
        found: Found = {}
        missing = []
        for pattern in self.patterns:
            filled = _fill_settings(_fill_variables(pattern, own), trial)
            paths = [path for text in filled for path in self._match(text, place, before)]
            if not paths:
                missing.append(filled[0])
            for path in paths:
                self._name(path, place, found)
        _follow_links(found, place)
        return found, missing

    def _match(self, text: str, place: Place, before: State) -> List[str]:
        matched = []
        for path in glob.glob(os.path.join(glob.escape(place.workdir), text), recursive=True):
            for file in map(os.path.abspath, _entries_below(path)):
                is_outside = not file.startswith(place.project + os.sep)
                is_own = file in place.written or file in place.made
                if is_own or (is_outside and before.get(file) != _state(file)):
                    matched.append(file)
        return matched

    def _name(self, path: str, place: Place, found: Found) -> None:
        """The same relative path as where it lies: in the working folder, the project, or the node's own folder."""
        name = path.lstrip("/")
        for root in (place.workdir, place.project, self.local):
            if root and path.startswith(root + "/"):
                name = os.path.relpath(path, root)
                break
        if found.get(name, path) != path:
            name = path.lstrip("/")
        found[name] = path


def with_folders(paths: Iterable[str]) -> Set[str]:
    """The paths, and all folders that they are in."""
    found: Set[str] = set()
    for path in paths:
        above = path
        while above not in found and above != os.sep:
            found.add(above)
            above = os.path.dirname(above)
    return found


def _decode(variables: Mapping[bytes, bytes]) -> Dict[str, str]:
    return {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}


def _fill_variables(text: str, env: Mapping[str, str]) -> str:
    def value(match: "re.Match[str]") -> str:
        known = env.get(match.group(1) or match.group(2))
        return match.group(0) if known is None else glob.escape(known)

    return _VARIABLE.sub(value, text)


def _fill_settings(pattern: str, trial: Trial) -> List[str]:
    """The pattern with the trial's values, in each form that a value may have been written in."""
    texts = [pattern.replace("{trial_id}", trial.id)]
    for name, value in trial.settings.items():
        token = "{" + name + "}"
        if token in pattern:
            forms = _forms(value, trial)
            if name in trial.written:
                forms = list(dict.fromkeys([trial.written[name], *forms]))
            texts = [text.replace(token, glob.escape(form)) for text in texts for form in forms]
    return texts


def _forms(value: Any, trial: Trial) -> List[str]:
    if isinstance(value, str):
        return [value]
    forms = [json.dumps(value, separators=(",", ":"), ensure_ascii=False), str(value)]
    if isinstance(value, float):
        # The command has it as the user wrote it: 1e-3, not 0.001.
        arguments = [argument for _, stage in trial.stages for argument in stage]
        forms = [
            text
            for argument in arguments
            for text in _NUMBER.findall(argument)
            if float(text) == value
        ] + forms
    return list(dict.fromkeys(forms))


def _entries_below(path: str) -> List[str]:
    """The file or link itself; of a folder all files, links and empty folders in it. Links inside are not followed."""
    if not os.path.isdir(path) or os.path.islink(path):
        return [path] if _is_kept(path) else []
    found = []
    for folder, folders, names in os.walk(path):
        if not folders and not names:
            found.append(folder)
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        found += [
            os.path.join(folder, name)
            for name in (*names, *links)
            if _is_kept(os.path.join(folder, name))
        ]
    return found


def _follow_links(found: Found, place: Place) -> None:
    """In place of a link to a folder of the trial's that is not kept itself, keep what is in the folder."""
    kept = with_folders(found.values())
    project = os.path.realpath(place.project)
    for name, path in list(found.items()):
        if not os.path.islink(path) or not os.path.isdir(path):
            continue
        real = os.path.realpath(path)
        target = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        if target in kept or not real.startswith(project + os.sep):
            continue
        del found[name]
        for entry in _entries_below(real):
            own = place.project + entry[len(project) :]
            if own in place.written or own in place.made:
                found[name + entry[len(real) :]] = own


def _is_kept(path: str) -> bool:
    return os.path.isfile(path) or os.path.islink(path)


def _state(path: str) -> Optional[Tuple[int, int]]:
    try:
        status = os.stat(path) if os.path.exists(path) else os.lstat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
