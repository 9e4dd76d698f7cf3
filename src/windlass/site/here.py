"""Where this process is: on a login host, in a job, and which of its folders other hosts can see."""

from __future__ import annotations

import fnmatch
import getpass
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from windlass.core.processes import ask
from windlass.secrets import secret_variables
from windlass.site.cluster import Cluster
from windlass.site.profiles import GENERIC

# Folders that each host has of its own, nearly everywhere.
LOCAL_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp", "/run")
_USUAL_SCRATCH = (
    "/scratch",
    "/scratch/users",
    "/work",
    "/lustre/scratch",
    "/gpfs/scratch",
    "/hpcwork",
    "/data/scratch",
)
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs")


@dataclass(frozen=True)
class Folder:
    """A folder as it was named, where it really is, and the type of file system it is on ("": not known)."""

    path: str
    real: str
    file_system: str = ""
    exists: bool = True


@dataclass(frozen=True)
class Here:
    """What refusing has to know of this process and its host."""

    cluster: str = ""  # the name of the cluster that is looked at from here
    host: str = ""
    user: str = ""
    home: str = ""  # where it really is
    scratch: str = ""  # $SCRATCH
    local_scratch: str = ""  # the site's local scratch, with its variables filled in
    job: str = ""  # number of the job this process is in
    is_login_host: bool = False
    nodes_are_here: bool = False  # every node of the cluster is this host
    # What to add to ~/.bashrc where nothing tells where the shared scratch is.
    scratch_line: str = ""
    folders: tuple[Folder, ...] = ()
    python: tuple[
        Folder, ...
    ] = ()  # where the Python is that jobs start, and the installation that it is of
    # Variables named like secrets.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def fetch_here(cluster: Cluster, environ: Mapping[str, str], folders: Iterable[str] = ()) -> Here:
    """Look around. The scheduler is asked only where a folder may be invisible to nodes, and where there is one."""
    host = socket.gethostname()
    looked = tuple(look_at_folder(path) for path in folders)
    python = tuple(
        look_at_folder(path)
        for path in dict.fromkeys([os.path.dirname(sys.executable), sys.base_prefix])
    )
    is_login_host = matches_login_host(host, cluster.login_hosts)
    scratch = environ.get("SCRATCH") or cluster.scratch or ""
    local = cluster.local_scratch or ""
    suspicious = any(
        is_below(folder.real, (*LOCAL_FOLDERS, *filter(None, [_root(local)])))
        or folder.file_system in MEMORY_FILE_SYSTEMS
        for folder in (*looked, *python)
    )
    unknown_scratch = cluster.live and not scratch and cluster.profile == GENERIC
    # Of a cluster that is known by its profile alone, no program of Slurm's here can tell anything. Without a
    # configuration each of them waits for a minute before it gives up.
    asks = cluster.live and (suspicious or unknown_scratch)
    nodes_are_here = asks and _all_nodes_are(host)
    return Here(
        cluster=cluster.name,
        host=host,
        user=_user(environ),
        home=os.path.realpath(environ.get("HOME") or os.path.expanduser("~")),
        scratch=fill_user(scratch, environ),
        local_scratch=_root(local),
        job="" if is_login_host else environ.get("SLURM_JOB_ID", ""),
        is_login_host=is_login_host,
        nodes_are_here=nodes_are_here,
        scratch_line=find_scratch_line(environ) if unknown_scratch and not nodes_are_here else "",
        folders=looked,
        python=python,
        secrets=secret_variables(environ),
    )


def matches_login_host(host: str, patterns: Iterable[str]) -> bool:
    names = {host, host.split(".", maxsplit=1)[0]}
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def look_at_folder(path: str) -> Folder:
    real = os.path.realpath(path)
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            return Folder(path, real, file_system_of(real, file.read()), os.path.exists(real))
    except OSError:
        return Folder(path, real, exists=os.path.exists(real))


def file_system_of(real: str, mounts: str) -> str:
    """The type of file system a path is on, by the text of /proc/self/mounts: the last, longest mount point wins."""
    best, found = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = (
            fields[1].encode("latin-1", "surrogateescape").decode("unicode_escape")
            if "\\" in line
            else fields[1]
        )
        if is_below(real, (point,)) and len(point) >= best:
            best, found = len(point), fields[2]
    return found


def is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _all_nodes_are(host: str) -> bool:
    answer = ask(["sinfo", "--noheader", "--format=%n"], timeout_s=20.0)
    names = set(answer.text.split()) if answer.ok else set()
    return bool(names) and names <= {host, host.split(".", maxsplit=1)[0], "localhost"}


def _root(local_scratch: str) -> str:
    """The part of a pattern like /scratch-ssd/$USER that needs no filling in."""
    return local_scratch.partition("$")[0].rstrip("/")


def find_scratch_line(environ: Mapping[str, str]) -> str:
    """The line of ~/.bashrc that tells where the user's shared scratch is, with the path if a usual one is there."""
    user = _user(environ)
    usual = [os.path.join(root, user) for root in _USUAL_SCRATCH]
    found = next(
        (path for path in usual if os.path.isdir(path) and os.access(path, os.W_OK)),
        "/path/to/your/scratch",
    )
    return f"export SCRATCH={found}"


def fill_user(text: str, environ: Mapping[str, str]) -> str:
    """A path of a profile with the user's name in it, also where $USER is not set."""
    return text.replace("${USER}", _user(environ)).replace("$USER", _user(environ))


def _user(environ: Mapping[str, str]) -> str:
    try:
        return environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
