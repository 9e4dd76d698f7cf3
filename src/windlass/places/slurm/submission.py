"""Agents become jobs, each exactly once: the intent is written before sbatch, what became of it after.

Whoever comes next settles what a client that died in between has left open, before anything else is submitted.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable

from windlass.collect.fullnodes import read_full_nodes
from windlass.collect.submissions import Submission, comment_of, read_submissions
from windlass.core.claims.alive import same_kernel
from windlass.core.claims.client import ClientJournal, client_name
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.claims.strays import end_strays
from windlass.core.errors import Problem, SchedulerError
from windlass.core.ids import agent_id
from windlass.core.journal.code import code_key, has_other_settings
from windlass.core.journal.read import read_headers
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_file
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import read_queue
from windlass.core.queue.rows import QUEUE_ENV, Queue, parse_queue, queue_command
from windlass.core.queue.states import JobState
from windlass.model import Request, Submitted, Terms
from windlass.places.slurm.arrays import (
    SUBMISSION_VARIABLE,
    Sent,
    script_of,
    send_array,
    sentence_of,
    try_array,
)
from windlass.plan.slurm import split_agents

_PRESENT = frozenset({JobState.WAITING, JobState.SUSPENDED, JobState.RUNNING, JobState.UNKNOWN})
_AT_WORK = frozenset({JobState.SUSPENDED, JobState.RUNNING})
NO_SUBMISSION = "ID"
_NO_NODES = ("Requested node configuration is not available", "Required node not available")
# No sbatch waits for longer; what the scheduler does not know then, it will never know.
_SETTLED_AFTER_S = 300.0


def submit_agents(
    terms: Terms, paths: StudyPaths, wanted: int, announce: Callable[[int], None] | None = None
) -> Submitted:
    """See to it that `wanted` agents wait or run. The caller holds the study's lock, so nobody else submits.

    `announce` is called before anything is submitted, with the number of agents that are there already; not where
    nothing is submitted.
    """
    submissions = read_submissions(paths)
    with ClientJournal(paths) as journal:
        settled: list[str] = []
        present, outdated = 0, list[str]()
        if submissions:
            queue = fetch_queue()
            settled = [
                _settle(paths, one, queue, journal) for one in submissions if not one.settled
            ]
            present, outdated = _count_agents(terms, paths, submissions, queue)
        missing = max(0, wanted - present)
        if missing and announce is not None:
            announce(present)
        if missing:
            terms = _keep_throttle(terms, paths, outdated, is_over=not present and not outdated)
        first = max((one.first + one.agents for one in submissions), default=0)
        if missing and submissions:
            terms, left_out = leave_out_full_nodes(terms, paths)
            settled += left_out
        jobs = _send_arrays(terms, paths, missing, first, journal)
    return Submitted(tuple(jobs), missing, present, tuple(settled), len(outdated))


def preview_agents(
    terms: Terms, paths: StudyPaths, wanted: int, has_changed: bool = False
) -> Submitted:
    """What `submit_agents` would do, as far as the queue and the last run tell. Nothing is written or submitted.

    `has_changed`: the code is not that of the last run any more, so that all agents at work have former code.
    """
    submissions = read_submissions(paths) if os.path.isdir(paths.journal) else []
    present, outdated = 0, list[str]()
    if submissions:
        queue = fetch_queue()
        present, outdated = _count_agents(terms, paths, submissions, queue)
        if has_changed:
            comments = {submission.comment for submission in submissions}
            at_work = [
                row.name for row in queue.rows if row.comment in comments and row.state in _AT_WORK
            ]
            present -= len(at_work) - len(outdated) if terms.units == 1 else 0
            outdated = at_work
    return Submitted((), max(0, wanted - present), present, (), len(outdated))


def _count_agents(
    terms: Terms, paths: StudyPaths, submissions: list[Submission], queue: Queue
) -> tuple[int, list[str]]:
    """How many agents are there and take trials, and the ids of those that began with former code or settings."""
    present = (
        count_present(submissions, queue) if terms.units == 1 else count_chains(submissions, queue)
    )
    outdated = find_outdated(paths, submissions, queue)
    if (
        terms.units == 1
    ):  # The units of a chain follow one another: the next one has the new code and settings.
        present -= len(outdated)
    return present, outdated


def leave_out_full_nodes(terms: Terms, paths: StudyPaths) -> tuple[Terms, list[str]]:
    """The same terms without nodes whose local disk was found full, unless no other node would take the jobs.

    Returns the terms, and what the user should know about it.
    """
    full = read_full_nodes(paths, time.time())
    if not full:
        return terms, []
    names = ", ".join(
        f"{node} (at {time.strftime('%d %b %H:%M', time.localtime(when))})"
        for node, when in full.items()
    )
    options = dict(terms.request.options)
    excluded = [str(options["exclude"])] if options.get("exclude") else []
    options["exclude"] = ",".join([*excluded, *full])
    fewer = dataclasses.replace(terms, request=dataclasses.replace(terms.request, options=options))
    if not try_array(example_script(fewer, paths), terms.patience_s).ok:
        return terms, [
            f"the local disk was full on {names}, and no other node takes these jobs: they may go there"
        ]
    return fewer, [
        f"left out, because the local disk was full: {names}; support may want to know of it"
    ]


def _keep_throttle(terms: Terms, paths: StudyPaths, outdated: list[str], *, is_over: bool) -> Terms:
    """The terms with the limit that `windlass throttle` has set; it is lifted where all jobs that it was for are gone.

    Agents with former code do not count: they end by themselves, and the new ones would end because of them.
    """
    limit: int | None = None

    def change(register: Register) -> Register | None:
        """Set the limit of agents at a time, or lift it once it is over. Returns None where nothing changes."""
        nonlocal limit
        before = (register.throttle, register.leaving)
        if is_over:
            register.throttle = None
        limit = register.throttle
        register.leaving = outdated if limit else []
        return None if before == (register.throttle, register.leaving) else register

    RegisterFile(paths.claims, client_name()).update(change)
    if limit is None or terms.units > 1:
        return terms
    fewer = min(limit, terms.request.throttle or limit)
    return dataclasses.replace(terms, request=dataclasses.replace(terms.request, throttle=fewer))


def _send_arrays(
    terms: Terms, paths: StudyPaths, agents: int, first: int, journal: ClientJournal
) -> list[int]:
    """Submit agents as arrays, no larger than the cluster takes. Returns their job numbers.

    A limit of jobs at a time is divided among the arrays. Raises SchedulerError at the first array that is refused;
    those before it stay submitted and are counted by the next run.
    """
    request = terms.request
    arrays = _arrays(terms, agents)
    if request.throttle and len(arrays) > 1 and terms.units == 1:
        request = dataclasses.replace(request, throttle=max(1, request.throttle // len(arrays)))
    jobs: list[int] = []
    for offset, count in arrays:
        sent = _send(request, terms, paths, first + offset, count, journal)
        if sent.job is None:
            done = f"{len(jobs)} of {len(arrays)} arrays were submitted before; " if jobs else ""
            if sent.refused is not None:
                raise SchedulerError(
                    f"sbatch: {sent.refused}\n  hint: {done}mend this and run again"
                )
            raise SchedulerError(
                f"sbatch did not say whether it took the job: {sent.unsure}\n"
                f"  hint: {done}`windlass run` again finds out; nothing is submitted twice"
            )
        jobs.append(sent.job)
    return jobs


def _arrays(terms: Terms, agents: int) -> list[tuple[int, int]]:
    """Arrays for so many agents. A chain is one of its own: a chain that is through uses up no units of another."""
    if terms.units == 1:
        return list(split_agents(agents, terms.array_limit))
    return [(number * terms.units, terms.units) for number in range(agents)]


def _send(
    request: Request,
    terms: Terms,
    paths: StudyPaths,
    first: int,
    count: int,
    journal: ClientJournal,
) -> Sent:
    """Submit one array.

    The intent is in the journal before sbatch is called, so that a job is found again whatever happens.
    """
    submission = agent_id()
    script = script_of(request, paths, count, comment_of(submission), submission, terms.workdir)
    with open(paths.job_script, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(script)
    asked = {**dataclasses.asdict(request), "because": None, "options": dict(request.options)}
    if terms.units > 1:
        asked["units"] = terms.units
    journal.write(
        {"e": "submit", "sub": submission, "agents": count, "first": first, "request": asked}
    )
    sent = send_array(script, submission, terms.patience_s)
    if sent.unsure is not None:
        sent = _look_for(submission, sent)
    if sent.job is not None:
        journal.write({"e": "submitted", "sub": submission, "job": sent.job})
    elif sent.refused is not None:
        journal.write({"e": "refused", "sub": submission, "text": sent.refused})
    return sent


def _look_for(submission: str, sent: Sent) -> Sent:
    """sbatch did not answer: if the job is in the queue all the same, it was taken."""
    try:
        job = _find_in_queue(submission, fetch_queue())
    except SchedulerError:
        return sent
    return sent if job is None else Sent(job=job)


def example_script(terms: Terms, paths: StudyPaths) -> str:
    """The script of the first array; the name of the submission is filled in when there is one."""
    count = _arrays(terms, terms.agents)[0][1]
    return script_of(
        terms.request, paths, count, comment_of(NO_SUBMISSION), NO_SUBMISSION, terms.workdir
    )


def try_request(terms: Terms, paths: StudyPaths, nodes_are_away: bool = False) -> list[Problem]:
    """Let Slurm look at the request. Returns a problem where it would refuse it.

    Where the nodes that fit are out of service, a test finds none; a job is taken all the same, and waits.
    """
    answer = try_array(example_script(terms, paths), terms.patience_s)
    text = sentence_of(answer)
    if answer.code is None or "Unable to contact" in answer.errors:
        raise SchedulerError(
            f"the scheduler does not answer: {text}\n  hint: nothing was submitted; run again later"
        )
    if not answer.ok and not (nodes_are_away and any(word in answer.errors for word in _NO_NODES)):
        return [Problem(f"sbatch would refuse this: {text}", "windlass site shows what there is")]
    return []


def read_terms(paths: StudyPaths) -> Terms | None:
    """On what terms a study's agents were last submitted; None where they are no jobs."""
    terms = read_plan_file(paths.plan).terms
    if terms is None:
        return None
    request = {**terms["request"], "mail_types": tuple(terms["request"]["mail_types"])}
    return Terms(**{**terms, "request": Request(**request)})


