"""Real network file systems on one machine: their servers, and the command with which each node mounts them.

The servers live in a network of their own, which has one address. A client of the file system is put into that network
too, and mounts in whatever mount namespace it was started. So every node has its own mount with its own cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from .machine import ClusterError, make_environment
from .processes import Process, find_descendants, make_process, read_command, send_signal, wait_gone

ADDRESS = "10.99.0.1"  # MooseFS and GlusterFS refuse addresses of the loopback network
TIMEOUT_S = 120.0
KEEPER = Path(__file__).with_name("keeper.py")
SFTP_PROGRAM = Path(__file__).with_name("sftp.py")
SFTP_SERVERS = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
)
FUSE = "/dev/fuse"


class StorageRefused(ClusterError):
    """This machine cannot have such a file system: programs, FUSE or permissions are missing."""


@dataclass(frozen=True)
class FileSystem:
    """How one kind of file system is started and mounted; `{folder}` in texts is its folder, `{address}` its server."""

    packages: tuple[str, ...]
    programs: tuple[str, ...]
    start: str  # a shell script that returns once the servers answer
    start_again: str  # the same after the servers in `servers` were ended
    mount: str  # a command line that ends once the file system is mounted at `{mount}`
    servers: tuple[str, ...]  # programs that are ended to take the server away
    end: signal.Signals = signal.SIGKILL
    files: dict[str, str] = field(default_factory=dict)


MOOSEFS_MASTER = """\
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = {folder}/master
EXPORTS_FILENAME = {folder}/mfsexports.cfg
TOPOLOGY_FILENAME = {folder}/mfstopology.cfg
MATOML_LISTEN_PORT = 29419
MATOCS_LISTEN_PORT = 29420
MATOCL_LISTEN_PORT = 29421
DISABLE_OOM_KILLER = 0
"""
MOOSEFS_CHUNKSERVER = """\
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = {folder}/chunkserver
HDD_CONF_FILENAME = {folder}/mfshdd.cfg
MASTER_HOST = {address}
MASTER_PORT = 29420
CSSERV_LISTEN_PORT = 29422
HDD_LEAVE_SPACE_DEFAULT = 0MiB
MASTER_RECONNECTION_DELAY = 1
DISABLE_OOM_KILLER = 0
"""
MOOSEFS = FileSystem(
    packages=("moosefs-master", "moosefs-chunkserver", "moosefs-client"),
    programs=("mfsmaster", "mfschunkserver", "mfsmount"),
    files={
        "mfsmaster.cfg": MOOSEFS_MASTER,
        "mfschunkserver.cfg": MOOSEFS_CHUNKSERVER,
        "mfsexports.cfg": "* / rw,alldirs,admin,maproot=0:0\n",
        "mfstopology.cfg": "",
        "mfshdd.cfg": "{folder}/data\n",
    },
    start="""\
mkdir master chunkserver
cp /var/lib/mfs/metadata.mfs.empty master/metadata.mfs
mfsmaster -c mfsmaster.cfg start
mfschunkserver -c mfschunkserver.cfg start
""",
    start_again="mfsmaster -c mfsmaster.cfg start\n",
    mount="mfsmount {mount} -H {address} -P 29421",
    servers=("mfsmaster",),
    end=signal.SIGTERM,  # it writes its state to disk before it ends, and does not start without
)

GLUSTERD = """\
volume management
    type mgmt/glusterd
    option working-directory {folder}/lib
    option run-directory {folder}/run
    option glusterd-sockfile {folder}/run/glusterd.socket
    option transport-type socket
    option transport.socket.listen-port 24007
    option transport.socket.bind-address {address}
    option base-port 49252
    option max-port 49300
end-volume
"""
GLUSTER = (
    "gluster --mode=script --glusterd-sock={folder}/run/glusterd.socket --log-file={folder}/cli.log"
)
GLUSTERFS = FileSystem(
    packages=("glusterfs-server", "glusterfs-client"),
    programs=("glusterd", "gluster", "glusterfs"),
    files={"glusterd.vol": GLUSTERD},
    start=f"""\
