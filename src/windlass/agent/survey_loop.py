"""The agent's loop when it is there to measure: the survey's script decides what begins and ends. Python 3.9."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, Iterator, List

from windlass.agent.child import Attempt, Trial
from windlass.agent.config import AgentConfig, Slot
from windlass.agent.ends import EXIT_DONE, EXIT_FAILED, Mode
from windlass.agent.loop import Loop
from windlass.agent.mps import Mps
from windlass.agent.survey import Survey, usable_cores
from windlass.track.reserved import SITECUSTOMIZE, VARIABLE

_TURN_S = 0.1
_WRITE_S = 10.0  # that trials which are told to stop and the writing of the outcome may take


def survey_slots(config: AgentConfig) -> List[Slot]:
    """As many places as could ever be tried, all on the first device."""
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


class SurveyLoop(Loop):
    """Takes no trials from the register: it runs those it was given, as often as it likes, and hands in no results."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._reach.others_claim = False
        self._nobody_fits = True  # free slots are no reason to hurry: the script fills them
        self._script: Iterator[None] = iter(())
        self._next_turn = 0.0
        self._over = False
        self._done = EXIT_FAILED

    def prepare(self, config: AgentConfig, slots: List[Slot], env: Any) -> None:
        trials: List[Trial] = []
        self._queue.push([(0, config.measure["trials"] if config.measure is not None else 0)])
        while True:
            trial = self._queue.pop()
            if trial is None:
                break
            trials.append(trial)

        def make_mps(visible: str) -> Mps:
            return Mps(visible, self._runtime_folder, env, self._agent, self._runner.gauges.nvml)

        # Once the end of the job is near, the script is not advanced any more, and its findings would be lost.
        near_at = self._limits.near_at
        end_by = None if near_at is None else near_at - config.grace_s - _WRITE_S
        self._survey = Survey(config, self._runner, trials, slots, self._start, self._note, make_mps, end_by)
        self._script = self._survey.script()

    def run(self) -> int:
        code = super().run()
        return self._done if code in (EXIT_DONE, EXIT_FAILED) else code

    def _start(self, trial: Trial) -> Attempt:
        self._runner.forget_progress(trial)  # every round has the same trials: they must not go on where they were
        attempt = self._runner.announce(trial)
        self._announced.append(attempt)
        self._launch()
        return attempt

    def _fill(self) -> None:
        now = time.monotonic()
        if self._announced:
            self._launch()
        if self._over or now < self._next_turn:
            return
        self._next_turn = now + _TURN_S
        try:
            next(self._script)
        except StopIteration:
            self._over = True
            if self._survey.failed:
                print(f"windlass measure: {self._survey.failed}", file=sys.stderr)
            else:
                self._done = EXIT_DONE

    def _may_continue(self) -> bool:
        return not self._over

    def _patience_s(self, now: float) -> float:
        patience_s = super()._patience_s(now)
        return min(patience_s, _TURN_S) if self._mode is Mode.RUN and not self._over else patience_s

    def _take_down(self) -> None:
        self._script.close()  # type: ignore[attr-defined]
        super()._take_down()
