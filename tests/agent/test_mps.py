"""MPS against a stand-in of its control program and a fake NVML: starting, refusing, faults, and no daemon left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import HERE
from tests.conftest import wait_for
from windlass.agent.gauge.nvml import Nvml
from windlass.agent.share.mps import MARK, PROGRAM, Mps, is_mps_fault, is_victim, why_not
from windlass.core.claims.strays import AGENT_VARIABLE, end_strays, find_strays

AGENT = f"mps-test-{os.getpid()}"
COMPUTE_MODE = """
#include "fake_nvml.c"
int nvmlDeviceGetComputeMode(Device *device, unsigned int *mode)
{
    (void)device;
    *mode = (unsigned int)number_of("FAKE_COMPUTE_MODE", 0);
    return OK;
}
"""


def put_standin(folder: Path) -> str:
    """Write the stand-in as a program of the real one's name; returns the PATH that has it."""
    program = folder / PROGRAM
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{HERE / "mps_standin.py"}" "$@"\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "with_mode.c").write_text(COMPUTE_MODE)
    words = [
        compiler,
        "-shared",
        "-fPIC",
        f"-I{HERE}",
        "-o",
        str(folder / "libfake.so"),
        str(folder / "with_mode.c"),
    ]
    subprocess.run(words, check=True)
    return str(folder / "libfake.so")


@pytest.fixture
def nvml(library: str) -> Iterator[Nvml]:
    with Nvml(library) as reader:
        yield reader


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM", "CUDA", "FAKE"))
    }
    yield {**kept, "PATH": put_standin(tmp_path)}
    assert end_strays(AGENT_VARIABLE, AGENT) == 0, "a daemon was left behind"


@pytest.fixture
def short(env: dict[str, str]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="w", dir="/tmp") as folder:
        yield folder


def connect(mps: Mps, env: dict[str, str]) -> int:
    """Be a client: the number of the server that was started for it."""
    client = {**env, **{name.decode(): value.decode() for name, value in mps.variables().items()}}
    done = subprocess.run(
        [PROGRAM], input="client\n", env=client, text=True, capture_output=True, check=True
    )
    return int(done.stdout)


def test_a_daemon_for_one_gpu(short: str, env: dict[str, str], nvml: Nvml) -> None:
    mps = Mps("0", short, env, AGENT, nvml)
    assert mps.start(), mps.problem
    assert mps.servers() == []
    variables = mps.variables()
    assert variables[b"CUDA_VISIBLE_DEVICES"] == b"0"
    assert variables[b"CUDA_MPS_PIPE_DIRECTORY"].startswith(short.encode())
    server = connect(mps, env)
    assert mps.servers() == [server]
    assert b"MPS_LOG" in Path(f"/proc/{server}/environ").read_bytes()
    assert len(find_strays(AGENT_VARIABLE, AGENT)) == 2, "daemon and server carry the agent's mark"
    assert not mps.faulted()
    mps.stop()
    assert os.listdir(short) == []
    assert mps.start(), "it can be started again"
    mps.stop()


def test_two_gpus_two_daemons(short: str, env: dict[str, str], nvml: Nvml) -> None:
    one = Mps("0", short, env, AGENT, nvml)
    other = Mps("GPU-1", short, env, AGENT, nvml)
    assert one.start() and other.start()
    assert other.variables()[b"CUDA_VISIBLE_DEVICES"] == b"GPU-1"
    first, second = connect(one, env), connect(other, env)
    assert first != second
    one.stop()
    assert (one.servers(), other.servers()) == (None, [second])
    other.stop()


def test_a_long_path_is_avoided(tmp_path: Path, env: dict[str, str], nvml: Nvml) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    mps = Mps("0", str(deep), env, AGENT, nvml)
    assert mps.start(), mps.problem
    pipes = mps.variables()[b"CUDA_MPS_PIPE_DIRECTORY"]
    assert len(pipes) < 100 and not pipes.startswith(bytes(deep))
    assert os.stat(pipes).st_mode & 0o077 == 0
    mps.stop()
    assert not os.path.exists(os.path.dirname(pipes))


def test_a_server_that_dies_of_a_fault_is_noticed_once(
    short: str, env: dict[str, str], nvml: Nvml
) -> None:
    mps = Mps("0", short, env, AGENT, nvml)
    assert mps.start(), mps.problem
    server = connect(mps, env)
    os.kill(server, signal.SIGUSR1)
    wait_for(lambda: mps.servers() == [])
    assert mps.faulted()
    assert not mps.faulted()
    assert connect(mps, env) != server
    mps.stop()


def test_a_daemon_that_dies_is_a_fault(short: str, env: dict[str, str], nvml: Nvml) -> None:
    mps = Mps("0", short, env, AGENT, nvml)
    assert mps.start(), mps.problem
    for pid in find_strays(MARK, os.fsdecode(mps.variables()[b"CUDA_MPS_PIPE_DIRECTORY"])):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not find_strays(AGENT_VARIABLE, AGENT))
    assert mps.faulted()
    mps.stop()


