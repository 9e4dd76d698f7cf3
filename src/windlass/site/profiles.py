"""Profiles: what is known of a cluster without asking it; one TOML file each, ours or the user's."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from windlass.core.errors import InputError, Problem
from windlass.settings import settings
from windlass.site.cluster import GpuType, Partition
from windlass.slurm.records import parse_slurm_memory_mb, parse_slurm_time_s

ANY_GPU = "any"  # stands for GPUs that have no type; its name in a Cluster is ""
GENERIC = "generic"
PACKAGED = os.path.join(os.path.dirname(__file__), "profiles")
_NAME = re.compile(r"[\w.-]+")

Kind = Literal["text", "texts", "truth", "count", "amount", "time", "memory"]
_WANTED: Mapping[Kind, str] = {
    "text": "text",
    "texts": "a list of texts",
    "truth": "true or false",
    "count": "a whole number of 1 or more",
    "amount": "a number above 0",
    "time": 'a time such as "7-00:00:00" or "03:00:00"',
    "memory": 'a size such as "32000M" or "124G"',
}


@dataclass(frozen=True)
class Key:
    """One key of a profile: its name, what it takes, the field of the cluster it sets, what it means."""

    name: str
    kind: Kind
    field: str
    help: str
    choices: tuple[str, ...] = ()


# Keys at the top of the file. Without a field they say how the cluster is recognized.
KEYS: tuple[Key, ...] = (
    Key("as_of", "text", "", "when these facts were so; shown beside each of them"),
    Key("about", "text", "", "one sentence about the cluster"),
    Key("clusters", "texts", "", "`ClusterName` in `scontrol show config`, and `$CC_CLUSTER`, where it is this one"),
    Key("login_hosts", "texts", "login_hosts", "patterns (`*`, `?`) of host names where it is this one"),
    Key("name_partition", "truth", "name_partition", "false: jobs name no partition, the scheduler chooses"),
    Key("account_rule", "text", "account_rule", "whether jobs name an account", ("required", "optional", "never")),
    Key("gpu_form", "text", "gpu_form", "how GPUs are asked for", ("gres", "gpus-per-node")),
    Key("typed_gpus", "truth", "typed_gpus", "false: GPUs are asked for without a type"),
    Key("memory_form", "text", "memory_form", "how memory is asked for", ("mem", "mem-per-cpu")),
    Key("shebang", "text", "shebang", "the shell of batch scripts"),
    Key("throttle", "count", "throttle", "agents at a time, out of good manners"),
    Key("min_job", "time", "min_job_s", "shorter jobs are not welcome: trials are grouped"),
    Key("max_time", "time", "max_time_s", "of any job, where partitions do not say it"),
    Key("max_submit", "count", "max_submit", "jobs of one user in the queue, array tasks counted"),
    Key("max_array_size", "count", "max_array_size", "as `MaxArraySize`: the highest index is one less"),
    Key("local_scratch", "text", "local_scratch", "a node's own disk, without `$SLURM_TMPDIR`; may hold `$USER`"),
    Key("scratch", "text", "scratch", "what stands in for `$SCRATCH`; may hold `$USER`"),
    Key("container_runtime", "text", "container_runtime", "the program that starts containers, e.g. `singularity`"),
    Key("container_module", "text", "container_module", "the module that brings that program"),
    Key("container_binds", "texts", "container_binds", "folders that all containers see, as in `bind`"),
    Key("submit_from_home", "truth", "submit_from_home", "false: jobs from below the home folder are refused"),
    Key("internet", "truth", "internet", "whether compute nodes reach the internet"),
    Key("cost_unit", "text", "cost_unit", "what computing time is counted in, e.g. `core-hours`"),
    Key("shell_time", "time", "shell_time_s", "the most an interactive job gets without being asked for more"),
    Key("shell_partition", "text", "shell_partition", "the partition of interactive jobs, where it takes them"),
    Key("support", "texts", "support", "where users of the cluster get help; printed by `site` and `explain --ticket`"),
    Key("usage", "texts", "usage", "commands for `windlass usage`; may hold `$ACCOUNT` and `$USER`"),
    Key("notes", "texts", "notes", "what else a user should know"),
)  # fmt: skip
GPU_KEYS: tuple[Key, ...] = (
    Key("memory", "memory", "memory_mb", "memory of one GPU"),
    Key("count", "count", "count", "how many the cluster has"),
    Key("per_node", "count", "per_node", "the most that one node has"),
    Key("share_cpus", "count", "share_cpus", "cores that go with one GPU"),
    Key("share_memory", "memory", "share_memory_mb", "memory of the node that goes with one GPU"),
    Key("cost", "amount", "cost", "what one GPU costs for an hour, in `cost_unit`"),
)
PARTITION_KEYS: tuple[Key, ...] = (
    Key("default", "truth", "is_default", "jobs that name none go here"),
    Key("max_time", "time", "max_time_s", "the longest job"),
    Key("default_time", "time", "default_time_s", "of jobs that name none"),
    Key("max_nodes", "count", "max_nodes", "the most nodes of a job"),
)
# Settings that a profile may give a default, and the form of their values in TOML.
_DEFAULTS: Mapping[str, Kind] = {
    "account": "text",
    "partition": "text",
    "qos": "text",
    "gpu_type": "text",
    "time": "text",
    "throttle": "count",
}
DEFAULT_KEYS: tuple[Key, ...] = tuple(
    Key(row.short_name, _DEFAULTS[row.short_name], "", row.help)
    for row in settings()
    if row.short_name in _DEFAULTS
)
# Name of a table → its keys, and whether it holds one table for each name.
TABLES: Mapping[str, tuple[tuple[Key, ...], bool]] = {
    "gpu": (GPU_KEYS, True),
    "partition": (PARTITION_KEYS, True),
    "defaults": (DEFAULT_KEYS, False),
}


@dataclass(frozen=True)
class Profile:
    """One profile, read and checked. `facts` are fields of a Cluster; `sources` says for each where it came from."""

    name: str
    file: str = ""
    as_of: str = ""
    about: str = ""
    clusters: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    gpus: tuple[GpuType, ...] = ()
    partitions: tuple[Partition, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def login_hosts(self) -> tuple[str, ...]:
        hosts: tuple[str, ...] = self.facts.get("login_hosts", ())
        return hosts


def user_folder() -> str:
    """Where the user's own profiles are."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(config, "windlass", "sites")


