"""The whole story, written once for every place: a plan is checked, a folder prepared, agents started and followed.

    plan (planning.py) → check → prepare → start → follow → settle

Commands differ in what they plan, in what they show (`Reporter`) and in how far they go (`How`), not in this order.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.bundle.data import pack_data
from windlass.bundle.folder import Prepared, folder_error, prepare_folder
from windlass.collect.follow import Follower
from windlass.collect.index import open_index, read_done
from windlass.core.claims import ranges as rs
from windlass.core.claims.client import client_name
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.errors import InputError
from windlass.core.journal.write import DiskFull
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.core.trust import make_folders
from windlass.following import Following
from windlass.model import Plan, Submitted, Trial
from windlass.patience import insist
from windlass.places.base import Agents, Place
from windlass.rehearse import Rehearsal
from windlass.search import iterate_trials

EXIT_DONE, EXIT_NOT_ALL_WELL, EXIT_INTERRUPTED = 0, 1, 130
_MANY_TRIALS = 100_000


class Reporter:
    """Shows what happens. This one shows nothing; the command line has others for terminals, pipes and --quiet."""

    def warn(self, warnings: Sequence[str]) -> None: ...

    def confirm(self, question: str) -> None:
        """Let the user agree. Raises an exception where the user does not."""

    def planned(self, place: Place, plan: Plan) -> None:
        """Nothing was looked at yet but the plan."""

    def fetching(self, text: str) -> None:
        """Something is fetched that agents cannot fetch where they run."""
        self.say(text)

    def prepared(self, plan: Plan, prepared: Prepared) -> None: ...

    def submitting(self, plan: Plan, present: int) -> None:
        """Jobs are about to be submitted, beside so many agents that are there already."""

    def started(self, submitted: Submitted | None) -> None:
        """Agents are there. `submitted` has their jobs; None: they are processes of this machine."""

    def progress(
        self, follower: Follower, total: int, left_s: Callable[[], float | None] | None = None
    ) -> None: ...

    def say(self, text: str) -> None: ...


@dataclass(frozen=True)
class How:
    """How a study is run, beside its plan."""

    sample: int | None = None  # only so many trials, far apart
    # One agent first, which reports for so long what its trials use.
    rehearse_s: float | None = None
    wait: bool = True  # follow the agents to the end, also those that go on without us
    stops: bool = False  # Ctrl-C ends the agents at once, wherever they are
    slots: int | None = None  # of each agent; None: as planned
    trials: Iterable[Trial] | None = None  # None: those of the study
    # Goes into plan.json in the place of what the plan has.
    more: Mapping[str, Any] = field(default_factory=dict)
    on_end: Callable[..., None] | None = None  # is called for each attempt that has ended


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    paths: StudyPaths
    counts: Mapping[State, int]
    exit_code: int
    submitted: Submitted | None = None  # None: nothing was
    is_followed: bool = True  # False: the agents go on by themselves, and the counts are not known


def run_study(
    place: Place, plan: Plan, reporter: Reporter, how: How, warnings: Sequence[str] = ()
) -> Outcome:
    """Check a plan and execute it. Trials that are done are not executed again.

    `warnings` are shown with those of the plan, before anything is done. Raises InputError where the plan cannot work.
    """
    check_plan(place, plan, reporter, warnings, asks=how.sample is None)
    return execute_plan(place, plan, reporter, how)


def check_plan(
    place: Place, plan: Plan, reporter: Reporter, warnings: Sequence[str] = (), asks: bool = False
) -> None:
    """Warn, ask, check: all that comes before the first change. With `asks`, very many trials are to be confirmed."""
    reporter.warn([*plan.study.warnings, *plan.warnings, *warnings])
    if asks and plan.trial_count > _MANY_TRIALS:
        reporter.confirm(f"these are {plan.trial_count:,} trials; go on?")
    reporter.planned(place, plan)
    place.require()
    findings = place.find_problems(plan)
    if findings.problems:
        raise InputError(list(findings.problems))
    reporter.warn(findings.warnings)
    place.prepare(plan, reporter.fetching)


def execute_plan(place: Place, plan: Plan, reporter: Reporter, how: How) -> Outcome:
    """Prepare the study's folder, start agents and see the trials through."""
    if how.sample is not None and not plan.own_folders and not place.elsewhere:
        # In a folder that trials share, only then is it clear which of them wrote a file.
        plan = replace(plan, slots=1)
    with contextlib.ExitStack() as hold:
        paths = prepare_study(plan, reporter, how, hold)
        rehearsal = None if how.rehearse_s is None else Rehearsal(place, plan, paths, reporter.say)

        def announce(present: int) -> None:
            reporter.submitting(plan, present)

        return run_folder(place, paths, reporter, how, announce, rehearsal, hold)


