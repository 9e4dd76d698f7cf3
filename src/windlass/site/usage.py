"""How much of disks and of computing time is used, from file systems and from the programs that a site has."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from windlass.core.processes import ask
from windlass.site.cluster import Cluster
from windlass.site.here import fill_user, look_at_folder

_PATIENCE_S = 60.0  # a quota on a busy shared file system
_ACCOUNT = "$ACCOUNT"


@dataclass(frozen=True)
class Disk:
    """A file system, as its own figures say; a quota may be lower."""

    path: str
    file_system: str
    total_bytes: int
    free_bytes: int
    total_files: int | None = None  # None: it does not count them
    free_files: int | None = None


@dataclass(frozen=True)
class Answer:
    """What one of the site's programs says."""

    command: str
    text: str
    problem: str = ""  # why there is no answer


def fetch_disks(folders: Iterable[str]) -> list[Disk]:
    """The file systems of these folders, each once, under the name of the first."""
    disks: dict[int, Disk] = {}
    for folder in folders:
        try:
            device, figures = os.stat(folder).st_dev, os.statvfs(folder)
        except OSError:
            continue
        disk = Disk(folder, look_at_folder(folder).file_system, figures.f_blocks * figures.f_frsize,
                    figures.f_bavail * figures.f_frsize, figures.f_files or None,
                    figures.f_favail if figures.f_files else None)  # fmt: skip
        disks.setdefault(device, disk)
    return list(disks.values())


def fetch_answers(
    cluster: Cluster | None,
    disks: Iterable[Disk],
    accounts: Sequence[str],
    environ: Mapping[str, str],
) -> list[Answer]:
    """Ask what there is to ask here: the profile's commands, quotas, and the shares of the accounts."""
    answers = []
    for words in _commands(cluster, disks, accounts, environ):
        if shutil.which(words[0]) is None:
            continue
        found = ask(words, _PATIENCE_S)
        text = found.text.strip("\n")
        if found.ok and not text.strip():
            continue
        problem = (
            "" if found.ok else found.errors.strip().partition("\n")[0] or f"exit code {found.code}"
        )
        answers.append(Answer(shlex.join(words), text, problem))
    return answers


def _commands(
    cluster: Cluster | None,
    disks: Iterable[Disk],
    accounts: Sequence[str],
    environ: Mapping[str, str],
) -> Iterable[list[str]]:
    user = fill_user("$USER", environ)
    for command in cluster.usage if cluster is not None else ():
        for account in accounts if _ACCOUNT in command else ("",):
            yield shlex.split(fill_user(command.replace(_ACCOUNT, shlex.quote(account)), environ))
    # The report of the Alliance's clusters says what `quota` says, and more.
    yield ["diskusage_report"] if shutil.which("diskusage_report") else ["quota", "-s"]
    for disk in disks:
        if disk.file_system == "lustre":
            yield ["lfs", "quota", "-h", "-u", user, disk.path]
    if cluster is not None and cluster.live and cluster.accounting is not False:
        yield ["sshare", "-U", "-u", user]
