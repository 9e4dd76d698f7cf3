"""The meter on real processes: memory, CPU, transfers and members of a tree, also of those that moved away."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import wait_for
from windlass.agent.gauge.cgroup import read_cgroup
from windlass.agent.gauge.meter import Meter, Sample
from windlass.agent.gauge.peaks import Level, Peaks

HEAD = """
import ctypes, mmap, os, resource, signal, subprocess, sys, threading, time
def ready(*words): print("ready", *words, flush=True)
def fill(mb):
    area = mmap.mmap(-1, mb << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, mb << 20, 4096): area[place] = 1
    return area
def burn(seconds):
    who = resource.RUSAGE_SELF
    begin = sum(resource.getrusage(who)[:2])
    while sum(resource.getrusage(who)[:2]) < begin + seconds:
        for _ in range(10000): pass
def used(): return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
def stay(): sys.stdin.read()
"""


class Trial:
    """A program under a name of its own, watched."""

    def __init__(self, meter: Meter, program: str, **variables: str) -> None:
        self.name = uuid.uuid4().hex
        self.meter = meter
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEAD + program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
            env={**os.environ, "WINDLASS_TRIAL": self.name, **variables},
        )
        meter.watch(self.name, self.process.pid)

    def ready(self) -> list[str]:
        """Wait until the program says so, and with it what it says."""
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words and words[0] == "ready", words
        return words[1:]

    def sample(self) -> Sample:
        return self.meter.sample()[self.name]

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        self.process.wait(timeout=180)
        self.process.stdout.close()


@pytest.fixture
def begin() -> Iterator[Callable[..., Trial]]:
    meter = Meter()
    trials: list[Trial] = []

    def start(program: str, **variables: str) -> Trial:
        trials.append(Trial(meter, program, **variables))
        return trials[-1]

    yield start
    for trial in trials:
        trial.end()


Begin = Callable[..., Trial]


def test_memory_that_was_touched_counts_and_what_was_only_asked_for_does_not(begin: Begin) -> None:
    plain = begin("ready(); stay()")
    large = begin("area = fill(150); other = mmap.mmap(-1, 500 << 20); ready(); stay()")
    plain.ready()
    large.ready()
    samples = large.meter.sample()
    grown = samples[large.name].memory_mb - samples[plain.name].memory_mb
    assert grown == pytest.approx(150, abs=8)
    assert samples[large.name].memory_source == "pss"
    assert samples[large.name].processes == 1


def test_shared_memory_counts_once(begin: Begin) -> None:
    trial = begin(
        """
area = fill(120)
for _ in range(3):
    if os.fork() == 0:
        sum(area[place] for place in range(0, 120 << 20, 4096))
        stay(); os._exit(0)
ready(); stay()
for _ in range(3): os.wait()
"""
    )
    trial.ready()
    wait_for(lambda: trial.sample().processes == 4)
    # All children have read all of it once what is resident in them, counted singly, is as much as four times that.
    resident = Meter()
    resident._credit_s = -1e9
    resident.watch(trial.name, trial.process.pid)
    assert wait_for(lambda: resident.sample()[trial.name].memory_mb > 4 * 120)
    assert resident.sample()[trial.name].memory_source == "rss"
    fresh = Meter()
    fresh.watch(trial.name, trial.process.pid)
    sample = fresh.sample()[trial.name]
    assert sample.memory_source == "pss"
    assert 120 <= sample.memory_mb < 2 * 120


def test_growth_between_two_readings_of_pss_is_seen(begin: Begin) -> None:
    trial = begin("ready(); sys.stdin.readline(); area = fill(100); ready(); stay()")
    trial.ready()
    before = trial.sample()
    trial.meter._credit_s = -1e9  # no time left for reading PSS
    assert trial.process.stdin is not None
    trial.process.stdin.write("\n")
    trial.process.stdin.flush()
    trial.ready()
    after = trial.sample()
    assert after.memory_mb - before.memory_mb == pytest.approx(100, abs=8)


def test_those_that_moved_away_are_members(begin: Begin) -> None:
    """Forked twice into a session of its own: the starter is gone. And one without any environment, whose parent lives."""
    trial = begin(
        """
