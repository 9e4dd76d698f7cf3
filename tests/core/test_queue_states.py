"""Slurm's words: every state and flag has a meaning, lists of them too, and what is not known stays unknown."""

from __future__ import annotations

import pytest

from windlass.core.queue.gone import Gone, job_gone
from windlass.core.queue.rows import Queue, parse_queue
from windlass.core.queue.states import (
    COMPACT_STATES,
    ENDED,
    JOB_STATES,
    OVER,
    JobState,
    parse_job_state,
)
from windlass.slurm.reasons import explain_reason, will_never_start

# slurm.h of 22.05 to 25.05: the states proper, then the flags, as job_state_string and its kin print them.
BASE = "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY"
FLAGS = (
    "LAUNCH_FAILED UPDATE_DB GETENV_FAILED REQUEUED REQUEUE_HOLD SPECIAL_EXIT RESIZING CONFIGURING COMPLETING STOPPED"
    " RECONFIG_FAIL POWER_UP_NODE REVOKED REQUEUE_FED RESV_DEL_HOLD SIGNALING STAGE_OUT EXPEDITING"
)
COMPACT = "PD R S CD CA F TO NF PR BF DL OOM CG CF RS RQ RF RH SE ST RV RD SI SO"


def test_every_word_has_a_row() -> None:
    assert set(JOB_STATES) == set(BASE.split()) | set(FLAGS.split())
    assert set(COMPACT_STATES) == set(COMPACT.split())
    assert all(JOB_STATES[word] is not JobState.UNKNOWN for word in BASE.split())


@pytest.mark.parametrize(
    "text,state",
    [
        ("COMPLETED", JobState.DONE),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("RUNNING+", JobState.RUNNING),
        ("OUT_OF_ME+", JobState.UNKNOWN),  # cut short by a narrow column: not guessed
        ("COMPLETED,REQUEUED", JobState.WAITING),
        ("COMPLETED+REQUEUED", JobState.WAITING),
        ("COMPLETED,COMPLETING", JobState.ENDING),
        ("RUNNING,COMPLETING", JobState.ENDING),
        ("PENDING,LAUNCH_FAILED", JobState.WAITING),
        ("RUNNING,CONFIGURING,POWER_UP_NODE", JobState.WAITING),
        ("RUNNING,RESIZING", JobState.RUNNING),
        ("CANCELLED,REVOKED", JobState.UNKNOWN),
        ("RUNNING,STOPPED", JobState.SUSPENDED),
        ("RUNNING,UPDATE_DB", JobState.RUNNING),
        ("RUNNING,SOMETHING_NEW", JobState.UNKNOWN),
        ("SOMETHING_NEW", JobState.UNKNOWN),
        ("running", JobState.RUNNING),
        ("R", JobState.RUNNING),
        ("OOM", JobState.OUT_OF_MEMORY),
        ("", JobState.UNKNOWN),
        (",", JobState.UNKNOWN),
        ("?", JobState.UNKNOWN),
    ],
)
def test_words_and_lists(text: str, state: JobState) -> None:
    assert parse_job_state(text) is state


def test_what_is_certainly_over() -> None:
    """A job whose node failed may still have processes: where only slurmd died they go on."""
    assert JobState.NODE_FAILED not in OVER
    assert {JobState.NODE_FAILED} | OVER == ENDED
    assert not OVER & {
        JobState.UNKNOWN,
        JobState.WAITING,
        JobState.RUNNING,
        JobState.ENDING,
        JobState.SUSPENDED,
    }


def queue_of(
    word: str, *, start: int = 1000, asked: float = 2000.0, task: str = "3", own: int = 15
) -> Queue:
    row = f"{own}|12|{task}|{word}|None|node1|{start}|N/A|10:00|900|debug|acc|windlass:s|name"
    return Queue(parse_queue(row), asked)


JOB = {"id": 15, "array": 12, "task": 3, "restart": 0, "node": "node1", "sub": "s"}


