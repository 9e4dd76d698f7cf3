"""Has a study measured, here or in a short job: a folder of its own, an agent, and what comes of it."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from windlass.bundle.folder import folder_error, prepare_folder
from windlass.claims.client import client_name
from windlass.claims.coroner import Coroner, Fate
from windlass.claims.register import RegisterFile
from windlass.claims.turn import Turn
from windlass.collect.follow import Follower
from windlass.collect.output import OutputReader, last_lines
from windlass.collect.submissions import read_submissions
from windlass.errors import AgentError
from windlass.journal.read import JournalReader, journal_files
from windlass.launch.control import send_cancel
from windlass.launch.local import LocalLauncher
from windlass.measure.digest import study_digest
from windlass.measure.spread import Spread
from windlass.measure.turn import MEASURING, is_taken, measured_names, turn_path, under_way_error
from windlass.measured import Measurement, parse_measurement
from windlass.model import Plan, Submitted
from windlass.paths import StudyPaths
from windlass.site.cluster import Cluster
from windlass.states import STATE_OF, Cause, State
from windlass.submission import agents_may_be_there, submit_agents

_JOB_MARGIN_S = 300.0  # for making the node ready, and for the end
_GRACE_S = 3.0
_POLL_S = 0.25
_END_S = 10.0  # that a cancelled job is waited for
_JOBS_POLL_S = 0.5  # looks at files only; the scheduler is asked every 10 s at most
_LINES = 12  # of what a trial that failed has printed
_FEWEST_CPUS = 4  # of a job that measures on a GPU: one a trial
_MOST_CPUS = 8  # of a job that measures trials without GPUs

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


def measured_path(folder: str) -> str:
    """Where the outcome of a measurement is, for everybody who plans this study."""
    return os.path.join(folder, "measured.json")


def measure_here(plan: Plan, spread: Spread, wish: Wish, say: Say) -> Measurement:
    """On this machine, in one's own turn. Ctrl-C ends it, with nothing written."""
    began = time.time()
    paths = _prepare(plan, spread, wish)
    watch = _Watch(paths, spread, say)
    agents = LocalLauncher().launch(paths.folder, 1)
    try:
        while (code := agents.wait(_POLL_S)) is None:
            watch.look()
        complaints = agents.complaints().strip()
        agents.close()
    except BaseException:
        agents.stop()
        agents.close()
        shutil.rmtree(paths.folder, ignore_errors=True)
        raise
    watch.look()
    return _read(plan, paths, began, watch.say_what_failed() or complaints or f"the agent ended with code {code}")


