"""What must survive: kills at any moment, full disks, damaged journals, rude trials."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import Project, processes_with, wait_for
from windlass.bundle.zipapp import build_agent

# Every trial proves by itself that no other attempt at it is alive: it looks for the process that recorded the last
# beginning without an end.
WITNESS = r"""
record="$1"
last=$(tail -n 1 "$record" 2>/dev/null)
case "$last" in
  "begin "*)
    pid=${last#begin }
    if kill -0 "$pid" 2>/dev/null && grep -q witness "/proc/$pid/cmdline" 2>/dev/null; then
      echo "overlap $pid $$" >> "$record"
    fi ;;
esac
echo "begin $$" >> "$record"
sleep 0.0$2
echo "end $$" >> "$record"
"""


def witness_study(project: Project, trials: int, length: int = 3) -> Path:
    records = project.folder / "records"
    records.mkdir()
    project.write("witness.sh", WITNESS)
    project.write(
        "study.yaml",
        "command: sh witness.sh records/{number} {length}\n"
        f"parameters:\n  number: {list(range(trials))}\n  length: [{length}]\n",
    )
    return records


def agent_pids(folder: Path) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            # The guard is a fork of the agent and looks the same; it has no launcher above it.
            if (
                any(word.endswith(b"agent.pyz") for word in words)
                and str(folder).encode() in b" ".join(words)
                and parent != 1
            ):
                found.append(int(name))
    return found


def check_records(project: Project, records: Path, trials: int) -> None:
    assert project.counts() == {"done": trials}
    rows = project.json("results", "--json")
    assert Counter(row["state"] for row in rows) == {"done": trials}
    assert len({row["id"] for row in rows}) == trials
    for path in records.iterdir():
        lines = path.read_text().splitlines()
        assert not [line for line in lines if line.startswith("overlap")], f"{path.name}: {lines}"
        assert lines[-1].startswith("end"), f"{path.name}: {lines}"
    assert len(list(records.iterdir())) == trials


@pytest.mark.slow
def test_fifty_kills_of_the_agent(project: Project) -> None:
    trials = 300
    records = witness_study(project, trials, length=9)
    chance = random.Random(7)
    kills = 0
    run = project.start("run", "--quiet")
    while kills < 50:
        if run.poll() is not None:
            # Several deaths in a row without a trial finished end a run; the next one goes on.
            run.communicate()
            assert project.counts().get("done") != trials, f"all done after only {kills} kills"
            run = project.start("run", "--quiet")
        time.sleep(chance.uniform(0.0, 0.4))
        for pid in agent_pids(project.folder)[:1]:
            os.kill(pid, signal.SIGKILL)
            kills += 1
    run.communicate(timeout=180)
    project.run("run", "--quiet")
    check_records(project, records, trials)
    assert processes_with(f"WINDLASS_FOLDER={project.study_folder()}") == []


@pytest.mark.slow
def test_kills_among_several_runs(project: Project) -> None:
    """Agents that share a study take over from each other; nothing is lost between them."""
    trials = 400
    records = witness_study(project, trials, length=9)
    chance = random.Random(3)
    runs = [project.start("run", "--quiet") for _ in range(3)]
    kills = 0
    ended = 0
    while kills < 12 and any(run.poll() is None for run in runs):
        time.sleep(chance.uniform(0.0, 0.4))
        pids = agent_pids(project.folder)
        now_ended = sum(path.read_text().count("end") for path in records.iterdir())
        # A run whose agents die three times in a row without a trial finished gives up; that is not what this is about.
        if pids and now_ended > ended + 2:
            os.kill(chance.choice(pids), signal.SIGKILL)
            kills += 1
            ended = now_ended
    assert kills == 12
    for run in runs:
        run.communicate(timeout=180)
    assert any(run.returncode == 0 for run in runs), "those left alive see it through by themselves"
    check_records(project, records, trials)
    assert processes_with(f"WINDLASS_FOLDER={project.study_folder()}") == []


def test_kill_of_windlass_run_itself(project: Project) -> None:
    records = witness_study(project, 60)
    for _ in range(4):
        run = project.start("run", "--quiet")
        wait_for(lambda: len(list(records.iterdir())) > 5)
        run.kill()
        run.communicate()
    folder = project.study_folder()
    # The agent notices that its launcher is gone, stops its trials and hands them back.
    wait_for(lambda: not processes_with(f"WINDLASS_FOLDER={folder}"))
    project.run("run", "--quiet")
    check_records(project, records, 60)


def test_agent_and_guard_killed_together(project: Project) -> None:
    """Nobody is left who knows the trials' processes: the next run must end them before it starts others.

    What the agent had made in the temporary folder is removed by the next one as well.
    """
    temporary = project.folder / "temporary"
    temporary.mkdir()
    project.env["TMPDIR"] = str(temporary)
    records = witness_study(project, 12)
    go = project.folder / "go"  # trials wait for it, however slow this machine is
    project.write(
        "witness.sh", WITNESS.replace("sleep 0.0$2", "while [ ! -e go ]; do sleep 0.1; done")
    )
    run = project.start("run", "--quiet")
    wait_for(lambda: len(list(records.iterdir())) >= 2)
    folder = project.study_folder()
    agents = [
        pid
        for pid in processes_with("")
        if b"agent.pyz" in _cmdline(pid) and str(folder).encode() in _cmdline(pid)
    ]
    assert len(agents) == 2
    run.send_signal(
        signal.SIGSTOP
    )  # else it would start another agent, or its death would end these two
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    run.kill()
    run.communicate()
    assert len(os.listdir(temporary)) > 0
    go.touch()
    project.run("run", "--quiet")
    check_records(project, records, 12)
    assert os.listdir(temporary) == []


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_two_runs_at_once_share_a_study(project: Project) -> None:
    records = witness_study(project, 80)
    runs = [project.start("run", "--quiet") for _ in range(3)]
    assert [run.wait(120) for run in runs] == [0, 0, 0]
    check_records(project, records, 80)
    for run in runs:
        run.communicate()
    journals = list((project.study_folder() / "journal").glob("*.jsonl"))
    starts = [
        line for path in journals for line in path.read_text().splitlines() if '"e":"start"' in line
    ]
    assert len(starts) == 80


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    if os.getuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let us mount a tmpfs")
    yield folder  # type: ignore[misc]
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk(project: Project, small_disk: Path) -> None:
    project.write("talk.py", "import sys\nprint('x' * 20000)\n")
    project.write(
        "study.yaml",
        f"command: {sys.executable} talk.py {{n}}\nparameters:\n  n: {list(range(100))}\n",
    )
    room = 300_000  # for the agent's records and some of the trials' output
    (small_disk / "ballast").write_bytes(b"x" * (4 * 1024 * 1024 - len(build_agent()) - room))
    done = project.run("run", "--folder", str(small_disk), code=2)
    assert "no room left" in done.stderr and "hint:" in done.stderr
    counts = project.json("status", "--json", "--folder", str(small_disk))
    assert counts["damaged_lines"] == 0
    assert 0 < counts["counts"]["done"] < 100
    finished = counts["counts"]["done"]
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    project.run("run", "--folder", str(small_disk))
    counts = project.json("status", "--json", "--folder", str(small_disk))
    assert counts["counts"]["done"] == 100
    rows = project.json("results", "--json", "--folder", str(small_disk))
    assert sum(row["attempts"] for row in rows) <= 100 + 2 * 2, (
        f"of {finished} finished ones some ran again"
    )


def test_full_disk_before_anything_is_written(project: Project, small_disk: Path) -> None:
    with (small_disk / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * 4096)
    project.write("study.yaml", "command: 'true {n}'\nparameters:\n  n: [1, 2]\n")
    done = project.run("run", "--folder", str(small_disk), code=2)
    assert "no room left" in done.stderr


def test_torn_last_line_and_newer_version(project: Project) -> None:
    project.write("study.yaml", "command: 'true {n}'\nparameters:\n  n: [1, 2, 3, 4]\n")
    project.run("run")
    journal = next((project.study_folder() / "journal").glob("*.jsonl"))
    whole = journal.read_bytes()
    last_end = whole.rfind(b"\n", 0, whole.rfind(b'"e":"end"')) + 1
    journal.write_bytes(whole[: last_end + 40])
    assert project.counts()["done"] == 3
    assert "1 trial was executed" in project.run("results").stderr
    assert "1 trial was executed" in project.run("run").stderr
    assert project.counts() == {"done": 4}
    header = json.loads(whole.splitlines()[0])
    del header["crc"]
    journal.write_text(json.dumps({**header, "v": 99}) + "\n")
    for verb in ("status", "results", "run"):
        done = project.run(verb, code=2)
        assert "99" in done.stderr and "install a newer Windlass" in done.stderr


def test_read_only_folder(project: Project) -> None:
    if os.getuid() == 0:
        folder = Path("/proc/windlass")  # root may write everywhere else
    else:
        folder = project.folder / "locked"
        folder.mkdir(mode=0o500)
    project.write("study.yaml", "command: 'true {n}'\nparameters:\n  n: [1]\n")
    done = project.run("run", "--folder", str(folder), code=2)
    assert str(folder) in done.stderr and "Traceback" not in done.stderr


class TestCancelled:
    """What the user cancelled is cancelled, whatever becomes of the agent that held it, and comes back when asked for."""

    def test_what_an_agent_had_taken_and_not_begun(self, project: Project) -> None:
        held = project.write("hold", "")
        wait = "while test $0 -gt 1500 -a -e hold; do sleep 0.1; done"
        project.write(
            "study.yaml",
            f"command: sh -c '{wait}' {{n}}\nparameters: {{n: {{min: 1, max: 3000}}}}\nslots: 2\n",
        )
        run = project.start("run", "--quiet")
        wait_for(lambda: project.counts().get("done", 0) > 200)
        said = project.run("cancel", "--yes").stdout
        run.communicate(timeout=180)
        held.unlink()
        counts = project.counts()
        assert set(counts) == {"done", "cancelled"}
        assert sum(counts.values()) == 3000
        assert f"{counts['cancelled']:,} cancelled" in project.run("run", code=1).stderr
        assert int(said.partition(": ")[2].split()[0].replace(",", "")) >= counts["cancelled"]
        project.run("retry", "--cancelled", "--quiet")
        assert project.counts() == {"done": 3000}

    def test_what_ran_under_an_agent_that_never_heard_of_it(self, project: Project) -> None:
        project.write(
            "study.yaml",
            "{command: \"sh -c 'test -e quick || sleep 600' {n}\", parameters: {n: [1, 2]}, slots: 2}",
        )
        run = project.start("run", "--quiet")
        wait_for(lambda: project.counts().get("running") == 2)
        agent = agent_pids(project.folder)[0]
        os.kill(agent, signal.SIGSTOP)
        project.run("cancel", "0")
        os.kill(agent, signal.SIGKILL)
        wait_for(lambda: project.counts() == {"cancelled": 1, "running": 1})
        project.write("quick", "")
        project.run("cancel", "1")
        run.communicate(timeout=180)
        assert project.counts() == {"cancelled": 2}
        project.run("retry", "--cancelled", "--quiet")
        assert project.counts() == {"done": 2}


def test_what_a_dead_agent_ran_is_interrupted_everywhere(project: Project) -> None:
    """In the table of results and for `retry` too, not only in `status`."""
    project.write("study.yaml", "{command: \"sh -c 'sleep 600' {n}\", parameters: {n: [1]}}")
    run = project.start("run", "--quiet")
    wait_for(lambda: project.counts() == {"running": 1})
    folder = project.study_folder()
    agent = agent_pids(project.folder)[0]
    os.kill(agent, signal.SIGSTOP)  # so that it does not hear of the end of its launcher
    run.kill()
    for pid in [
        pid for pid in processes_with("") if str(folder).encode() in _cmdline(pid)
    ]:  # it and its guard
        os.kill(pid, signal.SIGKILL)
    run.communicate()
    wait_for(lambda: project.counts() == {"interrupted": 1})
    (row,) = project.json("results", "--json")
    assert (row["state"], row["cause"]) == ("interrupted", "agent lost")
    assert project.json("retry", "--interrupted", "--no-run", "--json")["put_back"] == 1
    assert project.counts() == {"waiting": 1}
