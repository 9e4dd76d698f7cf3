"""What can be seen of a study's environment before anything is queued, and what plan.json tells the agent of it."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from windlass.agent.build import Recipe, fill_wheelhouse, make_environment
from windlass.agent.conda import (
    find_conda_script,
    find_environment_folder,
    find_roots,
    is_folder_name,
    list_environment_names,
)
from windlass.agent.environment import check_python, has_module_command, load_modules
from windlass.agent.shell import run_process
from windlass.agent.store import NotReady
from windlass.agent.sync import lock_digest, sync_project
from windlass.bundle.requirements import BuildFile, UnbuildableError, read_build_file
from windlass.errors import InputError, Problem
from windlass.model import Environment, Plan, Study
from windlass.plan.place import find_line

Say = Callable[[str], None]
_Made = TypeVar("_Made")
_REQUIREMENTS = ("Pipfile", "requirements.txt")  # only what is surely meant for the whole project
_ENVIRONMENTS, _WHEELS = ".windlass-environments", ".windlass-wheels"


@dataclass(frozen=True)
class _Case:
    """A study's environment, and the variables that it is looked for with."""

    study: Study
    asked: Environment
    env: dict[str, str]

    def problem(self, key: str, message: str, hint: str = "") -> Problem:
        text = self.study.source_text
        line = find_line(text, "environment", key) or find_line(text, "", "environment")
        return Problem(message, hint, self.study.source, line if self.study.source else 0)


