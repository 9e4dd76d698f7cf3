"""Jobs beside journals: what the verbs say and do, with commands of Slurm's that answer from files."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from windlass.collect.jobs import parse_job
from windlass.collect.jobview import JobView, view_jobs
from windlass.collect.look import read_register
from windlass.collect.reconcile import study_view
from windlass.collect.submissions import Submission
from windlass.collect.ticket import find_traceback
from windlass.core.journal.records import AgentRecord, TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.queue.rows import Queue, parse_queue
from windlass.core.queue.states import JobState
from windlass.core.states import State
from windlass.model import Request
from windlass.places.slurm.following import study_is_under_way
from windlass.places.slurm.interactive import render_salloc
from windlass.slurm.accounting import JobRecord, parse_records
from windlass.view.status import render_status

STUDY = (
    "name: demo\ncommand: sh -c 'echo trial {x}; test {x} != 2'\nparameters:\n  x: [0, 1, 2, 3]\n"
)
NOW = int(time.time())


def row(
    number: int,
    tasks: str,
    state: str,
    *,
    reason: str = "None",
    sub: str = "s1",
    start: str = "N/A",
) -> str:
    own = number if "-" in tasks else number + 10 + int(tasks)
    node = "node1" if state in ("RUNNING", "COMPLETED", "FAILED", "NODE_FAIL") else ""
    return f"{own}|{number}|{tasks}|{state}|{reason}|{node}|{start}|N/A|9:00|{NOW}|debug|acc|windlass:{sub}|p-demo"


class FakeSlurm:
    """Programs of Slurm's names that print what a test wrote, and write down how they were called."""

    def __init__(self, project: Project) -> None:
        self.folder = project.folder / "bin"
        self.folder.mkdir()
        project.env["PATH"] = f"{self.folder}:{project.env['PATH']}"
        for name in ("squeue", "sacct", "scancel", "scontrol"):
            self.answer(name, None)

    def answer(self, name: str, text: str | None) -> None:
        """What the program prints; None: it fails."""
        (self.folder / f"{name}.txt").write_text(text or "")
        end = (
            f'cat "$here/{name}.txt"' if text is not None else "echo 'connect failure' >&2; exit 1"
        )
        script = self.folder / name
        script.write_text(
            f'#!/bin/sh\nhere=$(dirname "$0")\necho "$@" >> "$here/{name}.called"\n{end}\n'
        )
        script.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.called"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def fake(project: Project) -> FakeSlurm:
    slurm = FakeSlurm(project)
    project.write("study.yaml", STUDY)
    project.run("run", "study.yaml", "--on", "local", code=1)
    return slurm


def journal(project: Project, *events: dict[str, Any]) -> None:
    """Write what a client would have written."""
    folder = project.folder / ".windlass" / "demo" / "journal"
    header = {
        "e": "client",
        "t": NOW,
        "v": 1,
        "id": "client-x",
        "host": "h",
        "machine": "m",
        "boot": "b",
        "pid": 1,
    }
    path = folder / f"client-x-{len(list(folder.iterdir()))}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in [header, *events]))


def submit(
    project: Project, sub: str, agents: int, job: int | None, t: float = NOW, **request: Any
) -> None:
    asked = {"job_name": "p-demo", **request}
    events: list[dict[str, Any]] = [
        {"e": "submit", "t": t, "sub": sub, "agents": agents, "first": 0, "request": asked}
    ]
    if job is not None:
        events.append({"e": "submitted", "t": t, "sub": sub, "job": job})
    journal(project, *events)


def forget_queue(project: Project) -> None:
    (project.folder / ".windlass" / "hpc_outputs" / "squeue.json").unlink(missing_ok=True)


def test_a_local_study_asks_no_scheduler(project: Project, fake: FakeSlurm) -> None:
    assert project.json("status", "--json")["jobs"] is None
    project.run("explain", "2")
    project.run("history")
    project.run("explain", "--ticket", "2")
    project.run("cancel", "--yes")
    assert [fake.calls(name) for name in ("squeue", "sacct", "scancel")] == [[], [], []]


