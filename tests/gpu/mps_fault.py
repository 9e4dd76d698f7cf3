"""What a fault of one CUDA client does to its neighbours under MPS. Needs one GPU, torch and nvidia-cuda-mps-control.

    python tests/gpu/mps_fault.py            every kind of fault below, one after the other
    python tests/gpu/mps_fault.py assert     only that one

Prints what each process saw, the server's log, and the list of servers before and after.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

KINDS = ("assert", "killed", "memory")
NEIGHBOURS = 3
MARK = "WINDLASS_AGENT"
ENOUGH_S = 25.0  # for a client to begin

CLIENT = r"""
import os, signal, sys, time
import torch
role, folder, kind = sys.argv[1:4]
a = torch.randn(512, 512, device="cuda")
(a @ a).sum().item()
open(os.path.join(folder, "ready-" + role), "w").close()
while not os.path.exists(os.path.join(folder, "go")):
    (a @ a).sum().item()
    time.sleep(0.01)
if role == "culprit":
    if kind == "assert":
        rows = torch.zeros(8, device="cuda")
        print(rows[torch.tensor([4096], device="cuda")].item())
    elif kind == "killed":
        for _ in range(200):
            a @ a
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        free, total = torch.cuda.mem_get_info()
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    sys.exit("nothing happened")
end = time.monotonic() + 3
steps = 0
while time.monotonic() < end:
    (a @ a).sum().item()
    steps += 1
print("neighbour saw nothing:", steps > 0)
"""


class Daemon:
    """A control daemon with folders of its own."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="mps-", dir="/tmp")
        self.pipe, self.log = (os.path.join(self.folder, name) for name in ("pipe", "log"))
        os.mkdir(self.pipe)
        os.mkdir(self.log)
        self.env = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": self.pipe,
            "CUDA_MPS_LOG_DIRECTORY": self.log,
            MARK: "mps-fault-probe",
        }
        started = subprocess.run(
            ["nvidia-cuda-mps-control", "-d"],
            env={**self.env, "CUDA_VISIBLE_DEVICES": "0"},
            capture_output=True,
            check=False,
        )
        print(
            "daemon started:",
            started.returncode,
            (started.stdout + started.stderr).decode().strip(),
            flush=True,
        )

    def ask(self, words: str) -> str:
        asked = subprocess.run(
            ["nvidia-cuda-mps-control"],
            input=words + "\n",
            env=self.env,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return f"{asked.returncode} {asked.stdout.strip()!r} {asked.stderr.strip()!r}"

    def print_logs(self) -> None:
        for name in ("control.log", "server.log"):
            path = os.path.join(self.log, name)
            print(f"-- {name}")
            if os.path.exists(path):
                with open(path, errors="replace") as file:
                    print(file.read().rstrip())
        sys.stdout.flush()


def marked() -> list[str]:
    """Processes that carry our mark in their environment: what the agent's guard would find."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                has_mark = f"{MARK}=mps-fault-probe".encode() in file.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/comm") as file:
                comm = file.read().strip()
        except OSError:
            continue
        if comm.startswith("nvidia-cuda-mps"):
            found.append(f"{pid} {comm} parent={fields[1]} session={fields[3]} marked={has_mark}")
    return found


def wait_for(paths: list[str], clients: dict[str, subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + ENOUGH_S
    while time.monotonic() < end and not all(map(os.path.exists, paths)):
        if any(client.poll() is not None for client in clients.values()):
            return
        time.sleep(0.05)


def try_kind(kind: str, daemon: Daemon) -> None:
    print(f"\n==== {kind}", flush=True)
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        roles = ["culprit", *(f"neighbour{number}" for number in range(NEIGHBOURS))]
        outputs = {role: os.path.join(folder, role + ".out") for role in roles}
        clients: dict[str, subprocess.Popen[bytes]] = {}
        for role in roles:
            with open(outputs[role], "wb") as file:
                words = [sys.executable, "-c", CLIENT, role, folder, kind]
                clients[role] = subprocess.Popen(
                    words, env=daemon.env, stdout=file, stderr=subprocess.STDOUT
                )
        wait_for([os.path.join(folder, "ready-" + role) for role in roles], clients)
        print("servers before:", daemon.ask("get_server_list"))
        server = daemon.ask("get_server_list").split("'")[1].split("\\n")[0]
        print("status before: ", daemon.ask(f"get_server_status {server}"))
        print("processes:     ", marked(), flush=True)
        open(os.path.join(folder, "go"), "w").close()
        for role, client in clients.items():
            try:
                status: object = client.wait(20)
            except subprocess.TimeoutExpired:
                client.kill()
                client.wait()
                status = "hung, killed"
            if role == "culprit":
                print(
                    "status at once:",
                    daemon.ask(f"get_server_status {server}"),
                    daemon.ask("get_server_list"),
                )
            with open(outputs[role], errors="replace") as file:
                text = "\n     ".join(file.read().strip().splitlines()[-12:])
            print(f"-- {role}: exit {status}\n     {text}", flush=True)
        print("servers after: ", daemon.ask("get_server_list"))
        print("status after:  ", daemon.ask(f"get_server_status {server}"), flush=True)
    words = [sys.executable, "-c", "import torch; print(torch.ones(3, device='cuda').sum().item())"]
    again = subprocess.run(
        words, env=daemon.env, capture_output=True, text=True, timeout=40, check=False
    )
    print("a new client:  ", again.returncode, again.stdout.strip(), again.stderr.strip()[-300:])
    print("servers then:  ", daemon.ask("get_server_list"), flush=True)


def main() -> None:
    daemon = Daemon()
    try:
        for kind in sys.argv[1:] or KINDS:
            try_kind(kind, daemon)
    finally:
        print("\nquit:", daemon.ask("quit"))
        end = time.monotonic() + 5
        while marked() and time.monotonic() < end:
            time.sleep(0.1)
        left = marked()
        print("left behind:", left)
        for line in left:
            os.kill(int(line.split()[0]), signal.SIGKILL)
        daemon.print_logs()
        shutil.rmtree(daemon.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
