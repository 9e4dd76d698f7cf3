"""What an agent begins when it is there to measure: the survey's script decides. Python 3.9."""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, Iterator, List

from windlass.agent.child import Attempt, Trial
from windlass.agent.claim import TrialQueue
from windlass.agent.config import AgentConfig, Slot
from windlass.agent.ends import EXIT_DONE, EXIT_FAILED
from windlass.agent.loop import Loop
from windlass.agent.parts import Shared
from windlass.agent.runner import Runner
from windlass.agent.share.mps import Mps
from windlass.agent.survey.room import usable_cores
from windlass.agent.survey.survey import Survey
from windlass.launchers.base import PLAIN as LAUNCH_PLAIN
from windlass.trial.reserved import SITECUSTOMIZE, VARIABLE

MakeMps = Callable[[str], Mps]
# How long trials that are asked to stop and the writing of the outcome may take together.
_WRITE_S = 10.0


def survey_slots(config: AgentConfig) -> List[Slot]:
    """As many places as could ever be tried, all on the first device.

    With a launcher, trials on GPUs or on several nodes have one place: each takes all devices that it asks for.
    """
    if config.launch != LAUNCH_PLAIN and (config.gpus_per_slot or config.trial_nodes > 1):
        count = max(1, int(config.gpus_per_slot))
        return [Slot(0, ",".join(config.gpus[:count]) or None)]
    device = config.gpus[0] if config.gpus else None
    return [Slot(number, device) for number in range(usable_cores())]


def prepare_frameworks(folder: str, env: Dict[str, str]) -> None:
    """Have the Python of each trial tell what its framework reserves of the GPU's memory."""
    path = os.path.join(folder, "first")
    os.mkdir(path)
    with open(os.path.join(path, "sitecustomize.py"), "w", encoding="ascii") as file:
        file.write(SITECUSTOMIZE)
    env[VARIABLE] = "1"
    env["PYTHONPATH"] = path + os.pathsep + env["PYTHONPATH"]


class SurveyChoice:
    """Lets the survey's script begin and end the trials it was given, as often as it likes. It hands in no results."""

    pause_s = 0.1

    def __init__(
        self, loop: Loop, runner: Runner, shared: Shared, queue: TrialQueue, make_mps: MakeMps
    ) -> None:
        config, near_at, slots = shared.config, shared.limits.near_at, list(reversed(runner.free))
        self._next_advance = 0.0
        self._is_over = False
        self._code = EXIT_FAILED

        def start(trial: Trial) -> Attempt:
            runner.forget_progress(trial)  # Every round has the same trials: they must not resume.
            return loop.begin(trial)

        # Once the end of the job is near, the script is not advanced any more, and its findings would be lost.
        end_by = None if near_at is None else near_at - config.grace_s - _WRITE_S
        trials = list(
            _take_all(queue, config.measure["trials"] if config.measure is not None else 0)
        )
        self._survey = Survey(config, runner, trials, slots, start, loop.note, make_mps, end_by)
        self._script = self._survey.script()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def advance(self, now: float) -> None:
        if self._is_over or now < self._next_advance:
            return
        self._next_advance = now + self.pause_s
        try:
            next(self._script)
        except StopIteration:
            self._is_over = True
            if self._survey.failed:
                print(f"windlass measure: {self._survey.failed}", file=sys.stderr)
            else:
                self._code = EXIT_DONE

    def settle(self, code: int) -> int:
        return self._code if code in (EXIT_DONE, EXIT_FAILED) else code

    def close(self) -> None:
        self._script.close()  # type: ignore[attr-defined]


def _take_all(queue: TrialQueue, count: int) -> Iterator[Trial]:
    queue.push([(0, count)])
    trial = queue.pop()
    while trial is not None:
        yield trial
        trial = queue.pop()
