"""Hands arrays of agents to Slurm, finds them again, and ends them."""

from __future__ import annotations

import functools
import os
import re
import sys
from dataclasses import dataclass

from windlass.core.paths import StudyPaths
from windlass.core.processes import Answer, ask
from windlass.core.queue.ask import plain_environment
from windlass.core.verified import read_digest
from windlass.model import Request
from windlass.places.slurm.script import render_script
from windlass.slurm.options import render_pattern

NO_DIGEST = "SHA256"  # in a script that is only shown, or tried: the agent is not written yet
SUBMISSION_VARIABLE = "WINDLASS_SUBMISSION"  # in the environment of an sbatch of ours
# After these it is not known whether the controller has taken the job.
_UNSURE = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Communication connection",
)
_PARSABLE = re.compile(r"^(\d+)(?:;\S*)?$", re.MULTILINE)
# What sbatch prints around the one sentence that matters.
_NOISE = (
    "sbatch: error: ",
    "sbatch: fatal: ",
    "sbatch: ",
    "Batch job submission failed: ",
    "allocation failure: ",
)


@dataclass(frozen=True)
class Sent:
    """What became of one sbatch: a job, a refusal with its message, or neither where nobody can know yet."""

    job: int | None = None
    refused: str | None = None
    unsure: str | None = None


def script_of(
    request: Request, paths: StudyPaths, agents: int, comment: str, submission: str, chdir: str
) -> str:
    """The batch script of one array of a study's agents."""
    return render_script(
        request,
        agents=agents,
        output=render_pattern(os.path.join(paths.hpc_outputs, os.path.basename(paths.folder)))
        + "_%A_%a.out",
        comment=comment,
        python=sys.executable,
        agent=paths.agent,
        digest=read_digest(paths) or NO_DIGEST,
        folder=paths.folder,
        submission=submission,
        chdir=chdir,
    )


def send_array(script: str, submission: str, patience_s: float) -> Sent:
    """Submit the script. Never raises: whoever calls has to record what became of it."""
    env = {**_own_environment(), SUBMISSION_VARIABLE: submission}
    answer = ask(["sbatch", "--parsable"], patience_s, script, env)
    number = _PARSABLE.search(answer.text)
    if answer.ok and number:
        return Sent(job=int(number[1]))
    text = sentence_of(answer)
    unsure = (
        answer.timed_out
        or answer.ok
        or (answer.code or 0) < 0
        or any(word in answer.errors for word in _UNSURE)
    )
    return Sent(unsure=text) if unsure else Sent(refused=text)


def try_array(script: str, patience_s: float) -> Answer:
    """What Slurm says to the script without taking it."""
    return ask(["sbatch", "--test-only"], patience_s, script, _own_environment())


def sentence_of(answer: Answer) -> str:
    """What went wrong, without the noise around it."""
    lines = []
    for line in (
        answer.errors.strip() or answer.text.strip() or f"exit code {answer.code}"
    ).splitlines():
        message = functools.reduce(str.removeprefix, _NOISE, line)
        lines.append(message.strip())
    return "; ".join(dict.fromkeys(line for line in lines if line))


def _own_environment() -> dict[str, str]:
    """Without the variables that sbatch would let win over what the script says."""
    return {
        name: value
        for name, value in plain_environment({}).items()
        if not name.startswith("SBATCH_")
    }
