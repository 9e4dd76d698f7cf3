"""windlass check --interruption: the end of a job's time, on this machine and on purpose."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from windlass.agent.child import Trial
from windlass.agent.config import read_config
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.cli.request import read_request, warn
from windlass.collect.attempts import AttemptStory, read_attempts
from windlass.core.errors import AgentError, input_error
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile
from windlass.core.units import parse_duration_s, render_duration
from windlass.flow import How, Reporter, prepare_study
from windlass.following import wait_for_end
from windlass.model import Checkpoint, Plan, Study
from windlass.places.local import LocalAgents, LocalPlace
from windlass.search import iterate_trials
from windlass.todo import retry_trials


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. None: it cannot be decided."""

    ok: bool | None
    text: str
    hint: str = ""

    def render(self) -> str:
        word = {True: "ok  ", False: "FAIL", None: "note"}[self.ok]
        return f"{word}  {self.text}" + (f"\n      {self.hint}" if self.hint else "")


def rehearse(
    arguments: tuple[str, ...], options: dict[str, Any], after: str | None, as_json: bool
) -> int:
    """Run one trial here, interrupt it as the end of a job's time would, and see whether it goes on where it was.

    It works in a folder of its own that is removed afterwards (with --folder PATH it stays there). Returns the exit
    code: 0 where no work was seen to be lost.
    """
    keep = options["folder"]
    try:
        after_s = parse_duration_s(after) if after else None
    except ValueError as error:
        raise input_error(f"--after: {error}", "--after 30s") from None
    asked = read_request(arguments, {**options, "on": LocalPlace.name, "site": None})
    warn(asked.study.warnings)
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="windlass-rehearsal-") as temporary:
        folder = os.path.join(
            os.path.abspath(keep) if keep else temporary, f"{asked.study.name}-rehearsal"
        )
        if os.path.exists(folder):
            raise input_error(f"{folder} is there already", "remove it, or name another --folder")
        rehearsal = Rehearsal(_small_plan(asked.plan, folder), after_s)
        for finding in rehearsal.perform():
            click.echo(finding.render(), err=as_json)
            findings.append(finding)
    loses = any(finding.ok is False for finding in findings)
    if as_json:
        print(
            json.dumps(
                {"loses_work": loses, "findings": [asdict(finding) for finding in findings]},
                indent=2,
            )
        )
    elif loses:
        click.echo("an interruption would lose work; see above")
    else:
        unsure = "no work was seen to be lost; the notes above name what could not be known"
        is_unsure = any(finding.ok is None for finding in findings)
        click.echo(unsure if is_unsure else "it goes on where it was")
    return int(loses)


def _small_plan(plan: Plan, folder: str) -> Plan:
    """One trial at a time, and checkpoints in the rehearsal's own folder, whatever the study says."""
    checkpoint = replace(plan.study.checkpoint or Checkpoint(), dir=None, keep=0)
    return replace(plan, folder=folder, slots=1, study=replace(plan.study, checkpoint=checkpoint))