@pytest.mark.parametrize(
    "word,gone",
    [
        ("RUNNING", Gone.NO),
        ("SUSPENDED", Gone.NO),
        ("COMPLETING", Gone.PERHAPS),
        ("PENDING", Gone.PERHAPS),
        ("REQUEUED", Gone.PERHAPS),
        ("NODE_FAIL", Gone.PERHAPS),
        ("COMPLETED", Gone.YES),
        ("FAILED", Gone.YES),
        ("CANCELLED", Gone.YES),
        ("TIMEOUT", Gone.YES),
        ("PREEMPTED", Gone.YES),
        ("OUT_OF_MEMORY", Gone.YES),
        ("REVOKED", Gone.UNKNOWN),
        ("SOMETHING_NEW", Gone.UNKNOWN),
    ],
)
def test_whether_an_agents_job_is_gone(word: str, gone: Gone) -> None:
    assert job_gone(JOB, queue_of(word), since=1001.0) is gone


def test_no_answer_and_no_row() -> None:
    assert job_gone(JOB, None) is Gone.UNKNOWN
    assert job_gone(JOB, Queue([], 2000.0), since=1001.0) is Gone.PERHAPS
    assert job_gone({}, queue_of("COMPLETED")) is Gone.UNKNOWN
    assert job_gone({"id": "x", "array": None}, queue_of("COMPLETED")) is Gone.UNKNOWN


def test_the_arrays_own_number_is_not_the_tasks() -> None:
    """The last task runs under the number of the array; until then that number stands for all that wait."""
    waiting = queue_of("PENDING", task="4-9%2", own=12)
    assert job_gone({**JOB, "id": 12, "task": 9}, waiting, since=1001.0) is Gone.PERHAPS
    assert (
        job_gone(
            {**JOB, "id": 12, "task": 3}, queue_of("CANCELLED", task="N/A", own=12), since=1001.0
        )
        is Gone.PERHAPS
    )


def test_a_job_outside_arrays() -> None:
    queue = Queue(parse_queue("7|7|N/A|FAILED|None|n|1000|1001|0:00|900|p|a|c|x"), 2000.0)
    assert job_gone({"id": 7, "array": 7, "task": None}, queue, since=1000.5) is Gone.YES


def test_a_later_start_of_the_same_job_says_nothing_about_the_first() -> None:
    assert job_gone(JOB, queue_of("RUNNING", start=1500), since=1001.0) is Gone.PERHAPS
    assert job_gone(JOB, queue_of("COMPLETED", start=1500), since=1001.0) is Gone.PERHAPS


def test_an_answer_older_than_the_agent_never_buries_it() -> None:
    """The job was cancelled, then started again; the answer is from before that."""
    old = queue_of("CANCELLED", start=1000, asked=1100.0)
    assert job_gone(JOB, old, since=1200.0) is Gone.UNKNOWN
    assert job_gone(JOB, old, since=1050.0) is Gone.YES
    assert job_gone(JOB, queue_of("RUNNING", asked=1100.0), since=1200.0) is Gone.NO


@pytest.mark.parametrize(
    "reason,words",
    [
        ("JobArrayTaskLimit", "windlass throttle"),
        ("Priority", "before it in the queue"),
        ("ReqNodeNotAvail, UnavailableNodes:node[1-3]", "(node[1-3])"),
        ("(launch failed requeued held)", "is held"),
        ("launch_failed_requeued_held", "is held"),
        ("QOSMaxGRESPerUser", "as many GPUs as its QOS allows one user"),
        ("AssocGrpCPUMinutesLimit", "minutes of CPUs"),
        ("AssocMaxJobsLimit", "running jobs"),
        ("MaxGRESPerAccount", "your account uses as many GPUs"),
        ("RaisedSignal:9(Killed)", "ended by a signal (9(Killed))"),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "nodes it needs are down",
        ),
    ],
)
def test_reasons_in_plain_words(reason: str, words: str) -> None:
    assert words in explain_reason(reason)


def test_reasons_that_nobody_knows_are_shown_as_they_are() -> None:
    assert explain_reason("SomethingNew") == "SomethingNew"
    assert explain_reason("None") == explain_reason("") == ""


@pytest.mark.parametrize(
    "reason", ["PartitionTimeLimit", "DependencyNeverSatisfied", "QOSMaxWallDurationPerJobLimit"]
)
def test_what_waits_in_vain(reason: str) -> None:
    assert will_never_start(reason)
    assert not will_never_start("Priority")
