"""A study on a real Slurm: against the same study run locally, against submitit, and how much it asks of the scheduler.

    python bench/slurm.py [PART...]      parts: start, submitit, scale (default: all)

The cluster is started for the benchmark and ended with it. Every call of a Slurm program is counted by a wrapper that
stands before it on PATH, also inside the jobs. Nothing is cached beforehand.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common import count_files, report, windlass

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from scripts.slurm import Cluster, find_missing_programs  # noqa: E402

PROGRAMS = (
    "sbatch",
    "squeue",
    "sacct",
    "scontrol",
    "scancel",
    "srun",
    "sinfo",
    "sacctmgr",
    "salloc",
)
TRIALS, SLOTS, TRIAL = 200, 8, "sh -c 'sleep 0.1'"
TURNS = 3
# Long enough in all for several looks at the queue; they print, so that every kind of file is made.
MANY, AGENTS, SHORT = 10_000, 20, "sh -c 'echo 1; exec sleep 0.1'"

SUBMITIT = """
import subprocess, sys, submitit

def trial(number):
    subprocess.run(["sh", "-c", "sleep 0.1"], check=True)
    return number

executor = submitit.AutoExecutor(folder=sys.argv[1], cluster="slurm")
executor.update_parameters(slurm_array_parallelism=int(sys.argv[3]), cpus_per_task=1)
jobs = executor.map_array(trial, range(int(sys.argv[2])))
assert sorted(job.result() for job in jobs) == list(range(int(sys.argv[2])))
"""


@dataclass(frozen=True)
class Place:
    """A project's folder, a cluster beside it, and the environment of a user who works there."""

    folder: Path
    cluster: Cluster
    env: dict[str, str]

    def run(self, *words: str) -> float:
        """Wall time of a command that must succeed, in seconds."""
        began = time.perf_counter()
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return time.perf_counter() - began

    def take_calls(self) -> dict[str, list[float]]:
        """When each Slurm program was called since this was asked last."""
        calls = {}
        for name in PROGRAMS:
            path = self.folder.parent / "calls" / name
            if path.exists():
                calls[name] = sorted(float(line) for line in path.read_text().splitlines())
                path.unlink()
        return calls

    def forget(self) -> None:
        """What was learnt of the cluster is asked for again, and calls made so far do not count."""
        shutil.rmtree(self.folder.parent / "cache")
        self.take_calls()

    def wait_until_idle(self) -> None:
        while self.cluster.run("squeue", "-h").strip():
            time.sleep(0.2)


@contextlib.contextmanager
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    cluster = Cluster(folder / "slurm")
    # Ends the cluster, should this process be killed.
    words = [
        sys.executable,
        "-m",
        "scripts.slurm",
        "stop",
        "--when-stdin-ends",
        "--folder",
        str(cluster.folder),
    ]
    guard = None
    try:
        cluster.start()
        guard = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)
        (folder / "project").mkdir()
        yield Place(folder / "project", cluster, make_environment(folder, cluster))
    finally:
        cluster.stop()
        if guard is not None:
            guard.kill()
            guard.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def make_environment(folder: Path, cluster: Cluster) -> dict[str, str]:
    """The user's, with nothing of ours in it, counting wrappers first on PATH, and this cluster."""
    env = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("WINDLASS", "SLURM", "SCRATCH"))
    }
    for name in ("wrappers", "calls", "config", "cache"):
        (folder / name).mkdir()
    for name in PROGRAMS:
        real = shutil.which(name)
        if real:
            wrapper = folder / "wrappers" / name
            wrapper.write_text(
                f'#!/bin/sh\ndate +%s.%N >> {folder}/calls/{name}\nexec {real} "$@"\n'
            )
            wrapper.chmod(0o755)
    env["PATH"] = f"{folder}/wrappers:{Path(sys.executable).parent}:{env['PATH']}"
    return (
        env
        | {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_CACHE_HOME": f"{folder}/cache"}
        | cluster.env
    )


def make_tasks(at: Place, name: str, trials: int, command: str) -> str:
    (at.folder / f"{name}.txt").write_text(f"{command}\n" * trials)
    return f"{name}.txt"


def last_end(studies: Path) -> float:
    """When the last trial ended, by the journals."""
    lines = (
        line for path in studies.glob("*/journal/*.jsonl") for line in path.read_text().splitlines()
    )
    return max(event["t"] for event in map(json.loads, lines) if event["e"] == "end")


def run_study(at: Place, name: str, *words: str) -> tuple[float, float, Path]:
    """Seconds from `windlass run` to the last result, and to its return; and where the study's files are."""
    studies = at.folder / f"studies-{name}"
    tasks = make_tasks(at, name, TRIALS, TRIAL)
    began = time.time()
    whole_s = at.run(*windlass("run", tasks, *words, "--quiet", "--folder", str(studies)))
    return last_end(studies) - began, whole_s, studies


def start_latency(at: Place) -> float:
    """From `sbatch` to the job's first command, without us; median of five, in seconds."""
    waits = []
    for turn in range(5):
        stamp = at.folder / f"stamp-{turn}"
        began = time.time()
        at.run("sbatch", "--wait", "-o", "/dev/null", "--wrap", f"date +%s.%N > {stamp}")
        waits.append(float(stamp.read_text()) - began)
    return statistics.median(waits)


def bench_start(at: Place) -> None:
    """200 trials of 0.1 s on 8 slots: on the cluster against here plus the scheduler's own latency."""
    ideal_s = TRIALS * 0.1 / SLOTS
    ratios, whole_ratios, told = [], [], []
    for turn in range(TURNS):
        latency_s = start_latency(at)
        local_s, local_whole_s, _ = run_study(
            at, f"local{turn}", "--on", "local", "--slots", str(SLOTS)
        )
        words = ("--on", "slurm", "--slots", str(SLOTS), "--agents", "1", "--wait")
        slurm_s, slurm_whole_s, _ = run_study(at, f"slurm{turn}", *words)
        at.wait_until_idle()
        ratios.append(slurm_s / (local_s + latency_s))
        whole_ratios.append(slurm_whole_s / (local_whole_s + latency_s))
        told.append(f"{slurm_s:.1f} on the cluster, {local_s:.1f} here, latency {latency_s:.2f}")
    print(f"seconds to the last result, {ideal_s:.1f} at best: " + "; ".join(told))
    median = f"{statistics.median(ratios):.2f} × ({min(ratios):.2f} to {max(ratios):.2f})"
    report("run to last result, against local + start latency", median, "at most 2.0 ×")
    report("the same until `run --wait` returns", f"{statistics.median(whole_ratios):.2f} ×", "–")


def bench_submitit(at: Place) -> None:
    """The same trials, 8 at a time, with submitit's map_array: array_parallelism=8, cpus_per_task=1, else defaults."""
    if importlib.util.find_spec("submitit") is None:
        print("submitit is not installed: pip install submitit")
        return
    at.forget()
    words = ("--on", "slurm", "--slots", str(SLOTS), "--agents", "1", "--wait")
    _, ours_s, studies = run_study(at, "beside", *words)
    at.wait_until_idle()
    ours = at.take_calls()
    script = at.folder / "peer.py"
    script.write_text(SUBMITIT)
    peer_folder = at.folder / "submitit"
    peer_s = at.run(sys.executable, str(script), str(peer_folder), str(TRIALS), str(SLOTS))
    at.wait_until_idle()
    peer = at.take_calls()
    compare("wall time until all results are in hand, s", peer_s, ours_s, "{:.1f}")
    compare("files and folders", count_entries(peer_folder), count_entries(studies))
    compare("calls of Slurm's programs", count_calls(peer), count_calls(ours))
    print(
        f"files alone: submitit {count_files(peer_folder)}, all in one folder; windlass {count_files(studies)}"
    )
    print(f"calls: submitit {render_calls(peer)}; windlass {render_calls(ours)}")


def compare(name: str, peer: float, ours: float, form: str = "{:.0f}") -> None:
    figure = f"{form.format(peer)} / {form.format(ours)} = {peer / ours:.1f} ×"
    report(f"submitit / windlass: {name}", figure, "above 1 ×")


def count_entries(folder: Path) -> int:
    return 1 + sum(1 for _ in folder.rglob("*"))


def count_calls(calls: dict[str, list[float]]) -> int:
    return sum(len(times) for times in calls.values())


def render_calls(calls: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {len(times)}" for name, times in calls.items()) or "none"


def bench_scale(at: Place) -> None:
    """10,000 trials on 20 agents, while somebody waits and somebody else looks every second."""
    studies = at.folder / "studies-scale"
    tasks = make_tasks(at, "scale", MANY, SHORT)
    at.forget()
    over = threading.Event()
    looks: list[int] = []
    watcher = threading.Thread(target=watch, args=(at, str(studies), over, looks))
    watcher.start()
    words = (
        "--on",
        "slurm",
        "--slots",
        "1",
        "--agents",
        str(AGENTS),
        "--throttle",
        str(AGENTS),
        "--wait",
        "--quiet",
    )
    try:
        seconds = at.run(*windlass("run", tasks, *words, "--folder", str(studies)))
        at.wait_until_idle()
    finally:
        over.set()
        watcher.join()
    calls = at.take_calls()
    gaps = [
        later - sooner
        for sooner, later in zip(calls.get("squeue", []), calls.get("squeue", [])[1:], strict=False)
    ]
    per_agent = (count_files(studies) - 20) / AGENTS
    print(f"{MANY:,} trials in {seconds:.1f} s, {sum(looks)} looks; calls: {render_calls(calls)}")
    report("sbatch, one with --test-only", str(len(calls.get("sbatch", []))), "2")
    report(
        "files, and those an agent beyond 20",
        f"{count_files(studies)}, {per_agent:.1f}",
        "at most 10 an agent",
    )
    smallest = f"{min(gaps):.1f} s" if gaps else "one call"
    report(
        "squeue, smallest time between two",
        f"{len(calls.get('squeue', []))}, {smallest}",
        "at least 10 s",
    )


def watch(at: Place, studies: str, over: threading.Event, looks: list[int]) -> None:
    """`windlass status` every second, as `watch` does it."""
    words = windlass("status", "--folder", studies)
    while not over.wait(1.0):
        done = subprocess.run(words, cwd=at.folder, env=at.env, capture_output=True, check=False)
        looks.append(done.returncode == 0)


PARTS = {"start": bench_start, "submitit": bench_submitit, "scale": bench_scale}


def main() -> None:
    if find_missing_programs():
        sys.exit("bench/slurm.py needs a real Slurm: make slurm")
    chosen = sys.argv[1:] or list(PARTS)
    with place() as at:
        for name in chosen:
            PARTS[name](at)


if __name__ == "__main__":
    main()