class Rehearsal:
    """One trial in two sessions here: the first is ended as the end of a job would end it, the second goes on.

    The plan's folder is the rehearsal's own; results of the study are not touched.
    """

    def __init__(self, plan: Plan, after_s: float | None) -> None:
        self._plan = plan
        self._after_s = after_s
        self._began: float | None = None
        self._paths = StudyPaths(plan.folder)

    def perform(self) -> Iterator[Finding]:
        """Perform both sessions. Yields each finding as soon as it is known.

        It stops after the first session where that one left nothing to go on from.
        """
        study = self._plan.study
        trials = itertools.islice(iterate_trials(study), 1)
        prepare_study(self._plan, Reporter(), How(trials=list(trials)))
        file = TrialFile(self._paths)
        self._trial = Trial(0, file.read_line(0))
        file.close()
        self._checkpoints = Checkpoints(
            read_config(self._paths.plan), self._paths, dict(os.environ)
        )
        click.echo(f"trial {self._trial.id}: {shlex.join(self._trial.stages[0][1])}", err=True)
        began = time.monotonic()
        ended_alone = self._first_session()
        session_s = time.monotonic() - began
        written = self._checkpoints.written(self._trial)
        first = self._attempts()[0]
        if ended_alone:
            yield self._ended_alone(first, bool(written))
            return
        if not written:
            yield self._nothing_written(session_s)
            return
        yield Finding(
            True, f"it saved {os.path.basename(written[0])} ({os.path.getsize(written[0])} bytes)"
        )
        yield self._how_it_ended(first)
        mark = self._checkpoints.mark(self._trial)
        if self._cause(first) == "done":
            retry_trials(self._paths, [(0, 1)])
        self._second_session()
        second = self._attempts()[-1]
        if self._cause(first) == "done":
            yield self._was_it_done(second, mark)
            return
        yield from self._how_it_went_on(study, first, second)

    # -- two sessions

    def _first_session(self) -> bool:
        """Until it has a checkpoint, or the time has come; then it is notified. True when it ended before that."""
        with _Agent(self._paths) as agents:
            notified = False

            def look() -> bool:
                nonlocal notified
                if self._it_is_time():
                    agents.warn()
                    notified = True
                return notified

            wait_for_end(agents, look)
            return not notified

    def _it_is_time(self) -> bool:
        """The time counts from the trial's own begin: how long its agent takes to start says nothing."""
        if self._after_s is None:
            return bool(self._checkpoints.written(self._trial))
        if self._began is None and read_attempts(self._paths, 0):
            self._began = time.monotonic()
        return self._began is not None and time.monotonic() - self._began >= self._after_s

    def _second_session(self) -> None:
        with _Agent(self._paths) as agents:
            wait_for_end(agents)

    def _attempts(self) -> list[AttemptStory]:
        found = read_attempts(self._paths, 0)
        if not found:
            raise AgentError("the trial was not begun; `windlass run --sample 1` shows why")
        return found

    def _cause(self, attempt: AttemptStory) -> str:
        return str((attempt.end or {}).get("cause", "agent lost"))

    # -- what the two sessions show

    def _ended_alone(self, first: AttemptStory, written: bool) -> Finding:
        seconds = (first.end or {}).get("dur", 0.0)
        if self._cause(first) != "done":
            return Finding(
                False,
                f"it ended by itself after {render_duration(seconds)}: {self._cause(first)}",
                "mend that first",
            )
        if not written:
            return self._nothing_written(seconds)
        hint = "take a longer trial, or save earlier, or --after with a shorter time"
        return Finding(
            False,
            f"it was done after {render_duration(seconds)}, before it could be interrupted",
            hint,
        )

    def _nothing_written(self, seconds: float) -> Finding:
        folder = self._checkpoints.folder_of(self._trial)
        names = os.listdir(folder) if os.path.isdir(folder) else []
        there = sorted(name for name in names if not name.startswith(".windlass"))
        if there:
            return Finding(
                False,
                f"none of {', '.join(there[:5])} is a whole checkpoint",
                "name them: `checkpoint: {pattern: ...}`",
            )
        hint = "`write: --save-to {checkpoint_dir}` under `checkpoint:`, or save to $WINDLASS_CHECKPOINT_DIR"
        return Finding(
            False,
            f"it saved nothing in its folder of checkpoints within {render_duration(seconds)}",
            hint,
        )

    def _how_it_ended(self, first: AttemptStory) -> Finding:
        """Whether the program ended by itself after it was notified, and in time."""
        end = first.end or {}
        if end.get("sig") == 9:
            lead_s = self._plan.settings["lead_s"].value
            hint = "catch the signal, or ask windlass.should_stop(), and save; what it did since its last save is lost"
            return Finding(
                None,
                f"it did not end within {render_duration(lead_s)} after it was notified, and was killed",
                hint,
            )
        if end.get("sig"):
            hint = "it loses what it did since its last save; catch the signal, or ask windlass.should_stop()"
            return Finding(None, f"it was ended at once by signal {end['sig']}", hint)
        return Finding(
            True, f"it ended by itself when notified, with exit code {end.get('code', 0)}"
        )

    def _was_it_done(self, second: AttemptStory, mark: Any) -> Finding:
        """Whether exit code 0 after the notification means that the trial was done, or is wrongly taken for it."""
        if self._checkpoints.mark(self._trial) == mark:
            return Finding(None, "it was done just then; rehearse again with a shorter --after")
        again = self._plan.settings["again_code"].value
        return Finding(
            False,
            "when notified, it ended with exit code 0 before it was done, which is taken for done",
            f"exit with {again} instead, or name the file that it writes when it is done: `checkpoint: {{done: ...}}`",
        )

    def _how_it_went_on(
        self, study: Study, first: AttemptStory, second: AttemptStory
    ) -> Iterator[Finding]:
        """Whether the second session got a checkpoint, its command names it, and its steps go on."""
        used = (second.end or {}).get("from")
        if used:
            yield Finding(True, f"the next session had {os.path.basename(used)} to go on from")
        else:
            yield Finding(
                False,
                "the next session found no checkpoint that is whole",
                "see `validate` and `pattern`",
            )
        arguments = " ".join(word for stage in study.stages for word in stage.words)
        checkpoint = study.checkpoint or Checkpoint()
        if not checkpoint.resume and not any(
            mark in arguments for mark in ("{checkpoint}", "{resume}", "{checkpoint_dir}")
        ):
            hint = "`resume: --load {checkpoint}` under `checkpoint:` tells it, unless it looks there by itself"
            yield Finding(None, "nothing in its command names the checkpoint", hint)
        yield self._compare_steps(first, second)
        cause = self._cause(second)
        if cause == "done":
            yield Finding(True, "it ended well")
        else:
            output = (
                f"its output: {self._paths.output}" if os.path.isdir(self._paths.output) else ""
            )
            yield Finding(False, f"the next session did not end well: {cause}", output)

    def _compare_steps(self, first: AttemptStory, second: AttemptStory) -> Finding:
        """Whether the second session went on where the first one stopped, judged by the steps that both reported."""
        before, after = self._steps(first), self._steps(second)
        if not before or not after:
            hint = "windlass.log(step=..., loss=...) or `step 10 loss 0.5` on stdout would tell"
            return Finding(
                None,
                "whether it went on or began anew cannot be decided: it reported no steps",
                hint,
            )
        if after[0] <= before[0]:
            return Finding(
                False, f"it began anew at step {after[0]:g}", "load the checkpoint that it is given"
            )
        return Finding(True, f"it had reached step {before[-1]:g} and went on at step {after[0]:g}")

    def _steps(self, attempt: AttemptStory) -> list[float]:
        """The steps that an attempt reported, in order."""
        steps = []
        try:
            with open(self._paths.metrics_of(attempt.agent), encoding="utf-8") as file:
                for line in file:
                    _, number, _, step, _ = json.loads(line)
                    if number == attempt.attempt and step is not None:
                        steps.append(float(step))
        except (OSError, ValueError):
            pass
        return steps


class _Agent:
    """An agent of this machine that does not outlive us."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths

    def __enter__(self) -> LocalAgents:
        agents = LocalPlace().start(self._paths, slots=1)
        if agents is None:
            raise AgentError("nothing is left to do for the trial")
        self._agents = agents
        return self._agents

    def __exit__(self, *_: object) -> None:
        complaints = self._agents.complaints().strip()
        self._agents.close()
        if complaints:
            click.echo(complaints, err=True)
