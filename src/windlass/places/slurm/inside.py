"""Looks inside a job that runs: a short step beside its own processes, once."""

from __future__ import annotations

from windlass.core.errors import SchedulerError, input_error
from windlass.core.processes import ask
from windlass.core.queue.ask import plain_environment
from windlass.core.queue.states import JobState, parse_job_state

_PATIENCE_S = 90.0
_PROCESSES = 15
_LOOK = f"""
echo "host $(uname -n)"
if command -v nvidia-smi >/dev/null 2>&1; then
    nvidia-smi --query-gpu=index,name,utilization.gpu,memory.used,memory.total --format=csv,noheader
    nvidia-smi --query-compute-apps=pid,used_memory,process_name --format=csv,noheader
else
    echo "no nvidia-smi here"
fi
if command -v top >/dev/null 2>&1; then
    COLUMNS=140 top -b -n 1 -u "$(id -u)" | head -n {_PROCESSES + 7}
else
    ps -u "$(id -u)" -o pid,pcpu,rss,etime,args --sort=-pcpu | head -n {_PROCESSES + 1}
fi
"""


def fetch_running(job: str) -> tuple[int, int]:
    """A running job's own number and how many nodes it has. Raises where it does not run."""
    arguments = [
        "squeue",
        "--noheader",
        "--array",
        "--states=all",
        f"--jobs={job}",
        "--format=%A|%T|%D",
    ]
    answer = ask(arguments, env=plain_environment({}))
    if answer.code is None or "Unable to contact" in answer.errors:
        raise SchedulerError("the scheduler does not answer (squeue)\n  hint: try again later")
    rows = [line.split("|") for line in answer.text.splitlines() if line.count("|") == 2]
    running = [row for row in rows if parse_job_state(row[1]) is JobState.RUNNING]
    if running:
        return int(running[0][0]), int(running[0][2])
    states = ", ".join(sorted({row[1] for row in rows}))
    hint = (
        f"it is {states}"
        if states
        else "the queue does not know it; `windlass efficiency` tells of jobs that ended"
    )
    raise input_error(f"job {job} does not run, so that there is nothing to look at", hint)


def look_inside(job: int, nodes: int = 1) -> str:
    """What its GPUs and the user's processes do on each of its nodes, as the programs there print it.

    The step takes nothing from the job: it shares what the job has, its GPUs too.
    """
    arguments = [
        "srun",
        f"--jobid={job}",
        "--overlap",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--mem=0",
        "--quiet",
    ]
    label = ["--label"] if nodes > 1 else []
    answer = ask([*arguments, *label, "sh", "-c", _LOOK], _PATIENCE_S, env=plain_environment({}))
    if not answer.ok:
        messages = answer.errors.strip().splitlines()
        raise SchedulerError(
            f"nobody can look inside job {job}: {messages[-1] if messages else 'srun printed nothing'}"
        )
    # Nodes talk at the same time; each line says whose it is.
    return (
        "".join(sorted(answer.text.splitlines(keepends=True), key=_node))
        if nodes > 1
        else answer.text
    )


def _node(line: str) -> int:
    number = line.partition(":")[0].strip()
    return int(number) if number.isdecimal() else -1