def test_status_tells_jobs_apart(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 12, 100)
    late = NOW + 3600
    rows = [row(100, str(task), "RUNNING", start=str(NOW)) for task in range(3)]
    rows += [
        row(100, "3-10%3", "PENDING", reason="JobArrayTaskLimit"),
        row(100, "11", "FAILED", start=str(NOW)),
    ]
    rows.append(f"7|7|N/A|PENDING|Priority||{late}|N/A|9:00|{NOW}|debug|acc|(null)|another")
    fake.answer("squeue", "\n".join(rows) + "\n")
    text = project.run("status").stdout
    assert "12 jobs: 3 running, 8 waiting (throttle 3), 1 failed" in text
    assert "100_[3-10]  waiting: waits for the study's own throttle" in text
    assert "100_0  running  on node1  9 min left" in text
    said = project.json("status", "--json")["jobs"]
    assert said["answered"] is True and len(said["jobs"]) == 12
    assert {job["state"] for job in said["jobs"]} == {"running", "waiting", "failed"}
    assert said["jobs"][0]["id"] == 110 and said["jobs"][5]["id"] is None
    # Both looks, and those of other verbs, share one answer.
    project.run("explain")
    assert len(fake.calls("squeue")) == 1


def test_many_rows_are_not_all_shown(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 30, 100)
    fake.answer(
        "squeue",
        "\n".join(row(100, str(task), "RUNNING", start=str(NOW)) for task in range(30)) + "\n",
    )
    text = project.run("status").stdout
    assert text.count("  running  on") == 10 and "… and 20 more" in text


def test_without_an_answer_status_says_so_and_works(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 2, 100)
    text = project.run("status").stdout
    assert "done 3   failed 1" in text and "the scheduler does not answer" in text
    assert project.json("status", "--json")["jobs"]["asked"] is None
    project.run("history")
    project.run("explain", "2")


def test_the_last_answer_is_shown_with_its_age(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 2, 100)
    fake.answer("squeue", row(100, "0-1", "PENDING", reason="Priority") + "\n")
    assert "others are before it in the queue" in project.run("status").stdout
    cache = project.folder / ".windlass" / "hpc_outputs" / "squeue.json"
    said = json.loads(cache.read_text())
    cache.write_text(
        json.dumps(
            {**said, "asked": said["asked"] - 100, "good": [said["asked"] - 100, said["text"]]}
        )
    )
    fake.answer("squeue", None)
    text = project.run("status").stdout
    assert (
        "as of " in text
        and "the scheduler does not answer" in text
        and "others are before it" in text
    )


def test_accounting_is_asked_only_for_what_the_queue_forgot(
    project: Project, fake: FakeSlurm
) -> None:
    submit(project, "s1", 2, 100)
    submit(project, "s2", 1, 200)
    fake.answer("squeue", row(200, "0", "RUNNING", sub="s2", start=str(NOW)) + "\n")
    fake.answer(
        "sacct",
        f"110|100_0|FAILED|3:0|node1|{NOW}|{NOW}|{NOW + 5}|5|None||debug|acc|p-demo\n"
        f"110.batch|100_0.batch|FAILED|3:0|node1|{NOW}|{NOW}|{NOW + 5}|5||2048K||acc|batch\n"
        f"100|100_1|TIMEOUT|0:0|node2|{NOW}|{NOW}|{NOW + 60}|60|None||debug|acc|p-demo\n",
    )
    jobs = {job["job"]: job for job in project.json("status", "--json")["jobs"]["jobs"]}
    assert {name: (job["state"], job["exit_code"]) for name, job in jobs.items()} == {
        "100_0": ("failed", 3),
        "100_1": ("timed out", 0),
        "200_0": ("running", None),
    }
    assert jobs["100_0"]["max_rss_mb"] == 2.0
    (call,) = fake.calls("sacct")
    assert call.endswith("--jobs=100")


def test_a_number_that_another_job_has_now(project: Project, fake: FakeSlurm) -> None:
    """A controller that lost its records gives numbers out again."""
    submit(project, "s1", 1, 100)
    fake.answer("squeue", row(100, "0", "RUNNING", sub="another", start=str(NOW)) + "\n")
    fake.answer("scancel", "")
    (job,) = project.json("status", "--json")["jobs"]["jobs"]
    assert job["state"] == "unknown"
    project.run("cancel", "--yes")
    assert fake.calls("scancel") == []


def test_status_of_a_job(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 3, 100)
    fake.answer(
        "squeue",
        "\n".join(
            [
                row(100, "0", "RUNNING", start=str(NOW)),
                row(100, "1-2", "PENDING", reason="Resources"),
            ]
        ),
    )
    for name in ("100", "100_0", "110"):
        assert "100_0  running" in project.run("status", name).stdout
    assert "100_1" not in project.run("status", "100_0").stdout
    assert "no study has a job 999" in project.run("status", "999", code=2).stderr


