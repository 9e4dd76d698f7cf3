"""NVIDIA MPS: kernels of several trials side by side on one GPU, through one server. Python 3.9, standard library.

Each GPU has a control daemon of its own with private folders, so that a fault stays on its GPU. The daemon starts the
server for its first client. A fatal fault of one client ends the others too: the server says so in its log.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from typing import Dict, List, Mapping, Optional

from windlass.agent.gauge.nvml import Device, Nvml, NvmlError
from windlass.core.claims.strays import AGENT_VARIABLE, end_strays, find_strays

PROGRAM = "nvidia-cuda-mps-control"
MARK = "WINDLASS_MPS"  # only daemon and server have it, not their clients
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_LONGEST_FOLDER = 80  # bytes: sockets below it must stay under 108
_ANSWER_S = 10.0
_START_S = 15.0
_QUIT_S = 5.0
_LEAVE_S = 3.0  # until the driver has forgotten processes that have just ended
_OTHERS = "others compute on"
_PROHIBITED = 2  # nvmlComputeMode_t

# What clients print when the server went, or refuses them because it is about to.
_CLIENT_SAYS = re.compile(
    rb"cudaErrorMps(?!MaxC)\w+|CUDA_ERROR_MPS_(?!MAX_C)\w+"
    rb"|MPS (?:client|server)(?! has reached| not ready: max)[^\n]{0,40}(?:terminated|failed|not ready|not accepting)"
    rb"|remote procedur\w+ call between the MPS server",
    re.IGNORECASE,
)
# Errors after which a CUDA context is lost for good: neighbours may get the culprit's own.
_CONTEXT_LOST = re.compile(
    rb"unspecified launch failure|an illegal memory access|an illegal instruction|misaligned address"
    rb"|device-side assert|cudaError(?:LaunchFailure|IllegalAddress|Assert|HardwareStackError|IllegalInstruction)"
    rb"|CUDA_ERROR_(?:LAUNCH_FAILED|ILLEGAL_ADDRESS|ASSERT|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION|UNKNOWN)"
    rb"|CUDA error: unknown error|(?:CUBLAS|CUDNN|CUSOLVER)_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)"
)
# What the device itself prints, into the output of the process whose kernel it was.
_OWN_FAULT = re.compile(
    rb"Assertion [^\n]{1,400} failed\.|: block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\]"
)
# What the daemon and the server write into their logs.
_LOG_SAYS = re.compile(
    rb"fatal (?:GPU )?(?:exception|fault)|in FAULT state|to FAULT|server[^\n]{0,40} exited with status (?!0\b)",
    re.IGNORECASE,
)


def is_mps_fault(tail: bytes) -> bool:
    """Whether this output speaks of an MPS server that is gone."""
    return _CLIENT_SAYS.search(tail) is not None


def is_victim(tail: bytes) -> bool:
    """Whether a trial that died beside a fault may have died of it, and did not show that the fault was its own."""
    if _OWN_FAULT.search(tail):
        return False
    return is_mps_fault(tail) or _CONTEXT_LOST.search(tail) is not None


def why_not(visible: Optional[str], nvml: Optional[Nvml], environ: Mapping[str, str]) -> str:
    """Why a GPU, as CUDA_VISIBLE_DEVICES names it, is not to be shared through MPS; "" where it may be."""
    if not visible or "," in visible:
        return "a trial does not share its GPUs"
    if visible.startswith("MIG-"):
        return f"{visible} is a slice of a GPU"
    if environ.get("SLURM_SHARDS_ON_NODE") or "shard" in environ.get("SLURM_JOB_GRES", ""):
        return "the job has shards of a GPU, which others share"
    if environ.get(_PIPES):
        return f"the site has an MPS daemon of its own at {environ[_PIPES]}"
    if shutil.which(PROGRAM, path=environ.get("PATH")) is None:
        return f"{PROGRAM} is not there"
    if nvml is None:
        return "the driver's NVML does not answer"
    try:
        devices = nvml.find(visible)
        return _why_not_device(devices[0], nvml) if devices else f"no GPU is called {visible}"
    except NvmlError as error:
        return str(error)


def _why_not_device(device: Device, nvml: Nvml) -> str:
    if device.is_slice or device.is_sliced:
        return f"{device.name} is cut into slices"
    if nvml.compute_mode(device) == _PROHIBITED:
        return f"{device.name} is in compute mode Prohibited"
    strangers = sorted(nvml.processes(device))
    if strangers:
        return f"{_OTHERS} {device.name} already (process {strangers[0]})"
    return ""


class Mps:
    """The control daemon of one GPU, and its server."""

    def __init__(
        self, visible: str, folder: str, env: Mapping[str, str], agent: str, nvml: Optional[Nvml]
    ) -> None:
        """`visible` is the GPU as CUDA_VISIBLE_DEVICES names it here; private folders are made below `folder`."""
        self._visible = visible
        self._parent = folder
        self._nvml = nvml
        self._given = env
        self._env = {**env, AGENT_VARIABLE: agent, "CUDA_VISIBLE_DEVICES": visible}
        self._folder = self._pipes = self._logs = ""
        self._read_to: Dict[str, int] = {}
        self.problem = ""  # why it does not run, for people

    def start(self) -> bool:
        """Start the daemon and wait until it answers. False: `problem` says why not, and nothing is left behind."""
        deadline = time.monotonic() + _LEAVE_S
        self.problem = why_not(self._visible, self._nvml, self._given)
        while self.problem.startswith(_OTHERS) and time.monotonic() < deadline:
            time.sleep(0.1)  # perhaps one of ours, a moment after its end
            self.problem = why_not(self._visible, self._nvml, self._given)
        if self.problem:
            return False
        try:
            self._make_folders()
            self.problem = self._start()
        except OSError as error:
            self.problem = f"{error.filename or self._parent}: {error.strerror}"
        if self.problem:
            self.stop()
        return not self.problem

    def _make_folders(self) -> None:
        self._folder = _make_folder(self._parent)
        self._pipes = os.path.join(self._folder, "p")
        self._logs = os.path.join(self._folder, "l")
        for path in (self._pipes, self._logs):
            os.mkdir(path, 0o700)
        self._env.update({_PIPES: self._pipes, _LOGS: self._logs, MARK: self._pipes})
        self._read_to.clear()

    def _start(self) -> str:
        # Not through pipes: the daemon would hold them open.
        with open(os.path.join(self._logs, "start"), "wb") as file:
            try:
                done = subprocess.run(
                    [self._program(), "-d"],
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    timeout=_START_S,
                    start_new_session=True,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"{PROGRAM} did not come up within {_START_S:.0f} s"
        deadline = time.monotonic() + (_START_S if done.returncode == 0 else 0.0)
        while not self.is_up():
            if time.monotonic() >= deadline:
                return self._last_log_line() or f"{PROGRAM} ended with code {done.returncode}"
            time.sleep(0.05)
        return ""

    def _program(self) -> str:
        return shutil.which(PROGRAM, path=self._env.get("PATH")) or PROGRAM

    def variables(self) -> Dict[bytes, bytes]:
        """What a trial needs in its environment. The server has only this GPU, which is therefore its first."""
        visible = self._visible if self._visible.startswith("GPU-") else "0"
        variables_given = {_PIPES: self._pipes, _LOGS: self._logs, "CUDA_VISIBLE_DEVICES": visible}
        return {name.encode(): os.fsencode(value) for name, value in variables_given.items()}

    def servers(self) -> Optional[List[int]]:
        """Process numbers of its servers, which come with the first client. None: the daemon does not answer."""
        answer = self._ask("get_server_list", _ANSWER_S)
        return None if answer is None else [int(part) for part in answer.split() if part.isdigit()]

    def is_up(self) -> bool:
        return self.servers() is not None

    def faulted(self) -> bool:
        """Whether, since the last look, a fault was logged or the daemon went away."""
        new = b"".join(self._read_new(name) for name in ("control.log", "server.log"))
        return _LOG_SAYS.search(new) is not None or not find_strays(MARK, self._pipes)

    def stop(self) -> None:
        """End the daemon and its server, politely first, and remove their folders."""
        if not self._folder:
            return
        if find_strays(MARK, self._pipes):
            self._ask("quit", _QUIT_S)
            deadline = time.monotonic() + _QUIT_S
            while find_strays(MARK, self._pipes) and time.monotonic() < deadline:
                time.sleep(0.02)
            end_strays(MARK, self._pipes, looks=1)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = ""

    def _ask(self, request: str, patience_s: float) -> Optional[str]:
        try:
            done = subprocess.run(
                [self._program()],
                input=(request + "\n").encode(),
                env=self._env,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=patience_s,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None

    def _read_new(self, name: str) -> bytes:
        try:
            with open(os.path.join(self._logs, name), "rb") as file:
                file.seek(self._read_to.get(name, 0))
                new = file.read()
        except OSError:
            return b""
        self._read_to[name] = self._read_to.get(name, 0) + len(new)
        return new

    def _last_log_line(self) -> str:
        """The last line of the daemon's log, without the time and process in front."""
        for name in ("start", "server.log", "control.log"):
            lines = self._read_new(name).decode("utf-8", "replace").strip().splitlines()
            if lines:
                return re.sub(r"^\[[^\]]*\]\s*", "", lines[-1]).strip()
        return ""


def _make_folder(folder: str) -> str:
    """A private folder whose path is short enough for sockets."""
    if len(os.fsencode(folder)) + len("/mps-12345678") <= _LONGEST_FOLDER:
        return tempfile.mkdtemp(prefix="mps-", dir=folder)
    return tempfile.mkdtemp(prefix="windlass-mps-", dir="/tmp")
