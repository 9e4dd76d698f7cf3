"""Has a study measured, here or in a short job: a folder of its own, an agent, and what comes of it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windlass.bundle.folder import folder_error
from windlass.collect.follow import Follower
from windlass.collect.output import OutputReader, last_lines
from windlass.core.claims.coroner import Coroner, Fate
from windlass.core.counted import counted
from windlass.core.errors import AgentError
from windlass.core.journal.events import Bye, decode_event
from windlass.core.journal.read import JournalReader, journal_files
from windlass.core.paths import StudyPaths
from windlass.core.states import STATE_OF, Cause, State
from windlass.flow import EXIT_INTERRUPTED, How, Reporter, execute_plan
from windlass.measure.lock import (
    MEASURING,
    MeasuringLock,
    is_taken,
    lock_path,
    measured_names,
    under_way_error,
)
from windlass.measure.spread import Spread
from windlass.measured import Measurement, parse_measurement
from windlass.model import Plan, Submitted
from windlass.places.base import Place
from windlass.places.choose import load_places
from windlass.plan.digest import study_digest

_GRACE_S = 3.0
_LINES = 12  # of what a trial that failed has printed

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wish:
    """How a study is to be measured."""

    limit_s: float
    trial_limit_s: float
    curve: bool = True


def measuring_folder(plan: Plan) -> str:
    """Beside the study, out of sight: what is measured is no result."""
    return os.path.join(os.path.dirname(plan.folder), MEASURING + os.path.basename(plan.folder))


def measure_study(place: Place, plan: Plan, spread: Spread, wish: Wish, say: Say) -> Measurement:
    """Measure trials in a folder of their own, while nobody else measures this study. Returns the outcome.

    Ctrl-C ends the measurement and is raised again. The outcome of a job is written by itself, whoever waits for it.
    Raises AgentError where nothing could be measured, FolderError while another measurement is under way.
    """
    folder = measuring_folder(plan)
    paths = StudyPaths(folder)
    watch = _Watch(paths, spread, wish, say)
    with MeasuringLock(folder):
        began = time.time()
        _remove_former(paths)
        how = How(
            trials=spread.trials,
            more=_render_wish(plan, spread, wish),
            slots=1,
            stops=True,
            on_end=watch.take_end,
        )
        outcome = execute_plan(place, replace(plan, folder=folder), watch, how)
        if outcome.exit_code == EXIT_INTERRUPTED:
            if not place.elsewhere:  # A job that was cancelled may still be writing.
                shutil.rmtree(folder, ignore_errors=True)
            raise KeyboardInterrupt
        return _read(plan, paths, began, watch.explain_failure())


def _render_wish(plan: Plan, spread: Spread, wish: Wish) -> dict[str, Any]:
    """What plan.json of a measurement has in the place of what the study's own plan has."""
    study, settings = plan.study, plan.settings
    more: dict[str, Any] = {
        "measure": {
            "into": StudyPaths(plan.folder).measured,
            "trials": len(spread.trials),
            "probes": spread.alone,
            "limit_s": wish.limit_s,
            "trial_limit_s": wish.trial_limit_s,
            "curve": wish.curve,
            "most": settings["most"].value,
            "prefer": settings["prefer"].value,
            "mps": settings["mps"].value,
            "digest": study_digest(study),
            "variants": list(study.variants),
            "device_type": plan.request.gpu_type if plan.request is not None else "",
        },
        "retries": {},
        "timeout_s": None,
        "outputs": [],
        "keep": "none",
        "pack": None,
        "grace_s": _GRACE_S,
        # The job has the time of the measurement, not that of a trial: no trial is too long to be begun in it.
        "trial_time_s": None,
    }
    if plan.gpus or (plan.request is not None and plan.request.gpus):
        # The same for any number side by side, so that all of them start from the same warm interpreter.
        more["cpus_per_slot"] = max(1, round(settings["cpus"].value or 1))
    if study.checkpoint is not None:
        # What is measured must not be taken for the trial's own progress.
        more["checkpoint"] = {"dir": None, "done": None, "keep": 1}
    return more


def _remove_former(paths: StudyPaths) -> None:
    """Remove what an earlier measurement left. Raises FolderError while that one is under way."""
    if not os.path.isdir(paths.folder):
        return
    if is_under_way(paths):
        raise under_way_error(paths.folder)
    try:
        shutil.rmtree(paths.folder)
    except OSError as error:
        raise folder_error(error, paths.folder) from error


