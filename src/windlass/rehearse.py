"""`run --rehearse`: one agent with the final request first; the others once its usage has levelled out and fits."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from windlass.claims.client import client_name
from windlass.claims.recover import recover
from windlass.claims.register import RegisterFile
from windlass.claims.turn import Turn
from windlass.collect.rehearsal import Allowed, Seen, Verdict, explain_death, judge
from windlass.collect.submissions import Submission, read_submissions
from windlass.counted import counted
from windlass.errors import RehearsalError, input_error
from windlass.flow import Reporter, submit_folder, submit_plan
from windlass.journal.read import JournalReader, journal_files, writer_of
from windlass.launch.base import LaunchedAgents, Launcher
from windlass.launch.control import send_cancel
from windlass.model import Plan, Submitted, Terms
from windlass.paths import StudyPaths
from windlass.planfile import encode_plan_file, load_plan
from windlass.slurm.accounting import fetch_records
from windlass.slurm.ask import ask
from windlass.slurm.options import option_name
from windlass.slurm.queue import read_queue
from windlass.slurm.reasons import explain_reason
from windlass.slurm.states import ENDED, JobState

_POLL_S = 0.5  # looks at files only; the scheduler is asked every 10 s at most
_PATIENCE_S = 60.0  # for trials to come back from a job that was told to end
_TELL_S = 20.0
_SPARE = 0.95  # of this machine's memory: the last of it is not ours to use
_OUT_OF_MEMORY = re.compile(r"exceeded .*memory limit|oom.?kill|out of memory", re.IGNORECASE)
_MEMORY_OPTIONS = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})

Say = Callable[[str], None]


def rehearse_plan(
    plan: Plan, reporter: Reporter, limit_s: float, sample: int | None = None
) -> tuple[StudyPaths, Submitted]:
    """Submit one agent, watch it, and submit the others. Raises RehearsalError where the request does not fit.

    Ctrl-C, as a refusal, ends the one that rehearses; its trials go back to the list.
    """
    assert plan.terms is not None
    paths, submitted = submit_plan(plan, reporter, sample, limit_s)
    if not submitted.jobs:
        if submitted.present:
            verb = "waits or runs" if submitted.present == 1 else "wait or run"
            raise input_error(
                f"{counted(submitted.present, 'agent')} of this study {verb} already: it is too late for a rehearsal",
                "`windlass cancel` ends them; without --rehearse they go on",
            )
        return paths, submitted
    job = submitted.jobs[0]
    submission = next(one for one in read_submissions(paths) if one.job == job)
    reporter.say(f"rehearsing in job {job}; the other agents wait for its outcome, Ctrl-C cancels it")
    reader = _Reader(paths, lambda header: (header.get("job") or {}).get("sub") == submission.id)
    try:
        verdict = _watch(paths, reader, submission, allowed_in_job(plan), reporter.say)
    except BaseException:
        _end(paths, reader, job, reporter.say)
        raise
    for warning in verdict.warnings:
        reporter.say(f"warning: {warning}")
    if verdict.problems:
        _end(paths, reader, job, reporter.say)
        raise _refusal(verdict, "its job has ended, its trials wait again, and no other job was submitted")
    reporter.say(f"rehearsal passed: {verdict.summary}")
    return paths, _release(paths, plan.terms)


def allowed_in_job(plan: Plan) -> Allowed:
    """What the request of a job allows. What the user's own options of sbatch say is not ours to know."""
    request = plan.request
    assert request is not None
    said = {option_name(name) for name in request.options}
    return Allowed(
        memory_mb=None if said & _MEMORY_OPTIONS else request.memory_mb,
        time_s=None if "time" in said else request.time_s,
        waves=plan.waves,
        checkpoint=plan.study.checkpoint is not None,
    )


def _refusal(verdict: Verdict, state: str) -> RehearsalError:
    lines = [problem.render() for problem in verdict.problems]
    return RehearsalError("\n".join([f"the rehearsal was refused: {lines[0]}", *lines[1:], f"  {state}"]))


