"""Brings code and data of a study that exists up to date, for trials that are put back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.bundle.code import NamedPaths, freeze_project
from windlass.bundle.data import pack_again
from windlass.bundle.environment import refresh_environment
from windlass.bundle.folder import mark_submitted, with_settings_key, write_agent, write_if_changed
from windlass.bundle.live import list_live_files
from windlass.bundle.sources import list_sources
from windlass.bundle.words import split_text
from windlass.core.claims import ranges as rs
from windlass.core.claims.register import RegisterFile
from windlass.core.journal.code import render_code
from windlass.core.lock import StudyLock
from windlass.core.paths import StudyPaths
from windlass.core.planfile import PlanFile, read_plan_file
from windlass.core.trialfile import TrialFile
from windlass.core.trust import check_trust, follow_move

_MOST_TRIALS = 1000  # whose commands are searched for paths


def refresh_folder(paths: StudyPaths, client: str) -> Mapping[str, Any] | None:
    """Let plan.json name the agent, code, data and built environment as they are now, as `prepare_folder` does.

    Trials and settings stay as they were planned. Where the project was moved, with this folder in it, its code is the
    one in the new place. Agents that are at work notice what is new and take no more trials.
    Returns the frozen code; None where trials are executed in the project itself. Raises InputError, with plan.json
    unchanged, where the project cannot be packed or the environment's file cannot be read.
    """
    check_trust(paths)
    register_file = RegisterFile(paths.claims, client)
    with StudyLock(register_file, paths.folder):
        plan = follow_move(read_plan_file(paths.plan), paths)
        current = register_file.read().current
        fresh = replace(plan, agent=write_agent(paths), code=_fresh_code(plan, paths, current))
        if plan.live and os.path.isdir(plan.workdir):
            live = list_live_files(plan.project_dir, excluded_from(plan, paths, plan.project_dir))
            fresh = replace(fresh, live=live)
        if os.path.isdir(plan.project_dir):
            sources = list_sources(plan.project_dir, excluded_from(plan, paths, plan.project_dir))
            fresh = replace(fresh, source_files=sources)
        if plan.data:
            fresh = replace(fresh, data=pack_again(plan.data, plan.scratch_dir))
        if plan.environment and os.path.isdir(plan.workdir):
            fresh = replace(fresh, environment=_fresh_environment(plan))
        write_if_changed(paths.plan, with_settings_key(fresh).encode())
        mark_submitted(paths)
    return fresh.code


def _fresh_environment(plan: PlanFile) -> dict[str, Any]:
    def say(text: str) -> None:
        print(text, file=sys.stderr)

    return dict(refresh_environment(plan.environment or {}, plan.source, say))


def _fresh_code(plan: PlanFile, paths: StudyPaths, current: rs.Ranges) -> dict[str, Any] | None:
    code = plan.code
    if not code:
        return None
    if not os.path.isdir(plan.workdir):
        text = (
            f"{plan.workdir} is not there: trials use the code of the last run, {render_code(code)}"
        )
        print(f"warning: {text}", file=sys.stderr)
        return code
    data = _data_of(plan)
    named = NamedPaths([*code["links"], *_words_of_trials(paths, current)], plan.outputs, data)
    return freeze_project(
        code["origin"], plan.workdir, excluded_from(plan, paths, code["origin"]), named, paths
    )


def _data_of(plan: PlanFile) -> list[str]:
    return [entry["project"] for entry in plan.data or () if entry.get("project")]


def excluded_from(plan: PlanFile, paths: StudyPaths, project: str) -> list[str]:
    """What is never code: the folders of studies, and data."""
    root = os.path.dirname(paths.folder)
    return [paths.folder, paths.hpc_outputs, *([root] if root != project else []), *_data_of(plan)]


def _words_of_trials(paths: StudyPaths, current: rs.Ranges) -> Iterator[str]:
    """All that may be a path in the commands of the study's first trials."""
    chosen, _ = rs.take(current, _MOST_TRIALS)
    file = TrialFile(paths)
    try:
        for number in rs.numbers(chosen):
            for _, words in file.read(number)["stages"]:
                texts = (
                    split_text(words[2])
                    if words[:2] == ["/bin/sh", "-c"] and len(words) == 3
                    else words
                )
                for word in (*texts, *(text.partition("=")[2] for text in texts if "=" in text)):
                    if word and "\0" not in word and len(word) < 4096:
                        yield word
    finally:
        file.close()
