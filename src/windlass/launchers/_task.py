"""Around the processes of a trial: one of these on each node, and one around each rank. Python 3.9, standard library.

It is copied to the node as a file and is started by whatever Python there is, also inside a container: it imports
nothing of ours. `node COMMAND` executes a launcher with the number of the node. `rank COMMAND` executes one rank:
it marks each line that the rank prints, and reports to the agent how it ended. `fork N COMMAND` starts N ranks here.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Optional, Tuple

NODE_RANK = "@node_rank@"
RANK_VARIABLE = "WINDLASS_RANK"  # the processes of a rank have it, and nothing around them does
_MESSAGE_BYTES = 4000  # what one write to the agent's FIFO delivers whole, with a reserve
_TAIL_BYTES = 6000  # of what a rank prints on standard error
_BAR_S, _BAR_MOST_S = 1.0, 60.0  # between drawings of a progress bar that are passed on
_LEFT_OPEN_S = 1.0  # for what is still in the pipes once the process has ended
_END_S = 5.0  # that ranks have to end once one has failed
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def rank_variables(env: Mapping[str, str]) -> Dict[str, str]:
    """What a rank finds in its environment: as torchrun or Accelerate has set it, else from Slurm or MPI."""
    if "RANK" in env and "LOCAL_RANK" in env:
        return {RANK_VARIABLE: env["RANK"]}
    if "OMPI_COMM_WORLD_RANK" in env:
        rank, local = env["OMPI_COMM_WORLD_RANK"], env.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")
        world, here = env["OMPI_COMM_WORLD_SIZE"], env.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1")
        node = env.get("OMPI_COMM_WORLD_NODE_RANK", "0")
        node = str(int(rank) // max(1, int(here))) if node == local else node
    else:
        rank, local = env.get("SLURM_PROCID", "0"), env.get("SLURM_LOCALID", "0")
        world, node = env.get("SLURM_NTASKS", "1"), env.get("SLURM_NODEID", "0")
        here = env.get("SLURM_NTASKS_PER_NODE", world)
    return {
        RANK_VARIABLE: rank,
        "RANK": rank,
        "LOCAL_RANK": local,
        "WORLD_SIZE": world,
        "NODE_RANK": node,
        "LOCAL_WORLD_SIZE": here,
    }


class Lines:
    """Marks the lines of one stream with the rank that printed them, and writes each whole."""

    def __init__(self, rank: str, target: int) -> None:
        self._mark = f"[rank{rank}]: ".encode()
        self._target = target
        self._rest = b""
        self._bar_at, self._bar_gap_s = 0.0, _BAR_S
        self.tail = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.tail = (self.tail + data)[-_TAIL_BYTES:]
        for line in lines:
            self._write(line.rstrip(b"\r").rpartition(b"\r")[2])
        if b"\r" in self._rest.rstrip(b"\r"):
            self._draw(time.monotonic())
        if len(self._rest) > 1 << 16:
            self.finish()

    def _draw(self, now: float) -> None:
        """Of a line that is redrawn, pass on a drawing now and then: those of other ranks come between."""
        drawn = self._rest.rstrip(b"\r").rpartition(b"\r")[2]
        if now >= self._bar_at:
            self._bar_at = now + self._bar_gap_s
            self._bar_gap_s = min(_BAR_MOST_S, 1.5 * self._bar_gap_s)
            self._write(drawn)
        self._rest = b"\r" + drawn

    def finish(self) -> None:
        if self._rest.strip(b"\r"):
            self._write(self._rest.rstrip(b"\r").rpartition(b"\r")[2])
        self._rest = b""

    def _write(self, line: bytes) -> None:
        is_marked = line.startswith(self._mark.strip())  # torch does so with tracebacks
        data = (b"" if is_marked else self._mark) + line + b"\n"
        try:
            while data:
                data = data[os.write(self._target, data) :]
        except OSError:
            pass  # nobody reads any more


def run_rank(command: List[str]) -> int:
    """Execute one rank, and end as it does."""
    variables = rank_variables(os.environ)
    rank = variables[RANK_VARIABLE]
    try:
        child = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
    except OSError as error:
        text = f"windlass: {command[0]}: {error.strerror}"
        print(text, file=sys.stderr)
        report({"rank": int(rank), "code": 127, "tail": text})
        return 127
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _: _pass_on(child, got))
    report({"rank": int(rank), "pid": child.pid})
    out, err = copy_output(child, rank)
    status = child.wait()
    told: Dict[str, object] = {"rank": int(rank), "code": max(0, status), "sig": max(0, -status)}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told["rss_mb"] = round(used.ru_maxrss / 1024, 1)  # of the largest process of the rank
    told["cpu_s"] = round(used.ru_utime + used.ru_stime, 3)
    if status:
        told["tail"] = read_error_file() or (err.tail or out.tail).decode("utf-8", "replace")
    report(told)
    return status


def _pass_on(child: "subprocess.Popen[bytes]", number: int) -> None:
    if child.returncode is None:
        try:
            child.send_signal(number)
        except OSError:
            pass


def _pass_on_to_all(ranks: "List[subprocess.Popen[bytes]]", number: int) -> None:
    for one in ranks:
        _pass_on(one, number)


def copy_output(child: "subprocess.Popen[bytes]", rank: str) -> Tuple[Lines, Lines]:
    """Pass on what the rank prints until it has ended and its pipes are empty."""
    assert child.stdout is not None and child.stderr is not None
    out, err = Lines(rank, 1), Lines(rank, 2)
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ, out)
    selector.register(child.stderr, selectors.EVENT_READ, err)
    ended_at: Optional[float] = None
    while selector.get_map():
        for key, _ in selector.select(0.2):
            data = os.read(key.fd, 1 << 16)
            if data:
                key.data.feed(data)
            else:
                selector.unregister(key.fileobj)
        if child.poll() is not None:
            ended_at = ended_at or time.monotonic()
            if time.monotonic() > ended_at + _LEFT_OPEN_S:
                break  # something that the rank has started holds them
    out.finish()
    err.finish()
    return out, err


def read_error_file() -> str:
    """The traceback that torch has recorded of this rank; "" where there is none."""
    try:
        with open(os.environ.get("TORCHELASTIC_ERROR_FILE", ""), encoding="utf-8") as file:
            message = json.load(file)["message"]
        if isinstance(message, str):
            return message
        return str(message.get("extraInfo", {}).get("py_callstack") or message["message"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def report(told: Dict[str, object]) -> None:
    """Tell the agent about this rank, over the pipe of windlass.log."""
    path, attempt = os.environ.get("WINDLASS_METRICS"), os.environ.get("WINDLASS_ATTEMPT", "-1")
    if not path:
        return
    told = {**told, "attempt": int(attempt), "node": node_name(), "t": round(time.time(), 3)}
    tail = str(told.get("tail", ""))
    while True:
        line = json.dumps(told, separators=(",", ":")).encode()
        if len(line) <= _MESSAGE_BYTES:
            break
        tail = told["tail"] = tail[len(tail) // 4 + 1 :]
    try:
        # Never wait for a reader: an agent that was killed has none.
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, b"\n" + line + b"\n")
        os.close(pipe)
    except OSError:
        pass


def node_name() -> str:
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def run_node(command: List[str]) -> int:
    """Execute a launcher in place of this process, with the number that this node has in the trial."""
    number = os.environ.get("SLURM_NODEID", "0") if "SLURM_STEP_ID" in os.environ else "0"
    for at, word in enumerate(command):
        if NODE_RANK in word:
            command[at] = word.replace(NODE_RANK, number)
            break
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"windlass: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


def run_forked(count: int, command: List[str]) -> int:
    """Start so many ranks on this machine, with the variables that Slurm would give them. All end if one fails."""
    here = {
        "SLURM_JOB_ID": os.environ.get("SLURM_JOB_ID", str(os.getpid())),
        "SLURM_JOB_NAME": "windlass",
        "SLURM_NODELIST": node_name(),
        "SLURM_STEP_NODELIST": node_name(),
        "SLURM_NTASKS": str(count),
        "SLURM_NTASKS_PER_NODE": str(count),
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
    }
    ranks = []
    for rank in range(count):
        own = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        words = [sys.executable, "-S", "-E", os.path.abspath(__file__), "rank", *command]
        ranks.append(subprocess.Popen(words, env={**os.environ, **here, **own}))
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _: _pass_on_to_all(ranks, got))
    first, kill_at = 0, float("inf")
    while any(one.poll() is None for one in ranks):
        failed = [one.returncode for one in ranks if one.returncode]
        if failed and not first:
            first, kill_at = failed[0], time.monotonic() + _END_S
            _pass_on_to_all(ranks, signal.SIGTERM)
        if time.monotonic() >= kill_at:
            end_processes(ranks)
        time.sleep(0.02)
    return first or next((one.returncode for one in ranks if one.returncode), 0)


def end_processes(ranks: "List[subprocess.Popen[bytes]]") -> None:
    """Kill those ranks that have not ended, and what they have started."""
    around = {str(one.pid) for one in ranks if one.poll() is None}
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parent = file.read().rpartition(")")[2].split()[1]
            if parent in around:
                os.kill(int(name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            continue


def main(words: List[str]) -> int:
    mode, *rest = words
    if mode == "node":
        return run_node(rest)
    status = run_rank(rest) if mode == "rank" else run_forked(int(rest[0]), rest[1:])
    if status < 0:
        # To whoever started this it looks as if the rank itself had been there.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
