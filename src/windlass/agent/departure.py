"""What an agent in a job sees to when it leaves: whether others go on, and which jobs wait for nothing. Python 3.9."""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, List, Optional, Set, Tuple

from windlass.core.claims import ranges as rs
from windlass.core.claims.first import find_stop
from windlass.core.claims.register import RegisterFile
from windlass.core.counted import counted
from windlass.core.errors import WindlassError
from windlass.core.ids import agent_id_at
from windlass.core.journal.read import JournalReader, journal_files, read_header, writer_of
from windlass.core.journal.write import DiskFull
from windlass.core.lock import StudyLock
from windlass.core.paths import StudyPaths
from windlass.core.queue.ask import ask
from windlass.core.queue.queue import Queue, read_queue
from windlass.core.queue.rows import QueueRow
from windlass.core.queue.states import JobState

_TAKEN_S = 2.0  # in which the scheduler takes a job
_CLOCKS_S = 60.0  # by which the clocks of machines may differ
_WRONG_CLOCK_S = 24 * 3600.0  # a journal that is older than this by its name is not read
_LOCK_PATIENCE_S = 5.0
_TAIL_BYTES = 16 << 10
_PRESENT = frozenset({JobState.WAITING, JobState.RUNNING, JobState.SUSPENDED, JobState.UNKNOWN})