def is_under_way(paths: StudyPaths) -> bool:
    """Whether an agent measures there, or its job waits. A client that prepares the measurement holds the lock."""
    coroner = Coroner(paths)
    for path in journal_files(paths.journal):
        reader, said_bye = JournalReader(path), False
        while events := reader.read():
            said_bye = said_bye or any(isinstance(decode_event(event), Bye) for event in events)
        name = os.path.basename(path).removesuffix(".jsonl")
        if not said_bye and coroner.fate(name) is Fate.ALIVE:
            return True
    return any(kind.may_have_agents(paths) for kind in load_places().values())


def find_left(root: str, study: str = "") -> tuple[list[str], list[str]]:
    """What measurements in this root, or the one of this study, have left; and the folders of those under way."""
    names = [study] if study else measured_names(root)
    left: list[str] = []
    under_way: list[str] = []
    for name in names:
        folder = os.path.join(root, MEASURING + name)
        if is_taken(lock_path(folder)) or (
            os.path.isdir(folder) and is_under_way(StudyPaths(folder))
        ):
            under_way.append(folder)
        else:
            left += [path for path in (folder, lock_path(folder)) if os.path.exists(path)]
    return left, under_way


class _Watch(Reporter):
    """Passes on what the agent notes down, and remembers which trial did not work."""

    def __init__(self, paths: StudyPaths, spread: Spread, wish: Wish, say: Say) -> None:
        self._paths = paths
        self._spread = spread
        self._wish = wish
        self._say = say
        self._notes = 0
        self._failed: Mapping[str, Any] | None = None
        self._complaints = ""
        self._otherwise = "the agent ended without an outcome"

    def started(self, submitted: Submitted | None) -> None:
        """Say what is measured and where."""
        trials = counted(self._spread.alone, "trial")
        if submitted is None:
            several = self._wish.curve and len(self._spread.trials) > 1
            self._say(
                f"measuring {trials} on this machine{', then several at a time' if several else ''}"
            )
            return
        self._say(
            f"measuring {trials} in job {', '.join(map(str, submitted.jobs))}; Ctrl-C cancels it"
        )
        self._otherwise = (
            f"the job ended without an outcome; what it printed is in {self._paths.hpc_outputs}"
        )

    def progress(
        self, follower: Follower, total: int, left_s: Callable[[], float | None] | None = None
    ) -> None:
        """Pass on the notes of the agent that measures. There is nothing else to show while it does."""
        for text in follower.notes[self._notes :]:
            self._say(text)
        self._notes = len(follower.notes)

    def say(self, text: str) -> None:
        """What the agent complained about: it is shown where there is no outcome."""
        self._complaints = text

    def take_end(self, cause: str, event: Mapping[str, Any]) -> None:
        if STATE_OF[Cause(cause)] is State.FAILED and self._failed is None:
            self._failed = event

    def explain_failure(self) -> str:
        """Why there is no outcome, should there be none."""
        return self._explain_trial() or self._complaints or self._otherwise

    def _explain_trial(self) -> str:
        """The first trial that failed, and what it printed last; "" where none did."""
        if self._failed is None:
            return ""
        number, attempt = self._failed["i"], self._failed["n"]
        code, cause = self._failed.get("code"), self._failed["cause"]
        how = f"ended with exit code {code}" if code else "did not work"
        how += f": {cause}" if not code or cause != Cause.FAILED else ""
        trial = self._spread.trials[number]
        words = " ".join(f"{name}={value}" for name, value in trial.settings.items())
        printed_bytes = b""
        for name in sorted(os.listdir(self._paths.output)):
            if name.endswith(".idx"):
                printed_bytes += last_lines(
                    OutputReader(self._paths, name[:-4]).read({attempt: number}), _LINES
                )
        lines = "".join(
            f"\n    {line}" for line in printed_bytes.decode("utf-8", "replace").splitlines()
        )
        printed = f"; it printed last:{lines}" if lines else ""
        return f"nothing could be measured: trial {trial.id} ({words}) {how}{printed}"


def _read(plan: Plan, paths: StudyPaths, began: float, otherwise: str) -> Measurement:
    """The outcome; what was measured is removed with its folder. Raises AgentError where there is none."""
    path = StudyPaths(plan.folder).measured
    try:
        with open(path, encoding="utf-8") as file:
            measured = parse_measurement(json.load(file))
    except (OSError, ValueError):
        measured = None
    if measured is None or measured.when < began:
        raise AgentError(f"{otherwise}\n  hint: all that the trials printed is in {paths.output}")
    _keep_warm(paths, StudyPaths(plan.folder))
    shutil.rmtree(paths.folder, ignore_errors=True)
    return measured


def _keep_warm(paths: StudyPaths, study: StudyPaths) -> None:
    """What trials import was learned on the way: the study's first ones begin warm."""
    if os.path.exists(paths.warm) and not os.path.exists(study.warm):
        try:
            shutil.copyfile(paths.warm, study.warm)
        except OSError:
            pass  # it is learned again
