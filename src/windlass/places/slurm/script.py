"""The batch script of a study's agents: a dozen lines; the work is in the agent. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from windlass.core.errors import InputError, Problem
from windlass.core.verified import agent_command
from windlass.model import Request
from windlass.slurm.options import SAME, option_name, render_time, render_value


def render_script(
    request: Request,
    *,
    agents: int,
    output: str,
    comment: str,
    python: str,
    agent: str,
    digest: str,
    folder: str,
    submission: str,
    chdir: str,
) -> str:
    """The script for one array of `agents` tasks.

    `output` is a pattern of Slurm's: whoever makes it doubles each % of a folder's name (slurm.options.render_pattern).
    `digest` is the SHA-256 of the agent, which the job compares with what it finds. Raises InputError where a value
    cannot be expressed to sbatch.
    """
    own: dict[str, Any] = {
        **identity_options(request),
        **size_options(request),
        "time": render_time(request.time_s),
        "array": _array(agents, request.throttle),
        "output": output,
        "open-mode": "append",
        "signal": f"B:USR1@{request.notice_s}" if request.notice_s else None,
        "requeue": True,
        "comment": comment,
        "chdir": chdir,
        "mail-user": request.mail_user,
        "mail-type": list(request.mail_types) or None,
    }
    lines = [f"#!{request.shebang}"]
    problems = _unsayable(output)
    for name, value in merge_options(own, request.options).items():
        try:
            lines.append(
                f"#SBATCH --{name}" + ("" if value is True else f"={render_value(_text(value))}")
            )
        except ValueError as error:
            problems.append(
                Problem(f"--{name}={_text(value)!r}: {error}", "leave the line break out")
            )
    if problems:
        raise InputError(problems)
    arguments = agent_command(python, agent, digest, [folder, "--job", submission])
    lines += [
        "",
        "# One agent: it takes trials until none is left. It is compared with its checksum first.",
    ]
    if request.notice_s:
        lines.append("trap '' USR1  # until the agent listens")
    lines += [f"exec {shlex.join(arguments)}", ""]
    return "\n".join(lines)


def merge_options(own: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Our options in their order, the user's in place of ours where both speak, then the user's others, sorted.

    None and False leave an option out; a user's False takes ours out.
    """
    given = {option_name(name): value for name, value in further.items()}
    gpus = own.get("gres")
    if gpus and given.get("gres") and "gpu" not in _text(given["gres"]):
        given["gres"] = f"{gpus},{_text(given['gres'])}"
    merged = {
        name: given.get(name, value)
        for name, value in own.items()
        if name in given or not _replaced(name, given)
    }
    merged.update((name, given[name]) for name in sorted(given) if name not in merged)
    return {
        name: value for name, value in merged.items() if value is not None and value is not False
    }


def _replaced(name: str, given: Mapping[str, Any]) -> bool:
    """Whether one of the user's options says what this one of ours would."""
    others = {other for same in SAME if name in same for other in same}
    if name == "gres":
        others = {"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"}
    if name == "gpus-per-node" and "gpu" in _text(given.get("gres") or ""):
        return True
    return any(given.get(other) not in (None, False) for other in others)


def _unsayable(output: str) -> list[Problem]:
    """Slurm takes a backslash anywhere in the name of a log as: fill nothing in. All tasks would share one file."""
    if "\\" not in output:
        return []
    return [
        Problem(
            f"Slurm cannot write logs below a folder with a backslash in its name: {output}",
            "--folder PATH",
        )
    ]


def identity_options(request: Request) -> dict[str, Any]:
    """The options that name a job and whom it is charged to."""
    return {
        "job-name": request.job_name,
        "account": request.account,
        "partition": request.partition,
        "qos": request.qos,
    }


def size_options(request: Request) -> dict[str, Any]:
    """Nodes, cores, memory and GPUs, in the form that the site takes."""
    several = request.nodes > 1 or request.tasks > 1
    size: dict[str, Any] = {
        "nodes": request.nodes if several else None,
        "ntasks-per-node": request.tasks if several else None,
        "cpus-per-task": request.cpus_per_task,
    }
    if request.memory_form == "mem-per-cpu":
        size["mem-per-cpu"] = f"{math.ceil(request.memory_mb / max(1, request.cpus))}M"
    else:
        size["mem"] = f"{request.memory_mb}M"
    if request.gpus:
        count = f"{request.gpu_type}:{request.gpus}" if request.gpu_type else f"{request.gpus}"
        size.update(
            {"gpus-per-node": count}
            if request.gpu_form == "gpus-per-node"
            else {"gres": f"gpu:{count}"}
        )
    return size


def _array(agents: int, throttle: int | None) -> str:
    """Always an array, also for one agent, so that logs and ids look alike."""
    limit = f"%{throttle}" if throttle and throttle < agents else ""
    return f"0-{agents - 1}{limit}"


def _text(value: Any) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value)
