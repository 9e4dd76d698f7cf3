"""What is known of a study's jobs: the scheduler's answers, what was submitted, and what agents wrote. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.collect.submissions import Submission
from windlass.core.journal.records import AgentRecord
from windlass.core.queue.rows import Queue, QueueRow
from windlass.core.queue.states import ENDED, JobState
from windlass.slurm.accounting import JobRecord

_EARLIER_S = 300.0  # a job of this number that was submitted so long before ours is another one
_CLOCKS_S = 5.0  # how far clocks of one cluster may be apart
# These reasons are ours; all others are Slurm's.
JUST_SUBMITTED = "JustSubmitted"
_FOLLOWS = "FollowsInChain"
_GOING_ON = frozenset({JobState.WAITING, JobState.RUNNING, JobState.SUSPENDED})
LIVE = _GOING_ON | {JobState.ENDING}


@dataclass(frozen=True)
class JobView:
    """One task of a submission. None and "": unknown, or not so in this state."""

    submission: str
    array: int | None
    task: int
    id: int | None = None  # its own job number, once it has one
    state: JobState = JobState.UNKNOWN
    slurm_state: str = ""  # the name that Slurm has for the state
    reason: str = ""  # Slurm's own
    node: str = ""
    start: float | None = None  # expected while it waits
    end: float | None = None
    time_left_s: float | None = None
    elapsed_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    max_rss_mb: float | None = None
    agent: str = ""  # the last agent that began in it
    agent_ended: bool = False  # it ended in order
    agent_reason: str = ""  # as the agent wrote it
    agent_failed: int = 0  # of its trials
    source: str = ""  # squeue, sacct or journal
    # The file with what the job itself printed, where it ended before its agent began.
    log: str = ""
    output: str = ""  # the last lines of it

    @property
    def name(self) -> str:
        """As Slurm's commands take it."""
        return f"{self.array}_{self.task}" if self.array is not None else f"?_{self.task}"

    @property
    def over(self) -> bool:
        return self.state in ENDED or (self.state is JobState.UNKNOWN and self.agent_ended)


@dataclass(frozen=True)
class JobsView:
    """A study's jobs, as far as anybody can tell. `asked` is the time of the queue's answer, None without one."""

    submissions: tuple[Submission, ...]
    jobs: tuple[JobView, ...]
    asked: float | None
    answered: bool  # the scheduler answered just now; otherwise `asked` may be long ago
    accounting: bool | None = None  # whether sacct answered; None: it was not asked
    # Array → how many of its tasks may run at a time.
    throttles: Mapping[int, int] = field(default_factory=dict)

    def live(self) -> list[JobView]:
        return [job for job in self.jobs if job.state in LIVE]

    def in_state(self, state: JobState) -> list[JobView]:
        return [job for job in self.jobs if job.state is state]


def is_ours(row: QueueRow, submission: Submission) -> bool:
    """Whether a row of the queue is of this submission: numbers are used again after a controller lost its records."""
    if row.comment:
        return row.comment == submission.comment
    return row.array == submission.job and _is_named_so(row.name, row.submitted, submission)


def _is_named_so(name: str, submitted: float | None, submission: Submission) -> bool:
    """A job that was started again counts as submitted then: later is fine, earlier is not."""
    wanted = submission.request.get("job_name")
    return (
        submitted is not None
        and submitted > submission.time - _EARLIER_S
        and wanted in (None, name)
    )


def array_of(
    submission: Submission, queue: Queue | None, agents: Sequence[AgentRecord]
) -> int | None:
    """The number of the array: as recorded, or, where the client died before it could, as it is found."""
    if submission.job is not None:
        return submission.job
    for row in queue.with_comment(submission.comment) if queue is not None else ():
        return row.array
    for agent in agents:
        if agent.job is not None and agent.job.get("sub") == submission.id:
            return int(agent.job["array"])
    return None


def view_jobs(
    submissions: Sequence[Submission],
    agents: Sequence[AgentRecord],
    queue: Queue | None,
    records: Sequence[JobRecord] = (),
) -> Iterator[JobView]:
    """Every task of every submission that was not refused, as squeue reports it, else sacct, else its agent."""
    last_agents: dict[tuple[str, int], AgentRecord] = {}
    for agent in sorted(agents, key=lambda agent: agent.start):
        if agent.job is not None:
            last_agents[str(agent.job.get("sub")), int(agent.job.get("task") or 0)] = agent
    found = _Records(records)
    for submission in submissions:
        if submission.refused is not None:
            continue
        array = array_of(submission, queue, agents)
        for task in range(submission.agents):
            agent_record = last_agents.get((submission.id, task))
            row = _row_of(queue, array, task, began=agent_record is not None)
            record = None if array is None else found.of(array, task, submission)
            if row is not None and is_ours(row, submission):
                assert queue is not None
                job = _from_row(submission, array, task, row)
                if job.state is JobState.WAITING and _began_since(agent_record, queue):
                    # It waited when the queue was asked, and has begun since.
                    job = replace(
                        _from_journal(submission, array, task, agent_record), state=JobState.RUNNING
                    )
                yield _with_agent(_with_ending(job, record), agent_record)
            elif record is not None:
                yield _with_agent(_from_record(submission, task, record), agent_record)
            elif (
                agent_record is None and queue is not None and submission.is_newer_than(queue.asked)
            ):
                # The queue's last answer is older than the submission and cannot know it.
                yield JobView(
                    submission.id, array, task, state=JobState.WAITING, reason=JUST_SUBMITTED
                )
            elif (
                queue is not None
                and _began_since(agent_record, queue)
                and not (agent_record and agent_record.ended)
            ):
                job = replace(
                    _from_journal(submission, array, task, agent_record), state=JobState.RUNNING
                )
                yield _with_agent(job, agent_record)
            else:
                yield _with_agent(
                    _from_journal(submission, array, task, agent_record), agent_record
                )


