"""An environment built from a file of requirements, once for each content. Python 3.9, standard library."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from windlass.environments.base import (
    EnvironmentKind,
    Findings,
    Folders,
    Key,
    Node,
    Say,
    Trouble,
    Unusable,
    Variables,
    Wanted,
)
from windlass.environments.build.recipe import (
    Recipe,
    fill_wheelhouse,
    make_environment,
    make_on_node,
)
from windlass.environments.build.requirements import BuildFile, read_build_file
from windlass.environments.conda import enter_conda
from windlass.environments.modules import load_modules
from windlass.environments.shared.conda import find_roots
from windlass.environments.shared.shell import run_process
from windlass.environments.venv import enter_venv


class Build(EnvironmentKind):
    """The first agent builds it, in a folder that all share or on its node's own disk; the others wait for it."""

    name = "build"
    keys = (
        Key(
            "build",
            "path",
            "File to build an environment from, once for each content.",
            "requirements.txt",
            "It is a requirements.txt, pyproject.toml, Pipfile or environment.yml.",
        ),
    )

    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        try:
            file = read_build(wanted, env)
        except Unusable as error:
            return Findings([Trouble("build", str(error), error.hint)], env)
        troubles: List[Trouble] = []
        if file.engine == "conda" and wanted.place == "node":
            troubles.append(
                Trouble("place", "`place: node` is for what pip installs", "leave it out")
            )
        if file.engine == "conda" and not _has_conda(env):
            message = f"no conda, mamba or micromamba here to build {wanted.value} with"
            troubles.append(Trouble("build", message))
        return Findings(troubles, env)

    def render(self, wanted: Wanted, folders: Folders, env: Variables) -> Wanted:
        file = read_build(wanted, env)
        build = {
            "file": os.path.basename(file.path),
            "engine": file.engine,
            "text": file.text,
            "constraints": file.constraints,
            "root": folders.built,
            "wheels": folders.wheels,
            "wheels_only": folders.is_shared and wanted.place == "node",
        }
        return replace(wanted, build=build, digest=_digest(build))

    def refresh(self, wanted: Wanted, say: Say) -> Wanted:
        """The environment as the project asks for it now; `wanted` itself where its requirements are unchanged.

        Where packages come from a folder of wheels, those that are new are fetched into it.
        """
        former = wanted.build
        if not former:
            return wanted
        file = read_build(wanted, dict(os.environ))
        build = {
            **former,
            "engine": file.engine,
            "text": file.text,
            "constraints": file.constraints,
        }
        if build == former:
            return wanted
        fresh = replace(wanted, build=build, digest=_digest(build))
        if file.engine == "pip" and (build["wheels_only"] or os.path.isdir(build["wheels"])):
            fill_wheelhouse(_recipe(fresh), say)
        return fresh

    def fetch(self, wanted: Wanted, has_internet: Optional[bool], say: Say) -> None:
        if _of(wanted)["engine"] == "pip" and (wanted.place == "node" or has_internet is False):
            fill_wheelhouse(_recipe(wanted), say)

    def make(self, wanted: Wanted, say: Say) -> str:
        recipe = _recipe(wanted)
        return (
            fill_wheelhouse(recipe, say)
            if _of(wanted)["wheels_only"]
            else make_environment(recipe, say)
        )

    def find_made(self, wanted: Wanted) -> Tuple[str, bool]:
        recipe = _recipe(wanted)
        if _of(wanted)["wheels_only"]:
            return recipe.wheels or _of(wanted)["wheels"], recipe.wheels is not None
        return recipe.link, recipe.is_built()

    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        folder = _make_for_node(wanted, env, node)
        if _of(wanted)["engine"] == "conda":
            return enter_conda(folder, env, node.workdir, node.say)
        return enter_venv(folder, env)


def read_build(wanted: Wanted, env: Variables) -> BuildFile:
    """The file that the environment is built from. Raises Unusable."""
    return read_build_file(wanted.expand(wanted.value), lambda folder: _export(folder, env))


def _of(wanted: Wanted) -> Mapping[str, Any]:
    assert wanted.build is not None
    return wanted.build


def _has_conda(env: Variables) -> bool:
    folders = [os.path.join(root, "bin") for root in find_roots(env)]
    path = os.pathsep.join([env.get("PATH", ""), *folders])
    return any(shutil.which(name, path=path) for name in ("mamba", "conda", "micromamba"))


def _export(folder: str, env: Variables) -> str:
    """What uv.lock says, as requirements."""
    uv = shutil.which("uv", path=env.get("PATH", os.defpath))
    if uv is None:
        raise Unusable(
            f"uv.lock is in {folder}, and there is no uv here to read it", "pip install uv"
        )
    argv = [uv, "export", "--frozen", "--no-emit-project", "--no-dev", "--no-hashes", "--quiet"]
    with tempfile.TemporaryFile() as output:
        code = run_process(argv, dict(env), folder, output.fileno())
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    if code:
        raise Unusable(
            f"uv cannot read {folder}/uv.lock: {' '.join(text.split())[:300]}", "uv lock"
        )
    return text


def _digest(build: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(build).encode()).hexdigest()


def _recipe(wanted: Wanted) -> Recipe:
    """How to make it on the client. A missing `module` command is no error here: the site's nodes may have one."""
    outside: Dict[str, str] = {
        name: value for name, value in os.environ.items() if name != "SLURM_JOB_ID"
    }
    env = load_modules(wanted.modules, outside, "/", lambda _: None)
    return Recipe(_of(wanted), _of(wanted)["root"], env)


def _make_for_node(wanted: Wanted, env: Variables, node: Node) -> str:
    recipe = Recipe(_of(wanted), _of(wanted)["root"], env)
    if wanted.place != "node":
        return make_environment(recipe, node.say)
    folder = make_on_node(recipe, node.store, node.say, _of(wanted)["wheels_only"])
    local = env.get("SLURM_TMPDIR")
    if not local or not os.path.isdir(local):
        return folder
    link = os.path.join(local, "env")
    try:
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(folder, link)
        return link
    except OSError:
        return folder


MEMBER = Build
