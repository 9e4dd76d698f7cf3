"""Starts and stops a real Slurm in a folder of its own: munge, the database, the controller, four nodes."""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .config import CPUS, NODES, Layout, render_accounts, render_files, render_slurm_conf
from .machine import (
    PACKAGES,
    ClusterError,
    DatabaseLost,
    NodesApartRefused,
    PortTaken,
    check_nodes_apart,
    find_home,
    find_missing_programs,
    hold_ports,
    is_listening,
    make_environment,
    make_gpu_devices,
    make_home,
)
from .processes import (
    Process,
    end_tree,
    find_descendants,
    make_process,
    read_command,
    read_processes,
    send_signal,
    wait_gone,
    write_processes,
)
from .storage import Storage, StorageRefused, is_mounted, signal_clients, unmount

__all__ = [
    "Cluster",
    "ClusterError",
    "NodesApartRefused",
    "StorageRefused",
    "find_missing_programs",
]

KEEPER = Path(__file__).with_name("keeper.py")
ROOT = Path(__file__).parent.parent.parent
START_TIMEOUT_S = 60.0
DATABASE_OPTIONS = [
    "--no-defaults",
    "--skip-networking",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-lock-wait-timeout=900",
    "--performance-schema=OFF",
]


LOGIN, STORAGE = "login", "storage"