def _release(paths: StudyPaths, terms: Terms) -> Submitted:
    _forget(paths)
    return submit_folder(paths, terms)


def _forget(paths: StudyPaths) -> None:
    """Agents that follow need not rehearse."""
    with Turn(RegisterFile(paths.claims, client_name()), paths.folder):
        plan = load_plan(paths.plan)
        plan.pop("rehearse_s", None)
        with open(paths.plan + ".new", "wb") as file:
            file.write(encode_plan_file(plan))
        os.replace(paths.plan + ".new", paths.plan)


# -- watching


class _Reader:
    """Reads the journals of the agents that rehearse: one, and another where its job was started anew."""

    def __init__(self, paths: StudyPaths, is_ours: Callable[[Mapping[str, Any]], bool]) -> None:
        self._paths = paths
        self._is_ours = is_ours
        self._readers: dict[str, JournalReader] = {}
        self._strangers: set[str] = set()
        self.seen = Seen()
        self.agents: set[str] = set()

    def update(self) -> Seen:
        for path in journal_files(self._paths.journal):
            if path in self._strangers:
                continue
            reader = self._readers.setdefault(path, JournalReader(path))
            while events := reader.read():
                if events[0].get("e") in ("agent", "client"):
                    if events[0]["e"] == "client" or not self._is_ours(events[0]):
                        self._strangers.add(path)
                        break
                    self.seen = Seen()  # files come in the order in which their writers began
                    self.agents.add(writer_of(path))
                for event in events:
                    self.seen.take(event)
        return self.seen


class _Teller:
    """Says how a rehearsal goes, now and then."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next = 0.0
        self._began = False
        self._reason = ""

    def tell(self, seen: Seen, waits: str) -> None:
        now = time.monotonic()
        if waits and waits != self._reason and not seen.begun:
            self._reason = waits
            self._say(f"its job waits: {explain_reason(waits)}")
        if seen.begun and not self._began:
            self._began, self._next = True, now + _TELL_S
            self._say(f"the rehearsal has begun, with {counted(seen.begun, 'trial')}")
        elif seen.level is not None and now >= self._next:
            self._next = now + _TELL_S
            growth = seen.level["growing_mb_per_min"]
            how = f"growing at {growth:.0f} MB/min" if growth else "not growing"
            self._say(f"rehearsing for {seen.level['since_s']:.0f} s: {seen.peak_mb:.0f} MB, {how}")


def _watch(paths: StudyPaths, reader: _Reader, submission: Submission, allowed: Allowed, say: Say) -> Verdict:
    teller = _Teller(say)
    while True:
        gone, waits = _look_at_job(paths, submission)  # first: what it has written is there when it is gone
        seen = reader.update()
        teller.tell(seen, waits)
        verdict = judge(seen, allowed, gone)
        if verdict is not None:
            return verdict
        if gone:
            said, out_of_memory = _read_end(paths, submission)
            return Verdict("", (explain_death(seen, allowed, said, out_of_memory),))
        time.sleep(_POLL_S)


def _look_at_job(paths: StudyPaths, submission: Submission) -> tuple[bool, str]:
    """Whether it has ended for good, and, while it waits, Slurm's reason. Without an answer it is still there."""
    queue = read_queue(paths.queue, ask)
    if queue is None or submission.is_newer_than(queue.asked):
        return False, ""
    rows = [row for row in queue.with_comment(submission.comment) if row.state not in ENDED]
    waits = not any(row.state is not JobState.WAITING for row in rows)
    return not rows, next((row.reason for row in rows if row.reason), "") if waits else ""


