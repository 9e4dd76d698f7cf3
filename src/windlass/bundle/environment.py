"""What can be seen of a study's environment before anything is queued, and what plan.json tells the agent of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from windlass.core.errors import InputError, NotReady, Problem
from windlass.environments.base import (
    EnvironmentKind,
    Folders,
    Say,
    Trouble,
    Unusable,
    Wanted,
    layers_of,
    load_kind,
)
from windlass.environments.modules import Modules
from windlass.model import Plan, Study
from windlass.plan.source_line import find_line

_Made = TypeVar("_Made")
_REQUIREMENTS = ("Pipfile", "requirements.txt")  # only what is surely meant for the whole project
_ENVIRONMENTS, _WHEELS = ".windlass-environments", ".windlass-wheels"


def find_environment_problems(
    study: Study, environ: Mapping[str, str] | None = None
) -> list[Problem]:
    """What is missing and would be missing on the node too; all at once."""
    wanted = _wanted(study)
    if wanted is None:
        return []
    problems: list[Problem] = []
    env = dict(os.environ if environ is None else environ)
    for kind in layers_of(wanted):
        troubles, env = kind.find_problems(wanted, env)
        problems += [_to_problem(study, trouble) for trouble in troubles]
    return problems


def _to_problem(study: Study, trouble: Trouble) -> Problem:
    text = study.source_text
    line = find_line(text, "environment", trouble.key) or find_line(text, "", "environment")
    return Problem(trouble.message, trouble.hint, study.source, line if study.source else 0)


def _wanted(study: Study) -> Wanted | None:
    return (
        None
        if study.environment is None
        else Wanted(**asdict(study.environment), project=study.project_dir)
    )


def find_environment_hints(study: Study, environ: Mapping[str, str] | None = None) -> list[str]:
    """A word about requirements that nobody installs: the study names no environment, and none is active here."""
    env = os.environ if environ is None else environ
    if study.environment is not None or env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX"):
        return []
    there = [
        name for name in _REQUIREMENTS if os.path.isfile(os.path.join(study.project_dir, name))
    ]
    return [f"{name} is there: environment: {{build: {name}}}" for name in there[:1]]


def load_study_modules(study: Study, environ: Mapping[str, str]) -> dict[str, str]:
    """These variables with the study's modules loaded, as far as there are any here."""
    wanted = _wanted(study)
    if wanted is None or not wanted.modules:
        return dict(environ)
    return Modules().find_problems(wanted, dict(environ)).env


def environment_folder(study: Study, env: Mapping[str, str]) -> str | None:
    """The folder of the environment that a study activates; None where it has none, or none that is there already."""
    wanted = _wanted(study)
    if wanted is None or not wanted.kind:
        return None
    folder = load_kind(wanted.kind).find_folder(wanted, env)
    return folder if folder is not None and os.path.isdir(os.path.join(folder, "bin")) else None


def enter_here(study: Study, env: Mapping[str, str], command: list[str]) -> list[str] | None:
    """What executes a command in the study's environment on this machine; None where that is not known here."""
    wanted = _wanted(study)
    if wanted is None or not wanted.kind:
        return None
    return load_kind(wanted.kind).wrap_here(wanted, env, command)


# -- what the agent is told


def render_environment(plan: Plan) -> dict[str, Any] | None:
    """The part of plan.json that agent/node/environment.py reads. Paths are whole: code is executed elsewhere."""
    rendered = _render(plan)
    # With lists in place of tuples, as it is read again: otherwise the same environment would look changed.
    return None if rendered is None else json.loads(json.dumps(rendered.to_json()))


def _render(plan: Plan) -> Wanted | None:
    wanted = _wanted(plan.study)
    if wanted is None:
        return None
    record = os.path.join(plan.folder, "environment.json")
    options = {**plan.site_options.get(wanted.kind, {}), **wanted.options}
    wanted = Wanted(**{**asdict(wanted), "record": record, "options": options})
    for kind in layers_of(wanted):
        wanted = _tried(plan.study.source, kind.render, wanted, _folders(plan), dict(os.environ))
    return wanted


def _folders(plan: Plan) -> Folders:
    if plan.elsewhere:
        scratch = os.path.dirname(plan.folder)
        return Folders(
            os.path.join(scratch, _ENVIRONMENTS), os.path.join(scratch, _WHEELS), is_shared=True
        )
    cache = os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "windlass"
    )
    return Folders(
        os.path.join(cache, "environments"), os.path.join(cache, "wheels"), is_shared=False
    )


def refresh_environment(asked: Mapping[str, Any], source: str, say: Say) -> Mapping[str, Any]:
    """The part of plan.json on the environment with the contents that its file, or the project's lock, has now.

    Wheels that nodes cannot fetch are fetched here, where that was done for the former contents. `source` is the file
    of the study. Raises InputError where the file cannot be read or its wheels cannot be fetched.
    """
    former = fresh = Wanted.from_json(asked)
    for kind in layers_of(former):
        fresh = _tried(source, kind.refresh, fresh, say)
        if fresh.digest != former.digest:
            say(
                f"note: {kind.name_source(former)} has changed since the last run: agents make the environment anew"
            )
            former = fresh
    return {**asked, **fresh.to_json()}


# -- ahead of time


def prepare_environment(plan: Plan, internet: bool | None, say: Say) -> None:
    """Fetch here what nodes cannot fetch themselves. Nothing where they can, or for a plan for this machine."""
    own = _own_kind(plan) if plan.elsewhere else None
    if own is not None:
        kind, wanted = own
        _tried(plan.study.source, kind.fetch, wanted, internet, say)


def build_now(plan: Plan, say: Say) -> str:
    """Make here, now, what the first agent would make: the environment's folder, or the wheelhouse for it."""
    own = _own_kind(plan)
    return "" if own is None else _tried(plan.study.source, own[0].make, own[1], say)


def find_built(plan: Plan) -> tuple[str, bool]:
    """Where what is built is, or will be, and whether it is there."""
    own = _own_kind(plan)
    return ("", False) if own is None else _tried(plan.study.source, own[0].find_made, own[1])


def _own_kind(plan: Plan) -> tuple[EnvironmentKind, Wanted] | None:
    rendered = _render(plan)
    return None if rendered is None or not rendered.kind else (load_kind(rendered.kind), rendered)


def _tried(source: str, make: Callable[..., _Made], *arguments: Any) -> _Made:
    try:
        return make(*arguments)
    except Unusable as error:
        raise InputError([Problem(str(error), error.hint, source)]) from None
    except NotReady as problem:
        raise InputError([Problem(str(problem), "", source)]) from None
