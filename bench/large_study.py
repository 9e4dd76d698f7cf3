"""Makes the folder of a large finished study, with the writers that agents and the command line use themselves."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

from windlass.agent.child import Attempt, Trial
from windlass.agent.config import Slot
from windlass.agent.report.metrics import MetricBook, MetricsFile
from windlass.agent.report.output import OutputLog, Stream
from windlass.agent.report.record import render_end, render_start
from windlass.bundle.folder import prepare_folder
from windlass.cli.request import plan_study
from windlass.core.claims.client import client_name
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.journal.kept import KeptWriter
from windlass.core.journal.pieces import STDOUT
from windlass.core.journal.write import JournalWriter
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause
from windlass.core.trialfile import TrialFile
from windlass.search import iterate_trials
from windlass.spec import load_study

_BEGAN = 1.7e9
_TRIAL_S = 30.0
_POINTS = 10  # of a curve
_BLOCK = 10  # trials that an agent claims at a time
FAILED_EVERY = 100  # one trial in so many has failed
_OUTPUT_LIMIT = 1 << 20

_STUDY = """name: large
command: python train.py --lr {{lr}} --width {{width}}
parameters:
  lr: {rates}
  width: {widths}
metric: {{name: loss, goal: minimize}}
outputs: [result.json]
"""


def make_large_study(
    project: Path, agents: int, trials_each: int, failed_every: int = FAILED_EVERY
) -> StudyPaths:
    """A study of `agents` × `trials_each` trials, each with a curve, output and a small file.

    One trial in `failed_every` has failed; none where that is 0.
    """
    count = agents * trials_each
    widths = min(100, trials_each)
    rates = [round(1e-4 * (i + 1), 7) for i in range(-(-count // widths))]
    (project / "train.py").write_text("import argparse\n")
    source = project / "study.yaml"
    source.write_text(_STUDY.format(rates=rates, widths=list(range(1, widths + 1))))
    study = load_study(str(source))
    plan = plan_study(study, {}, "local", None, True).plan
    paths = prepare_folder(plan, iterate_trials(study), list, client_name()).paths
    trials = TrialFile(paths)
    for agent in range(agents):
        blocks = range(agent * _BLOCK, count, agents * _BLOCK)
        numbers = [
            number for block in blocks for number in range(block, min(block + _BLOCK, count))
        ]
        _Agent(paths, agent, failed_every).execute(
            [Trial(*found) for n in numbers for found in trials.iterate_lines(n, n + 1)]
        )
    trials.close()
    everything = [(0, count)]

    def settle(register: Register) -> Register:
        register.todo, register.ended = [], list(everything)
        return register

    RegisterFile(paths.claims, client_name()).update(settle)
    return paths


class _Agent:
    """Writes what an agent leaves that has executed its trials one by one."""

    def __init__(self, paths: StudyPaths, number: int, failed_every: int) -> None:
        self._failed_every = failed_every
        self._id = f"20231114-221320-{number:05d}"
        header = {
            "e": "agent",
            "t": _BEGAN,
            "v": JOURNAL_VERSION,
            "id": self._id,
            "host": f"node{number % 50}",
        }
        header.update(
            machine=f"m{number % 50}", boot="b", pid=1000 + number, began=1, slots=1, cpus=1, gpus=0
        )
        self._journal = JournalWriter(paths.journal_of(self._id), header)
        self._output = OutputLog(paths.output_of(self._id), paths.output_index_of(self._id))
        self._curves = MetricsFile(paths.metrics_of(self._id))
        self._kept = KeptWriter(paths.outputs, self._id)
        self._random = random.Random(number)
        self._now = _BEGAN + number * 0.01

    def execute(self, trials: list[Trial]) -> None:
        self._journal.add(
            {"e": "ready", "t": round(self._now, 3), "in_s": {"code": 0.1, "environment": 0.5}}
        )
        for attempt, trial in enumerate(trials, 1):
            self._execute(trial, attempt)
        self._output.flush(self._now, force=True)
        self._curves.flush()
        self._kept.close()
        self._output.close()
        self._curves.close()
        self._journal.add(
            {"e": "bye", "t": round(self._now, 3), "reason": "nothing is left to do", "failed": 1}
        )
        self._journal.flush()
        self._journal.close()

    def _execute(self, trial: Trial, number: int) -> None:
        attempt = Attempt(trial, number, Slot(0, None), self._now, self._now)
        self._journal.add_line(render_start(attempt))
        stream = attempt.streams[STDOUT] = Stream(
            self._output, trial.number, number, STDOUT, _OUTPUT_LIMIT, None
        )
        attempt.book = MetricBook()
        loss = 2.0 + self._random.random()
        for step in range(_POINTS):
            loss *= 0.8 + 0.1 * self._random.random()
            when = self._now + step * _TRIAL_S / _POINTS
            attempt.book.add_logged("loss", round(loss, 6))
            attempt.book.step = float(step)
            self._curves.add(trial.number, number, when, float(step), {"loss": round(loss, 6)})
            stream.feed(f"epoch {step} loss {loss:.6f}\n".encode(), when)
        self._now += _TRIAL_S
        stream.finish(self._now)
        self._output.dirty.clear()
        attempt.ended, attempt.rss_mb, attempt.cpu_s = self._now, 512.5, _TRIAL_S * 0.9
        if self._failed_every and trial.number % self._failed_every == self._failed_every - 1:
            attempt.why = "ValueError: the loss is not finite"
            self._journal.add_line(render_end(attempt, Cause.FAILED, 1, 0))
        else:
            attempt.out_s = 0.01
            self._keep(trial.id, f'{{"loss": {loss:.6f}}}\n'.encode())
            self._journal.add_line(render_end(attempt, Cause.DONE, 0, 0))
        if number % _BLOCK == 0:
            self._journal.flush()

    def _keep(self, trial: str, data: bytes) -> None:
        with tempfile.TemporaryFile() as file:
            status = os.fstat(file.fileno())
        self._kept.add(trial, "result.json", data, status, self._now)
