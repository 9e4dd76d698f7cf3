"""Studies for tests on a real cluster: trials that prove by themselves that none runs twice at the same time."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

from scripts.slurm import Cluster

from tests.conftest import Project, wait_for

# The lock is the kernel's: it holds across the nodes of a test cluster, and until the last process of the trial is gone.
# Where there is a file `hold`, the first trials end and the others wait for as long as it is there; where there is a
# file `hold-NODE`, all trials on that node wait.
WITNESS = r"""
record="$1"
exec 9>>"$record.lock"
flock -n 9 || echo overlap >> "$record"
echo begin >> "$record"
while [ -e hold ] && [ "${record##*/}" -ge 6 ] || [ -e "hold-$(hostname)" ]; do sleep 0.1; done
sleep "$2"
echo end >> "$record"
"""


def witness_study(
    project: Project, trials: int, seconds: float, more: str = "", lease: str = "15s"
) -> Path:
    """Trials of so many seconds each; the lease is short, so that tests need not wait for the dead."""
    records = project.folder / "records"
    records.mkdir()
    project.write("witness.sh", WITNESS)
    project.write("config/windlass/site.toml", f'lease = "{lease}"\n')
    project.write(
        "study.yaml",
        f"command: sh witness.sh records/{{number}} {{seconds}}\n"
        f"parameters:\n  number: {list(range(trials))}\n  seconds: [{seconds}]\ncode: live\n{more}",
    )
    return records


def hold(project: Project) -> Path:
    """Trials from the seventh on wait until this file is removed: what happens to them does not depend on their speed."""
    return project.write("hold", "")


def check_witnesses(project: Project, records: Path, trials: int) -> None:
    """Every trial is done, once at a time."""
    counts = project.counts()
    assert counts == {"done": trials}, counts
    rows = project.json("results", "--json")
    assert Counter(row["state"] for row in rows) == {"done": trials}
    for number in range(trials):
        lines = (records / str(number)).read_text().splitlines()
        assert "overlap" not in lines, f"{number}: {lines}"
        assert lines[-1] == "end", f"{number}: {lines}"


def ends(records: Path) -> list[int]:
    """How often each trial that was begun has come to its end."""
    paths = sorted(path for path in records.iterdir() if path.suffix != ".lock")
    return [path.read_text().split().count("end") for path in paths]


def begun(records: Path) -> int:
    return sum(1 for path in records.iterdir() if path.suffix != ".lock" and path.read_text())


def study_jobs(project: Project) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = project.json("status", "--json")["jobs"]["jobs"]
    return jobs


def queue_states(cluster: Cluster) -> list[str]:
    return sorted(cluster.run("squeue", "--noheader", "--array", "--format=%T").split())


def wait_until_idle(cluster: Cluster, timeout_s: float = 120.0) -> None:
    wait_for(lambda: not cluster.run("squeue", "--noheader").strip(), timeout_s)


def run_to_the_end(project: Project, cluster: Cluster, times: int = 3) -> None:
    """What a user does: run again until nothing is left."""
    for _ in range(times):
        wait_until_idle(cluster)
        if set(project.counts()) == {"done"}:
            return
        project.run("run", "--on", "slurm", "--quiet", "--wait", code=None)


def wrap(project: Project, name: str, script: str) -> Path:
    """Put a script of that name before the real program on PATH. `$REAL` is the real one; calls are counted."""
    real = next(
        os.path.join(folder, name)
        for folder in project.env["PATH"].split(os.pathsep)
        if os.access(os.path.join(folder, name), os.X_OK)
    )
    folder = project.folder / "wrappers"
    calls = project.folder / f"{name}.calls"
    wrapper = project.write(
        f"wrappers/{name}", f'#!/bin/sh\nREAL={real}\ndate +%s.%N >> "{_quoted(calls)}"\n{script}\n'
    )
    wrapper.chmod(0o755)
    if str(folder) not in project.env["PATH"]:
        project.env["PATH"] = f"{folder}{os.pathsep}{project.env['PATH']}"
    return calls


def _quoted(path: Path) -> str:
    return str(path).replace('"', '\\"')


def calls_made(calls: Path) -> int:
    return len(calls.read_text().splitlines()) if calls.exists() else 0