class Departure:
    """The last agent of a study cancels agents that still wait, or reports that trials are left and nobody is there."""

    def __init__(self, paths: StudyPaths, agent: str, resumable: bool) -> None:
        self._paths = paths
        self._resumable = resumable  # whether trials go on in another job from where they were
        self._agent = agent
        self._register = RegisterFile(paths.claims, agent)

    def leave(self, cut: int, note: Callable[[str], None]) -> bool:
        """To be called once this agent holds nothing. Returns whether the time of its job was too short.

        That is so where the end of the job cut off trials (`cut` of them) that have to begin anew, and where trials are
        left that no other agent will take. Both are reported: in the journal, and in the job's own output.
        """
        texts: List[str] = []
        if cut and not self._resumable:
            trials = counted(cut, "trial was", "trials were")
            texts.append(
                f"the job's time was up before {trials} done, which must begin anew in another job"
            )
        try:
            left = self._settle(texts)
        except (OSError, DiskFull, WindlassError):
            left = 0  # the folder or the scheduler is out of reach: `windlass status` tells the same later
        if left:
            trials = counted(left, "trial is", "trials are")
            texts.append(
                f"the study is not complete: {trials} left, and no agent waits or runs for it"
            )
        for text in texts:
            print(f"windlass agent: {text}", file=sys.stderr)
            note(text)
        return bool(left or (cut and not self._resumable))

    def _settle(self, texts: List[str]) -> int:
        """How many trials are left that nobody will execute."""
        register = self._register.read()
        if register.held_ranges():
            return 0  # others are at work: the last of them sees to this
        if not register.todo or find_stop(register.learned) is not None:
            self._cancel_waiting(texts)
            return 0
        return 0 if self._is_somebody_there() else rs.count(register.todo)

    def _cancel_waiting(self, texts: List[str]) -> None:
        """Take agents out of the queue that would start for nothing, those of this study alone."""
        count, arrays = self._still_waiting()
        if not count:
            return
        # While this lock is held no client can add trials or submit agents for them.
        with StudyLock(self._register, self._paths.folder, _LOCK_PATIENCE_S):
            register = self._register.read()
            stop = find_stop(register.learned)
            if (register.todo and stop is None) or register.held_ranges():
                return
            if ask(["scancel", "--state=PENDING", *arrays], {}) is None:
                return
        jobs = counted(count, "job that waited was", "jobs that waited were")
        reason = "all trials are through, and nothing was left for them"
        if stop is not None:
            reason = f"the first {stop.failed} trials all failed: {stop.reason}"
        texts.append(f"{jobs} cancelled: {reason}")

    def _still_waiting(self) -> Tuple[int, List[str]]:
        """How many agents of this study wait, and the jobs they are of.

        The scheduler's answer may be some seconds old: agents that have begun since then, this one too, do not wait.
        """
        queue = self._queue()
        if queue is None or not any(row.state is JobState.WAITING for row in queue.rows):
            # Which is usual; hundreds of agents may leave at the same time, so no journal is read.
            return (0, [])
        waiting = [row for row in self._rows_of(queue) if row.state is JobState.WAITING]
        begun = self._begun_since(queue.asked - _CLOCKS_S) if waiting else set()
        count, arrays = 0, set()
        for row in waiting:
            here = sum(1 for array, task in begun if array == row.array and _is_of(row, task))
            if row.tasks() > here:
                count += row.tasks() - here
                arrays.add(str(row.array))
        return count, sorted(arrays)

    def _begun_since(self, moment: float) -> Set[Tuple[Optional[int], Optional[int]]]:
        """Array and task of this agent, and of those that have begun since then."""
        begun: Set[Tuple[Optional[int], Optional[int]]] = set()
        # Names begin with the time at which their writers began, by their own clocks.
        earliest = agent_id_at(moment - _WRONG_CLOCK_S)
        for path in journal_files(self._paths.journal):
            if writer_of(path) < earliest and writer_of(path) != self._agent:
                continue
            header = read_header(path) or {}
            job = header.get("job")
            if job and (header.get("id") == self._agent or float(header.get("t", 0.0)) > moment):
                begun.add((job.get("array"), job.get("task")))
        return begun

    def _is_somebody_there(self) -> bool:
        """Whether an agent of this study waits or runs; also where the scheduler does not answer."""
        queue = self._queue()
        if queue is not None and any(
            when > queue.asked - _TAKEN_S for when in self._submitted().values()
        ):
            # The former answer may not have what was submitted.
            queue = read_queue(self._paths.queue, ask, _TAKEN_S)
        if queue is None:
            return True
        gone = self._agents_gone()
        waiting, _ = self._still_waiting()
        rows = [row for row in self._rows_of(queue) if row.state is not JobState.WAITING]
        return bool(waiting) or any((row.array, row.task) not in gone for row in rows)

    def _queue(self) -> Optional[Queue]:
        """As everybody else: agents that leave together share one answer, which may be ten seconds old."""
        return read_queue(self._paths.queue, ask)

    def _rows_of(self, queue: Queue) -> List[QueueRow]:
        """The queue's rows of this study's agents that wait or run."""
        comments = self._submitted()
        return [row for row in queue.rows if row.comment in comments and row.state in _PRESENT]

    def _submitted(self) -> Dict[str, float]:
        """The comments that this study's jobs carry, from the journals of the clients that submitted them, and when."""
        found: Dict[str, float] = {}
        for path in journal_files(self._paths.journal):
            if os.path.basename(path).startswith("client-"):
                reader = JournalReader(path)
                events = reader.read()
                while events:
                    found.update(
                        (f"windlass:{event['sub']}", float(event.get("t", 0.0)))
                        for event in events
                        if event.get("e") == "submit"
                    )
                    events = reader.read()
        return found

    def _agents_gone(self) -> Set[Tuple[Optional[int], Optional[int]]]:
        """Array and task of the agents whose journals have ended, and of this one."""
        gone: Set[Tuple[Optional[int], Optional[int]]] = set()
        for path in journal_files(self._paths.journal):
            header = read_header(path) or {}
            job = header.get("job")
            if job and (header.get("id") == self._agent or _has_ended(path)):
                gone.add((job.get("array"), job.get("task")))
        return gone


def _is_of(row: QueueRow, task: Optional[int]) -> bool:
    return row.task == task if task is None else row.covers(task)


def _has_ended(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return b'"e":"bye"' in file.read()
