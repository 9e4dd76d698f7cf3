"""Agents spare the shared folder: how often they look at it, and that they notice all the same what happens there."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.conftest import Project, wait_for
from windlass.agent.lease.looks import BUSY_MOST_S, IDLE_MOST_S, Looks, Pace
from windlass.agent.lease.others import Others
from windlass.agent.lease.pulse import pause_s
from windlass.collect.look import look
from windlass.core.claims.alive import (
    about_seconds_silent,
    beat_s,
    clock_shift_s,
    file_clock_ahead_s,
    identity,
    idle_beat_s,
    seconds_silent,
)
from windlass.core.claims.coroner import Fate
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.claims.watch import HolderWatch
from windlass.core.fileclock import estimate_file_clock
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.journal.write import JournalWriter, encode_event
from windlass.core.paths import StudyPaths
from windlass.core.sealed import seal, unseal
from windlass.view.history import render_history
from windlass.view.status import render_status, view_to_json

LEASE_S = 300.0
FAR = {"host": "elsewhere", "machine": "other", "boot": "other", "pid": 1, "began": "1"}
JOB = {"id": 14, "array": 12, "task": 2, "restart": 0, "node": "n1", "sub": "s"}


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    paths = StudyPaths(str(tmp_path / "root" / "study"))
    for folder in paths.folders():
        os.makedirs(folder, exist_ok=True)
    Path(paths.plan).write_text(json.dumps({"lease_s": LEASE_S}))
    return paths


def write_agent(
    paths: StudyPaths, name: str, *events: dict[str, Any], silent_s: float = 0.0, **more: Any
) -> None:
    """The journal of an agent, on another machine unless `more` says otherwise, that last wrote so long ago."""
    header = {
        "e": "agent",
        "t": time.time() - 1000,
        "v": JOURNAL_VERSION,
        "id": name,
        **FAR,
        "slots": 1,
        **more,
    }
    writer = JournalWriter(paths.journal_of(name), header)
    for event in events:
        writer.add(event)
    writer.flush()
    writer.close()
    fall_silent(paths, name, silent_s)


def fall_silent(paths: StudyPaths, name: str, silent_s: float) -> None:
    now = time.time()
    os.utime(paths.journal_of(name), (now - silent_s, now - silent_s))


def hold(paths: StudyPaths, *agents: str) -> RegisterFile:
    """A register in which each of these holds one trial, and nothing else is to be done."""
    file = RegisterFile(paths.claims, "test")
    count = len(agents)

    def change(register: Register) -> Register:
        register.count, register.current = count, [(0, count)]
        register.held = {agent: [(number, number + 1)] for number, agent in enumerate(agents)}
        return register

    file.update(change)
    return file


def give_back_all(register: Register) -> Register:
    register.todo, register.held = register.current, {}
    return register


# -- when to look


def test_an_idle_agent_looks_ever_more_rarely() -> None:
    pace = Pace(LEASE_S, lambda: 0.5)
    pauses = [pace.idle_s() for _ in range(8)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0] and pauses[-1] == IDLE_MOST_S
    pace.begin_anew()
    assert pace.idle_s() == 0.5, "there was something to do meanwhile"
    assert Pace(10.0, lambda: 0.5).idle_s() == 0.5
    short = Pace(15.0, lambda: 1.0)
    assert max(short.idle_s() for _ in range(9)) < 2.0, (
        "trials of the dead are taken up soon after a short lease"
    )


def test_agents_that_begin_together_do_not_look_together() -> None:
    paces = [Pace(LEASE_S) for _ in range(50)]
    assert len({round(pace.idle_s(), 6) for pace in paces}) > 40


@pytest.mark.parametrize("agents", [1, 8, 200, 5000])
def test_a_cancel_is_noticed_in_time_however_many_agents_there_are(agents: int) -> None:
    pace = Pace(LEASE_S, lambda: 1.0)
    assert pace.busy_s(False, agents) <= pace.busy_s(True, agents) <= BUSY_MOST_S


# -- what a look finds


def looks_at(paths: StudyPaths) -> Looks:
    return Looks(paths, "own", LEASE_S, lambda register: bool(register.todo))


def age_folder(folder: str, seconds: float) -> None:
    status = os.stat(folder)
    os.utime(folder, (status.st_mtime - seconds, status.st_mtime - seconds))


def test_the_register_is_read_only_when_it_has_changed(paths: StudyPaths) -> None:
    file = hold(paths, "far")
    age_folder(paths.claims, 60)
    looks = looks_at(paths)
    assert looks.look(looks.next_at, idle=True)
    now = looks.next_at
    for _ in range(10):
        now = looks.next_at
        assert not looks.look(now, idle=True), "nothing has changed"
    file.update(give_back_all)
    assert not looks.look(now, idle=True), "not due"
    assert looks.look(looks.next_at, idle=True)
    assert looks.register is not None and looks.register.todo == [(0, 1)]


def test_a_change_in_the_same_second_is_noticed(paths: StudyPaths) -> None:
    """Some file systems keep times in whole seconds: then the folder's time is the same before and after a change."""
    file = hold(paths, "far")
    looks = looks_at(paths)
    before = os.stat(paths.claims).st_mtime_ns
    assert looks.look(looks.next_at, idle=True)
    file.update(give_back_all)
    os.utime(paths.claims, ns=(before, before))
    assert looks.look(looks.next_at, idle=True), (
        "the folder was changed so lately that its time means nothing"
    )
    assert looks.register is not None and looks.register.todo


