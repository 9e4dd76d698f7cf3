"""Makes a study's folder ready: trials, plan, agent; and says what is to be done in the claims register."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.bundle.code import excluded_paths, freeze_code
from windlass.bundle.data import pack_data
from windlass.bundle.environment import render_environment
from windlass.bundle.live import list_live
from windlass.bundle.restore import restore_register
from windlass.bundle.sources import find_changed_sources, list_sources
from windlass.bundle.trialwriter import TrialWriter
from windlass.bundle.words import names_local_folder
from windlass.bundle.zipapp import build_agent
from windlass.core.claims import ranges as rs
from windlass.core.claims.first import forget_first
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.recover import recover
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.configcopy import render_config
from windlass.core.errors import FolderError
from windlass.core.files import write_whole
from windlass.core.journal.write import DiskFull, is_full
from windlass.core.lock import StudyLock
from windlass.core.paths import ELSEWHERE, STUDIES, StudyPaths
from windlass.core.planfile import PlanFile, read_plan_file
from windlass.core.trust import close_like, make_folders, refuse_another
from windlass.launchers.base import PLAIN
from windlass.model import PackTerms, Plan, Trial
from windlass.search.trials import has_several_settings
from windlass.settings import settings as setting_rows

_FORMER_AGENTS = 4  # that are kept
# What an agent gives to trials or keeps of them, which it reads from plan.json once, when it begins. What comes from
# its job (slots, CPUs, GPUs, memory) is not among them: a job keeps what it was given.
_SEEN_BY_TRIALS = (
    "workdir",
    "seed_name",
    "env",
    "environment",
    "timeout_s",
    "grace_s",
    "lead_s",
    "stop_signal",
    "again_code",
    "retries",
    "checkpoint",
    "outputs",
    "keep",
    "output_limit_bytes",
    "own_folders",
    "local_folder",
    "metric",
    "goal",
    "metrics",
    "progress",
    "on_nan",
    "watch_nan",
    "warm",
)


@dataclass(frozen=True)
class Prepared:
    """What `prepare_folder` found and did."""

    paths: StudyPaths
    register: Register
    added: int  # trials that are new in this folder
    former: int  # done trials of this folder that the study no longer consists of
    # Trials that waited, and that the study no longer consists of: nobody will run them.
    dropped: int
    recovered: tuple[str, ...]  # agents that had died
    # The frozen code; None where trials are executed in the project itself.
    code: Mapping[str, Any] | None = None
    done: int = 0  # trials of the study as it is now that are not executed again
    changed: tuple[
        str, ...
    ] = ()  # what trials get and did not get in the last run; no part of what tells them apart


def prepare_folder(
    plan: Plan,
    trials: Iterable[Trial],
    finished: Callable[[], Iterable[int]],
    client: str,
    sample: int | None = None,
    more: Mapping[str, Any] | None = None,
    hold: contextlib.ExitStack | None = None,
) -> Prepared:
    """Write the folder and put every trial of the study that is neither finished nor taken up for taking.

    `finished` tells the numbers of trials that must not be executed again. With `sample`, only so many trials are put
    up, far apart: the first and the last, which are opposite corners of a grid, and others by chance. `more` goes into
    plan.json in the place of what the plan says. With `hold`, the study's lock is kept until that is closed, so that no
    other client changes the plan before agents are started.

    Safe to be called by two processes at once and to be killed at any moment: the register changes last, in one step.
    """
    paths = StudyPaths(plan.folder)
    refuse_another(paths, plan.study.workdir)
    try:
        make_folders(paths, plan.settings["share"].value == "group")
        close_like(paths.folder, plan.study.source)
        if plan.study.config is not None:
            close_like(paths.folder, os.path.join(plan.study.workdir, plan.study.config.path))
        _ignore_for_git(plan)
        register_file = RegisterFile(paths.claims, client)
        restore_register(paths, register_file)
        with contextlib.ExitStack() as own:
            (own if hold is None else hold).enter_context(StudyLock(register_file, paths.folder))
            return _prepare(plan, trials, finished, register_file, paths, sample, more or {})
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def folder_error(error: OSError | DiskFull, folder: str) -> FolderError:
    """The system's words about a study's folder, with what to do."""
    if isinstance(error, DiskFull) or is_full(error):
        return FolderError(
            f"{folder}: no room left on this disk, or quota reached\n  hint: make room and run again; nothing is lost"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return FolderError(
            f"{folder}: cannot be written to ({error.strerror})\n  hint: --folder PATH names another place"
        )
    return FolderError(
        f"{folder}: {error.strerror or error}\n"
        "  hint: see whether its file system answers, for example with `ls`, and run the command again; nothing is lost"
    )


def _prepare(
    plan: Plan,
    trials: Iterable[Trial],
    finished: Callable[[], Iterable[int]],
    register_file: RegisterFile,
    paths: StudyPaths,
    sample: int | None,
    more: Mapping[str, Any],
) -> Prepared:
    recovered = recover(paths, register_file).dead
    before = register_file.read()
    writer = TrialWriter(paths, before.count)
    count = writer.write(trials)
    current = rs.union(writer.known(), [(writer.first_new, count)])
    agent = write_agent(paths)
    code = freeze_code(plan, paths)
    on_node = {
        "code": code,
        "data": pack_data(plan),
        "environment": render_environment(plan),
        "live": list_live(plan),
    }
    sources = list_sources(plan.study.project_dir, excluded_paths(plan))
    given = {"agent": agent, **on_node, "source_files": sources, **more}
    rendered = dataclasses.replace(render_plan(plan), **given)
    changed = _find_changes(paths, rendered)
    write_if_changed(paths.plan, with_settings_key(rendered).encode())
    write_if_changed(paths.study_file, plan.study.source_text.encode("utf-8", "surrogateescape"))
    mark_submitted(paths)

    done: Ranges = []
    dropped: Ranges = []

    def change(register: Register) -> Register:
        """Bring the register up to date: what the study consists of now, and what of it is to be done."""
        nonlocal done, dropped
        # Read after the register: what an agent let go of before has been journalled before that.
        done = rs.from_numbers(finished())
        dropped = rs.subtract(rs.subtract(register.todo, current), done)
        register.count, register.current = count, current
        # It ended before its agent heard.
        register.cancelled = rs.subtract(register.cancelled, done)
        wanted = current if sample is None else choose_sample(current, sample)
        open_trials = rs.subtract(rs.subtract(wanted, done), register.held_ranges())
        register.todo = rs.subtract(open_trials, register.cancelled)
        # Of a sample everything is executed: it is there to show what works.
        going = plan.keep_going or sample is not None or bool(rs.intersect(done, current))
        register.learned = forget_first(register.learned, going)
        return register

    register = register_file.update(change)
    ended, former = rs.count(rs.intersect(done, current)), rs.count(rs.subtract(done, current))
    added = count - writer.first_new
    return Prepared(
        paths, register, added, former, rs.count(dropped), tuple(recovered), code, ended, changed
    )


def write_agent(paths: StudyPaths) -> str:
    """Write agent.pyz where it is not this version's. Returns its SHA-256, by which it is recognised when it starts.

    The one that is replaced stays beside it, under a name with its checksum: jobs that wait may accept no other.
    """
    program = build_agent()
    with contextlib.suppress(FileNotFoundError):
        with open(paths.agent, "rb") as file:
            former = file.read()
        if former != program:
            write_if_changed(paths.former_agent(hashlib.sha256(former).hexdigest()), former)
            _drop_former_agents(paths)
    write_if_changed(paths.agent, program)
    return hashlib.sha256(program).hexdigest()


def _drop_former_agents(paths: StudyPaths) -> None:
    names = [
        name for name in os.listdir(paths.folder) if re.fullmatch(r"agent-[0-9a-f]{12}\.pyz", name)
    ]
    found = [os.path.join(paths.folder, name) for name in names]
    found.sort(key=lambda path: -os.stat(path).st_mtime)
    for path in found[_FORMER_AGENTS:]:
        os.unlink(path)


def _find_changes(paths: StudyPaths, rendered: PlanFile) -> tuple[str, ...]:
    """Settings that results may depend on, that trial ids do not, and that differ from those of the last run."""
    try:
        before = read_plan_file(paths.plan)
        old, new = before.env, rendered.env
        variables = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        changed = [f"`env` ({', '.join(variables)})"] if variables else []
        # By the keys that both have: another version of Windlass may write others.
        made, makes = before.environment or {}, rendered.environment or {}
        if bool(made) != bool(makes) or any(
            made[name] != makes[name] for name in {*made} & {*makes}
        ):
            changed.append("`environment`")
        if _data_keys(before) != _data_keys(rendered):
            changed.append("`data`")
        if _has_other_config(before.config, rendered.config):
            changed.append(f"`config` ({(rendered.config or {})['name']})")
        changed += find_changed_sources(before.source_files, rendered.source_files or {})
    except (KeyError, TypeError, AttributeError, FolderError):
        return ()  # There is no earlier run, or its plan cannot be read.
    return tuple(changed)


def _has_other_config(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> bool:
    """Whether a value of the configuration file has changed that is not the trials' own."""
    if not old or not new:
        return False
    own = dict.fromkeys({*old["places"]} & {*new["places"]}, 0)
    return render_config(old, own) != render_config(json.loads(json.dumps(new)), own)


def _data_keys(plan: PlanFile) -> list[tuple[str, str]]:
    return [(entry["as"], entry["key"]) for entry in plan.data or ()]


def choose_sample(current: Ranges, count: int) -> Ranges:
    """So many trials, far apart and always the same ones."""
    numbers = list(rs.numbers(current))
    ends = [numbers[0], numbers[-1]][:count]
    middle = numbers[1:-1]
    more = random.Random(0).sample(middle, min(len(middle), max(0, count - 2)))
    return rs.from_numbers([*ends, *more])


def render_plan(plan: Plan) -> PlanFile:
    """plan.json: what the agent needs to know, and where each value came from for whoever reads it later."""
    study, settings = plan.study, plan.settings
    return PlanFile(
        name=study.name,
        workdir=study.workdir,
        project_dir=study.project_dir,
        scratch_dir=os.path.dirname(plan.folder),
        source=study.source,
        slots=plan.slots,
        agents=plan.agents,
        cpus_per_slot=plan.cpus_per_slot,
        gpus=list(plan.gpus),
        launcher=plan.launcher,
        site_name=plan.site_name,
        terms=plan.render_terms(),
        gpus_per_slot=_gpus_per_slot(plan),
        trial_memory_mb=settings["memory_mb"].value,
        trial_time_s=settings["time_s"].value if settings["time_s"].source != "site" else None,
        job_time_s=plan.request.time_s if plan.request is not None else None,
        local_scratch=plan.local_scratch,
        seed_name=study.space.seed_name,
        several_settings=has_several_settings(study),
        end_grace_s=plan.end_grace_s,
        metric=study.metric.name if study.metric else None,
        goal=study.metric.goal if study.metric else None,
        progress=dataclasses.asdict(study.progress) if study.progress is not None else None,
        pack=_render_pack(plan.pack),
        metrics=[[pattern.name, pattern.regex] for pattern in study.metrics],
        on_nan=study.on_nan,
        env=dict(study.env),
        config=study.config.to_json() if study.config is not None else None,
        outputs=list(study.outputs),
        own_folders=plan.own_folders,
        local_folder=names_local_folder(study),
        environment=dataclasses.asdict(study.environment)
        if study.environment is not None
        else None,
        checkpoint=dataclasses.asdict(study.checkpoint) if study.checkpoint is not None else None,
        warm={"mode": study.warm.mode, "modules": list(study.warm.modules)},
        sources={key: setting.source for key, setting in settings.items()},
    ).with_values(
        {row.plan_key: settings[row.plan_key].value for row in setting_rows() if row.for_agent}
    )


