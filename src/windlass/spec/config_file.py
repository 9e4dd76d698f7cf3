"""`config` of a study: which parameters are set where in a configuration file of the user's program."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.core.errors import InputError
from windlass.core.meant import nearest_word
from windlass.model import ConfigFile, Space
from windlass.search.template import CONFIG_WORD
from windlass.search.values import canonical_json
from windlass.secrets import find_secrets
from windlass.spec.commands import PlacedStage
from windlass.spec.config_tree import Tree, is_float, parse_config, value_at
from windlass.spec.document import Path, Problems

_ENDINGS = (".yaml", ".yml", ".json")
_MOST_BYTES = 1 << 20
_SAFE_NAME = re.compile(r"[\w.+-]+", re.ASCII)  # it needs no quotes in a shell's command


class ConfigReader:
    """Reads the file that `config` names, once, and says which parameters it has a place for."""

    def __init__(self, given: Mapping[str, Any] | None, folder: str, problems: Problems) -> None:
        self._problems = problems
        self._given = given
        self.tree: Tree = None
        self._places: dict[str, list[int]] = {}
        self._is_read = False
        self.file = ""
        if given is not None:
            self._read(os.path.join(folder, os.path.expanduser(given["file"])))

    @property
    def path(self) -> Path:
        """Where the study names the file."""
        is_mapping = isinstance(self._problems.document.value.get("config"), dict)
        return ("config", "file") if is_mapping else ("config",)

    def _read(self, path: str) -> None:
        assert self._given is not None
        self.file = self._given["file"]
        if not path.endswith(_ENDINGS):
            self._problems.add(
                self.path, f"{self.file} must end in .yaml, .yml or .json", "config: conf.yaml"
            )
            return
        try:
            text = _read_text(path)
        except OSError as error:
            near = _near_file(path)
            hint = (
                f"did you mean {near}?"
                if near
                else "a path relative to the folder that trials are executed in"
            )
            self._problems.add(
                self.path, f"{self.file} cannot be read: {error.strerror or error}", hint
            )
            return
        except UnicodeDecodeError:
            self._problems.add(
                self.path, f"{self.file} is not UTF-8 text", "save the file as UTF-8"
            )
            return
        try:
            self.tree, self._places = parse_config(text, self.file)
        except InputError as error:
            self._problems.found += error.problems
            return
        self._is_read = True
        self._refuse_secrets()

    def _refuse_secrets(self) -> None:
        """A trial's copy is made from plan.json, which others may read."""
        for name, steps in self._places.items():
            value = value_at(self.tree, steps)
            variable = re.sub(r"\W", "_", name.rsplit(".", 1)[-1]).upper()
            if isinstance(value, str) and find_secrets([f"{variable}={value}"], {}):
                hint = "remove it there and let the program read it from an environment variable; trials inherit yours"
                self._problems.add(
                    self.path,
                    f"{name} in {self.file} looks like a secret and would be copied",
                    hint,
                )

    @property
    def words(self) -> tuple[str, ...]:
        """Placeholders that commands may have because of `config`."""
        return (CONFIG_WORD,) if self._given is not None else ()

    def takes(self, name: str) -> bool:
        """Whether a parameter is set in the trial's copy. A file that could not be read has a problem of its own."""
        if self._given is None:
            return False
        return name in self._places or bool(self._given["new_keys"]) or not self._is_read

    def build(
        self, stages: Sequence[PlacedStage], names: Sequence[str], used: set[str], space: Space
    ) -> ConfigFile | None:
        """What the agent needs to write a trial's copy. None: the study has no such file, or it has problems.

        `names` are all parameters, `used` those that stand in a command or elsewhere; a problem is added for each
        parameter that is neither used nor in the file.
        """
        if self._given is None or not self._is_read:
            return None
        if "config" in names:
            hint = "rename the parameter"
            self._problems.add(
                ("config",),
                "{config} would be both this file and the parameter config",
                hint,
                key=True,
            )
        if not any("{config}" in word for stage, _ in stages for word in stage.words):
            hint = "command: python train.py --config {config}"
            self._problems.add(
                ("config",),
                "no command uses {config}, the trial's copy of this file",
                hint,
                key=True,
            )
        places: dict[str, dict[str, Any]] = {}
        for name in names:
            place = self._place(name, name in used)
            if place is not None:
                places[name] = place
        for parameter in space.parameters:
            if any("{config}" in canonical_json(value) for value in parameter.values):
                message = f"a value of {parameter.name} holds {{config}}, which has a meaning of its own here"
                self._problems.add(
                    ("parameters", parameter.name), message, "use it in the command instead"
                )
        self._check_values(places, space)
        base = os.path.basename(self.file)
        ending = os.path.splitext(base)[1]
        name = base if _SAFE_NAME.fullmatch(base) else "config" + ending
        return ConfigFile(
            self.file, name, "json" if ending == ".json" else "yaml", self.tree, places
        )

    def _place(self, name: str, is_used: bool) -> dict[str, Any] | None:
        assert self._given is not None
        if name in self._places:
            place: dict[str, Any] = {"at": self._places[name]}
            if is_float(value_at(self.tree, self._places[name])):
                place["float"] = True
            return place
        if is_used or not self._given["new_keys"]:
            return None
        steps: list[Any] = []
        parts = name.split(".")
        known = 0
        for count in range(len(parts) - 1, 0, -1):
            parent = ".".join(parts[:count])
            if parent in self._places:
                steps, known = list(self._places[parent]), count
                break
        if not isinstance(value_at(self.tree, steps), dict) or "map" not in value_at(
            self.tree, steps
        ):
            owner = ".".join(parts[:known])
            self._problems.add(
                ("config",),
                f"{name} cannot be added: {owner} is no mapping in {self.file}",
                key=True,
            )
            return None
        return {"at": [*steps, *parts[known:]]}

    def _check_values(self, places: Mapping[str, Any], space: Space) -> None:
        """A mapping may be replaced by another one, but not by a number; and not by two parameters."""
        for name in places:
            above = next((other for other in places if name.startswith(other + ".")), None)
            if above is not None:
                message = f"the parameters {above} and {name} set the same part of {self.file}"
                self._problems.add(("parameters", name), message, "keep one of the two", key=True)
        for parameter in space.parameters:
            steps = self._places.get(parameter.name)
            if (
                parameter.name not in places
                or steps is None
                or isinstance(value_at(self.tree, steps), str)
            ):
                continue
            if any(
                not isinstance(value, (dict, list)) and value is not None
                for value in parameter.values
            ):
                inner = [name for name in self._places if name.startswith(parameter.name + ".")]
                message = f"{parameter.name} holds several values in {self.file}, and one would replace them all"
                hint = f"name one of {', '.join(inner[:5])}" if inner else ""
                self._problems.add(("parameters", parameter.name), message, hint, key=True)

    def hint_for(self, name: str, is_seed: bool) -> str:
        """What to do about a parameter that is not in the file."""
        last = name.rsplit(".", 1)[-1]
        same = [other for other in self._places if other.rsplit(".", 1)[-1] == last]
        near = same[0] if same else nearest_word(name, self._places)
        meant = f"did you mean {near}? " if near else ""
        if near and is_seed:
            meant = f"seed_name: {near}, if that is the seed; "
        added = f"config: {{file: {self.file}, new_keys: true}} adds it to the copies"
        return f"{meant}{added}; or use {{{name}}} in the command"


def _read_text(path: str) -> str:
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(0, "it is no file")
    with open(path, "rb") as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise OSError(0, "it is larger than 1 MB")
    return raw.decode("utf-8-sig").replace("\r\n", "\n")


def _near_file(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        names = [one for one in os.listdir(folder or ".") if one.endswith(_ENDINGS)]
    except OSError:
        return ""
    return nearest_word(name, names)