def plan_job(plan: Plan, cluster: Cluster, wish: Wish) -> tuple[Plan, Wish]:
    """One short job with a fair share of one GPU's node: enough for several trials side by side.

    The wish comes back with the time that a job there leaves for it.
    """
    assert plan.terms is not None
    asked = plan.terms.request
    kind = cluster.gpu(asked.gpu_type) if asked.gpus else None
    share = kind.share_cpus if kind is not None and kind.share_cpus else 1
    wanted = max(share, _FEWEST_CPUS) if asked.gpus else _MOST_CPUS
    most_cpus, most_memory_mb = _node_size(plan, cluster)
    # One trial must fit. More is room for others beside it, as far as a node has it.
    cpus = max(-(-asked.cpus // plan.slots), min(max(asked.cpus, wanted), most_cpus))
    room_mb = asked.memory_mb if asked.gpus else asked.memory_mb * cpus // max(1, asked.cpus)
    if kind is not None and kind.share_memory_mb:
        room_mb = max(room_mb, kind.share_memory_mb)
    memory_mb = max(-(-asked.memory_mb // plan.slots), min(max(asked.memory_mb, room_mb), most_memory_mb))
    limits = [cluster.longest_time_s(asked.partition), *(q.max_time_s for q in cluster.qos if q.name == asked.qos)]
    wanted_s = math.ceil((wish.limit_s + _JOB_MARGIN_S) / 60) * 60
    time_s = int(min([wanted_s, *(limit for limit in limits if limit)]))
    room_s = max(time_s - _JOB_MARGIN_S, time_s / 2)
    request = replace(
        asked,
        job_name=f"{asked.job_name}-measure",
        cpus=cpus,
        memory_mb=memory_mb,
        gpus=min(1, asked.gpus),
        nodes=1,
        time_s=time_s,
        throttle=None,
        notice_s=0,
    )
    terms = replace(plan.terms, request=request, agents=1, slots=1, units=1)
    return replace(plan, terms=terms, agents=1), replace(wish, limit_s=min(wish.limit_s, room_s))


def _node_size(plan: Plan, cluster: Cluster) -> tuple[int, int]:
    """The most cores, and the most MB of memory, that a job gets on a node where it would wait."""
    name = plan.request.partition if plan.request is not None else None
    nodes, partition = cluster.nodes_of(name), cluster.partition(name)
    caps = (partition.max_cpus_per_node, partition.max_memory_per_node_mb) if partition is not None else (None, None)
    cpus = max((node.cpus for node in nodes), default=_MOST_CPUS)
    memory_mb = max((node.memory_mb for node in nodes), default=1 << 60)
    return min(cpus, caps[0] or cpus), min(memory_mb, caps[1] or memory_mb)


def submit_measuring(plan: Plan, spread: Spread, wish: Wish) -> tuple[StudyPaths, Submitted]:
    """Hand the job in, in one's own turn. Its outcome is written by itself, whoever waits for it."""
    assert plan.terms is not None
    paths = _prepare(plan, spread, wish)
    with Turn(RegisterFile(paths.claims, client_name()), paths.folder):
        return paths, submit_agents(plan.terms, paths, 1)


def follow_measuring(plan: Plan, spread: Spread, paths: StudyPaths, began: float, say: Say) -> Measurement:
    """Wait for the job. Ctrl-C cancels it."""
    watch = _Watch(paths, spread, say)
    try:
        while agents_may_be_there(paths):
            watch.look()
            time.sleep(_JOBS_POLL_S)
    except KeyboardInterrupt:
        send_cancel([str(one.job) for one in read_submissions(paths) if one.job is not None], only_waiting=False)
        _wait_for_end(paths)
        raise
    watch.look()
    otherwise = f"the job ended without an outcome; what it said is in {paths.hpc_outputs}"
    return _read(plan, paths, began, watch.say_what_failed() or otherwise)


def _wait_for_end(paths: StudyPaths) -> None:
    """Until a job that was cancelled is gone, for a while; then nothing is in the way of the next measurement."""
    deadline = time.monotonic() + _END_S
    while agents_may_be_there(paths, _JOBS_POLL_S) and time.monotonic() < deadline:
        time.sleep(_JOBS_POLL_S)


def _prepare(plan: Plan, spread: Spread, wish: Wish) -> StudyPaths:
    """A fresh folder with the trials that are measured, and a plan that says how."""
    study, settings = plan.study, plan.settings
    paths = StudyPaths(measuring_folder(plan))
    _remove_former(paths)
    asked: dict[str, Any] = {
        "into": measured_path(plan.folder),
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
    }
    more: dict[str, Any] = {
        "measure": asked,
        "retries": {},
        "timeout_s": None,
        "outputs": [],
        "keep": "none",
        "pack": None,
    }
    more["grace_s"] = _GRACE_S
    # The job has the time of the measurement, not that of a trial: no trial is too long to be begun in it.
    more["trial_time_s"] = None
    if plan.gpus or (plan.request is not None and plan.request.gpus):
        # The same for any number side by side, so that all of them start from the same warm interpreter.
        more["cpus_per_slot"] = max(1, round(settings["cpus"].value or 1))
    if study.checkpoint is not None:
        # What is measured must not be taken for the trial's own progress.
        more["checkpoint"] = {"dir": None, "done": None, "keep": 1}
    prepare_folder(replace(plan, folder=paths.folder), spread.trials, tuple, client_name(), more=more)
    return paths


def _remove_former(paths: StudyPaths) -> None:
    if not os.path.isdir(paths.folder):
        return
    if is_under_way(paths):
        raise under_way_error(paths.folder)
    try:
        shutil.rmtree(paths.folder)
    except OSError as error:
        raise folder_error(error, paths.folder) from error


def is_under_way(paths: StudyPaths) -> bool:
    """Whether an agent measures there, or its job waits. Of a client that prepares it, its turn tells."""
    coroner = Coroner(paths)
    for path in journal_files(paths.journal):
        reader, said_bye = JournalReader(path), False
        while events := reader.read():
            said_bye = said_bye or any(event.get("e") == "bye" for event in events)
        name = os.path.basename(path).removesuffix(".jsonl")
        if not said_bye and coroner.fate(name) is Fate.ALIVE:
            return True
    return bool(read_submissions(paths)) and agents_may_be_there(paths)


def find_left(root: str, study: str = "") -> tuple[list[str], list[str]]:
    """What measurements in this root, or the one of this study, have left; and the folders of those under way."""
    names = [study] if study else measured_names(root)
    left: list[str] = []
    under_way: list[str] = []
    for name in names:
        folder = os.path.join(root, MEASURING + name)
        if is_taken(turn_path(folder)) or (os.path.isdir(folder) and is_under_way(StudyPaths(folder))):
            under_way.append(folder)
        else:
            left += [path for path in (folder, turn_path(folder)) if os.path.exists(path)]
    return left, under_way


class _Watch:
    """Passes on what the agent notes down, and remembers which trial did not work."""

    def __init__(self, paths: StudyPaths, spread: Spread, say: Say) -> None:
        self._paths = paths
        self._trials = spread.trials
        self._say = say
        self._follower = Follower(paths, 0, [], self._take_end)
        self._failed: Mapping[str, Any] | None = None

    def look(self) -> None:
        self._follower.update()
        for text in self._follower.notes:
            self._say(text)
        self._follower.notes.clear()

    def _take_end(self, cause: str, event: Mapping[str, Any]) -> None:
        if STATE_OF[Cause(cause)] is State.FAILED and self._failed is None:
            self._failed = event

    def say_what_failed(self) -> str:
        """The first trial that failed, and what it printed last; "" where none did."""
        if self._failed is None:
            return ""
        number, attempt = self._failed["i"], self._failed["n"]
        code, cause = self._failed.get("code"), self._failed["cause"]
        how = f"ended with exit code {code}" if code else "did not work"
        how += f": {cause}" if not code or cause != Cause.FAILED else ""
        trial = self._trials[number]
        words = " ".join(f"{name}={value}" for name, value in trial.settings.items())
        said = b""
        for name in sorted(os.listdir(self._paths.output)):
            if name.endswith(".idx"):
                said += last_lines(OutputReader(self._paths, name[:-4]).read({attempt: number}), _LINES)
        lines = "".join(f"\n    {line}" for line in said.decode("utf-8", "replace").splitlines())
        printed = f"; it printed last:{lines}" if lines else ""
        return f"nothing could be measured: trial {trial.id} ({words}) {how}{printed}"


def _read(plan: Plan, paths: StudyPaths, began: float, otherwise: str) -> Measurement:
    """The outcome; what was measured is removed with its folder. Raises AgentError where there is none."""
    path = measured_path(plan.folder)
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