mkdir lib run data/brick1 data/brick2
glusterd -f {{folder}}/glusterd.vol -p {{folder}}/run/glusterd.pid -l {{folder}}/glusterd.log -L WARNING
until {GLUSTER} volume list 2>&1 | grep -qi 'no volumes'; do sleep 0.1; done
{GLUSTER} volume create scratch {{address}}:{{folder}}/data/brick1 {{address}}:{{folder}}/data/brick2 force
{GLUSTER} volume start scratch
""",
    start_again=f"{GLUSTER} volume start scratch force\n",
    mount="glusterfs --volfile-server={address} --volfile-id=scratch -l {folder}/mount.log {mount}",
    servers=("glusterfsd",),
)


def make_sshfs(*options: str) -> FileSystem:
    """Without ssh: the client connects to a port behind which sftp-server, the program of OpenSSH, answers."""
    words = ",".join(("directport=2222", "reconnect", *options))
    serve = f"{sys.executable} -IS {SFTP_PROGRAM} {{address}} 2222 {{folder}}/data\n"
    return FileSystem(
        packages=("sshfs", "openssh-sftp-server"),
        programs=("sshfs", "sftp-server"),
        start=serve,
        start_again=serve,
        mount=f"sshfs -o {words} {{address}}:{{folder}}/data {{mount}}",
        servers=("sftp-server", str(SFTP_PROGRAM)),
    )


FILE_SYSTEMS: dict[str, FileSystem] = {
    "moosefs": MOOSEFS,
    "glusterfs": GLUSTERFS,
    "sshfs": make_sshfs(),  # caches attributes and listings for 20 s
    "sshfs-uncached": make_sshfs("dir_cache=no"),
    "sshfs-without-links": make_sshfs("disable_hardlink"),
}


def find_sftp_server() -> str | None:
    return next((path for path in SFTP_SERVERS if os.access(path, os.X_OK)), None)


def find_obstacle(kind: str) -> str:
    """Why this machine cannot have such a file system; empty where it can."""
    system = FILE_SYSTEMS[kind]
    if not os.access(FUSE, os.R_OK | os.W_OK):
        return f"{kind}: {FUSE} is missing, or may not be used"
    path = make_environment({})["PATH"]
    missing = [
        name
        for name in system.programs
        if name != "sftp-server" and shutil.which(name, path=path) is None
    ]
    if "sftp-server" in system.programs and find_sftp_server() is None:
        missing.append("sftp-server")
    if missing:
        return (
            f"{kind}: not installed: {', '.join(missing)} (`sh scripts/setup.sh file-systems`, or "
            f"apt-get install {' '.join(system.packages)})"
        )
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"{kind}: namespaces need root: {done.stderr.strip()}" if done.returncode else ""


class Storage:
    """One file system in a folder of its own. All its servers are below one process, the holder, and end with it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self.system = FILE_SYSTEMS[kind]

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready"

    def write_files(self) -> None:
        obstacle = find_obstacle(self.kind)
        if obstacle:
            raise StorageRefused(obstacle)
        (self.folder / "data").mkdir(parents=True)
        texts = {
            "start.sh": self.system.start,
            "start-again.sh": self.system.start_again,
            **self.system.files,
        }
        for name, text in texts.items():
            (self.folder / name).write_text(self._fill(text))

    def holder_words(self) -> list[str]:
        """The command that holds the network and adopts the servers. It is ready once `ready_file` exists."""
        namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        return [
            *namespaces,
            sys.executable,
            "-IS",
            str(KEEPER),
            "network",
            ADDRESS,
            str(self.ready_file),
        ]

    def start_servers(self, holder: Process) -> None:
        self._execute(holder, "start.sh")

    def take_servers_away(self, holder: Process) -> None:
        """End the servers, so that no client is answered until `bring_servers_back`."""
        found = [stat.pid for stat in find_descendants(holder.pid) if self._is_server(stat.pid)]
        servers = [process for pid in found if (process := make_process("server", pid)) is not None]
        if not servers:
            raise ClusterError(f"{self.kind}: there is no server that could be ended")
        for server in servers:
            send_signal(server.pid, server.start_ticks, self.system.end)
        if not wait_gone(servers, TIMEOUT_S):
            raise ClusterError(f"{self.kind}: {[server.pid for server in servers]} do not end")

    def bring_servers_back(self, holder: Process) -> None:
        self._execute(holder, "start-again.sh")

    def mount_words(self, holder: Process, mount: Path) -> list[str]:
        """For `keeper.py`: where the file system's network is, the mount point, and the command that mounts it."""
        words = self._fill(self.system.mount, mount=str(mount)).split()
        return [f"/proc/{holder.pid}/ns/net", str(mount), *words]

    def _fill(self, text: str, **more: str) -> str:
        for name, value in {"folder": str(self.folder), "address": ADDRESS, **more}.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def _is_server(self, pid: int) -> bool:
        words = read_command(pid)
        return any(
            os.path.basename(word) in self.system.servers or word in self.system.servers
            for word in words[:3]
        )

    def _execute(self, holder: Process, script: str) -> None:
        """Run one of the scripts where the servers live. What it leaves in the background belongs to the holder."""
        (first,) = [stat.pid for stat in find_descendants(holder.pid) if stat.parent == holder.pid]
        log = self.folder / f"{script}.log"
        words = [
            "nsenter",
            f"--target={first}",
            "--net",
            "--pid",
            "--mount",
            f"--wd={self.folder}",
            "sh",
            "-e",
            script,
        ]
        with log.open("ab") as output:
            try:
                done = subprocess.run(
                    words,
                    env=make_environment({}),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    check=False,
                    timeout=TIMEOUT_S,
                )
            except subprocess.TimeoutExpired:
                raise ClusterError(
                    f"{self.kind}: {script} is too slow:\n{log.read_text(errors='replace')}"
                ) from None
        if done.returncode != 0:
            raise ClusterError(f"{self.kind}: {script} failed:\n{log.read_text(errors='replace')}")


def find_clients(holder: Process) -> list[Process]:
    """Processes below `holder` that serve a mount: those that have the FUSE device open."""
    found = []
    for stat in find_descendants(holder.pid):
        folder = f"/proc/{stat.pid}/fd"
        try:
            links = [os.readlink(f"{folder}/{name}") for name in os.listdir(folder)]
        except OSError:
            continue
        if FUSE in links and (process := make_process("client", stat.pid)) is not None:
            found.append(process)
    return found


def signal_clients(holder: Process, number: signal.Signals) -> None:
    """SIGSTOP makes every call on the mount hang, SIGCONT lets them go on."""
    clients = find_clients(holder)
    if not clients:
        raise ClusterError(f"{holder.name} has no mount")
    for client in clients:
        send_signal(client.pid, client.start_ticks, number)


def unmount(folder: Path) -> None:
    """Take the mount away from this machine, also where its client is dead or hangs."""
    while is_mounted(folder):
        done = subprocess.run(
            ["umount", "--lazy", str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0 and is_mounted(folder):
            raise ClusterError(f"{folder} cannot be unmounted: {done.stderr.strip()}")


def is_mounted(folder: Path) -> bool:
    """Look without touching the file system, which may hang."""
    escaped = str(folder).replace("\\", "\\134").replace(" ", "\\040")
    return any(
        line.split()[4] == escaped for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )
