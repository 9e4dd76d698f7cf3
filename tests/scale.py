"""Two studies at once with 200 agents on a real Slurm, real trials, and a network file system: is each done exactly once?

    python -m tests.scale                                        # as `make test-scale`: MooseFS, 100 agents a study
    python -m tests.scale --scratch sshfs --agents 20 --trials 200
    python -m tests.scale --scratch local                        # the machine's own disk, nodes not apart

Trials write when they begin and end to another disk. The exit code is 0 if every trial of both studies ran exactly once,
has its result, and all agents were there at the same time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.slurm import FILE_SYSTEMS, Cluster

ROOT = Path(__file__).parent.parent
STUDIES = ("first", "second")
# A small computation with a known answer, which takes as long as it is given and nearly no processor.
TRIAL = """\
record="$1"
echo begin >> "$record"
sleep "$2"
awk -v n="$3" 'BEGIN { for (i = 1; i <= n; i++) sum += i * i; printf "sum=%d\\n", sum }'
echo end >> "$record"
"""
SLOWEST_S = 1500.0


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scale", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--scratch", choices=[*FILE_SYSTEMS, "local"], default="moosefs")
    parser.add_argument(
        "--agents", type=int, default=100, help="of each of the two studies (default: 100)"
    )
    parser.add_argument(
        "--trials", type=int, default=1500, help="of each of the two studies (default: 1500)"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="a trial (default: 5)")
    return parser.parse_args()


@contextlib.contextmanager
def started(folder: Path, scratch: str, agents: int) -> Iterator[Cluster]:
    """A cluster on which all agents fit at once, stopped also when this process is killed."""
    cpus = -(-len(STUDIES) * agents // len(Cluster.node_names)) + 2
    apart: dict[str, Any] = (
        {} if scratch == "local" else {"nodes_apart": True, "shared": [folder], "scratch": scratch}
    )
    # Two cores start 200 jobs: what Slurm gives up on after ten seconds takes longer here.
    patient = {
        "MessageTimeout": "100",
        "BatchStartTimeout": "120",
        "SlurmdTimeout": "300",
        "TCPTimeout": "30",
    }
    cluster = Cluster(folder / "slurm", database=False, cpus=cpus, settings=patient, **apart)
    words = [
        sys.executable,
        "-m",
        "scripts.slurm",
        "stop",
        "--when-stdin-ends",
        "--folder",
        str(cluster.folder),
    ]
    guard = subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        guard.kill()
        guard.communicate()


class Place:
    """The project with its two studies, and `windlass` run in it."""

    def __init__(self, folder: Path, cluster: Cluster, asked: argparse.Namespace) -> None:
        self.project = folder / "project"
        self.asked = asked
        env = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("WINDLASS", "SLURM", "SCRATCH"))
        }
        env |= {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_CACHE_HOME": f"{folder}/cache"}
        self.env = {"SCRATCH": str(folder / "scratch"), **env, **cluster.env}
        for study in STUDIES:
            (folder / "records" / study).mkdir(parents=True)
            self._write_study(study, folder / "records" / study)
        (self.project / "trial.sh").write_text(TRIAL)
        self.records = folder / "records"

    def _write_study(self, study: str, records: Path) -> None:
        self.project.mkdir(exist_ok=True)
        asked = self.asked
        (self.project / f"{study}.yaml").write_text(
            f"name: {study}\ncommand: sh trial.sh {records}/{{n}} {asked.seconds} {{n}}\ncode: live\n"
            f"parameters: {{n: {list(range(asked.trials))}}}\nmetric: {{name: sum, goal: maximize}}\n"
            f"slots: 1\nneeds: {{time: 1m, cpus: 1, memory: 100MB}}\n"
            f"slurm: {{agents: {asked.agents}, throttle: {asked.agents}}}\n"
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "windlass", *words],
            cwd=self.project,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, *words: str) -> tuple[Any, float]:
        """What a command prints as JSON, and how long it took."""
        began = time.monotonic()
        output, errors = self.start(*words, "--json").communicate(timeout=600)
        if not output:
            sys.exit(f"windlass {' '.join(words)}: {errors}")
        return json.loads(output), time.monotonic() - began


def follow(place: Place, cluster: Cluster) -> tuple[float, int, int]:
    """Run both to their end: seconds, the most jobs that ran at the same time, how often `run` was needed."""
    began = time.monotonic()
    most, rounds = 0, 0
    while rounds < 4:
        rounds += 1
        runs = {
            study: place.start("run", f"{study}.yaml", "--on", "slurm", "--quiet", "--wait")
            for study in STUDIES
        }
        while any(run.poll() is None for run in runs.values()):
            most = max(
                most,
                len(
                    cluster.run("squeue", "--noheader", "--states=RUNNING", "--array").splitlines()
                ),
            )
            if time.monotonic() - began > SLOWEST_S:
                sys.exit(
                    f"not done after {SLOWEST_S:.0f} s: {cluster.run('squeue', '--noheader', '--format=%T %r')}"
                )
            time.sleep(2)
        for study, run in runs.items():
            _, errors = run.communicate()
            if run.returncode:
                print(f"{study}: run ended with {run.returncode}: {errors.strip()[-1500:]}")
        if not any(run.returncode for run in runs.values()):
            break
    return time.monotonic() - began, most, rounds


def check_study(place: Place, study: str) -> list[str]:
    """What is wrong with one of the studies, by its witnesses and by its results."""
    wrong = []
    for number in range(place.asked.trials):
        path = place.records / study / str(number)
        lines = path.read_text().split() if path.exists() else []
        if lines != ["begin", "end"]:
            wrong.append(f"{study} {number}: {lines}")
    rows, seconds = place.ask("results", study)
    print(f"{study}: `results` took {seconds:.1f} s")
    found = {row["n"]: (row["state"], row["attempts"], row["sum"]) for row in rows}
    for n in range(place.asked.trials):
        expected = ("done", 1, n * (n + 1) * (2 * n + 1) // 6)
        if found.get(n) != expected:
            wrong.append(f"{study} {n}: results have {found.get(n)} instead of {expected}")
    return wrong


def report_study(place: Place, study: str) -> None:
    status, seconds = place.ask("status", study)
    folder = Path(status["folder"])
    journals = [path.read_text().splitlines() for path in (folder / "journal").glob("*.jsonl")]
    events = [json.loads(line) for lines in journals for line in lines]
    agents = sum(event["e"] == "agent" for event in events)
    starts = [event["t"] for event in events if event["e"] == "start"]
    lasted = max(event["t"] for event in events if event["e"] == "end") - min(starts)
    changes = max(int(name) for name in os.listdir(folder / "claims") if name.isdigit())
    files = sum(len(names) for _, _, names in os.walk(folder))
    print(
        f"{study}: {len(starts)} starts by {agents} agents in {lasted:.0f} s, {changes} changes of the register, "
        f"{files} files; `status` took {seconds:.1f} s"
    )


def count_links(cluster: Cluster) -> int | None:
    """Calls of link() on all mounts; only MooseFS counts them. Each change of a register is one, each lost race too."""
    if cluster.scratch_kind != "moosefs":
        return None
    script = f"cat {cluster.scratch}/.stats"
    texts = [
        cluster.run("srun", "--quiet", "--nodelist", node, "sh", "-c", script)
        for node in cluster.node_names
    ]
    texts.append((cluster.scratch / ".stats").read_text())
    lines = [
        line for text in texts for line in text.splitlines() if line.startswith("fuse_ops.link:")
    ]
    return sum(int(line.split(":")[1]) for line in lines)


def main() -> int:
    asked = parse_words()
    folder = Path(tempfile.mkdtemp(prefix="windlass-scale-"))
    folder.chmod(0o755)
    try:
        with started(folder, asked.scratch, asked.agents) as cluster:
            place = Place(folder, cluster, asked)
            seconds, most, rounds = follow(place, cluster)
            wrong = [text for study in STUDIES for text in check_study(place, study)]
            for study in STUDIES:
                report_study(place, study)
            print(
                f"{asked.scratch}: {seconds:.0f} s in all, {most} jobs at the same time, `run` {rounds} times"
            )
            links = count_links(cluster)
            if links is not None:
                print(
                    f"calls of link(): {links}; those beyond the registers' changes are lost races"
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if most < len(STUDIES) * asked.agents:
        wrong.append(
            f"only {most} of {len(STUDIES) * asked.agents} agents were there at the same time"
        )
    print("\n".join(wrong[:40]) or "every trial ran exactly once, and every result is there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
