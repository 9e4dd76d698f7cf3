"""A profile and what the scheduler says → a Cluster, each fact with where it came from. Live facts win."""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any

from windlass.site.cluster import Cluster, GpuType, Node
from windlass.site.live import NODES, Live
from windlass.site.profiles import Profile
from windlass.slurm.records import parse_slurm_memory_mb

NOT_ASKED = "as written in the profile; nothing was asked"
GUESS = "guess"
UNKNOWN = "not known"
KNOWN_GPUS = "table of known GPUs"
_TABLE = os.path.join(os.path.dirname(__file__), "gpu-memory.toml")
_LIVE_FIELDS = (
    "version", "partitions", "nodes", "accounts", "default_account", "qos",
    "max_array_size", "kill_wait_s", "max_submit", "accounting",
)  # fmt: skip
# Words of a GPU's name that say nothing about its memory.
_PLAIN_WORDS = {"nvidia", "amd", "tesla", "quadro", "geforce", "instinct", "radeon", "graphics", "gpu", "generation",
                "pcie", "hbm2", "hbm2e", "hbm3", "hbm3e", "nvlink", "blackwell"}  # fmt: skip


def make_cluster(
    profile: Profile,
    live: Live | None = None,
    own: Mapping[str, Any] | None = None,
    own_file: str = "",
) -> Cluster:
    """Return everything known of a cluster, with the source of each fact.

    Facts that the scheduler reported (`live`) replace those of the profile. `own` holds the settings of the user's
    site file, which is `own_file`; they replace the defaults of the profile.
    """
    facts: dict[str, Any] = {
        **profile.facts,
        "gpus": profile.gpus,
        "partitions": profile.partitions,
    }
    sources = {
        **{field.name: _default_source(field) for field in fields(Cluster)},
        **profile.sources,
    }
    sources |= {"name": f"profile {profile.name}", "profile": "named or recognized"}
    notes = list(profile.facts.get("notes", ()))
    defaults = dict(profile.defaults)
    if live is None:
        notes.append(NOT_ASKED)
        memories = {gpu.name: gpu.memory_mb or known_memory_mb(gpu.name) for gpu in profile.gpus}
        facts["gpus"] = tuple(replace(gpu, memory_mb=memories[gpu.name]) for gpu in profile.gpus)
    else:
        facts.update({name: getattr(live, name) for name in _LIVE_FIELDS if name in live.sources})
        sources |= {
            name: source for name, source in live.sources.items() if name in (*_LIVE_FIELDS, "name")
        }
        found = _gpus_of_nodes(live.nodes, {gpu.name: gpu for gpu in profile.gpus})
        if live.nodes:
            facts["gpus"], sources["gpus"] = found, NODES
        if found and "typed_gpus" not in profile.facts:
            facts["typed_gpus"], sources["typed_gpus"] = any(gpu.name for gpu in found), NODES
        notes += _drop_stale_defaults(defaults, live, found)
    sources |= _gpu_sources(facts["gpus"], {gpu.name: gpu for gpu in profile.gpus}, profile)
    sources |= {f"defaults.{name}": profile.sources.get("defaults", "") for name in defaults}
    if own:
        sources["defaults"] = f"site file {own_file}"
        sources |= {f"defaults.{name}": sources["defaults"] for name in own}
    cluster = Cluster(
        **{
            **facts,
            "name": live.name if live and live.name else profile.name,
            "profile": profile.name,
            "live": live is not None,
            "notes": tuple(notes),
            "defaults": {**defaults, **(own or {})},
            "defaults_file": own_file or profile.file,
        }
    )
    return replace(
        cluster,
        sources={name: source for name, source in sources.items() if name not in _UNSOURCED},
    )


def _default_source(field: Field[Any]) -> str:
    return UNKNOWN if field.default in (None, ()) or field.default is MISSING else GUESS


_UNSOURCED = {"sources", "defaults_file", "live", "asked_at", "waiting"}