def list_profiles() -> tuple[str, ...]:
    """Names of all profiles there are, the user's among them."""
    names = {
        name.removesuffix(".toml")
        for folder in (PACKAGED, user_folder())
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.endswith(".toml")
    }
    return tuple(sorted(names))


def read_profile(name: str) -> Profile:
    """The profile of that name: ours with the user's of the same name over it, key by key. Raises InputError."""
    found: Profile | None = None
    for folder, packaged in ((PACKAGED, True), (user_folder(), False)):
        path = os.path.join(folder, f"{name}.toml")
        if _NAME.fullmatch(name) and os.path.isfile(path):
            profile = parse_profile(_read_text(path), path, packaged=packaged)
            found = profile if found is None else merge_profiles(found, profile)
    if found is None:
        hint = f"known are: {', '.join(list_profiles())}; or write {os.path.join(user_folder(), 'NAME.toml')}"
        raise InputError([Problem(f"no profile of a site is named {name!r}", hint)])
    return found


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            [Problem(f"cannot be read: {error}", "mend or remove this file", path)]
        ) from error


def merge_profiles(below: Profile, above: Profile) -> Profile:
    """Two profiles of one name; what `above` says holds."""
    below_hosts, above_hosts = (
        below.facts.get("login_hosts", ()),
        above.facts.get("login_hosts", ()),
    )
    return Profile(
        name=below.name,
        file=above.file,
        as_of=above.as_of or below.as_of,
        about=above.about or below.about,
        clusters=tuple(dict.fromkeys([*below.clusters, *above.clusters])),
        facts={
            **below.facts,
            **above.facts,
            "login_hosts": tuple(dict.fromkeys([*below_hosts, *above_hosts])),
        },
        gpus=_merge_named(below.gpus, above.gpus),
        partitions=_merge_named(below.partitions, above.partitions),
        defaults={**below.defaults, **above.defaults},
        sources={**below.sources, **above.sources},
    )


def _merge_named(below: Iterable[Any], above: Iterable[Any]) -> tuple[Any, ...]:
    """Values by name; of two of one name, fields that are not at their default in the upper one hold."""
    merged = {value.name: value for value in below}
    for value in above:
        changed = {
            one.name: getattr(value, one.name)
            for one in fields(value)
            if getattr(value, one.name) != one.default
        }
        merged[value.name] = (
            replace(merged[value.name], **changed) if value.name in merged else value
        )
    return tuple(merged.values())


def parse_profile(text: str, file: str, *, packaged: bool = False) -> Profile:
    """A profile from its text. Raises InputError with all that is wrong, each with its line."""
    name = os.path.basename(file).removesuffix(".toml")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        message = str(error)[: place.start()].strip() if place else str(error)
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        raise InputError([Problem(message, "this is not TOML", file, line, column)]) from error
    tables = [field for field, table in _TABLE_OF.items() if data.get(table)]
    reader = _Reader(text, file)
    profile = reader.read(name, data)
    if reader.problems:
        raise InputError(reader.problems)
    source = (
        f"profile {name} ({profile.as_of})" if packaged and profile.as_of else f"profile {name}"
    )
    if not packaged:
        source = f"site file {file}"
    return replace(profile, sources=dict.fromkeys([*profile.facts, *tables], source))


_TABLE_OF = {"gpus": "gpu", "partitions": "partition", "defaults": "defaults"}


