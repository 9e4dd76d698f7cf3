"""Why a study does not go on by itself, and what to do about it: the first thing that people want to know. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.collect.jobview import JobView
from windlass.collect.reconcile import StudyView
from windlass.core.counted import counted
from windlass.core.journal.reason import package_of
from windlass.core.journal.records import AgentRecord, Note
from windlass.core.queue.states import JobState
from windlass.core.states import Cause, State
from windlass.core.units import render_duration
from windlass.view.jobs import render_nobody, render_output

_NOT_READY = "not ready: "
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
# As agents give the reason of their end; see agent/loop.py.
_TIME_UP = (
    "the end of the job's time is near",
    "the job's time limit",
    "the job's time is too short for another trial",
    "the job's time is nearly up",
)
_DISK_FULL = "disk full"
_CODE_FULL = 5  # exit code of an agent; see docs/failures.md
_AT_WORK = (JobState.RUNNING, JobState.SUSPENDED)
_COMING = (JobState.WAITING, *_AT_WORK)
_NO_PYTHON = re.compile(
    r"(/\S*python[\d.]*): (?:No such file or directory|not found|Permission denied)"
)
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class Trouble:
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}"


def find_trouble(view: StudyView) -> Trouble | None:
    """What ended the agents that were submitted last; None while one is at work, or where no trial is open.

    A study whose first trials all failed alike is in trouble also while agents finish what they had begun.
    """
    open_trials = view.counts[State.WAITING.value] + view.counts[State.INTERRUPTED.value]
    if open_trials and view.stop is not None:
        return _explain_stop(view.stop.failed, view.stop.reason, open_trials)
    if not open_trials or any(agent.alive for agent in view.agents):
        return None
    agents, jobs, request = _of_last_submission(view)
    ready = [agent for agent in agents if agent.ended and not agent.reason.startswith(_NOT_READY)]
    unready = [agent for agent in agents if agent.reason.startswith(_NOT_READY)]
    if unready and not ready:
        return _explain_unready(unready)
    if any(agent.reason == _DISK_FULL for agent in agents) or any(map(_died_of_full_disk, jobs)):
        trials = counted(open_trials, "trial is", "trials are")
        reason = f"{trials} not done: the disk of {view.folder} is full, or your quota there"
        return Trouble(
            reason,
            "Make room there (`windlass clean` shows what can go), then `windlass run` goes on",
        )
    unbegun = [job for job in jobs if job.log]
    if unbegun and not agents and not any(job.state in _AT_WORK for job in jobs):
        return _explain_unbegun(unbegun, len(jobs))
    if any(job.state in _COMING for job in jobs):
        return None
    late = sum(agent.reason in _TIME_UP for agent in agents)
    late = max(late, sum(job.state is JobState.TIMED_OUT for job in jobs))
    return _explain_time(view, open_trials, late, request) if late else None


def _explain_stop(failed: int, why: str, open_trials: int) -> Trouble:
    """The trouble of a study that was stopped because its first trials failed alike."""
    left = counted(open_trials, "trial waits", "trials wait")
    return Trouble(
        f"stopped, {left}: the first {failed} trials all failed the same way: {why.rstrip('.')}",
        f"{_remedy_of_failure(why)}, then `windlass run` goes on with all that are not done; "
        "`windlass run --keep-going` does so whatever fails",
    )


def _remedy_of_failure(reason: str) -> str:
    """What to do about the error of a trial. Missing modules and missing files get an answer of their own."""
    module = _NO_MODULE.search(reason)
    if module is not None:
        package = package_of(module[1])
        return f"Install it where trials find it (`pip install {package}` with the `python` of their command)"
    if "command not found" in reason or "No such file or directory" in reason:
        return (
            "Correct the command or its paths (`windlass plan` shows commands as they are executed)"
        )
    return "Correct that (`windlass logs --failed` shows more of it)"


def is_settled(note: Note, view: StudyView) -> bool:
    """Whether a note tells why an agent could not begin, and a later agent could.

    What is wrong with a node is mended when an agent has begun there, what is wrong with an archive when one has begun
    anywhere: all nodes unpack the same archive.
    """
    agents = [agent for agent in view.agents if agent.record.id == note.writer]
    if not agents or not agents[0].record.reason.startswith(_NOT_READY):
        return False
    failed = agents[0].record
    problem = failed.reason.removeprefix(_NOT_READY)
    if not note.text.endswith(problem):
        return False
    return any(
        other.record.start > failed.start
        and (_is_of_archive(problem) or other.record.host == failed.host)
        for other in view.agents
        if other.running or (other.record.ended and not other.record.reason.startswith(_NOT_READY))
    )


def explain_standstill(view: StudyView) -> str:
    """Why no agent is at work on trials that are open, and what would change that."""
    trouble = find_trouble(view)
    return render_nobody(view.jobs) if trouble is None else str(trouble)


def _died_of_full_disk(job: JobView) -> bool:
    """An agent that ended in order gives its reason, and its job may have the exit code of a trial."""
    return job.exit_code == _CODE_FULL and not job.agent_ended


def _of_last_submission(view: StudyView) -> tuple[list[AgentRecord], list[JobView], dict[str, Any]]:
    """Its agents, its jobs, and what they asked for. Without jobs: the agent that began last."""
    if view.jobs is None:
        newest = max(
            (agent.record for agent in view.agents), key=lambda agent: agent.start, default=None
        )
        return ([] if newest is None else [newest]), [], {}
    taken = [submission for submission in view.jobs.submissions if submission.refused is None]
    if not taken:
        return [], [], {}
    last = taken[-1]
    agents = [
        agent.record for agent in view.agents if (agent.record.job or {}).get("sub") == last.id
    ]
    return agents, [job for job in view.jobs.jobs if job.submission == last.id], dict(last.request)


def _explain_unready(agents: Sequence[AgentRecord]) -> Trouble:
    """No trial could begin anywhere. Where agents give several reasons, the most frequent one."""
    problem = Counter(agent.reason.removeprefix(_NOT_READY) for agent in agents).most_common(1)[0][
        0
    ]
    hosts = sorted({agent.host for agent in agents if agent.reason.endswith(problem)})
    # The remedy says so.
    shown = " ".join(problem.split()).removesuffix("; `windlass run` packs it anew")
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS].rstrip() + " …"
    where = f" on {', '.join(hosts)}" if hosts and not any(host in shown for host in hosts) else ""
    return Trouble(f"no trial could begin{where}: {shown}", _remedy_of(problem))


def _explain_unbegun(ended: Sequence[JobView], submitted: int) -> Trouble:
    """Jobs in which no agent could begin; the newest one is shown."""
    job = ended[-1]
    jobs = f"job {job.name}"
    if submitted > 1:
        jobs = f"{len(ended)} of {submitted} jobs ended before their agents began, {jobs}"
    code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
    if job.signal:
        code = f" by signal {job.signal}"
    where = f" on {job.node}" if job.node else ""
    ending = f"no trial could begin: {jobs} ended{code}{where} before its agent began"
    if not job.output:
        return Trouble(f"{ending}, and left nothing in {job.log}", _remedy_of_unbegun(""))
    return Trouble(
        f"{ending}: {render_output(job)} (the end of {job.log})", _remedy_of_unbegun(job.output)
    )


def _remedy_of_unbegun(output: str) -> str:
    """What to do where jobs ended before their agent started, judged by what they printed."""
    missing = _NO_PYTHON.search(output)
    if missing is not None:
        return (
            f"Nodes do not see {missing[1]}, the Python that Windlass is installed with: install Windlass in a folder "
            "that they see (usually one in your home folder), then `windlass run` goes on with that one"
        )
    return "Correct that first, because the next job would end in the same way; then `windlass run` goes on"


def _remedy_of(problem: str) -> str:
    if " is full" in problem or "No space left" in problem or "quota" in problem:
        return "`windlass run` leaves that node out and goes on; whoever runs the cluster may want to know"
    if _is_of_archive(problem):
        return "`windlass run` packs it anew and goes on"
    return "Mend that, then `windlass run` goes on; `windlass check` tries it before"


def _is_of_archive(problem: str) -> bool:
    return any(
        word in problem
        for word in ("damaged", "cut short", "cannot be unpacked", "when it was submitted")
    )


def _explain_time(view: StudyView, open_trials: int, late: int, request: dict[str, Any]) -> Trouble:
    """The trouble of trials that are not done because the time of their jobs was up.

    Trials that lost their work need more time or checkpoints; others only need more jobs.
    """
    time_s = request.get("time_s")
    length = f" of {render_duration(time_s)}" if time_s else ""
    jobs = (
        f"the job's time{length} was up"
        if late == 1
        else f"the time of {late} jobs{length} each was up"
    )
    reason = f"{counted(open_trials, 'trial is', 'trials are')} not done: {jobs}"
    cut = view.causes.get(Cause.JOB_TIME.value, 0)
    if not cut or not any("begin anew" in note.text for note in view.notes):
        return Trouble(reason, "`windlass run` submits more jobs, which go on")
    return Trouble(
        reason,
        f"{cut} had begun: ask for more time (`needs: {{time: …}}`) or save checkpoints (`checkpoint:`), "
        "then `windlass run` goes on",
    )
