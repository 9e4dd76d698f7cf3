"""Which folders of the node a container sees, and where. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence

from windlass.core.errors import NotReady

_DEFAULT = ("/tmp", "/var/tmp")  # Apptainer binds these itself
# Folders that images of earlier days expect, on the node's own disk. They never hide what an image has there.
EXPECTED = ("/scratch_storage", "/data", "/db", "/workdir")


class Bind(NamedTuple):
    """A folder or file of the node, and the path that it has inside."""

    source: str
    target: str
    mode: str = ""  # "ro": nothing can be written there

    def render(self) -> List[str]:
        """As arguments of `apptainer exec`. `--bind` takes no path with a comma or a colon."""
        if not any(mark in self.source + self.target for mark in ',:\\"'):
            return ["--bind", ":".join([self.source, self.target, *filter(None, [self.mode])])]
        fields = ["type=bind", f"source={self.source}", f"destination={self.target}"]
        if self.mode == "ro":
            fields.append("ro")
        return ["--mount", ",".join('"' + one.replace('"', '""') + '"' for one in fields)]


def parse_bind(text: str, env: Mapping[str, str], project: str) -> Bind:
    """`SOURCE[:TARGET[:ro|rw]]`, with variables filled in. Raises NotReady where the source does not exist."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    path = os.path.normpath(os.path.join(project, _expand(source, env)))
    if not os.path.exists(path):
        raise NotReady(f"`bind: {text}`: there is no {path} on {os.uname().nodename}")
    if mode not in ("", "ro", "rw"):
        raise NotReady(f"`bind: {text}`: {mode} is neither ro nor rw")
    return Bind(path, _expand(target, env) or path, mode)


def _expand(path: str, env: Mapping[str, str]) -> str:
    home = env.get("HOME", "")
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    for name in sorted(env, key=len, reverse=True):
        if "$" in path:
            path = path.replace(f"${{{name}}}", env[name]).replace(f"${name}", env[name])
    return path


def choose_folders(folders: Iterable[str]) -> List[Bind]:
    """Each folder at its own path, and where it is reached by links, also at the path that they lead to."""
    binds: Dict[str, Bind] = {}
    for folder in folders:
        for path in (os.path.normpath(folder), os.path.realpath(folder)) if folder else ():
            if os.path.isdir(path) and path != os.sep and not _is_below(path, _DEFAULT):
                binds[path] = Bind(path, path)
    found = sorted(binds.values(), key=lambda bind: (bind.target.count(os.sep), bind.target))
    kept: List[Bind] = []
    for bind in found:
        if not _is_below(bind.target, [other.target for other in kept]):
            kept.append(bind)
    return kept


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


def make_mount_points(home: str, at: str, binds: Iterable[Bind]) -> None:
    """Make what is bound below the home folder appear in `at`, which takes its place inside. Raises OSError."""
    for bind in binds:
        if bind.target == home or not _is_below(bind.target, [home]):
            continue
        point = os.path.join(at, os.path.relpath(bind.target, home))
        if os.path.isdir(bind.source):
            os.makedirs(point, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(point), exist_ok=True)
            with open(point, "ab"):
                pass


def hides_home(home: str, binds: Iterable[Bind]) -> bool:
    """Whether one of these is the home folder itself, or a folder around it."""
    return any(_is_below(home, [bind.target]) for bind in binds)