# -- settling what a dead client left open


def fetch_queue() -> Queue:
    """The queue as it is now, from the scheduler itself: what is submitted next depends on it."""
    asked = time.time()
    text = ask(queue_command(), QUEUE_ENV)
    if text is None:
        raise SchedulerError(
            "the scheduler does not answer (squeue)\n  hint: nothing was submitted; run again later"
        )
    return Queue(parse_queue(text), asked)


def count_present(submissions: list[Submission], queue: Queue) -> int:
    """Agents of this study that wait or run."""
    comments = {submission.comment for submission in submissions}
    present = 0
    for row in queue.rows:
        if row.comment in comments and row.state in _PRESENT:
            present += sum(last - first + 1 for first, last in row.pending_tasks) or 1
    return present


def find_outdated(paths: StudyPaths, submissions: list[Submission], queue: Queue) -> list[str]:
    """Agents at work that began with other code or settings than the study has now. They take no more trials."""
    comments = {submission.comment for submission in submissions}
    at_work = [row for row in queue.rows if row.comment in comments and row.state in _AT_WORK]
    plan = read_plan_file(paths.plan)
    if not at_work:
        return []
    began: dict[tuple[int, int | None], tuple[float, bool, str]] = {}
    for header in read_headers(paths.journal):
        job, code = header.get("job"), header.get("code")
        if (
            job and code
        ):  # Agents of earlier versions do not record their code, and do not end because of it.
            is_other = code_key(code) != code_key(plan.code) or has_other_settings(
                header.get("settings_key"), plan.settings_key
            )
            moment = (header["t"], is_other, str(header.get("id")))
            place = (job["array"], job.get("task"))
            began[place] = max(moment, began.get(place, moment))
    newest = [began.get((row.array, row.task), (0.0, False, "")) for row in at_work]
    return sorted(agent for _, is_other, agent in newest if is_other)


