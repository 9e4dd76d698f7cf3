"""What the machine gives a cluster: programs, ports, devices that stand for GPUs, a folder Slurm can live in."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

PACKAGES = [
    "slurm-wlm",
    "slurm-client",
    "slurmd",
    "slurmctld",
    "slurmdbd",
    "munge",
    "slurm-wlm-mysql-plugin",
    "mariadb-server-core",
    "mariadb-client-core",
]
PROGRAMS = [
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "sacctmgr",
    "slurmdbd",
    "mariadbd",
    "mariadb-install-db",
]
# Unix sockets have at most 107 characters; the longest name below the folder is a step's socket in spool/.
LONGEST_HOME = 60
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")
DEVICE_FAMILIES = ("/dev/tty", "/dev/loop", "/dev/ram")
GPUS = range(4)
TCP_LISTEN = "0A"


class ClusterError(Exception):
    """The cluster cannot be started, or does not do what was asked of it."""


class NodesApartRefused(ClusterError):
    """This user may not make namespaces."""


class DatabaseLost(ClusterError):
    """MariaDB died while it was being started, which it does now and then: another try is worth it."""


class PortTaken(ClusterError):
    """Somebody else took a port in the meantime."""


def make_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without what belongs to another cluster, and with Debian's folders of daemons."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SLURM", "SBATCH", "MYSQL_"))
    }
    env["PATH"] = f"{env.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return {**env, **extra}


def find_missing_programs() -> list[str]:
    path = make_environment({})["PATH"]
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def hold_ports(count: int) -> list[socket.socket]:
    """Ports nobody else is given while the sockets are open. A daemon may listen on them all the same."""
    held = []
    for _ in range(count):
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("0.0.0.0", 0))
        held.append(holder)
    return held


def is_listening(port: int) -> bool:
    """Look without connecting: daemons complain about connections that say nothing."""
    suffix = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == TCP_LISTEN and fields[1].endswith(suffix):
            return True
    return False


def make_home(folder: Path) -> Path:
    """The folder itself, or a short one that it links to where its path is too long or too odd for Slurm."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ClusterError(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    if len(str(folder)) <= LONGEST_HOME and PLAIN_PATH.fullmatch(str(folder)):
        return folder
    home = Path(tempfile.mkdtemp(prefix="windlass-slurm-"))
    home.chmod(0o755)
    (folder / "home").symlink_to(home)
    return home


def find_home(folder: Path) -> Path:
    link = folder / "home"
    return Path(os.readlink(link)) if link.is_symlink() else folder


def make_gpu_devices(folder: Path) -> str:
    """Path of devices that stand for GPUs, to be followed by 0 to 3. Slurm wants devices, and never opens them."""
    try:
        for number in GPUS:
            os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        return f"{folder}/gpu"
    except PermissionError:
        for family in DEVICE_FAMILIES:
            paths = [Path(f"{family}{number}") for number in GPUS]
            if all(path.is_char_device() or path.is_block_device() for path in paths):
                return family
    raise ClusterError("no devices can be made or found that could stand for GPUs")


def check_nodes_apart() -> None:
    words = ["unshare", "--uts", "--pid", "--mount", "--fork", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NodesApartRefused(
            f"nodes with hostnames of their own need root: {done.stderr.strip()}"
        )
