"""What jobs asked for and what they used, as ``sacct`` keeps it; anybody's jobs, not only ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from windlass.slurm.accounting import Ask, parse_memory_mb
from windlass.slurm.states import ENDED, JobState, parse_job_state

_FIELDS = (
    "JobIDRaw,JobID,State,ElapsedRaw,TimelimitRaw,NNodes,AllocCPUS,TotalCPU,ReqMem,MaxRSS,ReqTRES,AllocTRES,"
    "TRESUsageInMax,TRESUsageInAve,JobName"
)
_NAMES = _FIELDS.split(",")
_ENV = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_BATCH = 500
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\Z")


@dataclass(frozen=True)
class JobUse:
    """One job or task of an array. None: not known, or not counted yet."""

    name: str  # 12, or 12_3
    id: int
    state: JobState
    job_name: str = ""
    elapsed_s: float | None = None
    asked_s: float | None = None
    cpus: float | None = None
    cpu_s: float | None = None  # processor time of all its steps
    asked_memory_mb: float | None = None  # of all its nodes together
    memory_mb: float | None = None  # highest of any step
    gpus: float | None = None
    gpu_type: str = ""
    gpu_mb: float | None = None  # only where Slurm itself watches GPUs
    gpu_percent: float | None = None

    @property
    def array(self) -> str:
        """The number that all tasks of its array share; its own outside arrays."""
        return self.name.partition("_")[0]


@dataclass
class _Steps:
    """What the steps of a job used: the most of any."""

    memory_mb: float | None = None
    gpu_mb: float | None = None
    gpu_percent: float | None = None
    fields: dict[str, str] = field(default_factory=dict)  # of the job's own line

    def add(self, line: Mapping[str, str]) -> None:
        most, mean = parse_tres(line["TRESUsageInMax"]), parse_tres(line["TRESUsageInAve"])
        self.memory_mb = _most(self.memory_mb, parse_memory_mb(line["MaxRSS"]))
        self.gpu_mb = _most(self.gpu_mb, parse_memory_mb(most.get("gres/gpumem", "")))
        self.gpu_percent = _most(self.gpu_percent, _number(mean.get("gres/gpuutil", "")))


def fetch_uses(jobs: Iterable[str], ask: Ask) -> list[JobUse] | None:
    """What accounting keeps of these jobs (``12``, ``12_3``; an array's number stands for all of its tasks).

    None where there is no accounting or it does not answer.
    """
    names = list(dict.fromkeys(jobs))
    uses: list[JobUse] = []
    for begin in range(0, len(names), _BATCH):
        listed = ",".join(names[begin : begin + _BATCH])
        text = ask(["sacct", "--noheader", "--parsable2", f"--format={_FIELDS}", f"--jobs={listed}"], _ENV)
        if text is None:
            return None
        uses += parse_uses(text)
    return uses


def fetch_submit_line(job: str, ask: Ask) -> tuple[str, str]:
    """The folder and the command line that a job was submitted with; empty where accounting does not keep it."""
    text = ask(["sacct", "--noheader", "--parsable2", "-X", "--format=WorkDir,SubmitLine", f"--jobs={job}"], _ENV)
    folder, _, line = (text or "").split("\n", maxsplit=1)[0].partition("|")
    return folder, line


def parse_uses(text: str) -> list[JobUse]:
    """The jobs of sacct's answer, each with the most that any of its steps used. Waiting ones are left out."""
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
    uses = [_parse_use(name, steps) for name, steps in jobs.items() if steps.fields.get("JobIDRaw", "").isdecimal()]
    return [use for use in uses if use.state is not JobState.WAITING and "[" not in use.name]


def _parse_use(name: str, steps: _Steps) -> JobUse:
    fields = steps.fields
    given = parse_tres(fields["AllocTRES"]) or parse_tres(fields["ReqTRES"])
    state = parse_job_state(fields["State"])
    cpus = _number(given.get("cpu", "")) or _number(fields["AllocCPUS"])
    cpu_s = parse_clock_s(fields["TotalCPU"])
    if not cpu_s and state not in ENDED:
        cpu_s = None  # steps are counted when they end
    minutes = _number(fields["TimelimitRaw"])
    memory_mb = parse_memory_mb(given.get("mem", ""))
    if memory_mb is None:
        memory_mb = _asked_memory_mb(fields["ReqMem"], cpus, _number(fields["NNodes"]))
    return JobUse(
        name=name,
        id=int(fields["JobIDRaw"]),
        state=state,
        job_name=fields["JobName"],
        elapsed_s=_number(fields["ElapsedRaw"]),
        asked_s=None if minutes is None else minutes * 60,
        cpus=cpus,
        cpu_s=cpu_s,
        asked_memory_mb=memory_mb or None,
        memory_mb=steps.memory_mb,
        gpus=_number(given.get("gres/gpu", "")) or 0.0,
        gpu_type=next((key.partition(":")[2] for key in given if key.startswith("gres/gpu:")), ""),
        gpu_mb=steps.gpu_mb,
        gpu_percent=steps.gpu_percent,
    )


def _asked_memory_mb(text: str, cpus: float | None, nodes: float | None) -> float | None:
    """Older Slurms write ``4Gn`` for each node and ``1Gc`` for each core; ``0`` stands for all there is."""
    memory_mb = parse_memory_mb(text)
    if not memory_mb:
        return None
    if text.endswith("c"):
        return memory_mb * (cpus or 1)
    return memory_mb * (nodes or 1) if text.endswith("n") else memory_mb


def parse_tres(text: str) -> dict[str, str]:
    """``cpu=4,gres/gpu:a100=1,mem=1G`` as a table."""
    return {key: value for key, equals, value in (part.partition("=") for part in text.split(",")) if equals}


def parse_clock_s(text: str) -> float | None:
    """Seconds of ``1-02:03:04``, ``02:03:04`` or ``03:04.567``."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups()
    return ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + float(seconds)


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(?:\.\d+)?", text.strip()) else None


def _most(first: float | None, second: float | None) -> float | None:
    return second if first is None else first if second is None else max(first, second)