def with_settings_key(plan: PlanFile) -> PlanFile:
    """The plan with a key that is another one as soon as trials would be executed otherwise.

    Agents compare the key with the one they began with, so it is the client alone that decides what counts.
    """
    rendered = plan.to_json()
    seen = {name: rendered.get(name) for name in _SEEN_BY_TRIALS}
    if plan.config:  # of studies without such a file the key stays what it was
        seen["config"] = plan.config
    if plan.launch != PLAIN:
        seen["launch"] = [plan.launch, plan.processes, plan.trial_nodes]
    data = [[entry["as"], entry["key"], bool(entry.get("writable"))] for entry in plan.data or ()]
    text = json.dumps([seen, data], sort_keys=True)
    return dataclasses.replace(plan, settings_key=hashlib.sha256(text.encode()).hexdigest()[:16])


def _gpus_per_slot(plan: Plan) -> float:
    if plan.request is not None:
        gpus, slots = plan.request.gpus, plan.slots // plan.groups
        return gpus // slots if gpus >= slots else gpus / slots
    if not plan.gpus:
        return plan.settings["gpus"].value or 0
    if plan.pack is not None and plan.pack.a_gpu > 1:
        return 1 / plan.pack.a_gpu
    return plan.settings["gpus"].value or 1


def _render_pack(pack: PackTerms | None) -> dict[str, Any] | None:
    if pack is None:
        return None
    rendered = dataclasses.asdict(pack)
    rendered["budget"].pop("variant")
    return rendered


def write_if_changed(path: str, data: bytes) -> None:
    """Replace in one step, and only where something is new: agents at work may be reading it."""
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except FileNotFoundError:
        pass
    write_whole(path, data)


def mark_submitted(paths: StudyPaths) -> None:
    """Make this the study that verbs take where none is named: see `collect/locate.py`."""
    with contextlib.suppress(OSError):
        os.utime(paths.study_file)


def _ignore_for_git(plan: Plan) -> None:
    root = os.path.dirname(plan.folder)
    marker = os.path.join(root, ".gitignore")
    if os.path.basename(root) == STUDIES and not os.path.exists(marker):
        with open(marker, "w", encoding="ascii") as file:
            file.write("*\n")


def remember_place(plan: Plan) -> None:
    """A study that lies where neither the project nor $SCRATCH tells is found again from its project, where that can be
    written to: the user or the site's profile has put it there."""
    root, home = os.path.dirname(plan.folder), os.path.join(plan.study.project_dir, STUDIES)
    path = os.path.join(home, ELSEWHERE)
    if root == home or (plan.settings["folder"].value is None and os.environ.get("SCRATCH")):
        return
    try:
        os.makedirs(home, exist_ok=True)
        with open(path, "a+", encoding="utf-8", errors="surrogateescape") as file:
            file.seek(0)
            if root not in file.read().splitlines():
                file.write(root + "\n")
        if not os.path.exists(os.path.join(home, ".gitignore")):
            with open(os.path.join(home, ".gitignore"), "w", encoding="ascii") as file:
                file.write("*\n")
    except OSError:
        pass
