"""Climbs a study's ladder: smaller versions of the training, each begun once the one before it held.

The rungs are trials of a study folder of their own, <study>-ladder: `results`, `logs` and `explain` show them. A rung
that held is not executed again until its command, its settings or the project's code change.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from windlass.bundle.code import excluded_paths, hash_files
from windlass.bundle.environment import find_environment_problems
from windlass.bundle.folder import folder_error, remember_place
from windlass.bundle.programs import find_program_problems
from windlass.bundle.tree import list_code
from windlass.collect.index import read_record
from windlass.collect.trials import find_trials
from windlass.core.claims.client import ClientJournal, client_name
from windlass.core.claims.register import RegisterFile
from windlass.core.errors import InputError
from windlass.core.ids import trial_id
from windlass.core.journal.records import TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.flow import EXIT_INTERRUPTED, How, Reporter, prepare_study, run_folder
from windlass.model import Expectation, MetricPattern, Plan, Rung, Study, Trial
from windlass.places.base import Place
from windlass.planning import make_plan
from windlass.search import iterate_trials
from windlass.search.template import ARGS_WORDS, CONFIG_WORD, Template, placeholder_names
from windlass.search.trials import canonical_command
from windlass.todo import retry_trials

Verdict = Literal["held", "held before", "not held", "interrupted", "not begun"]
_SIGNS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}


@dataclass(frozen=True)
class RungResult:
    """How one rung went."""

    number: int | None  # of its trial in the ladder's folder; None: it was not begun
    name: str
    verdict: Verdict
    expect: str
    why: str = ""  # what was reached, or what went wrong
    seconds: float | None = None


def ladder_name(study: Study) -> str:
    return f"{study.name}-ladder"


def plan_ladder(study: Study, machine: Place, root: str) -> Plan:
    """One rung at a time on this machine, in a folder of its own beside the study's."""
    named = {pattern.name for pattern in study.metrics}
    wanted = dict.fromkeys(one.metric for rung in study.ladder for one in rung.expect)
    metrics = (*study.metrics, *(MetricPattern(name) for name in wanted if name not in named))
    # Without a source: the study file stands for the study itself, whichever of the two was used last.
    own = replace(study, name=ladder_name(study), source="", metrics=metrics, ladder=())
    flags: dict[str, Any] = {"folder": root, "slots": 1, "retries": 0}
    if study.given.get("code") is None:
        flags["code"] = "frozen"
    return make_plan(machine, own, flags)


def make_trials(study: Study, code: str) -> list[Trial]:
    """The rungs as trials. `code` names the version of the project: another one makes other trials."""
    base = dict(next(iterate_trials(study)).settings)
    trials = []
    for rung in study.ladder:
        settings = {**_kept(base, rung), **rung.parameters}
        identity = trial_id(
            {**settings, "rung": rung.name, "code": code}, canonical_command(rung.stages)
        )
        stages = Template(rung.stages, ladder_name(study)).fill(settings, identity)
        trials.append(Trial(identity, settings, stages, rung.name))
    return trials


def _kept(base: dict[str, Any], rung: Rung) -> dict[str, Any]:
    """Of the study's settings, those that the rung's command uses: it may be another program."""
    used = {
        name for stage in rung.stages for word in stage.words for name in placeholder_names(word)
    }
    if used & {*ARGS_WORDS, CONFIG_WORD} or not rung.own_command:
        return base
    return {name: value for name, value in base.items() if name in used}


def climb(
    study: Study, machine: Place, plan: Plan, say: Callable[[str], None]
) -> Iterator[RungResult]:
    """A result for each rung, as soon as it is known. After the first that did not hold nothing is executed."""
    trials = make_trials(study, _code_key(study, plan))
    problems = [*find_environment_problems(study), *find_program_problems(study, trials)[0]]
    if problems:
        raise InputError(problems)
    going = True
    for count, rung in enumerate(study.ladder):
        expect = ", ".join(map(str, rung.expect))
        if not going:
            yield RungResult(None, rung.name, "not begun", expect)
            continue
        say(f"rung {count + 1} of {len(trials)}: {rung.name} …")
        result = _climb_one(machine, plan, trials[: count + 1], rung)
        going = result.verdict in ("held", "held before")
        yield result


def _code_key(study: Study, plan: Plan) -> str:
    """The same for the same files of the project, but for the study file: a changed `expect` needs no new training."""
    project = os.path.abspath(study.project_dir)
    files = list_code(project, excluded_paths(plan))
    own = os.path.relpath(study.source, project) if study.source else ""
    return hash_files(project, [file for file in files if file.name != own])


def _climb_one(machine: Place, plan: Plan, trials: Sequence[Trial], rung: Rung) -> RungResult:
    """Execute the last of these trials, unless it held before."""
    more: dict[str, Any] = {} if plan.study.on_nan == "ignore" else {"watch_nan": True}
    if rung.timeout_s is not None:
        more["timeout_s"] = rung.timeout_s
    paths = prepare_study(plan, Reporter(), How(trials=trials, more=more))
    remember_place(plan)
    (number,) = find_trials(
        [trials[-1].id], paths, RegisterFile(paths.claims, client_name()).read().count
    )
    before = read_record(paths, number)
    if before is not None and before.state is State.DONE:
        if not _missed(before, rung):
            return _result(number, before, rung, "held before")
        retry_trials(paths, [(number, number + 1)])
    outcome = run_folder(machine, paths, Reporter(), How(sample=1, slots=1))
    record = read_record(paths, number)
    if outcome.exit_code == EXIT_INTERRUPTED:
        return _result(number, record, rung, "interrupted")
    held = record is not None and record.state is State.DONE and not _missed(record, rung)
    result = _result(number, record, rung, "held" if held else "not held")
    _write_note(paths, result)
    return result


def _write_note(paths: StudyPaths, result: RungResult) -> None:
    """Record the verdict on a rung in the journal, so that `explain` and `status` show it."""
    text = f"rung {result.name!r}: {result.verdict}: {result.why} (expected {result.expect})"
    try:
        with ClientJournal(paths) as journal:
            journal.write({"e": "note", "i": result.number, "text": text})
    except OSError as error:
        raise folder_error(error, paths.folder) from error


def _missed(record: TrialRecord, rung: Rung) -> list[Expectation]:
    return [one for one in rung.expect if not _holds(record, one)]


def _holds(record: TrialRecord, one: Expectation) -> bool:
    """Judged by the last value; a metric that was never reported reaches nothing."""
    summary = record.metrics.get(one.metric)
    return summary is not None and bool(_SIGNS[one.sign](summary[0], one.value))


def _result(number: int, record: TrialRecord | None, rung: Rung, verdict: Verdict) -> RungResult:
    """The result of a rung: what its trial reached, or why it did not get that far."""
    expect = ", ".join(map(str, rung.expect))
    if record is None:
        return RungResult(number, rung.name, verdict, expect, "it was not started")
    if record.state is not State.DONE:
        why = record.note or record.cause or record.state.value
        why += f" (exit code {record.exit_code})" if record.exit_code else ""
        return RungResult(number, rung.name, verdict, expect, why, record.duration_s)
    reached = [_reached(record, name) for name in dict.fromkeys(one.metric for one in rung.expect)]
    return RungResult(number, rung.name, verdict, expect, ", ".join(reached), record.duration_s)


def _reached(record: TrialRecord, name: str) -> str:
    """The last value of a metric as text, or that the trial did not report it."""
    summary = record.metrics.get(name)
    if summary is None:
        return f"no {name} was reported, neither by windlass.log nor in a line such as {name}=0.1"
    return f"{name}={summary[0]:.6g}"