def prepare_study(
    plan: Plan, reporter: Reporter, how: How, hold: contextlib.ExitStack | None = None
) -> StudyPaths:
    """Write the study's folder, with its trials up for taking. Returns where that is.

    With `hold`, the study's lock stays taken until that is closed.
    """
    paths = StudyPaths(plan.folder)
    more = dict(how.more)
    if how.rehearse_s is not None:
        more["rehearse_s"] = how.rehearse_s
    if how.sample is not None and plan.study.on_nan != "ignore":
        # A sample shows whether trials work at all: NaN anywhere is a failure.
        more["watch_nan"] = True

    def step() -> Prepared:
        """Write the folder. It may be called again after an outage: what is there already is recognised."""
        trials = iterate_trials(plan.study) if how.trials is None else how.trials
        return prepare_folder(
            plan, trials, lambda: read_done(paths), client_name(), how.sample, more, hold
        )

    try:
        if plan.study.data:
            make_folders(paths, plan.settings["share"].value == "group")
            # It may take so long that others would take the lock of the folder for lost.
            pack_data(plan)
        prepared = insist(step, paths.folder)
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error
    reporter.prepared(plan, prepared)
    return paths


def run_folder(
    place: Place,
    paths: StudyPaths,
    reporter: Reporter,
    how: How,
    announce: Callable[[int], None] | None = None,
    rehearsal: Rehearsal | None = None,
    hold: contextlib.ExitStack | None = None,
) -> Outcome:
    """See to it that agents work on a prepared folder and, unless they go on without us, follow them to the end.

    `hold` has the study's lock, where it was taken to prepare the folder; it is given up as soon as agents are started.
    Of a sample, only the trials that were put up have to end well. Raises RehearsalError where a rehearsal shows that
    trials do not fit; its agent has been ended then.
    """
    register = RegisterFile(paths.claims, client_name()).read()
    follows = how.wait or not place.elsewhere
    follower = Follower(paths, register.count, register.current, how.on_end)
    if follows:
        follower.skip_existing(pass_on=True)

    def start() -> Agents | None:
        """Start the agents that are missing and, with a rehearsal, watch the first one."""
        try:
            agents = place.start(paths, 1 if rehearsal is not None else None, how.slots, announce)
            if hold is not None:
                hold.close()  # Trials may take days, and meanwhile other clients must be able to add some.
        except (OSError, DiskFull) as error:
            raise folder_error(error, paths.folder) from error
        return agents if rehearsal is None or agents is None else rehearsal.watch(agents)

    agents = start()
    submitted = None
    if agents is not None:
        submitted = agents.submitted
        reporter.started(submitted)
    if not follows:
        return Outcome(paths, {}, EXIT_DONE, submitted, is_followed=False)
    total = rs.count(register.current)
    following = Following(paths, follower, total, reporter, place.elsewhere, how.stops)
    interrupted = following.see_through(agents, start)
    if rehearsal is not None:
        rehearsal.raise_for_refusal()
    return _settle(paths, register, interrupted, how.sample is not None, submitted)


def _settle(
    paths: StudyPaths,
    register: Register,
    interrupted: bool,
    is_sample: bool,
    submitted: Submitted | None,
) -> Outcome:
    """How the run ended: with exit code 0 only if every trial that had to be executed is done."""
    with open_index(paths) as index:
        counts = index.counts(register.count, register.current)
    expected = rs.count(register.current) - (
        counts[State.WAITING] if is_sample and not interrupted else 0
    )
    code = EXIT_INTERRUPTED if interrupted else EXIT_NOT_ALL_WELL
    if counts[State.DONE] == expected:
        code = EXIT_DONE
    return Outcome(paths, counts, code, submitted)


@contextlib.contextmanager
def try_study(place: Place, plan: Plan, reporter: Reporter, how: How) -> Iterator[Outcome]:
    """Run a study that only finds something out, in a folder of its own, which is gone afterwards.

    Ctrl-C ends its agents, wherever they are, and is raised again.
    """
    with own_folder(plan.folder) as paths:
        check_plan(place, plan, reporter)
        outcome = execute_plan(place, plan, reporter, replace(how, stops=True))
        if outcome.exit_code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        yield replace(outcome, paths=paths)


@contextlib.contextmanager
def own_folder(folder: str) -> Iterator[StudyPaths]:
    """The folder of a study that only finds something out. It is removed at the end, with the logs of its jobs."""
    paths = StudyPaths(folder)
    try:
        yield paths
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for log in glob.glob(
            glob.escape(os.path.join(paths.hpc_outputs, os.path.basename(folder))) + "_*.out"
        ):
            os.unlink(log)