class Cluster:
    """One Slurm. Its folder holds all of it and is gone when it is stopped."""

    node_names = tuple(NODES)

    def __init__(
        self,
        folder: Path,
        *,
        database: bool = True,
        nodes_apart: bool = False,
        shared: Sequence[Path] = (),
        scratch: str = "",
        cpus: int = CPUS,
        settings: Mapping[str, str] | None = None,
        job_submit_lua: str = "",
    ) -> None:
        """With `nodes_apart`, nodes have no temporary folder in common: those of `shared` stay visible all the same.

        `scratch` is one of FILE_SYSTEMS: every node has a mount of its own of that file system, at the same path, and
        so has this machine, which is the cluster's login node.
        """
        self.folder = folder.absolute()
        self.shared = [path.absolute() for path in shared]
        self.database = database
        self.nodes_apart = nodes_apart
        self.scratch_kind = scratch
        self.cpus = cpus
        self.settings = dict(settings or {})
        self.job_submit_lua = job_submit_lua
        self._held: list[socket.socket] = []
        self._children: list[subprocess.Popen[bytes]] = []
        self._layout: Layout | None = None

    # What it is

    @property
    def home(self) -> Path:
        return find_home(self.folder)

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to talk to this cluster."""
        env = {"SLURM_CONF": str(self.home / "etc/slurm.conf")}
        return env | {"SCRATCH": str(self.scratch)} if self.has_scratch else env

    @property
    def scratch(self) -> Path:
        """Where the network file system is mounted, on this machine and on every node."""
        return self.home / "scratch"

    @property
    def has_scratch(self) -> bool:
        return bool(self.scratch_kind) or self.scratch.exists()

    @property
    def processes(self) -> dict[str, Process]:
        return {process.name: process for process in read_processes(self.home / "processes.json")}

    @property
    def exists(self) -> bool:
        return (self.home / "processes.json").exists()

    @property
    def is_up(self) -> bool:
        """Everything that was started is alive."""
        processes = self.processes
        return set(self.node_names) <= set(processes) and all(
            process.alive for process in processes.values()
        )

    def run(self, *words: str, timeout_s: float = 60.0) -> str:
        """What a command of Slurm's prints, for instance `run("squeue", "-h")`."""
        env = make_environment(self.env)
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, check=False, timeout=timeout_s
        )
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(words)}: {(done.stderr + done.stdout).strip()}")
        return done.stdout

    # All of it

    def start(self) -> None:
        missing = find_missing_programs()
        if missing:
            raise ClusterError(
                f"not installed: {', '.join(missing)} (Debian: apt-get install {' '.join(PACKAGES)})"
            )
        if self.nodes_apart:
            check_nodes_apart()
        elif self.scratch_kind:
            raise ClusterError("only nodes apart can have mounts of their own")
        for path in self.shared:
            if not path.is_dir():
                raise ClusterError(f"there is no folder {path} that nodes could share")
        if self.exists:
            raise ClusterError(f"there is a cluster in {self.folder}")
        data = prepare_database() if self.database else None
        for attempt in range(5):
            try:
                self._start_once(data)
                return
            except (PortTaken, DatabaseLost):
                self.stop()
                if attempt == 4:
                    raise
            except BaseException:
                self.stop()
                raise

    def _start_once(self, data: Path | None) -> None:
        self._write_files()
        self._start("munged", *self._munged_words())
        if self.scratch_kind:
            self._start_storage()
        if data is not None:
            subprocess.run(
                ["cp", "-a", "--sparse=always", f"{data}/.", str(self.home / "mysql")], check=True
            )
            self._start_mariadb()
        self._wait("munged", (self.home / "run/munge").exists)
        if data is not None:
            self._wait("mariadb", (self.home / "run/mysql").exists)
            self.start_database()
        self.start_controller()
        for name in self.node_names:
            self._start_slurmd(name)
        for name in self.node_names:
            self._wait_node(name)

    def stop(self) -> None:
        """End what was started, whatever state it is in, and remove the folder. Without a cluster: do nothing."""
        if self.exists:
            processes = self.processes
            for name in [
                *self.node_names,
                *reversed([name for name in processes if name not in self.node_names]),
            ]:
                if name in processes:
                    end_tree(processes[name])
            home = self.home
            unmount(home / "scratch")
            shutil.rmtree(home)
            if self.folder != home:
                shutil.rmtree(self.folder)
        for child in self._children:
            child.poll()
        for holder in self._held:
            holder.close()
        self._held, self._children, self._layout = [], [], None

    # Parts of it

    def kill_node(self, name: str) -> None:
        """Kill slurmd, and nothing else: jobs of the node go on."""
        daemons = [
            stat
            for stat in find_descendants(self.processes[name].pid)
            if self._is_slurmd(name, stat.pid)
        ]
        killed = [
            process for stat in daemons if (process := make_process(name, stat.pid)) is not None
        ]
        for process in killed:
            send_signal(process.pid, process.start_ticks, signal.SIGKILL)
        if not wait_gone(killed, START_TIMEOUT_S):
            raise ClusterError(f"slurmd of {name} cannot be killed")

    def crash_node(self, name: str) -> None:
        """End everything on the node at once, jobs included."""
        end_tree(self.processes[name])

    def start_node(self, name: str) -> None:
        """Start slurmd again, after kill_node or crash_node, and wait until the controller has it back."""
        holder = self.processes[name]
        if holder.alive:
            keepers = [stat for stat in find_descendants(holder.pid) if stat.parent == holder.pid]
            pid, ticks = (
                (keepers[0].pid, keepers[0].start_ticks)
                if self.nodes_apart
                else (holder.pid, holder.start_ticks)
            )
            send_signal(pid, ticks, signal.SIGUSR1)
        else:
            self._start_slurmd(name)
        self._wait_node(name)

    def stall(self, name: str) -> None:
        """Make every call on the scratch hang, on one node or on this machine ("login"), until `go_on`."""
        signal_clients(self.processes[name], signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        signal_clients(self.processes[name], signal.SIGCONT)

    def stop_scratch(self) -> None:
        """End the servers of the scratch: what calls on it do then depends on the file system."""
        self._storage.take_servers_away(self.processes[STORAGE])

    def start_scratch(self) -> None:
        self._storage.bring_servers_back(self.processes[STORAGE])

    def stop_controller(self, *, kill: bool = False) -> None:
        self._stop("slurmctld", signal.SIGKILL if kill else signal.SIGTERM)

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._start("slurmctld", "slurmctld", "-D")
        self._wait("slurmctld", lambda: is_listening(self.layout.controller_port))

    def stop_database(self) -> None:
        """Stop slurmdbd: accounting does not answer any more."""
        self._stop("slurmdbd", signal.SIGTERM)

    def start_database(self) -> None:
        self._start("slurmdbd", "slurmdbd", "-D")
        self._wait("slurmdbd", lambda: is_listening(self.layout.database_port))

    # How

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise ClusterError("this cluster was not started by this process")
        return self._layout

    @property
    def _storage(self) -> Storage:
        return Storage(self.home / "storage", self.scratch_kind)

    def _write_files(self) -> None:
        home = make_home(self.folder)
        write_processes(home / "processes.json", [])
        for name in (
            "etc",
            "run",
            "log",
            "state",
            "local",
            "dev",
            *(f"spool/{node}" for node in NODES),
        ):
            (home / name).mkdir(parents=True)
        (home / "local").chmod(0o1777)
        self._held = hold_ports(2 + len(NODES))
        ports = [holder.getsockname()[1] for holder in self._held]
        self._layout = Layout(
            home=str(home),
            user=getpass.getuser(),
            host=socket.gethostname().split(".")[0],
            controller_port=ports[0],
            database_port=ports[1],
            node_ports=dict(zip(NODES, ports[2:], strict=True)),
            gpu_devices=make_gpu_devices(home / "dev"),
            database=self.database,
            nodes_apart=self.nodes_apart,
            cpus=self.cpus,
            job_submit_lua=bool(self.job_submit_lua),
            settings=self.settings,
        )
        files = render_files(self._layout)
        if self.job_submit_lua:
            files["etc/job_submit.lua"] = self.job_submit_lua
        for name, text in files.items():
            (home / name).write_text(text)
            (home / name).chmod(
                {".sh": 0o755}.get(Path(name).suffix, 0o600 if "dbd" in name else 0o644)
            )
        (home / "etc/munge.key").touch(0o600)
        (home / "etc/munge.key").write_bytes(os.urandom(128))

    def _munged_words(self) -> list[str]:
        run = self.home / "run"
        return [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={self.home}/etc/munge.key",
            f"--socket={run}/munge",
            f"--pid-file={run}/munged.pid",
            f"--seed-file={run}/munged.seed",
        ]

    def _start_mariadb(self) -> None:
        home = self.home
        paths = [
            f"--datadir={home}/mysql",
            f"--socket={home}/run/mysql",
            f"--pid-file={home}/run/mysql.pid",
        ]
        self._start("mariadb", "mariadbd", *DATABASE_OPTIONS, *paths, f"--user={self.layout.user}")

    def _start_storage(self) -> None:
        storage = self._storage
        storage.write_files()
        self._start(STORAGE, *storage.holder_words())
        self._wait(STORAGE, storage.ready_file.exists)
        storage.start_servers(self.processes[STORAGE])
        self.scratch.mkdir()
        self._start(LOGIN, sys.executable, "-IS", str(KEEPER), "mount", self._mount_argument())
        self._wait(LOGIN, lambda: is_mounted(self.scratch))
        # Written from a process of its own: where no server takes the data this would hang for good.
        words = ["sh", "-c", 'echo > "$0/.written" && rm "$0/.written"', str(self.scratch)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S
        )
        if done.returncode != 0:
            raise ClusterError(
                f"{self.scratch_kind}: nothing can be written: {done.stderr.strip()}"
            )

    def _mount_argument(self) -> str:
        """What keeper.py needs to mount the scratch; empty where there is none."""
        if not self.scratch_kind:
            return ""
        storage = self._storage
        words = storage.mount_words(self.processes[STORAGE], self.scratch)
        return json.dumps({"words": words, "hidden": str(storage.folder)})

    def _start_slurmd(self, name: str) -> None:
        command = ["slurmd", "-D", "-N", name]
        python = [sys.executable, "-IS", str(KEEPER)]
        if self.nodes_apart:
            namespaces = ["unshare", "--uts", "--pid", "--mount", "--fork", "--kill-child"]
            shared = [
                self.home,
                self.folder,
                ROOT,
                Path(sys.prefix),
                Path(sys.base_prefix),
                *self.shared,
            ]
            places = [
                name,
                str(self.home / "etc/hosts"),
                str(self.home / "local"),
                ":".join(map(str, shared)),
            ]
            places.append(self._mount_argument())
            self._start(name, *namespaces, *python, "apart", *places, *command)
        else:
            self._start(name, *python, "plain", *command)

    def _is_slurmd(self, name: str, pid: int) -> bool:
        words = read_command(pid)
        return words[:1] == ["slurmd"] and words[-1] == name

    def _start(self, name: str, *words: str) -> None:
        """Start a daemon, and write down at once who it is."""
        env = make_environment({**self.env, "MYSQL_UNIX_PORT": str(self.home / "run/mysql")})
        with (self.home / f"log/{name}.out").open("wb") as output:
            child = subprocess.Popen(
                words,
                env=env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children.append(child)
        process = make_process(name, child.pid)
        if process is None:
            raise ClusterError(f"{name} ended at once")
        write_processes(
            self.home / "processes.json", [*(self.processes | {name: process}).values()]
        )

    def _stop(self, name: str, number: int) -> None:
        process = self.processes[name]
        send_signal(process.pid, process.start_ticks, number)
        if not wait_gone([process], START_TIMEOUT_S):
            raise ClusterError(f"{name} does not end")

    def _wait(self, name: str, condition: Callable[[], object]) -> None:
        """Poll until something of a daemon's is there; say what it printed where it dies or takes too long."""
        process = self.processes[name]
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            if not process.alive or time.monotonic() > deadline:
                text = "".join(
                    path.read_text(errors="replace") for path in self.home.glob(f"log/*{name}*")
                )
                kind = PortTaken if "ddress already in use" in text else ClusterError
                if "Lost connection to server" in text:
                    kind = DatabaseLost
                raise kind(f"{name} {'is too slow' if process.alive else 'ended'}:\n{text[-3000:]}")
            time.sleep(0.01)

    def _wait_node(self, name: str) -> None:
        def is_back() -> bool:
            state = self.run("sinfo", "-h", "-N", "-n", name, "-o", "%T").split()
            return bool(state) and state[0].rstrip("$@+") in (
                "idle",
                "mixed",
                "allocated",
                "completing",
            )

        self._wait(name, lambda: is_listening(self.layout.node_ports[name]))
        self._wait(name, is_back)


def prepare_database() -> Path:
    """A data folder of MariaDB with accounts and QOS in it, to be copied. Made once for each version."""
    user = getpass.getuser()
    cache = Path(tempfile.gettempdir()) / f"windlass-slurm-database-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.is_symlink() or cache.stat().st_uid != os.getuid():
        raise ClusterError(f"{cache} is not ours")
    env = make_environment({})
    versions = [
        subprocess.check_output(words, env=env, text=True)
        for words in (["slurmd", "-V"], ["mariadbd", "-V"])
    ]
    sample = Layout("", user, "", 0, 0, dict.fromkeys(NODES, 0), "")
    key = hashlib.sha256(
        repr(
            [versions, render_accounts(user), render_slurm_conf(sample), DATABASE_OPTIONS]
        ).encode()
    )
    data = cache / key.hexdigest()[:16]
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not data.exists():
            builder = DatabaseBuilder(Path(tempfile.mkdtemp(prefix="windlass-slurm-")) / "c")
            try:
                builder.build(data)
            finally:
                builder.stop()
                builder.folder.parent.rmdir()
    return data


class DatabaseBuilder(Cluster):
    """A cluster without nodes that lives until its database is filled."""

    def build(self, data: Path) -> None:
        self._write_files()
        home, user = self.home, self.layout.user
        env = make_environment({})
        words = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={home}/mysql",
            f"--user={user}",
            "--skip-test-db",
        ]
        words += ["--auth-root-authentication-method=socket", f"--auth-root-socket-user={user}"]
        words += ["--innodb-log-file-size=8M"]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"mariadb-install-db: {done.stdout}{done.stderr}")
        self._start("munged", *self._munged_words())
        self._start_mariadb()
        self._wait("munged", (home / "run/munge").exists)
        self._wait("mariadb", (home / "run/mysql").exists)
        self.start_database()
        self.run("sacctmgr", "-i", "add", "cluster", "windlass")
        self.start_controller()
        self._wait("slurmctld", lambda: "a100" in self.run("sacctmgr", "-nP", "list", "tres"))
        for command in render_accounts(user).splitlines():
            self.run("sacctmgr", "-i", *command.split())
        for name in ("slurmctld", "slurmdbd", "mariadb"):
            self._stop(name, signal.SIGTERM)
        shutil.move(home / "mysql", data.with_suffix(".new"))
        data.with_suffix(".new").rename(data)