def test_a_submission_whose_client_died(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 1, None)
    fake.answer("squeue", "")
    assert "nobody knows whether the scheduler took it" in project.run("status").stdout
    forget_queue(project)
    fake.answer("squeue", row(300, "0", "RUNNING", start=str(NOW)) + "\n")
    assert "300_0  running" in project.run("status").stdout


def test_a_refused_submission(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 1, None)
    journal(project, {"e": "refused", "t": NOW + 1, "sub": "s1", "text": "Invalid account"})
    fake.answer("squeue", "")
    assert "refused at" in project.run("status").stdout
    assert "Invalid account" in project.run("history").stdout


def test_cancel_ends_the_jobs_that_wait(project: Project, fake: FakeSlurm) -> None:
    project.run("retry", "--done", "--failed", "--no-run", "--yes")
    submit(project, "s1", 4, 100)
    submit(project, "s2", 1, 200)
    rows = [row(100, "0", "RUNNING", start=str(NOW)), row(100, "1-3", "PENDING", reason="Priority")]
    rows += [row(200, "0", "FAILED", sub="s2", start=str(NOW))]
    rows.append(f"7|7|N/A|PENDING|Priority||N/A|N/A|9:00|{NOW}|debug|acc|(null)|mine alone")
    fake.answer("squeue", "\n".join(rows) + "\n")
    said = project.json("cancel", "demo", "--yes", "--json", code=1)
    assert said["cancelled"] == 4 and "connect failure" in said["problem"]
    fake.answer("scancel", "")
    said = project.json("cancel", "demo", "--yes", "--json")
    assert (said["cancelled"], said["jobs"], said["jobs_ended"]) == (0, ["100"], 3)
    assert fake.calls("scancel") == ["--state=PENDING 100"] * 2
    assert project.counts() == {"cancelled": 4}


def test_cancel_right_after_run(project: Project, fake: FakeSlurm) -> None:
    """The queue's last answer is from before the submission."""
    submit(project, "s1", 1, 100)
    fake.answer("squeue", row(100, "0", "FAILED", start=str(NOW)) + "\n")
    fake.answer("scancel", "")
    project.run("status")
    submit(project, "s2", 3, 200, time.time())
    said = project.json("cancel", "--yes", "--json")
    assert (said["jobs"], said["jobs_ended"]) == (["200"], 3)
    assert len(fake.calls("squeue")) == 1