def _drop_stale_defaults(
    defaults: dict[str, Any], live: Live, gpus: tuple[GpuType, ...]
) -> list[str]:
    """Take away defaults of a profile that the cluster no longer has. The user's own are left to be refused."""
    notes = []
    names = {
        "partition": {part.name for part in live.partitions},
        "gpu_type": {gpu.name for gpu in gpus},
    }
    for word, there in names.items():
        if there and word in defaults and not set(str(defaults[word]).split(",")) <= there:
            notes.append(
                f"the profile's {word} {defaults.pop(word)} is not on this cluster any more"
            )
    return notes


def _gpus_of_nodes(nodes: tuple[Node, ...], profiled: Mapping[str, GpuType]) -> tuple[GpuType, ...]:
    """Types of GPU with counts from the nodes; memory and shares from the profile where it has them."""
    found: dict[str, GpuType] = {}
    for node in nodes:
        for name, count in node.gpus.items():
            old = found.get(name, GpuType(name))
            found[name] = replace(old, count=old.count + count, per_node=max(old.per_node, count))
    return tuple(
        _with_shares(gpu, nodes, profiled.get(gpu.name, GpuType(gpu.name)))
        for gpu in found.values()
    )


def _with_shares(gpu: GpuType, nodes: tuple[Node, ...], profiled: GpuType) -> GpuType:
    """A share is what the poorest node with this type can give to each of its GPUs.

    The profile goes before it, but never beyond what the richest node can give.
    """
    having = [(node, sum(node.gpus.values())) for node in nodes if node.gpus.get(gpu.name)]
    cpus = [max(1, node.cpus // count) for node, count in having]
    memory_mb = [node.memory_mb // count for node, count in having]
    return replace(
        gpu,
        memory_mb=profiled.memory_mb or known_memory_mb(gpu.name),
        cost=profiled.cost,
        share_cpus=min(profiled.share_cpus, max(cpus)) if profiled.share_cpus else min(cpus),
        share_memory_mb=(
            min(profiled.share_memory_mb, max(memory_mb))
            if profiled.share_memory_mb
            else min(memory_mb)
        ),
    )


def _gpu_sources(
    gpus: tuple[GpuType, ...], profiled: Mapping[str, GpuType], profile: Profile
) -> dict[str, str]:
    """Where memory and shares of each type came from, under ``gpus.TYPE.memory_mb`` and ``gpus.TYPE.shares``."""
    found: dict[str, str] = {}
    for gpu in gpus:
        in_profile = profiled.get(gpu.name, GpuType(gpu.name))
        source = profile.sources.get("gpus", "")
        if gpu.memory_mb:
            found[f"gpus.{gpu.name}.memory_mb"] = source if in_profile.memory_mb else KNOWN_GPUS
        if gpu.share_cpus or gpu.share_memory_mb:
            of_profile = (gpu.share_cpus, gpu.share_memory_mb) == (
                in_profile.share_cpus,
                in_profile.share_memory_mb,
            )
            found[f"gpus.{gpu.name}.shares"] = source if of_profile else NODES
    return found


def known_memory_mb(name: str) -> int | None:
    """Memory of a GPU as far as its name tells: a size in the name, or a row of our table."""
    words = [word for word in re.split(r"[^a-z0-9.]+", name.lower()) if word]
    sizes: list[str] = re.findall(r"(\d+)gb\b", name.lower().replace("_", " "))
    if sizes:
        # The last: of "h100_80gb_hbm3_1g.10gb" a slice of 10 GB is handed out.
        return int(sizes[-1]) * 1024
    plain = [
        word for word in words if word not in _PLAIN_WORDS and not re.fullmatch(r"sxm\d*", word)
    ]
    return _memory_table().get("".join(plain))


@functools.cache
def _memory_table() -> dict[str, int]:
    with open(_TABLE, "rb") as file:
        return {name: parse_slurm_memory_mb(size) or 0 for name, size in tomllib.load(file).items()}