def test_trials_are_asked_for_once_a_look_finds_some(paths: StudyPaths) -> None:
    file = hold(paths, "far")
    looks = looks_at(paths)
    assert looks.should_claim(1000.0, True, 0), "at first"
    looks.claimed(1000.0, False, 0)
    looks.look(1000.1, True, anew=True)
    assert not looks.should_claim(1000.2, True, 0) and looks.claim_at(0) == looks.next_at
    assert looks.should_claim(1000.6, True, 1), "one has ended here: others may wait for it"
    looks.claimed(1000.6, False, 1)
    file.update(give_back_all)
    assert not looks.should_claim(1000.7, True, 1) or looks.looked_at == 1000.7
    assert looks.should_claim(looks.next_at, True, 1)
    looks.claim_failed(1050.0)
    assert looks.claim_at(1) <= 1050.5, "the folder could not be written to: try again soon"


def test_changes_on_this_machine_wake_an_agent(paths: StudyPaths) -> None:
    file = hold(paths, "far")
    looks = looks_at(paths)
    poller = select.epoll()
    looks.watch(poller)
    looks.look(1000.0, idle=True)
    looks.next_at = 2000.0
    Path(paths.claims, ".far.tmp").touch()
    for _ in poller.poll(5):
        looks.heed(1001.0)
    assert looks.next_at == 2000.0, "a temporary file is no state of the register"
    file.update(give_back_all)
    (descriptor, _), *_ = poller.poll(60)
    assert looks.owns(descriptor)
    looks.heed(1001.0)
    assert looks.next_at == 1001.0 and looks.look(1001.0, idle=True)
    poller.close()


def test_constant_changes_on_this_machine_do_not_make_an_agent_look_all_the_time(
    paths: StudyPaths,
) -> None:
    file = hold(paths, "far")
    looks = looks_at(paths)
    poller = select.epoll()
    looks.watch(poller)
    now = 1000.0
    for step in range(100):
        now += 0.5
        file.update(lambda register, step=step: _with_learned(register, step))
        looks.heed(now)
        looks.look(now, idle=True)
    assert 5 < looks.reads < 25, f"{looks.reads} in 50 s, with 100 changes"
    poller.close()


def _with_learned(register: Register, step: int) -> Register:
    register.learned = {"memory_kills": step}
    return register


# -- who has died


def test_each_holder_elsewhere_is_looked_at_once_in_a_lease(
    paths: StudyPaths, monkeypatch: Any
) -> None:
    names = [f"a{number:03d}" for number in range(200)]
    for name in names:
        write_agent(paths, name)
    file = hold(paths, *names)
    held = file.read().held
    watch = HolderWatch(paths, "own")
    looked: list[str] = []
    fate = watch._coroner.fate

    def count(agent: str, header: Any) -> Any:
        looked.append(agent)
        return fate(agent, header)

    monkeypatch.setattr(watch._coroner, "fate", count)
    for look_number in range(14):
        before = len(looked)
        watch.recover(held, file, 20.0 * look_number)
        assert len(looked) - before <= 17, "those of hundreds of agents are not read at once"
    assert sorted(set(looked)) == names and len(looked) <= 1.1 * len(names)


def count_looks(watch: HolderWatch, monkeypatch: Any) -> list[str]:
    looked: list[str] = []

    def alive(agent: str, header: Any) -> Fate:
        looked.append(agent)
        return Fate.ALIVE

    monkeypatch.setattr(watch._coroner, "fate", alive)
    return looked


