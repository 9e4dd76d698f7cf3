"""Out of memory, on the GPU or on the host, is told from messages of many frameworks and from what the kernel says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HERE
from windlass.agent.report.diagnose import OomWatch, explain_refusal, in_kernel_log, refine_cause
from windlass.core.states import Cause

DATA = HERE / "data" / "memory"


def messages(name: str) -> list[tuple[str, str]]:
    blocks = (DATA / f"{name}.txt").read_text().split("### ")[1:]
    return [(title, text) for title, _, text in (block.partition("\n") for block in blocks)]


def cases() -> list[object]:
    wanted = {"gpu": Cause.GPU_MEMORY, "host": Cause.HOST_MEMORY, "neither": Cause.FAILED}
    return [
        pytest.param(text.encode(), cause, id=f"{name}: {title}")
        for name, cause in wanted.items()
        for title, text in messages(name)
    ]


@pytest.mark.parametrize("text,cause", cases())
def test_messages(text: bytes, cause: Cause) -> None:
    assert refine_cause(Cause.FAILED, 0, [b"step 1\nstep 2\n", text], code=1) is cause


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_who_was_killed_while_speaking_of_memory(number: int) -> None:
    assert (
        refine_cause(Cause.KILLED, number, [b"terminate ... std::bad_alloc"]) is Cause.HOST_MEMORY
    )


def test_a_segmentation_fault_is_not_memory_running_out() -> None:
    assert refine_cause(Cause.KILLED, signal.SIGSEGV, [b"MemoryError"]) is Cause.KILLED


@pytest.mark.parametrize(
    "cause,number,code,text",
    [
        (Cause.KILLED, signal.SIGKILL, 0, b""),
        (Cause.FAILED, 0, 137, b""),
        (
            Cause.FAILED,
            0,
            1,
            b"Traceback\nsubprocess.CalledProcessError: died with <Signals.SIGKILL: 9>",
        ),
        (Cause.FAILED, 0, 2, b"make: ***\nKilled\n"),
    ],
)
def test_the_kernel_decides_where_somebody_was_killed(
    cause: Cause, number: int, code: int, text: bytes
) -> None:
    assert refine_cause(cause, number, [text], code, lambda: True) is Cause.HOST_MEMORY
    assert refine_cause(cause, number, [text], code, lambda: False) is cause


def test_the_kernel_is_not_asked_about_ordinary_failures() -> None:
    def never() -> bool:
        raise AssertionError("asked")

    assert refine_cause(Cause.FAILED, 0, [b"ValueError: 3"], 1, never) is Cause.FAILED


def make_group(root: Path, kills: int) -> None:
    folder = root / "sys/fs/cgroup/job_17/task_0"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text("0::/job_17/task_0\n")
    (root / "proc/self/mountinfo").write_text(
        "25 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    )
    (folder / "memory.current").write_text("4096\n")
    (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 3\noom 1\noom_kill {kills}\n")


def test_the_groups_counter_counts_from_the_attempts_begin(tmp_path: Path) -> None:
    make_group(tmp_path, 2)
    watch = OomWatch(str(tmp_path), str(tmp_path / "none"))
    watch.begin(0, now=10.0)
    make_group(tmp_path, 3)
    assert watch.has_killed(0, 10.0)
    watch.begin(1, now=20.0)
    assert not watch.has_killed(1, 20.0)
    watch.forget(1)
    make_group(tmp_path, 4)
    assert not watch.has_killed(1, 20.0)


def test_without_a_counter_the_kernels_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(LOG)
    watch = OomWatch(str(tmp_path / "nothing"), str(log))
    watch.begin(0, now=49.0)
    watch.begin(1, now=49.0)
    watch.ended(0, 4711, signal.SIGKILL)
    watch.ended(1, 4711, signal.SIGTERM)
    assert watch.has_killed(0, 49.0)
    assert not watch.has_killed(1, 49.0), "it was not killed"


LOG = b"""6,1,1000000,-;Memory: 12345K/67890K available
3,1203,50500000,-;Memory cgroup out of memory: Killed process 4711 (python) total-vm:3149468kB, anon-rss:164992kB, file-rss:52176kB
 SUBSYSTEM=none
3,1300,60000000,-;Out of memory: Killed process 815 (train) total-vm:99kB
6,1301,60000001,-;oom_reaper: reaped process 900 (python), now anon-rss:0kB
3,1302,61000000,-;Memory cgroup out of memory: Kill process 816 (old) score 0 or sacrifice child
"""


@pytest.mark.parametrize(
    "pid,began,expected",
    [(4711, 40.0, True), (815, 0.0, True), (816, 0.0, True), (900, 0.0, False), (471, 0.0, False)],
)
def test_the_kernels_record(tmp_path: Path, pid: int, began: float, expected: bool) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(LOG)
    assert in_kernel_log(pid, began, str(log)) is expected


def test_a_record_of_another_process_of_that_number(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(LOG)
    assert not in_kernel_log(4711, 90.0, str(log)), "it was killed before this one began"


def test_this_machines_own_log_does_no_harm() -> None:
    assert in_kernel_log(os.getpid(), 0.0) is False


def test_a_real_program_that_asks_for_too_much() -> None:
    """Its own words, as they come out of a process."""
    program = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28)); bytearray(1 << 30)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (
        refine_cause(Cause.FAILED, 0, [done.stdout, done.stderr], done.returncode)
        is Cause.HOST_MEMORY
    )


def test_a_trial_that_wanted_to_write_to_data_is_given_the_remedy() -> None:
    entry = {"as": "datasets/one", "key": "data-0123456789abcdef"}
    line = b"PermissionError: [Errno 13] Permission denied: '/local/me_7_0/%s/cache.pt'\n"
    for name in (b"datasets/one", b"windlass-1000/data-0123456789abcdef"):
        remedy = explain_refusal([b"Traceback\n", line % name], [entry])
        assert "`data: [{path: datasets/one, writable: true}]`" in remedy
        assert explain_refusal([line % name], [{**entry, "writable": True}]) == ""
    assert explain_refusal([line % b"elsewhere", b"datasets/one"], [entry]) == ""
