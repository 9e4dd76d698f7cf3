"""The first line of `status`: why a study does not go on by itself, and what to do."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from windlass.collect.jobview import JobsView, JobView
from windlass.collect.reconcile import FailureGroup, StudyView, study_view
from windlass.collect.submissions import Submission
from windlass.collect.unbegun import add_outputs
from windlass.core.claims.first import Stop
from windlass.core.journal.records import AgentRecord, Note
from windlass.core.paths import StudyPaths
from windlass.core.queue.states import JobState
from windlass.core.states import State
from windlass.view.escapes import show
from windlass.view.history import render_history
from windlass.view.status import render_end, render_status, view_to_json

FULL = "not ready: the local disk of node3 is full: data mnist needs 2 GB and 3 files, /tmp/w has room for 1 GB"


def view(
    *reasons: str, state: JobState = JobState.FAILED, code: int | None = None, cut: int = 0
) -> StudyView:
    """Ten trials, six done; one agent of the last submission for each reason."""
    agents = [
        AgentRecord(
            f"a{place}",
            host="node3",
            job={"sub": "new", "array": 7, "task": place},
            ended=True,
            reason=reason,
        )
        for place, reason in enumerate(reasons)
    ]
    submissions = tuple(
        Submission(name, 1.0, max(1, len(agents)), 0, {"time_s": 300}, {}, job=7, settled_at=1.0)
        for name in ("old", "new")
    )
    jobs = tuple(
        JobView("new", 7, place, state=state, exit_code=code)
        for place in range(max(1, len(agents)))
    )
    notes = [
        Note(
            1.0,
            "a0",
            "the job's time was up before 2 trials were done, which must begin anew in another job",
        )
    ]
    old = AgentRecord(
        "b", job={"sub": "old", "array": 6, "task": 0}, ended=True, reason="not ready: long ago"
    )
    return study_view(
        name="demo", folder="/f", total=10, counts={State.DONE: 6, State.INTERRUPTED: 4},
        causes={"job's time up": cut} if cut else {}, running=(), agents=[old, *agents],
        alive={agent.id: False for agent in agents}, notes=notes if cut else (),
        jobs=JobsView(submissions, jobs, 1.0, True),
    )  # fmt: skip


@pytest.mark.parametrize(
    "made,words",
    [
        (view("the end of the job's time is near", "nothing left", cut=2), ["4 trials are not done", "the job's time of 5 min", "needs: {time"]),
        (view("the job's time is too short for another trial"), ["the job's time of 5 min", "`windlass run` submits more"]),
        (view("", state=JobState.TIMED_OUT), ["the job's time of 5 min was up"]),
        (view("not ready: requirements.txt cannot be built: no such wheel"), ["no trial could begin on node3", "no such wheel", "Mend that"]),
        (view("not ready: data x: /s/x.tar is damaged: it ends in the middle"), ["is damaged", "`windlass run` packs it anew"]),
        (view(FULL), ["the local disk of node3 is full", "leaves that node out"]),
        (view("disk full"), ["the disk of /f is full", "Make room"]),
        (view("", code=5), ["the disk of /f is full", "Make room"]),
    ],
)  # fmt: skip
def test_the_reason_and_the_remedy_come_first(made: StudyView, words: list[str]) -> None:
    first, *rest = render_status(made).splitlines()
    for word in words:
        assert word in first
    assert "`windlass run` goes on" not in "\n".join(rest), "that alone would not help"
    problem = view_to_json(made)["problem"]
    last = render_end(made).splitlines()[-2:]
    assert last == [f"demo: {problem['reason']}", f"  {problem['remedy']}"], (
        "the last lines of a run are what is read"
    )
    assert first == f"demo: {problem['reason']}. {problem['remedy']}"


def test_nothing_is_wrong() -> None:
    for made in (
        view("nothing left"),
        view("the end of the job's time is near", state=JobState.WAITING),  # others wait to go on
        view(),  # what went wrong before the last submission is history
        dataclasses.replace(view(FULL), counts={**view().counts, "interrupted": 0, "done": 10}),
    ):
        assert view_to_json(made)["problem"] is None and render_status(made).startswith(
            "demo   10 trials"
        )
    unready = view(FULL, "nothing left")
    assert view_to_json(unready)["problem"] is None, "the other node could"


def unbegun(*states: JobState, output: str = "", code: int | None = 127) -> StudyView:
    """The last submission has a job for each state, and no agent; the ones that failed have printed `output`."""
    made = view()
    assert made.jobs is not None
    jobs = tuple(
        JobView(
            "new", 7, place, state=state, exit_code=code, log=f"/o/p_7_{place}.out", output=output
        )
        if state is JobState.FAILED
        else JobView("new", 7, place, state=state)
        for place, state in enumerate(states)
    )
    return dataclasses.replace(made, jobs=dataclasses.replace(made.jobs, jobs=jobs))


def test_jobs_that_ended_before_their_agent_began() -> None:
    failed, text = (
        JobState.FAILED,
        "slurm_script: line 17: /tmp/v/bin/python3: No such file or directory",
    )
    for made, words in (
        (unbegun(failed, output=text), [f"job 7_0 ended with exit code 127 before its agent began: {text} (the end of /o/p_7_0.out)", "Nodes do not see /tmp/v/bin/python3"]),
        (unbegun(failed, output="a\nb"), ["a; b (the end of", "the next job would end in the same way"]),
        (unbegun(failed, code=None), ["job 7_0 ended before its agent began, and left nothing in /o/p_7_0.out"]),
        (unbegun(failed, failed, JobState.WAITING, output=text), ["2 of 3 jobs ended", "job 7_1 ended"]),
    ):  # fmt: skip
        for shown in (render_status(made).splitlines()[0], render_end(made)):
            for word in words:
                assert word in shown.replace("\n  ", " ")
        assert "ended before its agent began" in render_history(made)
    assert view_to_json(unbegun(failed, JobState.RUNNING, output=text))["problem"] is None, (
        "its agent may begin yet"
    )


def test_the_output_of_jobs_without_an_agent(tmp_path: Path) -> None:
    paths = StudyPaths(str(tmp_path / "s"))
    os.makedirs(paths.hpc_outputs)
    log = os.path.join(paths.hpc_outputs, "s_7_0.out")
    Path(log).write_text("long ago\n\n1\n2\n 3\n")
    failed = JobView("new", 7, 0, state=JobState.FAILED, source="squeue")
    begun, forgotten = dataclasses.replace(failed, agent="a"), JobView("new", 7, 0)
    silent = dataclasses.replace(forgotten, task=1)
    cancelled = dataclasses.replace(failed, state=JobState.CANCELLED)
    jobs = add_outputs([failed, begun, forgotten, silent, cancelled], paths)
    assert [(job.log, job.output) for job in jobs] == [
        (log, "1\n2\n3"),
        ("", ""),
        (log, "1\n2\n3"),
        ("", ""),
        ("", ""),
    ]


def test_a_study_that_has_stopped_says_so_first_and_failed_is_red() -> None:
    reason = "ModuleNotFoundError: No module named 'sklearn.svm'"
    group = FailureGroup(
        12, "RuntimeError: loss \x1b[2Jexploded", "failed", True, {"lr": 8, "model": "big"}, (0,)
    )
    stopped = dataclasses.replace(
        view(), stop=Stop(3, reason), failures=(group,), causes={"failed": 12, "job's time up": 2},
        counts={**view().counts, "failed": 12, "waiting": 63, "done": 0},
    )  # fmt: skip
    first = render_status(stopped).splitlines()[0]
    assert "67 trials wait" in first and reason in first and "`pip install scikit-learn`" in first
    for text in (render_status(stopped), render_end(stopped)):
        assert "\x1b" not in text
        assert (
            "  12 × RuntimeError: loss \\x1b[2Jexploded (all with lr=8, model=big)\n  2 × job's time up"
            in text
        )
    assert "\x1b[31mfailed 12\x1b[0m" in show(render_status(stopped, color=True))
    done = dataclasses.replace(stopped, stop=None, counts={**stopped.counts, "done": 3})
    assert "\x1b[32mdone 3\x1b[0m" in show(render_end(done, color=True))
    gone = dataclasses.replace(stopped, counts={**stopped.counts, "waiting": 0, "interrupted": 0})
    assert view_to_json(gone)["problem"] is None, "nothing is left to begin"


def test_a_note_on_what_was_mended_is_gone() -> None:
    """A damaged archive is mended for all nodes when an agent has begun anywhere, a node when one has begun there."""
    damaged = "data x: /s/x.tar is damaged: it ends in the middle; `windlass run` packs it anew"
    reasons = {"damaged": damaged, "broken": "there is no folder /w on n1"}

    def shown(name: str, *later: AgentRecord) -> bool:
        failed = AgentRecord(
            "a", host="n1", start=10.0, ended=True, reason=f"not ready: {reasons[name]}"
        )
        made = study_view(
            name="demo", folder="/f", total=2, counts={State.DONE: 2}, causes={}, running=(), agents=[failed, *later],
            alive={}, notes=[Note(11.0, "a", f"n1: {reasons[name]}"), Note(11.0, "a", "another note")],
        )  # fmt: skip
        text = render_status(made)
        assert "note: another note" in text
        return reasons[name] in text

    there = AgentRecord("b", host="n1", start=20.0, ended=True, reason="nothing left")
    elsewhere = dataclasses.replace(there, host="n2")
    assert (
        not shown("damaged", there)
        and not shown("damaged", elsewhere)
        and not shown("broken", there)
    )
    assert shown("damaged") and shown("broken", elsewhere)
    assert shown("damaged", dataclasses.replace(there, start=5.0))
    assert shown("damaged", dataclasses.replace(there, reason=f"not ready: {damaged}"))
