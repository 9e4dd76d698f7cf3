"""What jobs asked for and what they used, as ``sacct`` keeps it; anybody's jobs, not only ours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from windlass.core.queue.states import ENDED, JobState, parse_job_state
from windlass.core.units import parse_clock_s, parse_slurm_mb
from windlass.slurm.accounting import Ask

_FIELDS = (
    "JobIDRaw,JobID,State,ElapsedRaw,TimelimitRaw,NNodes,AllocCPUS,TotalCPU,ReqMem,MaxRSS,ReqTRES,AllocTRES,"
    "TRESUsageInMax,TRESUsageInAve,NTasks,Start,End,JobName"
)
_NAMES = _FIELDS.split(",")
_ENV = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_BATCH = 500


@dataclass(frozen=True)
class JobUse:
    """One job or task of an array. None: not known, or not counted yet."""

    name: str  # 12, or 12_3
    id: int
    state: JobState
    job_name: str = ""
    elapsed_s: float | None = None
    asked_s: float | None = None
    nodes: float = 1.0
    cpus: float | None = None
    cpu_s: float | None = None  # processor time of all its steps
    asked_memory_mb: float | None = None  # of all its nodes together
    memory_mb: float | None = None  # of all its nodes together, at most
    node_mb: float | None = None  # of any one node, at most
    task_mb: float | None = None  # of the largest task, which a node surely used
    # On one node, what steps asked for that did not ask for all of it.
    steps_mb: float | None = None
    gpus: float | None = None
    gpu_type: str = ""
    gpu_mb: float | None = None  # only where Slurm itself watches GPUs
    gpu_percent: float | None = None

    @property
    def array(self) -> str:
        """The number that all tasks of its array share; its own outside arrays."""
        return self.name.partition("_")[0]

    @property
    def memory_at_most(self) -> bool:
        """Whether it may have used less memory: of several tasks, Slurm keeps the largest one's alone."""
        return (
            self.task_mb is not None
            and self.memory_mb is not None
            and self.task_mb < self.memory_mb
        )


@dataclass(frozen=True)
class _Step:
    """Memory of one step."""

    start: float
    lasted_s: float
    task_mb: float  # of its largest task
    tasks: float
    tasks_a_node: float  # at most: each of its nodes has one
    given_mb: float  # on each of its nodes; 0: not known


@dataclass
class _Steps:
    """What the steps of a job used: memory one by one, of the GPU the most of any."""

    memory: list[_Step] = field(default_factory=list)
    gpu_mb: float | None = None
    gpu_percent: float | None = None
    fields: dict[str, str] = field(default_factory=dict)  # of the job's own line

    def add(self, line: Mapping[str, str]) -> None:
        most, mean = parse_tres(line["TRESUsageInMax"]), parse_tres(line["TRESUsageInAve"])
        if (step := _parse_step(line)) is not None:
            self.memory.append(step)
        self.gpu_mb = _most(self.gpu_mb, parse_slurm_mb(most.get("gres/gpumem", ""), plain=""))
        self.gpu_percent = _most(self.gpu_percent, _number(mean.get("gres/gpuutil", "")))


def fetch_uses(jobs: Iterable[str], ask: Ask) -> list[JobUse] | None:
    """What accounting keeps of these jobs (``12``, ``12_3``; an array's number stands for all of its tasks).

    None where there is no accounting or it does not answer.
    """
    names = list(dict.fromkeys(jobs))
    uses: list[JobUse] = []
    for begin in range(0, len(names), _BATCH):
        listed = ",".join(names[begin : begin + _BATCH])
        text = ask(
            ["sacct", "--noheader", "--parsable2", f"--format={_FIELDS}", f"--jobs={listed}"], _ENV
        )
        if text is None:
            return None
        uses += parse_uses(text)
    return uses


def fetch_submit_line(job: str, ask: Ask) -> tuple[str, str]:
    """The folder and the command line that a job was submitted with; empty where accounting does not keep it."""
    text = ask(
        [
            "sacct",
            "--noheader",
            "--parsable2",
            "-X",
            "--format=WorkDir,SubmitLine",
            f"--jobs={job}",
        ],
        _ENV,
    )
    folder, _, line = (text or "").split("\n", maxsplit=1)[0].partition("|")
    return folder, line