def test_the_queue_is_asked_while_sbatch_is_at_work(
    project: Project, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer from between the record of a submission and the scheduler's own answer does not know the job."""
    project.run("retry", "--done", "--failed", "--no-run", "--yes")
    fake.answer("squeue", "")
    submit(project, "s1", 2, None, time.time())
    project.run("status")
    journal(project, {"e": "submitted", "t": time.time(), "sub": "s1", "job": 100})
    assert [job["state"] for job in project.json("status", "--json")["jobs"]["jobs"]] == [
        "waiting",
        "waiting",
    ]
    monkeypatch.setenv("PATH", project.env["PATH"])
    paths = StudyPaths(str(project.folder / ".windlass" / "demo"))
    assert study_is_under_way(paths) and len(fake.calls("squeue")) == 1

    def asked_again() -> bool:
        forget_queue(project)
        return not study_is_under_way(paths)

    wait_for(asked_again)


def test_cancel_while_the_scheduler_is_down(project: Project, fake: FakeSlurm) -> None:
    project.run("retry", "--done", "--failed", "--no-run", "--yes")
    submit(project, "s1", 4, 100)
    done = project.run("cancel", "--yes", code=1)
    assert "4 trials are cancelled" in done.stdout and "jobs could not be ended" in done.stderr
    assert project.counts() == {"cancelled": 4}


def test_cancel_spares_what_it_is_told_to(project: Project, fake: FakeSlurm) -> None:
    project.run("retry", "--done", "--failed", "--no-run", "--yes")
    submit(project, "s1", 1, 100)
    fake.answer("squeue", row(100, "0", "PENDING", reason="Priority") + "\n")
    fake.answer("scancel", "")
    said = project.json("cancel", "--except", "1", "--except", "2", "--yes", "--json")
    assert said["cancelled"] == 2 and project.counts() == {"waiting": 2, "cancelled": 2}
    assert fake.calls("scancel") == []  # trials are left for the job
    assert project.json("cancel", "--pending", "--yes", "--json")["cancelled"] == 2
    assert fake.calls("scancel") == ["--state=PENDING 100"]
    assert project.run("cancel", "1", "--except", "2", code=2).stderr.startswith("error: either")


def test_a_trial_is_cancelled_and_jobs_stay(project: Project, fake: FakeSlurm) -> None:
    project.run("retry", "--done", "--failed", "--no-run", "--yes")
    submit(project, "s1", 1, 100)
    fake.answer("squeue", row(100, "0", "PENDING", reason="Priority") + "\n")
    project.run("cancel", "0", "1", "2", "3")
    assert fake.calls("scancel") == []


def test_what_explain_says_of_a_cancelled_trial_works(project: Project, fake: FakeSlurm) -> None:
    project.run("retry", "1", "--no-run")
    project.run("cancel", "1")
    text = project.run("explain", "1").stdout
    assert (
        "it was cancelled: `windlass retry 1` brings it back, `windlass retry --cancelled` all of these"
        in text
    )
    assert "1 trial is put back" in project.run("retry", "1", "--no-run").stderr


def test_ending_a_job_by_its_number(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 2, 100)
    fake.answer(
        "squeue",
        row(100, "0", "RUNNING", start=str(NOW)) + "\n" + row(100, "1", "RUNNING", start=str(NOW)),
    )
    fake.answer("scancel", "")
    project.run("cancel", "--job", "100_1")
    project.run("cancel", "--job", "110")
    assert fake.calls("scancel") == ["100_1", "100_0"]
    assert "has no job 7" in project.run("cancel", "--job", "7", code=2).stderr


def test_throttle(project: Project, fake: FakeSlurm) -> None:
    assert "waits" in project.run("throttle", "3", code=2).stderr
    submit(project, "s1", 5, 100)
    submit(project, "s2", 5, 200)
    fake.answer(
        "squeue",
        row(100, "0-4%1", "PENDING") + "\n" + row(200, "0-4%1", "PENDING", sub="s2") + "\n",
    )
    assert "connect failure" in project.run("throttle", "5", code=1).stderr
    fake.answer("scontrol", "")
    assert project.json("throttle", "demo", "5", "--json")["throttle"] == {"100": 3, "200": 2}
    assert fake.calls("scontrol")[-2:] == [
        "update JobId=100 ArrayTaskThrottle=3",
        "update JobId=200 ArrayTaskThrottle=2",
    ]
    register = StudyPaths(str(project.study_folder()))
    assert read_register(register).throttle == 5
    fake.answer(
        "scontrol", None
    )  # Slurm keeps its limit: agents that start must not find a lower one, and then leave
    assert (
        "connect failure" in project.run("throttle", "2", code=1).stderr
        and read_register(register).throttle == 5
    )
    assert (
        "connect failure" in project.run("throttle", "0", code=1).stderr
        and read_register(register).throttle is None
    )


def test_jobs_of_a_chain_follow_one_another(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 3, 100, units=3)
    rows = [
        row(100, "0", "RUNNING", start=str(NOW)),
        row(100, "1-2%1", "PENDING", reason="JobArrayTaskLimit"),
    ]
    fake.answer("squeue", "\n".join(rows) + "\n")
    fake.answer("scontrol", "")
    text = project.run("status").stdout
    assert "3 jobs: 1 running, 2 waiting\n" in text.replace(" (as of", "\n")
    assert "100_[1-2]  waiting: follows the job before it" in text and "throttle" not in text
    assert "jobs of a chain" in project.run("throttle", "3", code=2).stderr
    assert "update" not in " ".join(fake.calls("scontrol"))


def test_explain_says_why_it_waits(project: Project, fake: FakeSlurm) -> None:
    project.run("retry", "--done", "--failed", "--no-run", "--yes")
    submit(project, "s1", 2, 100)
    fake.answer(
        "squeue", row(100, "0-1", "PENDING", reason="QOSMaxGRESPerUser", start=str(NOW + 60)) + "\n"
    )
    text = project.run("explain", "1").stdout
    assert "it waits, 1 trial before it; no agent is at work yet: 2 jobs wait in the queue" in text
    assert "as many GPUs as its QOS allows one user" in text and "expected to start" in text
    assert "2 jobs: 2 waiting" in project.run("explain").stdout


def test_history_of_agents_without_jobs(project: Project, fake: FakeSlurm) -> None:
    text = project.run("history").stdout
    assert "1 agent outside of jobs" in text and "1 of its trials failed" in text
    (agent,) = project.json("history", "--json")["agents"]
    assert agent["job"] is None and agent["alive"] is False
    assert [study["study"] for study in project.json("history", "--all", "--json")] == ["demo"]


def test_history_without_accounting(project: Project, fake: FakeSlurm) -> None:
    submit(project, "s1", 1, 100)
    fake.answer("squeue", row(100, "0", "COMPLETED", start=str(NOW)) + "\n")
    assert "accounting does not answer" in project.run("history").stdout
    (submission,) = project.json("history", "--json")["submissions"]
    assert submission["jobs"][0]["state"] == "done"


def test_a_ticket_hides_secrets(project: Project) -> None:
    project.env["MY_API_KEY"] = "abcdefgh12345678"
    script = "import os, sys; print('key is', os.environ['MY_API_KEY']); raise ValueError('broken ' + sys.argv[1])"
    project.write("fail.py", script)
    project.write(
        "study.yaml",
        "name: demo\ncommand: python3 fail.py {x}\nparameters: {x: [7]}\nenv: {PLAIN: value1}\n",
    )
    project.run("run", "--on", "local", code=1)
    text = project.run("explain", "--ticket", "0").stdout
    assert "abcdefgh12345678" not in text and "key is ***" in text
    assert "error: ValueError: broken 7" in text and "python3 fail.py 7" in text
    assert "  export PLAIN=value1\n" in text
    assert "there is no trial" in project.run("explain", "--ticket", "tzzz", code=2).stderr
    assert "neither a trial nor a job" in project.run("explain", "--ticket", "77", code=2).stderr


# -- the pure part


def agent(sub: str, task: int, start: float, *, ended: bool = False, own: int = 50) -> AgentRecord:
    job = {"id": own, "array": 100, "task": task, "restart": 0, "node": "node9", "sub": sub}
    return AgentRecord(
        f"a{start:g}",
        "node9",
        job=job,
        start=start,
        last_seen=start + 30,
        ended=ended,
        reason="nothing left",
    )


def jobs_of(
    agents: Sequence[AgentRecord],
    queue: Queue | None,
    records: Sequence[JobRecord] = (),
    *,
    count: int = 2,
) -> list[JobView]:
    submission = Submission("s1", NOW, count, 0, {"job_name": "p-demo"}, {}, job=100)
    return list(view_jobs([submission], agents, queue, records))


def test_the_journal_alone() -> None:
    """An agent of an earlier version does not record its exit code."""
    first, second = jobs_of([agent("s1", 0, NOW, ended=True)], None)
    assert (first.state, first.over, first.node, first.elapsed_s) == (
        JobState.UNKNOWN,
        True,
        "node9",
        30.0,
    )
    assert first.exit_code is None
    assert (second.state, second.over, second.agent) == (JobState.UNKNOWN, False, "")


def test_exit_codes_from_128_on_are_the_agent_s_own() -> None:
    """`sacct` shows them less 128. A code that another end of the job has is left as it is."""

    def seen(own: int | None, shown: str, state: str = "FAILED") -> tuple[int | None, int | None]:
        line = f"50|100_0|{state}|{shown}|node1|{NOW}|{NOW}|{NOW + 5}|5|None||debug|acc|p-demo"
        ended = replace(agent("s1", 0, NOW, ended=True), exit_code=own)
        (job,) = jobs_of([ended], None, parse_records(line), count=1)
        return job.exit_code, job.signal

    assert [seen(255, "127:0"), seen(137, "9:0"), seen(128, "0:0"), seen(3, "3:0")] == [
        (255, None),
        (137, None),
        (128, None),
        (3, None),
    ]
    assert (seen(None, "127:0"), seen(130, "0:15"), seen(130, "1:0")) == (
        (127, None),
        (0, 15),
        (1, None),
    )
    (alone, _) = jobs_of([replace(agent("s1", 0, NOW, ended=True), exit_code=255)], None)
    assert alone.exit_code == 255


def test_the_last_agent_of_a_job_started_again() -> None:
    (job,) = jobs_of([agent("s1", 0, NOW + 100), agent("s1", 0, NOW)], None, count=1)
    assert job.agent == f"a{NOW + 100:g}"


def test_an_agent_that_ended_knows_more_than_an_old_answer() -> None:
    running = row(100, "0", "RUNNING", start=str(NOW))
    (job,) = jobs_of(
        [agent("s1", 0, NOW + 1, ended=True)], Queue(parse_queue(running), NOW), count=1
    )
    assert job.state is JobState.ENDING
    # The job was started again since; its new agent has not spoken yet.
    later = row(100, "0", "RUNNING", start=str(NOW + 100))
    (job,) = jobs_of(
        [agent("s1", 0, NOW + 1, ended=True)], Queue(parse_queue(later), NOW + 110), count=1
    )
    assert job.state is JobState.RUNNING


def test_a_silent_agent_whose_job_is_over_gets_a_word() -> None:
    record = agent("s1", 0, NOW)
    trial = TrialRecord(3, State.RUNNING, agent=record.id)
    view = study_view(
        name="demo", folder="/f", total=1, counts={State.RUNNING: 1}, causes={}, running=[trial], agents=[record],
        alive={record.id: None},
    )  # fmt: skip
    assert "1 agent on node9 silent, jobs over: 1 trial waits" in render_status(view)


def test_tasks_cancelled_before_they_began() -> None:
    """22.05 does not say which tasks those were; one that began is not among them."""
    line = f"100|100|N/A|CANCELLED|None||{NOW}|{NOW}|9:00|{NOW}|debug|acc|windlass:s1|p-demo"
    began, never = jobs_of([agent("s1", 0, NOW, ended=True)], Queue(parse_queue(line), NOW))
    assert began.state is JobState.UNKNOWN and began.over
    assert never.state is JobState.CANCELLED and never.id is None


def test_a_job_younger_than_the_answer_runs_if_its_agent_does() -> None:
    """It was submitted and began after the queue was asked, and is not one that the scheduler has forgotten."""
    old = Queue((), NOW - 8)
    runs, ended = jobs_of([agent("s1", 0, NOW + 1), agent("s1", 1, NOW + 1, ended=True)], old)
    assert (runs.state, ended.over) == (JobState.RUNNING, True)
    forgotten, _ = jobs_of([agent("s1", 0, NOW + 1)], Queue((), NOW + 60))
    assert forgotten.state is JobState.UNKNOWN


def test_accounting_of_another_job_of_the_same_number() -> None:
    old = (
        f"100|100_0|COMPLETED|0:0|n|{NOW - 9999}|{NOW - 9999}|{NOW - 9000}|5|None||debug|acc|p-demo"
    )
    other = f"100|100_0|COMPLETED|0:0|n|{NOW}|{NOW}|{NOW}|5|None||debug|acc|something else"
    again = (
        f"100|100_0|COMPLETED|0:0|n|{NOW + 9999}|{NOW + 9999}|{NOW + 9999}|5|None||debug|acc|p-demo"
    )
    states = [
        jobs_of([], None, parse_records(text), count=1)[0].state for text in (old, other, again)
    ]
    assert states == [JobState.UNKNOWN, JobState.UNKNOWN, JobState.DONE]


@pytest.mark.parametrize(
    "text,job",
    [
        ("123", (123, None)),
        ("123_4", (123, 4)),
        ("1_", None),
        ("x1", None),
        ("1.2", None),
        ("", None),
    ],
)
def test_numbers_of_jobs(text: str, job: object) -> None:
    assert parse_job(text) == job


def test_tracebacks() -> None:
    text = "a\nTraceback (most recent call last):\n  one\nKeyError: 1\nb\nTraceback (most recent call last):\n  two\n"
    assert (
        find_traceback(text + "ValueError: x\nmore")
        == "Traceback (most recent call last):\n  two\nValueError: x"
    )
    assert find_traceback("nothing of the kind") == ""


def test_words_of_an_interactive_job() -> None:
    request = Request(
        "p-demo",
        7200,
        3,
        32000,
        gpus=1,
        account="def-someone",
        options={"constraint": "big", "requeue": True},
    )
    assert render_salloc(request, 3600, ["bash", "-l"]) == [
        "salloc", "--job-name=windlass-shell", "--account=def-someone", "--cpus-per-task=3", "--mem=32000M",
        "--gres=gpu:1", "--time=0-01:00:00", "--constraint=big", "srun", "--cpus-per-task=3", "--pty", "bash", "-l",
    ]  # fmt: skip