def test_few_calls_beside_hundreds_of_agents_with_long_trials(
    paths: StudyPaths, monkeypatch: Any
) -> None:
    """Agents that wait share the looks: each makes 0.1 a second, and together they look at all within some leases."""
    names = [f"far{number:03}" for number in range(200)]
    for name in names:
        write_agent(paths, name)
    file = hold(paths, *names)
    held = file.read().held
    seen: set[str] = set()
    for own in ("one", "two", "three", "four"):
        watch = HolderWatch(paths, own)
        looked = count_looks(watch, monkeypatch)
        for look_number in range(14):
            watch.recover(held, file, 24.0 * look_number)  # the first look at each
        looked.clear()
        for look_number in range(14, 89):
            watch.recover(held, file, 24.0 * look_number)
        assert 100 < len(looked) <= 0.1 * 75 * 24.0
        seen.update(looked)
    assert len(seen) > 0.95 * len(names)


def test_agents_that_claim_trials_are_not_looked_at(paths: StudyPaths, monkeypatch: Any) -> None:
    write_agent(paths, "far")
    file = hold(paths, "far")
    watch = HolderWatch(paths, "own")
    looked = count_looks(watch, monkeypatch)
    for look_number in range(100):
        watch.recover({"far": [(look_number, look_number + 1)]}, file, 24.0 * look_number)
    assert looked == ["far"]
    for look_number in range(100, 115):
        watch.recover({"far": [(99, 100)]}, file, 24.0 * look_number)
    assert looked == ["far", "far"], "once its lease may be over"


def test_an_agent_is_dead_when_its_lease_is_over_and_not_before(paths: StudyPaths) -> None:
    write_agent(paths, "far", silent_s=LEASE_S - 10)
    file = hold(paths, "far")
    watch = HolderWatch(paths, "own")
    assert not watch.recover(file.read().held, file, 1000.0).dead
    fall_silent(paths, "far", LEASE_S + 1)
    assert not watch.recover(file.read().held, file, 1005.0).dead, (
        "not looked at: it cannot be dead yet"
    )
    assert watch.recover(file.read().held, file, 1011.0).dead == ["far"]
    assert file.read().todo == [(0, 1)] and not file.read().held


def test_a_process_of_this_machine_is_noticed_without_the_folder(paths: StudyPaths) -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        began = wait_for(
            lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        )
        write_agent(paths, "near", **{**identity(), "pid": child.pid, "began": began})
        file = hold(paths, "near")
        watch = HolderWatch(paths, "own")
        assert not watch.recover(file.read().held, file, 1000.0).dead and watch.has_one_here
        shutil.move(paths.journal, paths.journal + ".away")
        assert not watch.is_one_gone_here()
    finally:
        child.kill()
        child.wait()
    assert watch.is_one_gone_here(), "its journal is not needed for that"
    shutil.move(paths.journal + ".away", paths.journal)
    assert watch.recover(file.read().held, file, 1000.1).dead == ["near"]


def test_an_estimate_alone_kills_nobody(paths: StudyPaths, monkeypatch: Any) -> None:
    """The server's clock may be set back while an agent remembers how it was."""
    write_agent(paths, "far")
    file = hold(paths, "far")
    prefix = os.path.join(paths.journal, ".")
    estimate_file_clock(prefix)
    monkeypatch.setattr(
        "windlass.core.claims.alive.estimate_file_clock", lambda prefix: time.time() + 2 * LEASE_S
    )
    assert about_seconds_silent(paths.journal_of("far")) > LEASE_S
    assert not HolderWatch(paths, "own").recover(file.read().held, file, 1000.0).dead