if os.fork() == 0:
    os.setsid()
    os.execv(sys.executable, [sys.executable, "-c", "import os,time,sys\\nif os.fork(): os._exit(0)\\nsys.stdin.read()"])
os.wait()
bare = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], env={}, start_new_session=True)
ready(bare.pid); stay()
bare.wait()
"""
    )
    (bare,) = trial.ready()
    wait_for(lambda: trial.sample().processes == 3)
    members = trial.meter.members(trial.name)
    assert {trial.process.pid, int(bare)} < members
    (moved,) = members - {trial.process.pid, int(bare)}
    assert os.getsid(moved) != os.getsid(trial.process.pid)


def test_a_stranger_is_no_member(begin: Begin) -> None:
    trial = begin("ready(); stay()")
    trial.ready()
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "WINDLASS_TRIAL": "another"},
    )
    trial.sample()
    assert trial.meter.members(trial.name) == {trial.process.pid}
    assert stranger.stdin is not None
    stranger.stdin.close()
    stranger.wait(timeout=180)


def test_the_same_trial_of_another_agent_is_not_ours(begin: Begin) -> None:
    trial = begin("ready(); stay()", WINDLASS_AGENT="one")
    trial.ready()
    for agent, wanted in (("one", {trial.process.pid}), ("two", set())):
        meter = Meter(agent)
        meter.watch(trial.name, 2**22 + 1)  # no such process: only the environment tells
        meter.sample()
        assert meter.members(trial.name) == wanted


def test_cpu_seconds_of_a_busy_tree(begin: Begin) -> None:
    """Its own, a living child's and those of a child it has waited for, against what the kernel's resource usage says."""
    trial = begin(
        """
if os.fork() == 0:
    burn(0.4); os._exit(0)
os.wait()
burn(0.4)
reading, writing = os.pipe()
if os.fork() == 0:
    burn(0.4); os.write(writing, str(used()).encode()); stay(); os._exit(0)
ready(used() + float(os.read(reading, 99)))
stay(); os.wait()
"""
    )
    truth = float(trial.ready()[0])
    assert truth > 1.1
    assert trial.sample().cpu_s == pytest.approx(truth, rel=0.2)


@pytest.mark.parametrize("waits", [True, False])
def test_cpu_of_a_child_counts_once_when_it_is_gone(begin: Begin, waits: bool) -> None:
    """Whether its parent waits for it, which then inherits the figure, or the kernel throws it away."""
    trial = begin(
        f"""
if not {waits}: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    burn(1.0); print("ready", used(), flush=True); os.read(reading, 1); os._exit(0)
sys.stdin.readline(); os.write(writing, b"x")
try: os.waitpid(pid, 0)
except ChildProcessError: pass
ready(); sys.stdin.readline(); burn(0.6)
ready(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])); stay()
"""
    )
    child_s = float(trial.ready()[0])
    before = trial.sample()
    assert before.processes == 2
    assert trial.process.stdin is not None
    trial.process.stdin.write("\n")
    trial.process.stdin.flush()
    trial.ready()
    assert trial.sample().processes == 1
    trial.process.stdin.write("\n")
    trial.process.stdin.flush()
    parent_s = float(trial.ready()[0])
    for _ in range(4):
        assert before.cpu_s <= trial.sample().cpu_s == pytest.approx(child_s + parent_s, rel=0.2)


def test_what_it_used_is_known_after_its_end(begin: Begin) -> None:
    trial = begin("burn(0.5); ready(used()); stay()")
    truth = float(trial.ready()[0])
    trial.sample()
    trial.end()
    sample = trial.sample()
    assert (sample.processes, sample.memory_mb) == (0, 0)
    assert sample.cpu_s == pytest.approx(truth, rel=0.2)
    trial.meter.forget(trial.name)
    assert trial.name not in trial.meter.sample()


def test_bytes_read_and_written(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "file"
    trial = begin(
        f"""
