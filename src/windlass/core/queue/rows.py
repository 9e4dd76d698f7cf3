"""What ``squeue`` prints as rows: the user's jobs. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import os
import re
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from windlass.core.queue.states import ENDED, JobState, parse_job_state
from windlass.core.units import parse_clock_s

Ranges = Tuple[Tuple[int, int], ...]  # first and last task, both included

# Free text stands last: our own comments hold no bar, and a name may hold any number of them.
_FIELDS = "%A|%F|%K|%T|%r|%N|%S|%e|%L|%V|%P|%a|%k|%j"
_BARS = _FIELDS.count("|")
QUEUE_FORMAT = "--format=" + _FIELDS
# Times as Unix time, and lists of tasks whole.
QUEUE_ENV: Mapping[str, str] = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_NOTHING = (
    "",
    "N/A",
    "n/a",
    "NONE",
    "None",
    "(null)",
    "Unknown",
    "NOT_SET",
    "INVALID",
    "UNLIMITED",
)
_ENDLESS = 1 << 31


class QueueRow(NamedTuple):
    """One line of squeue's: a job, a task of an array, or the tasks of an array that wait together."""

    id: int  # its own job number
    array: int  # the number of the array it belongs to; its own outside arrays
    task: Optional[int]
    pending_tasks: Ranges  # of a row that stands for several waiting tasks
    throttle: Optional[int]  # how many of the array may run at a time, where the row says it
    state: JobState
    state_name: str  # as Slurm has it
    reason: str
    node: str  # or a list of them, as Slurm writes it
    start: Optional[float]  # expected while it waits
    end: Optional[float]  # expected while it runs
    time_left_s: Optional[float]
    submitted: Optional[float]
    partition: str
    account: str
    comment: str
    name: str

    def tasks(self) -> int:
        """How many tasks this row stands for."""
        return (
            sum(last - first + 1 for first, last in self.pending_tasks) if self.pending_tasks else 1
        )

    def covers(self, task: int) -> bool:
        if not self.pending_tasks:
            return self.task == task
        import bisect  # most commands look at studies without job arrays

        # Slurm lists tasks in order.
        place = bisect.bisect_right(self.pending_tasks, (task, _ENDLESS))
        return place > 0 and task <= self.pending_tasks[place - 1][1]


class Queue:
    """All jobs of the user at one time."""

    def __init__(self, rows: Sequence[QueueRow], asked: float) -> None:
        self.rows = list(rows)
        self.asked = asked  # Unix time by the clock of the file system that the answer is kept on
        self._tasks: Dict[Tuple[int, Optional[int]], QueueRow] = {}
        self._pending: Dict[int, List[QueueRow]] = {}
        for row in self.rows:
            if row.pending_tasks:
                self._pending.setdefault(row.array, []).append(row)
            else:
                self._tasks[row.array, row.task] = row

    def row_of(
        self, array: int, task: Optional[int] = None, id: Optional[int] = None
    ) -> Optional[QueueRow]:
        """The row of a task, or of a job outside arrays; None where the queue has none.

        `id` is looked for only where there is no task: the number of an array is that of its last task too.
        """
        found = self._tasks.get((array, task))
        if found is not None:
            return found
        if task is not None:
            return next((row for row in self._pending.get(array, ()) if row.covers(task)), None)
        return None if id is None else next((row for row in self.rows if row.id == id), None)

    def rest_of(self, array: int) -> Optional[QueueRow]:
        """The row that older Slurms show for tasks that were ended before they began; it does not say which."""
        found = self._tasks.get((array, None))
        return found if found is not None and found.state in ENDED and not found.node else None

    def rows_of(self, array: int) -> List[QueueRow]:
        """All rows of an array, or of a job outside arrays."""
        return [row for row in self.rows if row.array == array]

    def with_comment(self, text: str) -> List[QueueRow]:
        return [row for row in self.rows if row.comment == text]


def queue_command(user: Optional[int] = None) -> List[str]:
    """The command that lists the user's jobs, those that ended lately too."""
    number = os.getuid() if user is None else user
    return ["squeue", "--noheader", "--states=all", f"--user={number}", QUEUE_FORMAT]


def parse_queue(text: str) -> List[QueueRow]:
    """The rows of squeue's answer. Lines that are none (a name may hold a line break) are passed over."""
    rows = []
    for line in text.split("\n"):
        fields = line.split("|", _BARS)
        if len(fields) == _BARS + 1 and fields[0].strip().isdecimal():
            rows.append(_parse_row(fields))
    return rows


def _parse_row(fields: Sequence[str]) -> QueueRow:
    (
        own,
        array,
        task_text,
        state_name,
        reason,
        node,
        start,
        end,
        left,
        submitted,
        partition,
        account,
    ) = (field.strip() for field in fields[:12])
    task: Optional[int] = None
    ranges: Ranges = ()
    throttle: Optional[int] = None
    if task_text.isdecimal() and int(task_text) < _ENDLESS:
        task = int(task_text)
    elif task_text not in _NOTHING and not task_text.isdecimal():
        ranges, throttle = parse_tasks(task_text)
    return QueueRow(
        id=int(own),
        array=int(array) if array.isdecimal() and int(array) else int(own),
        task=task,
        pending_tasks=ranges,
        throttle=throttle,
        state=parse_job_state(state_name),
        state_name=state_name,
        reason="" if reason in _NOTHING else reason,
        node=node if node not in _NOTHING else "",
        start=parse_time(start),
        end=parse_time(end),
        time_left_s=parse_clock_s(left),
        submitted=parse_time(submitted),
        partition=partition,
        account="" if account in _NOTHING else account,
        comment="" if fields[12] in _NOTHING else fields[12],
        name=fields[13],
    )


def parse_tasks(text: str) -> Tuple[Ranges, Optional[int]]:
    """The tasks and the throttle of ``3-9%3``, ``[0,2-4]`` or ``0-10:2``. One cut short by ``...`` goes on."""
    text = text.strip().strip("[]")
    listed, _, limit = text.partition("%")
    throttle = int(limit.strip("]")) if limit.strip("]").isdecimal() else None
    ranges: List[Tuple[int, int]] = []
    for part in listed.strip("[]").split(","):
        found = re.match(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if found:
            first, last, step = (int(number) if number else None for number in found.groups())
            assert first is not None
            if step is not None and step > 1 and last is not None:
                ranges += [(task, task) for task in range(first, last + 1, step)]
            else:
                ranges.append((first, first if last is None else last))
        if "..." in part:
            ranges.append((ranges[-1][1] + 1 if ranges else 0, _ENDLESS))
    return tuple(ranges), throttle


def parse_time(text: str) -> Optional[float]:
    """Unix time of what Slurm prints: a number of seconds, or a date and time of this machine's zone."""
    text = text.strip()
    if text.isdecimal():
        return float(text) or None
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
