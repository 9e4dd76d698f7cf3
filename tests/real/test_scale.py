"""What a large study asks of the scheduler and of the shared folder: counts, on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.conftest import Project
from tests.real.study import calls_made, wrap

TRIALS, AGENTS = 2_000, 6
# Calls are 10 s apart where they are decided; the wrapper writes its time down when the machine lets it.
SQUEUE_GAP_S = 10.0 - 0.5

SQUEUE = """case "$*" in *--states=PENDING*) kind=others ;; *) kind=own ;; esac
date +%s.%N >> "$(dirname "$0")/../$kind.calls"
exec "$REAL" "$@"
"""


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def last_end(project: Project) -> float:
    """When the last trial ended, by the agents' journals."""
    lines = (
        line
        for path in (project.study_folder() / "journal").glob("2*.jsonl")
        for line in path.open()
    )
    return max(event["t"] for event in map(json.loads, lines) if event["e"] == "end")


def test_many_trials_ask_little(cluster_project: Project) -> None:
    """One follows the study to its end, another one looks at it over and over."""
    project = cluster_project
    calls = {
        name: wrap(project, name, 'exec "$REAL" "$@"') for name in ("sbatch", "scancel", "srun")
    }
    wrap(project, "squeue", SQUEUE)
    # In all 20 s at least, so that the queue is looked at several times; they print, so that every kind of file is made.
    project.write("tasks.txt", "sh -c 'echo 1; exec sleep 0.06'\n" * TRIALS)
    words = ["--on", "slurm", "--slots", "1", "--agents", str(AGENTS), "--throttle", str(AGENTS)]
    run = project.start("run", "tasks.txt", *words, "--wait", "--quiet")
    looks = 0
    while run.poll() is None:
        looks += project.run("status", code=None).returncode == 0
    assert run.returncode == 0, run.communicate()
    assert looks > 2
    assert project.counts() == {"done": TRIALS}

    assert calls_made(calls["sbatch"]) == 2, "one with --test-only, one to submit"
    assert calls_made(calls["scancel"]) == calls_made(calls["srun"]) == 0
    # What others have in the queue decides how many agents there are. It is asked once a `run`, never by agents or `status`.
    assert calls_made(project.folder / "others.calls") == 1
    asked = sorted(float(line) for line in (project.folder / "own.calls").read_text().splitlines())
    assert len(asked) >= 2
    gaps = [later - sooner for sooner, later in pairwise(asked)]
    # One exception: when all trials are through and the last answer still shows jobs, `run --wait` asks once whether they
    # are over. Otherwise the user would wait for up to ten seconds for nothing.
    early = [later for sooner, later in pairwise(asked) if later - sooner < SQUEUE_GAP_S]
    assert len(early) <= 1, gaps
    assert all(moment > last_end(project) for moment in early), gaps
    files = list(files_below(project.study_folder().parent))
    assert len(files) <= 10 * AGENTS + 20, files