def find_environment_problems(study: Study, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """What is missing and would be missing on the node too; all at once."""
    if study.environment is None:
        return []
    case = _Case(study, study.environment, dict(os.environ if environ is None else environ))
    problems, env = _load_what_there_is(case)
    case = _Case(study, study.environment, env)
    look = {"venv": _venv, "conda": _conda, "uv": _uv, "build": _build}.get(case.asked.kind)
    if look is not None:
        problems += look(case)
    return problems


def find_environment_hints(study: Study, environ: Mapping[str, str] | None = None) -> list[str]:
    """A word about requirements that nobody installs: the study names no environment, and none is active here."""
    env = os.environ if environ is None else environ
    if study.environment is not None or env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX"):
        return []
    there = [name for name in _REQUIREMENTS if os.path.isfile(os.path.join(study.project_dir, name))]
    return [f"{name} is there: environment: {{build: {name}}}" for name in there[:1]]


def load_study_modules(study: Study, environ: Mapping[str, str]) -> dict[str, str]:
    """These variables with the study's modules loaded, as far as there are any here."""
    if study.environment is None:
        return dict(environ)
    return _load_what_there_is(_Case(study, study.environment, dict(environ)))[1]


def environment_folder(study: Study, env: Mapping[str, str]) -> str | None:
    """The folder of the environment that a study activates; None where it has none, or none that is there already."""
    asked = study.environment
    if asked is None or not asked.kind:
        return None
    if asked.kind == "uv":
        folder: str | None = os.path.join(study.project_dir, ".venv")
    elif asked.kind == "conda" and not is_folder_name(asked.value):
        folder = find_environment_folder(asked.value, env)
    else:
        folder = _from_project(study, asked.value) if asked.kind in ("venv", "conda") else None
    return folder if folder is not None and os.path.isdir(os.path.join(folder, "bin")) else None


def _load_what_there_is(case: _Case) -> tuple[list[Problem], dict[str, str]]:
    """Problems with modules, and the environment with those that could be loaded."""
    modules = list(case.asked.modules)
    problems: list[Problem] = []
    if not modules or not has_module_command(case.env):
        return [], case.env
    while modules:
        try:
            return problems, load_modules(modules, case.env, "/", lambda _: None)
        except NotReady as missing:
            name = str(missing).split()[1]
            if name not in modules:
                return [*problems, case.problem("modules", str(missing))], case.env
            problems.append(case.problem("modules", str(missing), "`module avail` lists what there is"))
            modules.remove(name)
    return problems, case.env


def _venv(case: _Case) -> Iterator[Problem]:
    folder = _from_project(case.study, case.asked.value)
    try:
        check_python(folder, case.env, "the virtual environment")
    except NotReady as missing:
        yield case.problem("venv", str(missing), f"python3 -m venv {case.asked.value}")


def _conda(case: _Case) -> Iterator[Problem]:
    value = case.asked.value
    if is_folder_name(value):
        try:
            check_python(_from_project(case.study, value), case.env, "the conda environment")
        except NotReady as missing:
            yield case.problem("conda", str(missing))
        return
    if find_environment_folder(value, case.env) is not None:
        return
    names = list_environment_names(case.env)
    if find_conda_script(case.env) is None and not names:
        places = ", ".join(find_roots(case.env))
        yield case.problem("conda", f"conda is not found: looked for etc/profile.d/conda.sh in {places}")
    else:
        hint = f"there are: {', '.join(names)}" if names else f"conda create --name {value} python"
        yield case.problem("conda", f"there is no conda environment named {value}", hint)


def _uv(case: _Case) -> Iterator[Problem]:
    project = case.study.project_dir
    for name, hint in (("pyproject.toml", "`uv init` writes one"), ("uv.lock", "`uv lock` writes one")):
        if not os.path.isfile(os.path.join(project, name)):
            yield case.problem("uv", f"there is no {os.path.join(project, name)}", hint)
            return
    if _find(case, "uv") is None and not os.path.exists(os.path.join(project, ".venv", "bin", "python")):
        yield case.problem("uv", "there is no uv here, and no .venv that it made", "pip install uv")


def _build(case: _Case) -> Iterator[Problem]:
    try:
        file = read_build(case.study, case.env)
    except UnbuildableError as error:
        yield case.problem("build", str(error), error.hint)
        return
    if file.engine != "conda":
        return
    if case.asked.place == "node":
        yield case.problem("place", "`place: node` is for what pip installs", "leave it out")
    roots = find_roots(case.env)
    path = os.pathsep.join([case.env.get("PATH", ""), *(os.path.join(root, "bin") for root in roots)])
    if not any(shutil.which(name, path=path) for name in ("mamba", "conda", "micromamba")):
        yield case.problem("build", f"no conda, mamba or micromamba here to build {case.asked.value} with")


def _find(case: _Case, name: str) -> str | None:
    return shutil.which(name, path=case.env.get("PATH", os.defpath))


def _from_project(study: Study, path: str) -> str:
    return _expand(study.project_dir, path)


def _expand(project: str, path: str) -> str:
    return os.path.normpath(os.path.join(project, os.path.expandvars(os.path.expanduser(path))))


def read_build(study: Study, env: Mapping[str, str]) -> BuildFile:
    """The file that the environment is built from. Raises UnbuildableError."""
    assert study.environment is not None
    return read_build_file(_from_project(study, study.environment.value), lambda folder: _export(folder, env))


def _export(folder: str, env: Mapping[str, str]) -> str:
    """What uv.lock says, as requirements."""
    uv = shutil.which("uv", path=env.get("PATH", os.defpath))
    if uv is None:
        raise UnbuildableError(f"uv.lock is in {folder}, and there is no uv here to read it", "pip install uv")
    words = [uv, "export", "--frozen", "--no-emit-project", "--no-dev", "--no-hashes", "--quiet"]
    with tempfile.TemporaryFile() as output:
        code = run_process(words, dict(env), folder, output.fileno())
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if code:
        raise UnbuildableError(f"uv cannot read {folder}/uv.lock: {' '.join(text.split())[:300]}", "uv lock")
    return text


# -- what the agent is told


def render_environment(plan: Plan) -> dict[str, Any] | None:
    """The part of plan.json that agent/environment.py reads. Paths are whole: code is executed elsewhere."""
    study, asked = plan.study, plan.study.environment
    if asked is None:
        return None
    value = asked.value
    if asked.kind == "venv" or (asked.kind == "conda" and is_folder_name(value)):
        value = _from_project(study, value)
    build = _render_build(plan) if asked.kind == "build" else None
    digest = _digest(build) if build else ""
    if asked.kind == "uv":
        digest = lock_digest(study.project_dir)
    return {
        **asdict(asked),
        "value": value,
        "project": study.project_dir,
        "record": os.path.join(plan.folder, "environment.json"),
        "digest": digest,
        "build": build,
        "editable": _find_editable(study, value),
    }


def _render_build(plan: Plan) -> dict[str, Any]:
    try:
        file = read_build(plan.study, os.environ)
    except UnbuildableError as error:
        raise InputError([Problem(str(error), error.hint, plan.study.source)]) from None
    shared = plan.launcher != "local"
    scratch = os.path.dirname(plan.folder)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return {
        "file": os.path.basename(file.path),
        "engine": file.engine,
        "text": file.text,
        "constraints": file.constraints,
        "root": os.path.join(scratch, _ENVIRONMENTS) if shared else os.path.join(cache, "windlass", "environments"),
        "wheels": os.path.join(scratch, _WHEELS) if shared else os.path.join(cache, "windlass", "wheels"),
        "wheels_only": shared and plan.study.environment is not None and plan.study.environment.place == "node",
    }


def _find_editable(study: Study, value: str) -> list[str]:
    """Folders of the project, relative to it, that the environment imports from as they are at that moment."""
    asked = study.environment
    assert asked is not None
    project = os.path.realpath(study.project_dir)
    if asked.kind == "uv":
        return ["src" if os.path.isdir(os.path.join(project, "src")) else "."]
    folder: str | None = value
    if asked.kind == "conda" and not is_folder_name(value):
        folder = find_environment_folder(value, os.environ)
    if asked.kind not in ("venv", "conda") or folder is None:
        return []
    found: dict[str, None] = {}
    pattern = os.path.join(glob.escape(folder), "lib", "python*", "site-packages", "*.dist-info", "direct_url.json")
    for path in sorted(glob.glob(pattern)):
        root = _editable_root(path)
        if root is not None and os.path.commonpath([root, project]) == project:
            inside = os.path.join(root, "src") if os.path.isdir(os.path.join(root, "src")) else root
            found[os.path.relpath(inside, project)] = None
    return list(found)


def _editable_root(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
        if said.get("dir_info", {}).get("editable"):
            return os.path.realpath(unquote(urlsplit(said["url"]).path))
    except (OSError, ValueError, KeyError):
        pass
    return None


def refresh_environment(asked: Mapping[str, Any], source: str, say: Say) -> Mapping[str, Any]:
    """The part of plan.json on the environment with the contents that its file, or the project's lock, has now.

    Wheels that nodes cannot fetch are fetched here, where that was done for the former contents. `source` is the file
    of the study. Raises InputError where the file cannot be read or its wheels cannot be fetched.
    """
    if asked.get("kind") == "uv":
        return {**asked, "digest": lock_digest(asked["project"])}
    if asked.get("kind") != "build" or not asked.get("build"):
        return asked
    path = _expand(asked["project"], asked["value"])
    try:
        file = read_build_file(path, lambda folder: _export(folder, os.environ))
    except UnbuildableError as error:
        raise InputError([Problem(str(error), error.hint, source)]) from None
    former = asked["build"]
    build = {**former, "engine": file.engine, "text": file.text, "constraints": file.constraints}
    if build == former:
        return asked
    fresh = {**asked, "build": build, "digest": _digest(build)}
    if file.engine == "pip" and (build["wheels_only"] or os.path.isdir(build["wheels"])):
        try:
            fill_wheelhouse(_recipe(fresh), say)
        except NotReady as problem:
            raise InputError([Problem(str(problem), "", source)]) from None
    return fresh


def _digest(build: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(build).encode()).hexdigest()


# -- ahead of time


def prepare_environment(plan: Plan, internet: bool | None, say: Say) -> None:
    """Fetch here what nodes cannot fetch themselves. Nothing where they can, or for a plan for this machine."""
    asked = render_environment(plan)
    if asked is None or asked["build"] is None or plan.launcher == "local":
        return
    if asked["build"]["engine"] == "pip" and (asked["place"] == "node" or internet is False):
        _tried(plan, lambda: fill_wheelhouse(_recipe(asked), say))


def build_now(plan: Plan, say: Say) -> str:
    """Make here, now, what the first agent would make: the environment's folder, or the wheelhouse for it."""
    asked = render_environment(plan)
    if asked is None or asked["kind"] not in ("uv", "build"):
        return ""
    if asked["kind"] == "uv":
        return _tried(plan, lambda: sync_project(asked, dict(os.environ), say))
    if asked["build"]["wheels_only"]:
        return _tried(plan, lambda: fill_wheelhouse(_recipe(asked), say))
    return _tried(plan, lambda: make_environment(_recipe(asked), say))


def find_built(plan: Plan) -> tuple[str, bool]:
    """Where what is built is, or will be, and whether it is there."""
    asked = render_environment(plan)
    if asked is None or asked["build"] is None:
        return "", False
    recipe = _tried(plan, lambda: _recipe(asked))
    if asked["build"]["wheels_only"]:
        return recipe.wheels or asked["build"]["wheels"], recipe.wheels is not None
    return recipe.link, recipe.is_built()


def _recipe(asked: Mapping[str, Any]) -> Recipe:
    env = load_modules(asked["modules"], _outside_of_jobs(), "/", lambda _: None)
    return Recipe(asked["build"], asked["build"]["root"], env)


def _outside_of_jobs() -> dict[str, str]:
    """Here a missing `module` command is no error: the site's nodes may have one."""
    return {name: value for name, value in os.environ.items() if name != "SLURM_JOB_ID"}


def _tried(plan: Plan, make: Callable[[], _Made]) -> _Made:
    try:
        return make()
    except NotReady as problem:
        raise InputError([Problem(str(problem), "", plan.study.source)]) from None
