"""Which cluster this is, and everything known of it: the scheduler is asked, its answers are kept for minutes."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from windlass.core.errors import SchedulerError
from windlass.core.files import write_whole
from windlass.core.processes import ask
from windlass.site.cluster import Cluster, Node, Partition, Qos
from windlass.site.here import fill_user
from windlass.site.live import Live, fetch_live, fetch_nodes, user_name
from windlass.site.local import read_site_file, site_file_path
from windlass.site.merge import make_cluster
from windlass.site.profiles import GENERIC, Profile, list_profiles, read_profile

__all__ = [
    "Cluster",
    "fetch_cluster",
    "fetch_nodes",
    "find_profile_name",
    "find_scratch",
    "slurm_answers",
]

FRESH_S = 300.0
STALE_S = 86400.0  # so old an answer is used only while the controller is down
_KEPT_S = 7 * 86400.0
_CACHE_VERSION = 1
_CONFIGURATIONS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/run/slurm/conf/slurm.conf",
)
_PARTS: dict[str, Any] = {"partitions": Partition, "nodes": Node, "qos": Qos}
_PING_S = 5.0


def slurm_answers() -> bool:
    """Whether this machine can submit to a Slurm: sbatch is there and a controller is configured.

    The controller need not be up: where it is down this is still True, and whoever asks it gets a clear error. Packages
    without a configuration give False at once; without looking for a configuration first, Slurm's own programs would
    wait for a minute.
    """
    program = shutil.which("sbatch")
    if program is None:
        return False
    if os.environ.get("SLURM_CONF"):
        return os.path.isfile(os.environ["SLURM_CONF"])
    if os.environ.get("SLURM_CONF_SERVER") or find_configuration(program):
        return True
    return "Slurmctld(" in ask(["scontrol", "ping"], _PING_S).text


def find_configuration(program: str | None = None) -> str:
    """The path of slurm.conf; "" where Slurm finds it in some way of its own."""
    named = os.environ.get("SLURM_CONF")
    if named:
        return named
    prefix = os.path.dirname(
        os.path.dirname(os.path.realpath(program or shutil.which("sbatch") or "/usr/bin/sbatch"))
    )
    beside = [os.path.join(prefix, place, "slurm.conf") for place in ("etc", "etc/slurm")]
    return next((path for path in (*_CONFIGURATIONS, *beside) if os.path.isfile(path)), "")


def fetch_cluster(site: str | None = None, refresh: bool = False) -> Cluster:
    """Everything known of this cluster, or of the one whose profile is named.

    The profile is `site`, else $WINDLASS_CLUSTER, else recognized. Live facts go over it where there is a Slurm here.
    Without one the profile is all there is; without a profile either, SchedulerError is raised. So it is where the
    controller is down, unless it answered within the last day: then that is used, and `notes` says so.
    """
    named = site or os.environ.get("WINDLASS_CLUSTER") or None
    named_profile = read_profile(named) if named else None
    own, own_file = read_site_file(site_file_path())
    if not slurm_answers():
        profile = named_profile or read_profile(find_profile_name(""))
        if named is None and profile.name == GENERIC:
            raise SchedulerError(
                "there is no Slurm on this machine\n  hint: name a site with --site, or stay local"
            )
        return make_cluster(profile, None, own, own_file)
    live, asked_at, note = _recall_or_fetch(refresh)
    profile = named_profile or read_profile(find_profile_name(live.name))
    other = _owner_of(live.name)
    if named and other and other != profile.name:
        cluster = make_cluster(profile, None, own, own_file)
        return replace(
            cluster,
            notes=(*cluster.notes, f"this machine belongs to {other}, which was left out of this"),
        )
    cluster = make_cluster(profile, live, own, own_file)
    return replace(cluster, asked_at=asked_at, notes=(*cluster.notes, *([note] if note else [])))


def find_scratch(environ: Mapping[str, str]) -> str | None:
    """The user's folder on the shared scratch: $SCRATCH, or what the site's profile says; None: nobody knows."""
    if environ.get("SCRATCH"):
        return environ["SCRATCH"]
    try:
        scratch = fetch_cluster().scratch
    except SchedulerError:
        return None
    return fill_user(scratch, environ) if scratch else None


def find_profile_name(cluster_name: str) -> str:
    """The profile of this machine: by the scheduler's name for the cluster, $CC_CLUSTER, or the name of the host."""
    for name in (cluster_name, os.environ.get("CC_CLUSTER", "")):
        owner = _owner_of(name)
        if owner:
            return owner
    host = os.uname().nodename.lower()
    for profile in _all_profiles():
        if any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in profile.login_hosts):
            return profile.name
    return GENERIC


def _owner_of(cluster_name: str) -> str | None:
    """The profile that names this cluster, else the one whose file has the cluster's name."""
    lower, profiles = cluster_name.lower(), _all_profiles()
    owners = [
        profile.name for profile in profiles if lower in (name.lower() for name in profile.clusters)
    ]
    owners += [
        profile.name
        for profile in profiles
        if not profile.clusters and profile.name.lower() == lower
    ]
    return owners[0] if lower and owners else None


def _all_profiles() -> list[Profile]:
    return [read_profile(name) for name in list_profiles()]


def _recall_or_fetch(refresh: bool) -> tuple[Live, float, str]:
    """The scheduler's answers, when they were given, and a remark where they are old."""
    path = cache_path()
    kept = read_cache(path)
    now = time.time()
    if kept and not refresh and 0 <= now - kept[1] < FRESH_S:
        return *kept, ""
    try:
        live = fetch_live()
    except SchedulerError:
        if kept and not refresh and 0 <= now - kept[1] < STALE_S:
            minutes = round((now - kept[1]) / 60)
            return (
                *kept,
                f"Slurm's controller does not answer; these are its answers of {minutes} min ago",
            )
        raise
    write_cache(path, live, now)
    return live, now, ""


def cache_path() -> str:
    """Where answers are kept: one file for each configuration of Slurm and user."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    configuration = find_configuration()
    try:
        changed = os.stat(configuration).st_mtime_ns
    except OSError:
        changed = 0
    key = json.dumps(
        [_CACHE_VERSION, configuration, changed, user_name(), shutil.which("scontrol")]
    )
    return os.path.join(
        folder, "windlass", f"cluster-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    )


def read_cache(path: str) -> tuple[Live, float] | None:
    """Answers kept and when they were given; None where there are none that can be used."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        found = {name: _from_json(name, value) for name, value in data["live"].items()}
        return Live(**found), float(data["asked_at"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _from_json(name: str, value: Any) -> Any:
    kind = _PARTS.get(name)
    if kind is None:
        return tuple(value) if isinstance(value, list) else value
    expected = {field.name for field in fields(kind)}
    if any(set(item) != expected for item in value):
        raise ValueError(name)
    return tuple(
        kind(**{key: tuple(part) if isinstance(part, list) else part for key, part in item.items()})
        for item in value
    )


def write_cache(path: str, live: Live, asked_at: float) -> None:
    """Keep answers, whole or not at all. Nothing depends on it: where it cannot be written it is not."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_whole(path, json.dumps({"asked_at": asked_at, "live": asdict(live)}), mode=0o600)
        _remove_old(os.path.dirname(path))
    except OSError:
        return


def _remove_old(folder: str) -> None:
    """Answers of clusters that were not asked for a week."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if (
            name.startswith(("cluster-", ".cluster-"))
            and time.time() - os.stat(path).st_mtime > _KEPT_S
        ):
            os.unlink(path)