def parse_uses(text: str) -> list[JobUse]:
    """The jobs of sacct's answer, each with what its steps used. Waiting ones are left out."""
    jobs: dict[str, _Steps] = {}
    for line in text.split("\n"):
        values = line.split("|", len(_NAMES) - 1)
        if len(values) != len(_NAMES):
            continue
        fields = dict(zip(_NAMES, values, strict=True))
        name, _, step = fields["JobID"].partition(".")
        steps = jobs.setdefault(name, _Steps())
        steps.add(fields)
        if not step:
            steps.fields = fields
    uses = [
        _parse_use(name, steps)
        for name, steps in jobs.items()
        if steps.fields.get("JobIDRaw", "").isdecimal()
    ]
    return [use for use in uses if use.state is not JobState.WAITING and "[" not in use.name]


def _parse_step(line: Mapping[str, str]) -> _Step | None:
    """None where nothing is kept of its memory. Without times it counts as if it ran beside all others."""
    task_mb = parse_slurm_mb(line["MaxRSS"], plain="")
    if task_mb is None:
        return None
    nodes = _number(line["NNodes"]) or 1.0
    tasks = _number(line["NTasks"]) or nodes
    start, end = _number(line["Start"]), _number(line["End"])
    lasted_s = math.inf if start is None or end is None else max(1.0, end - start)
    given_mb = parse_slurm_mb(parse_tres(line["AllocTRES"]).get("mem", ""), plain="") or 0.0
    return _Step(
        start or 0.0, lasted_s, task_mb, tasks, max(1.0, tasks - nodes + 1), given_mb / nodes
    )


def highest_together(pieces: Iterable[tuple[float, float, float]]) -> float | None:
    """The highest sum at any time of pieces of (start, duration, amount); None where there are none."""
    changes = [
        change
        for start, lasted, much in pieces
        for change in ((start, much), (start + lasted, -much))
    ]
    if not changes:
        return None
    now = highest = 0.0
    for _, much in sorted(changes):  # at the same moment what ends goes before what begins
        now += much
        highest = max(highest, now)
    return highest


def _parse_use(name: str, steps: _Steps) -> JobUse:
    fields = steps.fields
    given = parse_tres(fields["AllocTRES"]) or parse_tres(fields["ReqTRES"])
    state = parse_job_state(fields["State"])
    cpus = _number(given.get("cpu", "")) or _number(fields["AllocCPUS"])
    cpu_s = parse_clock_s(fields["TotalCPU"])
    if not cpu_s and state not in ENDED:
        cpu_s = None  # steps are counted when they end
    minutes, nodes = _number(fields["TimelimitRaw"]), _number(fields["NNodes"]) or 1.0
    memory_mb = parse_slurm_mb(given.get("mem", ""), plain="")
    if memory_mb is None:
        memory_mb = _asked_memory_mb(fields["ReqMem"], cpus, nodes)
    parts = [one for one in steps.memory if one.given_mb < (memory_mb or 0.0) / nodes]
    return JobUse(
        name=name,
        id=int(fields["JobIDRaw"]),
        state=state,
        job_name=fields["JobName"],
        elapsed_s=_number(fields["ElapsedRaw"]),
        asked_s=None if minutes is None else minutes * 60,
        nodes=nodes,
        cpus=cpus,
        cpu_s=cpu_s,
        asked_memory_mb=memory_mb or None,
        memory_mb=highest_together(
            (one.start, one.lasted_s, one.task_mb * one.tasks) for one in steps.memory
        ),
        node_mb=highest_together(
            (one.start, one.lasted_s, one.task_mb * one.tasks_a_node) for one in steps.memory
        ),
        task_mb=max((one.task_mb for one in steps.memory), default=None),
        steps_mb=highest_together((one.start, one.lasted_s, one.given_mb) for one in parts),
        gpus=_number(given.get("gres/gpu", "")) or 0.0,
        gpu_type=next((key.partition(":")[2] for key in given if key.startswith("gres/gpu:")), ""),
        gpu_mb=steps.gpu_mb,
        gpu_percent=steps.gpu_percent,
    )


def _asked_memory_mb(text: str, cpus: float | None, nodes: float) -> float | None:
    """Older Slurms write ``4Gn`` for each node and ``1Gc`` for each core; ``0`` stands for all there is."""
    memory_mb = parse_slurm_mb(text, plain="")
    if not memory_mb:
        return None
    if text.endswith("c"):
        return memory_mb * (cpus or 1)
    return memory_mb * nodes if text.endswith("n") else memory_mb


def parse_tres(text: str) -> dict[str, str]:
    """``cpu=4,gres/gpu:a100=1,mem=1G`` as a table."""
    return {
        key: value
        for key, equals, value in (part.partition("=") for part in text.split(","))
        if equals
    }


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(?:\.\d+)?", text.strip()) else None


def _most(first: float | None, second: float | None) -> float | None:
    return second if first is None else first if second is None else max(first, second)