@pytest.mark.parametrize(
    "how,words",
    [
        ("refuse", "An instance of this daemon is already running"),
        ("silent", "operation not supported"),
    ],
)
def test_why_it_did_not_start(
    short: str,
    env: dict[str, str],
    nvml: Nvml,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    words: str,
) -> None:
    monkeypatch.setattr("windlass.agent.share.mps._START_S", 0.5)
    mps = Mps("0", short, {**env, "FAKE_MPS": how}, AGENT, nvml)
    assert not mps.start()
    assert words in mps.problem
    assert os.listdir(short) == []


@pytest.mark.parametrize(
    "visible,given,reason",
    [
        ("0", {}, ""),
        ("GPU-1", {}, ""),
        ("", {}, "does not share"),
        ("0,1", {}, "does not share"),
        ("MIG-5c1ce000-0000-0000-0000-000000000001", {}, "a slice"),
        ("1", {}, "slices"),
        ("9", {}, "no GPU is called 9"),
        ("0", {"SLURM_SHARDS_ON_NODE": "2"}, "shards"),
        ("0", {"SLURM_JOB_GRES": "shard:4"}, "shards"),
        ("0", {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}, "/run/mps"),
        ("0", {"PATH": "/nowhere"}, "nvidia-cuda-mps-control is not there"),
        ("0", {"FAKE_PROCESSES": "0/4711/300/0"}, "process 4711"),
        ("0", {"FAKE_COMPUTE_MODE": "2"}, "Prohibited"),
        ("0", {"FAKE_COMPUTE_MODE": "3"}, ""),
        ("0", {"FAKE_LIST": "15"}, "needs a reset"),
    ],
)
def test_only_gpus_that_are_wholly_ours(
    env: dict[str, str],
    nvml: Nvml,
    monkeypatch: pytest.MonkeyPatch,
    visible: str,
    given: dict[str, str],
    reason: str,
) -> None:
    for name, value in given.items():
        if name.startswith("FAKE"):
            monkeypatch.setenv(name, value)
    said = why_not(visible, nvml, {**env, **given})
    assert reason in said and bool(reason) == bool(said)


def test_without_nvml(env: dict[str, str]) -> None:
    assert "NVML" in why_not("0", None, env)


GUARDED = """
import os, sys, time
from windlass.agent.lease.guard import start_guard
from windlass.agent.share.mps import Mps
from windlass.agent.gauge.nvml import Nvml
agent, folder = sys.argv[1:]
start_guard(agent, folder)
mps = Mps("0", folder, dict(os.environ), agent, Nvml())
assert mps.start(), mps.problem
print(os.fsdecode(mps.variables()[b"CUDA_MPS_PIPE_DIRECTORY"]), flush=True)
time.sleep(600)
"""


def test_the_guard_ends_daemon_and_server_of_a_killed_agent(
    tmp_path: Path, env: dict[str, str], nvml: Nvml, library: str
) -> None:
    folder = tempfile.mkdtemp(prefix="windlass-", dir="/tmp")
    agent = subprocess.Popen(
        [sys.executable, "-c", GUARDED, AGENT, folder],
        env={**env, "WINDLASS_NVML": library},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    pipes = agent.stdout.readline().strip()
    words = {
        **env,
        "CUDA_MPS_PIPE_DIRECTORY": pipes,
        "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "none"),
    }
    subprocess.run(
        [PROGRAM], input="client\n", env=words, text=True, capture_output=True, check=True
    )
    wait_for(lambda: len(find_strays(MARK, pipes)) == 2)
    agent.kill()
    agent.wait()
    wait_for(lambda: not find_strays(MARK, pipes))
    wait_for(lambda: not os.path.exists(folder))


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: the MPS client has been terminated by the server",
        "torch.AcceleratorError: CUDA error: MPS client terminated",
        "cudaErrorMpsClientTerminated",
        "CUDA_ERROR_MPS_RPC_FAILURE: MPS RPC failure",
        "CUDA error: the remote procedural call between the MPS server and the MPS client failed",
        "Error 805: MPS client failed to connect to the MPS control daemon or the MPS server",
        "CUDA error: MPS server is not ready to accept new MPS client requests",
    ],
)
def test_what_clients_print_when_the_server_goes(text: str) -> None:
    assert is_mps_fault(b"step 3\n" + text.encode())
    assert is_victim(text.encode())


@pytest.mark.parametrize(
    "text,victim",
    [
        ("RuntimeError: CUDA error: unspecified launch failure", True),
        ("CUDA error: an illegal memory access was encountered", True),
        (
            "IndexKernel.cu:92: operator(): block: [0,0,0], thread: [0,0,0] Assertion `-sizes[i] <= index` failed.\n"
            "RuntimeError: CUDA error: device-side assert triggered",
            False,
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("device=mps:0 on this Mac\nValueError: bad shape", False),
        ("cudaErrorMpsMaxClientsReached", False),
        ("ZeroDivisionError: division by zero", False),
    ],
)
def test_who_may_have_died_of_a_neighbour(text: str, victim: bool) -> None:
    assert is_victim(text.encode()) is victim
    assert not is_mps_fault(text.encode())