def test_the_clock_of_a_file_system_is_remembered(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    folder.mkdir()
    prefix = os.path.join(folder, ".")
    first = estimate_file_clock(prefix)
    assert abs(first - time.time()) < 60 and not list(folder.iterdir())
    (folder / "a").touch()
    assert seconds_silent(str(folder / "a")) < 60
    shutil.rmtree(folder)
    assert estimate_file_clock(prefix) >= first, (
        "no call on the folder, which is not there any more"
    )


def test_an_idle_agent_writes_often_enough_not_to_look_as_if_it_had_paused() -> None:
    """Proofs that are further apart than `pause_s` make the agent read the register before it begins a trial."""
    for lease_s in (6.0, 15.0, LEASE_S, 3600.0):
        assert beat_s(lease_s) < idle_beat_s(lease_s) < 0.9 * pause_s(lease_s)


# -- what others may give back


def test_a_journal_is_read_again_only_where_that_matters(paths: StudyPaths) -> None:
    now = time.time()
    write_agent(paths, "a", {"e": "start", "t": now, "i": 0, "n": 0, "s": 0}, t=now)
    others = Others(paths, "own")

    def is_worth(at: float, ranges: Any) -> bool:
        return others.may_come_back({"a": ranges}, at, now + 9000, 30.0, False)

    assert is_worth(now, [(0, 1)])
    os.unlink(paths.journal_of("a"))
    assert is_worth(now + 10, [(0, 1)]), "what was read is enough"
    assert not is_worth(now + 200, [(0, 1)]), "overdue"


def test_a_trial_that_begins_later_is_not_waited_for_without_end(paths: StudyPaths) -> None:
    now = time.time()
    write_agent(paths, "a", t=now)
    others = Others(paths, "own")
    assert others.may_come_back({"a": [(0, 1)]}, now, now + 9000, 30.0, False), (
        "it has not begun yet"
    )
    os.unlink(paths.journal_of("a"))
    write_agent(paths, "a", {"e": "start", "t": now, "i": 0, "n": 0, "s": 0}, t=now)
    assert not others.may_come_back({"a": [(0, 1)]}, now + 200, now + 9000, 30.0, False)


# -- what commands show


def start_of(number: int, t: float) -> dict[str, Any]:
    return {"e": "start", "t": t, "i": number, "n": 0, "s": 0}


@pytest.mark.parametrize("wrong_s", [-3600.0, 0.3, 540.0])
def test_times_are_by_the_clock_of_whoever_looks(paths: StudyPaths, wrong_s: float) -> None:
    """The clock of the node is `wrong_s` ahead of the file system's; that of this machine is right."""
    now = time.time()
    began, trial_began = now - 600 + wrong_s, now - 100 + wrong_s
    beat = {"e": "beat", "t": now + wrong_s, "live": {}}
    write_agent(paths, "far", start_of(0, trial_began), beat, t=began, clock_s=-wrong_s)
    hold(paths, "far")
    Path(paths.trials).write_text("")
    view = look(paths)
    for_s = view_to_json(view)["running"][0]["for_s"]
    assert 95 < for_s < 160, "a trial's time does not depend on its node's clock"
    (agent,) = view.agents
    assert abs(agent.record.start - (now - 600)) < 2 and abs(agent.record.last_seen - now) < 2
    assert time.strftime("%H:%M", time.localtime(now - 600)) in render_history(view)


def test_explain_shows_the_time_of_this_machine(project: Project) -> None:
    project.write("study.yaml", "command: echo {a}\nparameters: {a: [1]}\n")
    project.run("run", "study.yaml")
    folder = project.study_folder()
    (journal,) = [
        path for path in (folder / "journal").iterdir() if not path.name.startswith("client-")
    ]
    lines = [
        json.loads(unseal(line) or b"") for line in journal.read_bytes().splitlines(keepends=True)
    ]
    began = next(line["t"] for line in lines if line["e"] == "start")
    moved = [{**line, "t": line["t"] + 7200} for line in lines]
    moved[0].update(host="elsewhere", machine="other", clock_s=lines[0]["clock_s"] - 7200)
    journal.write_bytes(b"".join(seal((encode_event(line) + "\n").encode()) for line in moved))
    shown = project.run("explain", "0").stdout
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)) in shown


@pytest.mark.parametrize("text", [None, "yes", True, float("nan"), 1e300])
def test_a_clock_that_is_no_number_moves_nothing(paths: StudyPaths, text: Any) -> None:
    assert clock_shift_s({**FAR, "clock_s": text}, paths.journal) == 0.0


def test_the_clock_of_a_local_disk_is_this_machine_s(paths: StudyPaths) -> None:
    assert abs(file_clock_ahead_s(paths.journal)) < 60
    assert clock_shift_s({**identity(), "clock_s": 3600}, paths.journal) == 0.0


def scheduler_answered(paths: StudyPaths, state: str) -> None:
    now = time.time()
    row = (
        f"14|12|2|{state}|None|n1|{now - 1010:.0f}|N/A|10:00|{now - 2000:.0f}|p|a|windlass:s|name\n"
    )
    kept = {"v": 1, "user": os.getuid(), "number": 1, "asked": now, "text": row, "good": None}
    os.makedirs(paths.hpc_outputs, exist_ok=True)
    Path(paths.queue).write_text(json.dumps(kept))


def test_an_agent_whose_job_has_ended_is_gone_at_once(paths: StudyPaths) -> None:
    now = time.time()
    write_agent(paths, "far", start_of(0, now - 5), job=JOB)
    hold(paths, "far")
    Path(paths.trials).write_text("")
    scheduler_answered(paths, "RUNNING")
    assert [agent.alive for agent in look(paths).agents] == [True]
    scheduler_answered(paths, "CANCELLED")
    view = look(paths)
    assert [agent.alive for agent in view.agents] == [False], (
        "it wrote a moment ago, but the scheduler knows better"
    )
    assert view.counts["running"] == 0 and view.counts["interrupted"] == 1