ready(); sys.stdin.readline()
if os.fork() == 0:
    with open({str(path)!r}, "wb") as file: file.write(bytes(8 << 20))
    os._exit(0)
os.wait()
with open({str(path)!r}, "rb") as file: file.read()
ready(); stay()
"""
    )
    trial.ready()
    before = trial.sample()
    assert trial.process.stdin is not None
    trial.process.stdin.write("\n")
    trial.process.stdin.flush()
    trial.ready()
    after = trial.sample()
    assert after.written_bytes - before.written_bytes == pytest.approx(8 << 20, rel=0.01)
    assert after.read_bytes - before.read_bytes == pytest.approx(8 << 20, rel=0.01)


def test_threads_and_processes_are_counted(begin: Begin) -> None:
    trial = begin(
        """
gate = threading.Event()
threads = [threading.Thread(target=gate.wait) for _ in range(5)]
for thread in threads: thread.start()
ready(); stay(); gate.set()
"""
    )
    trial.ready()
    sample = trial.sample()
    assert (sample.processes, sample.threads) == (1, 6)


def test_a_second_process_of_the_same_trial(begin: Begin) -> None:
    """Stages follow each other: what the first used stays on the account."""
    first = begin("burn(0.3); ready(used()); stay()")
    used_s = float(first.ready()[0])
    first.sample()
    first.end()
    second = begin("ready(); stay()")
    second.ready()
    first.meter.watch(first.name, second.process.pid)
    sample = first.sample()
    assert sample.processes == 1
    assert sample.cpu_s >= used_s * 0.8


def level(values: list[float], gap_s: float = 2.0) -> Level:
    made = Level()
    for number, value in enumerate(values):
        made.add(100 + number * gap_s, value)
    return made


def test_a_level_that_is_reached() -> None:
    reached = level([10, 50, 100, 140, 150, 150, 150, 151, 150, 150, 151, 150])
    assert (reached.peak, reached.last, reached.levelled()) == (151, 150, True)


def test_a_level_that_still_rises_and_how_fast() -> None:
    growing = level([100 + number * 40 / 30 for number in range(90)])
    assert not growing.levelled()
    assert growing.slope_per_min() == pytest.approx(40)


def test_ups_and_downs_are_no_growth() -> None:
    saw = level([100 + 50 * (number % 5) for number in range(60)])
    assert saw.levelled()
    assert abs(saw.slope_per_min()) < 60


def test_too_few_samples_say_nothing() -> None:
    assert not level([100.0] * 5).levelled()
    assert level([100.0]).slope_per_min() == 0


def test_a_long_trial_takes_no_more_room_and_forgets_no_peak() -> None:
    long = level([500.0 if number == 777 else 100.0 + number / 1e4 for number in range(20_000)])
    assert long.peak == 500
    assert len(long._history) <= 513 and len(long._recent) <= 31
    assert long.levelled()


def sample(
    when: float,
    cpu_s: float,
    memory_mb: float = 10,
    gpu_mb: float | None = None,
    percent: float = 0,
) -> Sample:
    return Sample(
        when,
        memory_mb,
        "pss",
        cpu_s,
        0,
        0,
        0,
        0,
        1,
        1,
        gpu_mb,
        "process" if gpu_mb else None,
        percent if gpu_mb else None,
    )


def test_peaks_of_a_trial() -> None:
    peaks = Peaks()
    for number in range(60):
        busy_s = 0.2 * min(number, 10) + 3.0 * max(0, number - 10)
        peaks.add(
            sample(
                number * 2.0, busy_s, 100 + min(number, 10), 2000 + min(number, 10), 50 + number % 2
            )
        )
    assert (peaks.memory.peak, peaks.gpu_memory.peak) == (110, 2010)
    assert peaks.cores_lately == pytest.approx(1.5)
    assert peaks.cores == pytest.approx((2 + 49 * 3.0) / 118)
    assert peaks.gpu_percent == pytest.approx(50.5)
    assert (peaks.levelled(), peaks.touched_gpu, peaks.gpu_source) == (True, True, "process")


def test_peaks_without_a_gpu() -> None:
    peaks = Peaks()
    assert peaks.cores is None and peaks.cores_lately is None and not peaks.levelled()
    for number in range(10):
        peaks.add(sample(number * 2.0, number * 2.0))
    assert (peaks.gpu_percent, peaks.touched_gpu, peaks.levelled()) == (None, False, True)


def lay_out(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_cgroup_of_a_job_version_2(tmp_path: Path) -> None:
    job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17"
    task = f"{job}/step_0/user/task_0"
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n",
            "proc/self/mountinfo": "25 1 0:23 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
            f"{job}/memory.max": "4294967296\n",
            f"{job}/memory.peak": "3221225472\n",
            f"{job}/memory.current": "1073741824\n",
            f"{job}/cpu.max": "200000 100000\n",
            f"{task}/memory.max": "max\n",
            f"{task}/memory.peak": "1000\n",
            f"{task}/memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n",
            f"{task}/cpu.max": "max 100000\n",
            f"{task}/cpu.stat": "usage_usec 9\nnr_throttled 3\nthrottled_usec 1500000\n",
        },
    )
    found = read_cgroup(root)
    assert found is not None and found.path.endswith("/job_17")
    assert found._replace(path="") == (2, "", 4096, 3072, 1024, 2, 2.0, 1.5)


def test_cgroup_of_a_job_version_1(tmp_path: Path) -> None:
    step = "sys/fs/cgroup/memory/slurm/uid_5/job_17/step_0"
    cpu = "sys/fs/cgroup/cpu,cpuacct"
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/slurm/uid_5/job_17/step_0\n2:cpu,cpuacct:/\n0::/\n",
            "proc/self/mountinfo": "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "31 1 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
            f"{step}/memory.limit_in_bytes": "2147483648\n",
            f"{step}/memory.max_usage_in_bytes": "1073741824\n",
            f"{step}/memory.usage_in_bytes": "536870912\n",
            f"{step}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            f"{cpu}/cpu.cfs_quota_us": "-1\n",
            f"{cpu}/cpu.cfs_period_us": "100000\n",
            f"{cpu}/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 2000000000\n",
        },
    )
    found = read_cgroup(root)
    assert found is not None and found.path.endswith("/job_17/step_0")
    assert found._replace(path="") == (1, "", 2048, 1024, 512, 1, None, 2.0)


def test_cgroup_seen_from_inside_a_container(tmp_path: Path) -> None:
    root = lay_out(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../docker/abc\n",
            "proc/self/mountinfo": "25 1 0:23 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            "sys/fs/cgroup/memory.max": "1073741824\n",
            "sys/fs/cgroup/memory.current": "1048576\n",
            "sys/fs/cgroup/memory.events": "oom_kill 0\n",
        },
    )
    found = read_cgroup(root)
    assert found is not None
    assert (found.limit_mb, found.current_mb, found.peak_mb, found.oom_kills) == (1024, 1, None, 0)


def test_no_cgroup_is_said(tmp_path: Path) -> None:
    assert read_cgroup(str(tmp_path)) is None


def test_the_cgroup_of_this_very_process() -> None:
    found = read_cgroup()
    if found is None:
        pytest.skip("no memory controller can be seen here")
    if found.peak_mb is not None and found.current_mb is not None:
        assert found.peak_mb > 0
    assert os.path.isdir(found.path)
