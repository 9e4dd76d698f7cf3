"""plan.json: what was planned at the last `windlass run`, as a frozen value. The agent needs it: Python 3.9.

This is the only reader and writer of the file. It has a checksum, which plans of the first version lack.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, Mapping, Optional

from windlass.core.claims.alive import LEASE_S
from windlass.core.errors import FolderError

PLAN_VERSION = 1
_REMEDY = "`windlass run` with the study file writes it anew"


@dataclass(frozen=True)
class PlanFile:
    """The fields of plan.json, each under its name in the file. A default stands for a key that a plan lacks.

    A plan that was read is written again with the keys that it had, those that other versions of Windlass wrote among
    them, and with those that have got another value than their default since.
    """

    version: int = PLAN_VERSION
    name: str = ""
    workdir: str = ""
    project_dir: str = ""
    scratch_dir: str = ""
    source: str = ""
    slots: int = 1
    agents: int = 1
    cpus_per_slot: int = 1
    gpus: List[str] = field(default_factory=list)
    launch: str = "plain"  # the launcher around each trial; see launchers/
    # Of one trial, on each of its nodes; None: one a GPU, or a core.
    processes: Optional[int] = None
    trial_nodes: Optional[int] = None  # nodes of one trial; None: all of its job
    launcher: str = ""
    site_name: str = ""
    # On which agents are submitted; None where they are no jobs.
    terms: Optional[Dict[str, Any]] = None
    gpus_per_slot: float = 0
    lease_s: float = LEASE_S
    trial_memory_mb: Optional[float] = None
    trial_time_s: Optional[float] = None
    job_time_s: Optional[float] = None
    local_scratch: Optional[str] = None
    seed_name: str = ""
    several_settings: bool = False  # seeds and repetitions aside
    timeout_s: Optional[float] = None
    grace_s: float = 10.0
    end_grace_s: Optional[float] = None  # where the scheduler ends the whole job
    retries: Dict[str, int] = field(default_factory=dict)
    output_limit_bytes: int = 0
    metric: Optional[str] = None
    goal: Any = None
    progress: Optional[Dict[str, Any]] = None
    pack: Optional[Dict[str, Any]] = None
    metrics: List[List[Optional[str]]] = field(default_factory=list)  # name and regular expression
    on_nan: str = ""
    env: Dict[str, str] = field(default_factory=dict)
    config: Optional[Dict[str, Any]] = None  # the file of which each trial gets a copy of its own
    outputs: List[str] = field(default_factory=list)
    own_folders: Optional[bool] = None  # whether each trial has a working folder of its own
    local_folder: bool = False  # whether commands name $SLURM_TMPDIR
    keep: str = "all"
    environment: Optional[Dict[str, Any]] = None
    checkpoint: Optional[Dict[str, Any]] = None
    lead_s: float = 120.0
    stop_signal: str = "TERM"
    again_code: Optional[int] = None
    warm: Dict[str, Any] = field(default_factory=dict)
    # Where the value of each setting comes from.
    sources: Dict[str, str] = field(default_factory=dict)
    agent: str = ""  # the SHA-256 of agent.pyz
    code: Optional[Dict[str, Any]] = None  # of frozen code: its archive, and what git says of it
    data: Optional[List[Dict[str, Any]]] = None
    live: Optional[Dict[str, Any]] = None  # of code that is not frozen: which files it is
    source_files: Optional[Dict[str, Any]] = None
    settings_key: Optional[str] = None  # changes with what trials get or are kept of
    watch_nan: bool = False  # a sample: NaN anywhere is a failure
    measure: Optional[Dict[str, Any]] = None  # what is measured, where this is a measurement
    rehearse_s: Optional[float] = None  # for how long at most agents report what all trials take
    # Keys without a field: settings that only a part of the agent knows, and what other versions
    # wrote.
    unknown: Mapping[str, Any] = field(default_factory=dict)
    # Those of the file that this was read from; None for a new plan.
    keys: Optional[FrozenSet[str]] = None

    def with_values(self, values: Mapping[str, Any]) -> PlanFile:
        """This plan with other values, by their keys. A key that has no field here is written to the file as well."""
        known = {name: value for name, value in values.items() if name in _NAMES}
        others = {name: value for name, value in values.items() if name not in _NAMES}
        return dataclasses.replace(self, **known, unknown={**self.unknown, **others})

    def to_json(self) -> Dict[str, Any]:
        """The keys and values of the file, without its checksum."""
        found: Dict[str, Any] = {}
        for one in _FIELDS:
            value = getattr(self, one.name)
            if self.keys is None or one.name in self.keys or value != _default_of(one):
                found[one.name] = value
        return {**found, **self.unknown}

    def encode(self) -> bytes:
        """The content of the file."""
        fields = self.to_json()
        return (json.dumps({"crc": _checksum(fields), **fields}, indent=1) + "\n").encode()


_FIELDS = [one for one in dataclasses.fields(PlanFile) if one.name not in ("unknown", "keys")]
_NAMES = frozenset(one.name for one in _FIELDS)
NO_PLAN = PlanFile(keys=frozenset())  # stands for a plan that cannot be read


def decode_plan(fields: Mapping[str, Any]) -> PlanFile:
    """The plan of what `to_json` gave, or another version of it."""
    known = {name: value for name, value in fields.items() if name in _NAMES}
    unknown = {name: value for name, value in fields.items() if name not in (*_NAMES, "crc")}
    return PlanFile(**known, unknown=unknown, keys=frozenset(known))


def read_plan_file(path: str, is_checked: bool = True) -> PlanFile:
    """The plan in a file. Raises FolderError, which names the file, where it is missing, unreadable or damaged.

    Plans of earlier versions have no checksum. They must at least be JSON objects with a version. With `is_checked`
    false a plan is taken as well that was edited: for callers that use it to refuse or to report something.
    """
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
    except OSError as error:
        remedy = (
            _REMEDY
            if isinstance(error, FileNotFoundError)
            else "make it readable, or remove it and run again"
        )
        raise FolderError(f"{path}: cannot be read ({error.strerror})\n  hint: {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: is damaged ({error})\n  hint: {_REMEDY}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
        raise FolderError(f"{path}: is damaged (it is no plan)\n  hint: {_REMEDY}")
    checksum = fields.pop("crc", None)
    if is_checked and checksum is not None and checksum != _checksum(fields):
        raise FolderError(
            f"{path}: is damaged, or was edited (the checksum does not fit)\n  hint: {_REMEDY}"
        )
    return decode_plan(fields)


def read_plan_if_there(path: str) -> PlanFile:
    """The plan in a file; `NO_PLAN`, in which everything is empty, where there is none or it cannot be read."""
    try:
        return read_plan_file(path)
    except FolderError:
        return NO_PLAN


def _default_of(one: dataclasses.Field[Any]) -> Any:
    return one.default_factory() if callable(one.default_factory) else one.default


def _checksum(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"