def test_an_agent_that_may_be_gone_is_said_to_be_silent(paths: StudyPaths) -> None:
    write_agent(paths, "far", start_of(0, time.time() - 500), silent_s=40)
    write_agent(paths, "idle", silent_s=60)
    hold(paths, "far")
    Path(paths.trials).write_text("")
    view = look(paths)
    text = render_status(view)
    assert (
        "agent on elsewhere silent for 4" in text
        and "after 5 min of silence its trials are taken up" in text
    )
    assert text.count("silent for") == 1, "one without trials writes more rarely"
    assert 40 <= view_to_json(view)["agents"][0]["silent_s"] < 100
    fall_silent(paths, "far", LEASE_S + 1)
    assert [agent.alive for agent in look(paths).agents] == [False, True]


# -- real agents


@pytest.mark.skipif(
    shutil.which("strace") is None and os.environ.get("CI") != "true", reason="counts with strace"
)
def test_calls_of_real_agents_on_the_folder() -> None:
    """Counted, not timed. The looks of an agent that has just become idle are few, however long this takes."""
    words = [sys.executable, "bench/calls.py", "--settle", "0", "--seconds", "12", "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    idle, busy = (json.loads(line) for line in done.stdout.splitlines())
    assert idle["agents"] == "idle" and 10 < idle["calls"] < 400 + 0.2 * idle["seconds"], (
        done.stdout
    )
    assert busy["agents"] == "busy" and 0 < busy["calls"] < 10 + 4 * busy["seconds"], done.stdout


def test_an_idle_agent_takes_what_another_gives_back_and_ends_with_the_study(
    project: Project, tmp_path: Path
) -> None:
    """The second agent has nothing to do for as long as the first one's trial runs; then the first is killed."""
    marks = tmp_path / "marks"
    project.write(
        "trial.sh", f'echo x >> "{marks}"; [ "$(wc -l < "{marks}")" -gt 1 ] || sleep 600\n'
    )
    project.write("study.yaml", "command: sh trial.sh {a}\nparameters: {a: [1]}\n")
    first = project.start("run", "study.yaml", "--slots", "1")
    second: subprocess.Popen[str] | None = None
    try:
        wait_for(marks.exists)
        (holder,) = _agents(project)
        second = project.start("run", "study.yaml", "--slots", "1")
        wait_for(lambda: len(_agents(project)) == 2)
        first.kill()
        os.kill(holder, 9)
        second.communicate(timeout=200)
        assert second.returncode == 0 and project.counts() == {"done": 1}
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()


_NODE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]


def _can_be_apart() -> bool:
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run([*_NODE, "true"], capture_output=True, check=False).returncode
    )


@pytest.mark.skipif(not _can_be_apart(), reason="process-number namespaces are not allowed here")
def test_a_node_that_vanishes_is_noticed_when_its_lease_is_over(
    project: Project, tmp_path: Path
) -> None:
    """The agent there has process numbers and a host name of its own, so that only its journal tells of it."""
    marks = tmp_path / "marks"
    project.write("config/windlass/site.toml", 'lease = "6s"\n')
    project.write(
        "trial.sh", f'hostname >> "{marks}"; [ "$(wc -l < "{marks}")" -gt 1 ] || sleep 600\n'
    )
    project.write("study.yaml", "command: sh trial.sh {a}\nparameters: {a: [1]}\n")
    words = project.words("run", "study.yaml", "--slots", "1")
    node = [*_NODE, "sh", "-c", 'hostname far-node; exec "$@"', "sh", *words]
    streams: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    first = subprocess.Popen(node, cwd=project.folder, env=project.env, **streams)
    second: subprocess.Popen[str] | None = None
    try:
        wait_for(marks.exists)
        second = project.start("run", "study.yaml", "--slots", "1")
        wait_for(lambda: len(_agents(project)) == 2)
        first.kill()
        second.communicate(timeout=200)
        assert second.returncode == 0 and project.counts() == {"done": 1}
        assert marks.read_text().splitlines() == ["far-node", os.uname().nodename]
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()


def _agents(project: Project) -> list[int]:
    """Process numbers of the agents that have begun, from their journals."""
    found: list[int] = []
    read: Callable[[Path], bytes] = Path.read_bytes
    for path in project.folder.glob(".windlass/*/journal/*.jsonl"):
        first = read(path).partition(b"\n")[0]
        if not path.name.startswith("client-") and b'"pid":' in first:
            found.append(int(first.partition(b'"pid":')[2].partition(b",")[0]))
    return found