def _began_since(agent: AgentRecord | None, queue: Queue) -> bool:
    """Whether an agent is younger than the queue's answer, which cannot know that it runs."""
    return agent is not None and agent.start > queue.asked


def _row_of(queue: Queue | None, array: int | None, task: int, *, began: bool) -> QueueRow | None:
    if queue is None or array is None:
        return None
    return queue.row_of(array, task) or (None if began else queue.rest_of(array))


class _Records:
    """Accounting's records by array and task."""

    def __init__(self, records: Sequence[JobRecord]) -> None:
        self._tasks = {
            (record.array, record.task): record for record in records if not record.pending_tasks
        }
        self._pending = [record for record in records if record.pending_tasks]

    def of(self, array: int, task: int, submission: Submission) -> JobRecord | None:
        """What accounting has of a task; None where it has nothing, or another job that reused the number."""
        record = self._tasks.get((array, task))
        for waiting in self._pending if record is None else ():
            if waiting.array == array and any(
                first <= task <= last for first, last in waiting.pending_tasks
            ):
                record = waiting
        if record is None or not _is_named_so(record.name, record.submitted, submission):
            return None
        return record


def _with_agent(job: JobView, agent: AgentRecord | None) -> JobView:
    """A job with what its own agent recorded, which is often newer than the scheduler's answer."""
    if agent is None:
        return job
    # The scheduler's answer may be some seconds old: a job ends right after its agent.
    is_ending = (
        job.state is JobState.RUNNING
        and agent.ended
        and agent.start > (job.start or 0.0) - _CLOCKS_S
    )
    state = JobState.ENDING if is_ending else job.state
    return replace(
        job,
        state=state,
        exit_code=_exit_code(job, state, agent),
        agent=agent.id,
        agent_ended=agent.ended,
        agent_reason=agent.reason,
        agent_failed=agent.failed,
    )


def _exit_code(job: JobView, state: JobState, agent: AgentRecord) -> int | None:
    """The exit code of a job's script, which is the agent's own.

    ``sacct`` shows codes from 128 on less 128: 255 as 127, and 137, a shell's code for SIGKILL, as 9. The agent's own
    record decides where both mean the same end. Where they differ, something else ended the job after the agent.
    """
    is_over = agent.exit_code is not None and state not in _GOING_ON
    if not is_over or job.signal:
        return job.exit_code
    is_same = job.exit_code is None or job.exit_code == (agent.exit_code or 0) % 128
    return agent.exit_code if is_same else job.exit_code


def _with_ending(job: JobView, record: JobRecord | None) -> JobView:
    """With what only accounting tells of a job that is over."""
    if record is None or record.state is not job.state or job.state not in ENDED:
        return job
    return replace(
        job, exit_code=record.exit_code, signal=record.signal or None, max_rss_mb=record.max_rss_mb
    )


def _from_row(submission: Submission, array: int | None, task: int, row: QueueRow) -> JobView:
    """A job from a row of the queue."""
    over = row.state in ENDED
    return JobView(
        submission.id,
        array,
        task,
        id=row.id if row.task is not None else None,
        state=row.state,
        slurm_state=row.state_name,
        reason=_reason(submission, row.reason),
        node=row.node,
        start=row.start,
        end=row.end if over else None,
        time_left_s=row.time_left_s
        if row.state in (JobState.RUNNING, JobState.SUSPENDED)
        else None,
        elapsed_s=row.end - row.start
        if over and row.end is not None and row.start is not None
        else None,
        source="squeue",
    )


def _from_record(submission: Submission, task: int, record: JobRecord) -> JobView:
    """A job from its record in accounting."""
    over = record.state in ENDED
    return JobView(
        submission.id,
        record.array,
        task,
        id=record.id if not record.pending_tasks else None,
        state=record.state,
        slurm_state=record.state_name,
        reason=_reason(submission, record.reason) if record.state is JobState.WAITING else "",
        node=record.node,
        start=record.start,
        end=record.end,
        elapsed_s=record.elapsed_s,
        exit_code=record.exit_code if over else None,
        signal=record.signal or None,
        max_rss_mb=record.max_rss_mb,
        source="sacct",
    )


def _reason(submission: Submission, reason: str) -> str:
    return _FOLLOWS if submission.is_chain and reason == "JobArrayTaskLimit" else reason


def _from_journal(
    submission: Submission, array: int | None, task: int, agent: AgentRecord | None
) -> JobView:
    """A job that only its agent has recorded. The agent writes its exit code last of all."""
    if agent is None or agent.job is None:
        return JobView(submission.id, array, task)
    return JobView(
        submission.id,
        array,
        task,
        id=int(agent.job["id"]),
        node=str(agent.job.get("node", "")),
        start=agent.start,
        end=agent.last_seen if agent.ended else None,
        elapsed_s=agent.last_seen - agent.start,
        source="journal",
    )