def _read_end(paths: StudyPaths, submission: Submission) -> tuple[str, bool]:
    """What became of a job whose agent said nothing of it, and whether memory ran out."""
    job = submission.job or 0
    queue = read_queue(paths.queue, ask)
    found = [(row.state, row.word) for row in (queue.rows_of(job) if queue is not None else ())]
    found = found or [(record.state, record.word) for record in fetch_records([job], ask) or ()]
    state, word = found[0] if found else (JobState.UNKNOWN, "it is not in the queue any more")
    complaint = next((line for line in _read_log(paths, job) if _OUT_OF_MEMORY.search(line)), "")
    said = f"job {job} ended: {word}" + (f" ({complaint.rpartition('error: ')[2].strip()})" if complaint else "")
    return said, state is JobState.OUT_OF_MEMORY or bool(complaint)


def _read_log(paths: StudyPaths, job: int) -> list[str]:
    """What Slurm itself said in the log of the job."""
    name = f"{os.path.basename(paths.folder)}_{job}_0.out"
    try:
        with open(os.path.join(paths.hpc_outputs, name), encoding="utf-8", errors="replace") as file:
            return [line for line in file if "slurmstepd" in line]
    except OSError:
        return []


def _end(paths: StudyPaths, reader: _Reader, job: int, say: Say) -> None:
    """End the job that rehearses, and see its trials back on the list."""
    problem = send_cancel([str(job)], only_waiting=False)
    _forget(paths)
    if problem is not None:
        say(f"job {job} could not be cancelled: {problem}")
        return
    register_file = RegisterFile(paths.claims, client_name())
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        reader.update()
        if not reader.agents & set(register_file.read().held):
            return
        recover(paths, register_file)
        time.sleep(_POLL_S)
    say(f"job {job} is cancelled; its trials come back once it has ended")


# -- on this machine


class RehearsingLauncher:
    """Starts agents as another launcher does, and stops one that outgrows this machine."""

    def __init__(self, launcher: Launcher, say: Say) -> None:
        self.name = launcher.name
        self._launcher = launcher
        self._say = say
        self._verdict: Verdict | None = None

    def launch(self, folder: str, slots: int) -> LaunchedAgents:
        paths = StudyPaths(folder)
        former = set(journal_files(paths.journal))
        agents = self._launcher.launch(folder, slots)
        if self._verdict is not None:
            return agents
        reader = _Reader(paths, lambda header: paths.journal_of(header["id"]) not in former and "job" not in header)
        return _WatchedAgents(agents, reader, self._say, self._take)

    def _take(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def raise_for_refusal(self) -> None:
        """Once the agents have ended. Raises RehearsalError where one had to be stopped."""
        if self._verdict is not None and self._verdict.problems:
            raise _refusal(self._verdict, "the trials under way were stopped and wait again")


class _WatchedAgents:
    """Agents that are looked at whenever somebody waits for them."""

    def __init__(
        self, agents: LaunchedAgents, reader: _Reader, say: Say, on_verdict: Callable[[Verdict], None]
    ) -> None:
        self._agents = agents
        self._reader = reader
        self._say = say
        self._on_verdict = on_verdict
        self._decided = False
        self._next = 0.0
        self.drain, self.stop, self.complaints, self.close = agents.drain, agents.stop, agents.complaints, agents.close

    def wait(self, patience_s: float) -> int | None:
        code = self._agents.wait(patience_s)
        now = time.monotonic()
        if not self._decided and (now >= self._next or code is not None):
            self._next = now + _POLL_S
            self._look()
        return code

    def _look(self) -> None:
        seen = self._reader.update()
        if seen.bye not in (None, "nothing left"):
            return  # the user has ended it
        most_mb = (seen.level or {}).get("most_mb")
        allowed = Allowed(None if most_mb is None else most_mb * _SPARE, "that this machine has for it")
        verdict = judge(seen, allowed)
        if verdict is None:
            return
        self._decided = True
        self._on_verdict(verdict)
        for warning in verdict.warnings:
            self._say(f"warning: {warning}")
        if verdict.problems:
            self._agents.stop()
        else:
            self._say(f"rehearsal passed, going on: {verdict.summary}")