class _Reader:
    """Checks one file's data and gathers problems."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.problems: list[Problem] = []

    def read(self, name: str, data: dict[str, Any]) -> Profile:
        """The profile in a parsed file. Problems are collected, all of them, and not raised."""
        tables = {word: data.pop(word, {}) for word in TABLES}
        top = self._check_table((), data, KEYS, also=tuple(TABLES))
        by_word = {key.name: key for key in KEYS}
        gpus = [
            GpuType(name="" if kind == ANY_GPU else kind, **self._by_field(found, GPU_KEYS))
            for kind, found in self._named("gpu", tables["gpu"])
        ]
        partitions = [
            Partition(name=partition, **self._by_field(found, PARTITION_KEYS))
            for partition, found in self._named("partition", tables["partition"])
        ]
        return Profile(
            name=name,
            file=self.file,
            as_of=top.get("as_of", ""),
            about=top.get("about", ""),
            clusters=top.get("clusters", ()),
            facts={
                by_word[word].field: value for word, value in top.items() if by_word[word].field
            },
            gpus=tuple(gpus),
            partitions=tuple(partitions),
            defaults=self._check_table(("defaults",), tables["defaults"], DEFAULT_KEYS),
        )

    def _by_field(self, found: Mapping[str, Any], keys: tuple[Key, ...]) -> dict[str, Any]:
        return {key.field: found[key.name] for key in keys if key.name in found}

    def _named(self, table: str, data: Any) -> list[tuple[str, dict[str, Any]]]:
        if not isinstance(data, dict):
            self._complain((table,), f"{table}: tables such as [{table}.NAME] are wanted")
            return []
        return [
            (name, self._check_table((table, name), inner, TABLES[table][0]))
            for name, inner in data.items()
        ]

    def _check_table(
        self, path: tuple[str, ...], data: Any, keys: tuple[Key, ...], also: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        if not isinstance(data, dict):
            self._complain(path, f"{'.'.join(path)}: a table is wanted")
            return {}
        known = {key.name: key for key in keys}
        found: dict[str, Any] = {}
        for word, value in data.items():
            shown = ".".join((*path, word))
            if word not in known:
                self._complain(
                    (*path, word),
                    f"unknown key {shown!r}",
                    f"known are: {', '.join([*known, *also])}",
                )
                continue
            try:
                found[word] = parse_value(known[word], value)
            except ValueError as error:
                self._complain((*path, word), f"{shown}: {error}")
        return found

    def _complain(self, path: tuple[str, ...], message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, hint, self.file, find_line(self.text, path)))


def parse_value(key: Key, value: Any) -> Any:
    """A value as the cluster holds it. Raises ValueError."""
    wanted = f"{_WANTED[key.kind]} is wanted, not {value!r}"
    if key.kind == "truth" and isinstance(value, bool):
        return value
    if (
        key.kind == "count"
        and isinstance(value, int)
        and not isinstance(value, bool)
        and value >= 1
    ):
        return value
    if (
        key.kind == "amount"
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value > 0
    ):
        return float(value)
    if (
        key.kind == "texts"
        and isinstance(value, list)
        and all(isinstance(part, str) for part in value)
    ):
        return tuple(value)
    if key.kind == "text" and isinstance(value, str) and value:
        if key.choices and value not in key.choices:
            raise ValueError(f"one of {', '.join(key.choices)} is wanted, not {value!r}")
        return value
    if key.kind in ("time", "memory") and isinstance(value, str):
        try:
            parsed = (
                parse_slurm_time_s(value) if key.kind == "time" else parse_slurm_memory_mb(value)
            )
        except ValueError:
            parsed = None
        if parsed:
            return parsed
    raise ValueError(wanted)


def find_line(text: str, path: tuple[str, ...]) -> int:
    """The line, counted from 1, on which a key or a table of a TOML text begins; 0 where it cannot be told."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = re.fullmatch(r"\s*\[([^\[\]]+)\]\s*(#.*)?", line)
        if header:
            table = _split_key(header[1])
            if table == path:
                return number
            continue
        key = re.match(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*'|\s*\.\s*)+?)\s*=""", line)
        if key and (*table, *_split_key(key[1])) == path:
            return number
    return 0


def _split_key(text: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(r"""[\w-]+|"[^"]*"|'[^']*'""", text))


def render_key_tables() -> str:
    """The keys of a profile as Markdown, for the docs."""
    titles = {"gpu": "`[gpu.TYPE]`", "partition": "`[partition.NAME]`", "defaults": "`[defaults]`"}
    parts = [_render_keys("At the top", KEYS)]
    parts += [_render_keys(titles[table], keys) for table, (keys, _) in TABLES.items()]
    return "\n".join(parts)


def _render_keys(title: str, keys: tuple[Key, ...]) -> str:
    lines = [f"{title}:", "", "| key | takes | meaning |", "| --- | --- | --- |"]
    for key in keys:
        takes = ", ".join(f"`{choice}`" for choice in key.choices) or re.sub(
            r'"([^"]*)"', r"`\1`", _WANTED[key.kind]
        )
        lines.append(f"| `{key.name}` | {takes} | {key.help} |")
    return "\n".join(lines) + "\n"