def agents_may_be_there(paths: StudyPaths, max_age_s: float = 10.0) -> bool:
    """Whether an agent of this study waits or runs, or may do: where the scheduler does not answer, or not yet."""
    submissions = read_submissions(paths)
    queue = read_queue(paths.queue, ask, max_age_s)
    if queue is None or any(one.is_newer_than(queue.asked) for one in submissions):
        return True
    return bool(count_present(submissions, queue))


def present_states(paths: StudyPaths, max_age_s: float) -> set[JobState]:
    """What the study's jobs in the queue are doing; nothing where the scheduler does not answer."""
    comments = {submission.comment for submission in read_submissions(paths)}
    queue = read_queue(paths.queue, ask, max_age_s)
    return set() if queue is None else {row.state for row in queue.rows if row.comment in comments}


def count_chains(submissions: list[Submission], queue: Queue) -> int:
    """Chains of this study of which a unit waits or runs."""
    comments = {submission.comment for submission in submissions}
    return len(
        {row.array for row in queue.rows if row.comment in comments and row.state in _PRESENT}
    )


def _find_in_queue(submission: str, queue: Queue) -> int | None:
    rows = queue.with_comment(comment_of(submission))
    return rows[0].array if rows else None


def _find_by_agents(paths: StudyPaths, submission: str) -> int | None:
    """Agents write whose they are: the scheduler may have forgotten a job that ended long ago."""
    for header in read_headers(paths.journal):
        job = header.get("job")
        if job and job.get("sub") == submission:
            return int(job["array"])
    return None


def _settle(paths: StudyPaths, one: Submission, queue: Queue, journal: ClientJournal) -> str:
    """Find out what became of a submission whose client could not say it, and write that down."""
    if same_kernel(one.client):
        end_strays(SUBMISSION_VARIABLE, one.id, program="sbatch")
        queue = fetch_queue()
    job = _find_in_queue(one.id, queue)
    if job is None:
        job = _find_by_agents(paths, one.id)
    if job is not None:
        journal.write({"e": "submitted", "sub": one.id, "job": job})
        return f"an earlier submission was taken as job {job}"
    if not same_kernel(one.client) and time.time() - one.time < _SETTLED_AFTER_S:
        raise SchedulerError(
            f"it is not known yet what became of the submission of {time.time() - one.time:.0f} s ago, made on "
            f"{one.client.get('host')}\n  hint: run again in {_SETTLED_AFTER_S / 60:g} minutes; nothing is lost"
        )
    journal.write({"e": "refused", "sub": one.id, "text": "the scheduler never took it"})
    return "an earlier submission never reached the scheduler"
