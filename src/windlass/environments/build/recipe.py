"""Builds a Python environment once for each content, for all agents that want it. Python 3.9, standard library.

`<root>/<key>` is a link to `<root>/<key>.<token>`, made when that folder is whole. A builder that is killed leaves a
folder that nobody links to, which the next one removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from windlass.core.errors import NotReady
from windlass.core.files import write_whole
from windlass.core.lock import FileLock, making_lock
from windlass.core.trust import find_fault
from windlass.core.units import render_duration
from windlass.environments.base import Say, Store
from windlass.environments.shared.conda import find_roots
from windlass.environments.shared.probe import PythonFailed, probe_python
from windlass.environments.shared.shell import run_process

MARK = ".windlass.json"  # in an environment that is whole
_POLL_S = 0.5
_PIP_FILES = ("/etc/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/xdg/pip/pip.conf")


def find_build_python(env: Mapping[str, str]) -> Tuple[str, Dict[str, Any]]:
    """The Python to build with, and what it says of itself. Raises NotReady."""
    path = env.get("PATH", os.defpath)
    python = shutil.which("python3", path=path) or shutil.which("python", path=path)
    if python is None:
        raise NotReady(
            f"there is no python3 on {os.uname().nodename} to build the environment with (PATH is {path})"
        )
    try:
        return python, probe_python(python, env)
    except PythonFailed as error:
        raise NotReady(f"{python} does not run on {os.uname().nodename}: {error}") from None


def build_key(build: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Names an environment by all that decides what is in it."""
    return _hash(
        [build["engine"], build["text"], build["constraints"], facts["python"], facts["platform"]]
    )


def wheels_key(build: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Names a wheelhouse: wheels serve all Pythons of a minor version."""
    minor = ".".join(facts["python"].split(".")[:2])
    return _hash([build["text"], build["constraints"], minor, facts["platform"]])


def _hash(parts: List[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Recipe:
    """How to make one environment: where, from what, with which Python and from which wheels."""

    def __init__(self, build: Mapping[str, Any], root: str, env: Dict[str, str]) -> None:
        self.build = build
        self.root = root
        self.env = {
            name: value for name, value in env.items() if name not in ("PYTHONPATH", "PYTHONHOME")
        }
        self.python, self.facts = "", {"python": "", "platform": "-".join(os.uname()[::4])}
        if build["engine"] == "pip":
            self.python, self.facts = find_build_python(self.env)
        self.key = build_key(build, self.facts)
        self.link = os.path.join(root, self.key)
        self.log = f"{self.link}.log"
        wheels = os.path.join(build["wheels"], wheels_key(build, self.facts))
        self.wheels = wheels if build["engine"] == "pip" and os.path.isdir(wheels) else None

    def is_built(self) -> bool:
        folder = os.path.realpath(self.link)
        return os.path.exists(os.path.join(folder, MARK)) and os.access(
            os.path.join(folder, "bin", "python"), os.X_OK
        )


def make_environment(recipe: Recipe, say: Say, wheels_only: bool = False) -> str:
    """The folder of the environment, built by us or by another agent that was first. Raises NotReady."""
    _refuse_foreign(recipe)
    token = f"{os.uname().nodename}-{os.getpid()}-{time.time_ns():x}"
    lock = making_lock(f"{recipe.link}.turn", token)
    os.makedirs(recipe.root, mode=0o700, exist_ok=True)
    failed_before = _read_failure(recipe)
    waiting = False
    while not recipe.is_built():
        if lock.take():
            try:
                if not recipe.is_built():
                    _build(recipe, token, lock, say, wheels_only)
            finally:
                lock.release()
            break
        failed = _read_failure(recipe)
        if failed is not None and failed != failed_before:
            raise NotReady(failed["error"])
        if not waiting:
            waiting = True
            say(f"another agent builds the environment from {recipe.build['file']}; waiting for it")
        time.sleep(_POLL_S)
    return recipe.link


def make_on_node(recipe: Recipe, store: Store, say: Say, wheels_only: bool) -> str:
    """The same on this node's own disk. Its log is beside the shared ones. Raises NotReady."""
    _refuse_foreign(recipe)
    recipe.log = f"{recipe.link}.{os.uname().nodename}.log"
    key = f"environment-{recipe.key}"

    def make(folder: str) -> None:
        os.makedirs(recipe.root, mode=0o700, exist_ok=True)
        _install(recipe, folder, say, wheels_only, lambda: None)
        final = os.path.join(os.path.dirname(folder), key)
        _move_scripts(folder, final)

    size_bytes = (
        sum(entry.stat().st_size for entry in os.scandir(recipe.wheels)) if recipe.wheels else 0
    )
    return store.provide(key, make, 4 * size_bytes, 0, f"environment of {recipe.build['file']}")


def _refuse_foreign(recipe: Recipe) -> None:
    """Raise NotReady where somebody else could have written the environments, or the wheels that they are made of."""
    for folder in (recipe.root, recipe.build["wheels"]):
        fault = find_fault(folder)
        if fault:
            raise NotReady(
                f"{fault}; if nobody has changed it, `chmod -R g-w,o-w {folder}` closes it, else remove it"
            )


def _move_scripts(folder: str, final: str) -> None:
    """Programs of an environment begin with the path of its Python: let it be the one they will have."""
    before, after = os.fsencode(folder), os.fsencode(final)
    names = [os.path.join(folder, "bin", name) for name in os.listdir(os.path.join(folder, "bin"))]
    for path in [*names, os.path.join(folder, "pyvenv.cfg")]:
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            data = file.read()
        if before in data and b"\0" not in data:
            with open(path, "wb") as file:  # keeps the mode
                file.write(data.replace(before, after))


def _build(recipe: Recipe, token: str, lock: FileLock, say: Say, wheels_only: bool) -> None:
    _remove_leftovers(recipe, token)
    folder = f"{recipe.link}.{token}"
    try:
        _install(recipe, folder, say, wheels_only, lock.beat)
        _publish(recipe, folder)
    except NotReady as problem:
        shutil.rmtree(folder, ignore_errors=True)
        write_whole(f"{recipe.link}.failed", json.dumps({"token": token, "error": str(problem)}))
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _install(
    recipe: Recipe, folder: str, say: Say, wheels_only: bool, beat: Callable[[], None]
) -> None:
    """Fill a folder, and mark it as whole."""
    if wheels_only and recipe.wheels is None:
        minor = ".".join(recipe.facts["python"].split(".")[:2])
        raise NotReady(
            f"there is no wheelhouse for Python {minor} ({recipe.facts['platform']}) of {recipe.build['file']} in "
            f"{recipe.build['wheels']}; `windlass env build` with that Python fills one"
        )
    say(f"building the environment from {recipe.build['file']} in {os.path.dirname(folder)}")
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="windlass-build-") as sources,
            open(recipe.log, "wb") as log,
        ):
            for argv in _commands(recipe, folder, sources):
                _execute(argv, recipe, log.fileno(), beat)
        facts = probe_python(os.path.join(folder, "bin", "python"), recipe.env)
    except PythonFailed as error:
        raise NotReady(
            f"the environment that was built has no Python that runs: {error} (log: {recipe.log})"
        ) from None
    except OSError as error:
        raise NotReady(
            f"the environment cannot be built: {error.strerror or error}: {error.filename or folder}"
        ) from None
    about = {
        "file": recipe.build["file"],
        "engine": recipe.build["engine"],
        "host": os.uname().nodename,
    }
    mark = {**about, "python": facts["python"], "time": round(time.time())}
    write_whole(os.path.join(folder, MARK), json.dumps(mark))
    say(f"built the environment in {render_duration(time.monotonic() - began)}")


def _publish(recipe: Recipe, folder: str) -> None:
    """Only now it can be found."""
    try:
        if os.path.islink(recipe.link) and not recipe.is_built():
            os.unlink(recipe.link)  # it led to something that is no longer whole
        os.symlink(os.path.basename(folder), recipe.link)
    except FileExistsError:
        shutil.rmtree(folder, ignore_errors=True)  # another one was sooner


def _commands(recipe: Recipe, folder: str, sources: str) -> List[List[str]]:
    build = recipe.build
    if build["engine"] == "conda":
        source = os.path.join(sources, "environment.yml")
        write_whole(source, build["text"])
        return [_conda_command(recipe, folder, source)]
    more = _source_options(build, sources)
    if recipe.wheels is not None:
        more = ["--no-index", "--find-links", recipe.wheels, *more]
    python = os.path.join(folder, "bin", "python")
    uv = find_uv(recipe.env)
    if uv is not None:
        create = [uv, "venv", "--quiet", "--python", recipe.python, folder]
        return [create, [uv, "pip", "install", "--python", python, *more]]
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *more]
    return [[recipe.python, "-m", "venv", folder], pip]


def _source_options(build: Mapping[str, Any], folder: str) -> List[str]:
    source, constraints = (
        os.path.join(folder, "requirements.txt"),
        os.path.join(folder, "constraints.txt"),
    )
    write_whole(source, build["text"])
    if not build["constraints"]:
        return ["-r", source]
    write_whole(constraints, build["constraints"])
    return ["-r", source, "-c", constraints]


def find_uv(env: Mapping[str, str]) -> Optional[str]:
    """uv is faster than pip, but does not read what a site or user has set for pip about where packages come from."""
    has_pip_settings = any(
        name in env
        for name in ("PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
    )
    has_pip_settings = has_pip_settings or any(
        os.path.exists(os.path.expanduser(path)) for path in _PIP_FILES
    )
    has_uv_settings = any(
        name in env for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS")
    )
    return (
        shutil.which("uv", path=env.get("PATH", os.defpath))
        if has_uv_settings or not has_pip_settings
        else None
    )


def _conda_command(recipe: Recipe, folder: str, source: str) -> List[str]:
    path = recipe.env.get("PATH", os.defpath)
    path = os.pathsep.join([path, *(os.path.join(root, "bin") for root in find_roots(recipe.env))])
    for name in ("mamba", "conda"):
        program = shutil.which(name, path=path)
        if program:
            return [program, "env", "create", "--quiet", "--prefix", folder, "--file", source]
    program = shutil.which("micromamba", path=path)
    if program:
        return [program, "create", "--yes", "--quiet", "--prefix", folder, "--file", source]
    raise NotReady(
        f"no conda, mamba or micromamba on {os.uname().nodename} to build {recipe.build['file']} with"
    )


def _execute(argv: Sequence[str], recipe: Recipe, log: int, beat: Callable[[], None]) -> None:
    os.write(log, ("+ " + " ".join(argv) + "\n").encode("utf-8", "surrogateescape"))
    try:
        code = run_process(argv, recipe.env, recipe.root, log, beat=beat)
    except OSError as error:
        raise NotReady(f"{argv[0]}: {error.strerror}") from None
    if code:
        raise NotReady(
            f"{recipe.build['file']} cannot be built: {find_error(recipe.log)} (log: {recipe.log})"
        )


def find_error(log: str) -> str:
    """What pip, uv or conda says is wrong, in one line."""
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("+ ")]
    for mark in (
        "ERROR: No matching",
        "ERROR: Could not find",
        "ERROR: Failed",
        "× ",
        "ERROR: ",
        "error: ",
        "Error: ",
    ):
        for number, line in enumerate(lines):
            if line.startswith(mark):
                more = [
                    text
                    for text in lines[number + 1 : number + 4]
                    if text.startswith(("╰", "├", "│", "cause: "))
                ]
                return " ".join([line, *more]).replace("ERROR: ", "")
    if any("ensurepip" in line for line in lines):
        return "this Python cannot make virtual environments (Debian: install python3-venv), and there is no uv"
    return " ".join(lines[-3:]) if lines else "it printed nothing"


def fill_wheelhouse(recipe: Recipe, say: Say) -> str:
    """Put all wheels that the environment needs into one folder, for nodes without a network. Raises NotReady."""
    target = os.path.join(recipe.build["wheels"], wheels_key(recipe.build, recipe.facts))
    if os.path.isdir(target):
        return target
    os.makedirs(recipe.build["wheels"], mode=0o700, exist_ok=True)
    partial = f"{target}.{os.getpid()}-{time.time_ns():x}"
    os.mkdir(partial)
    say(f"fetching the wheels of {recipe.build['file']} into {target}")
    try:
        more = ["--wheel-dir", partial, *_source_options(recipe.build, partial)]
        log_name = f"{target}.log"
        with open(log_name, "wb") as log:
            pip = _find_pip(recipe, os.path.join(partial, "pip"), log.fileno())
            argv = [*pip, "wheel", "--disable-pip-version-check", "--no-input", *more]
            if run_process(argv, recipe.env, partial, log.fileno()):
                reason = find_error(log_name)
                raise NotReady(
                    f"{recipe.build['file']} cannot be fetched: {reason} (log: {log_name})"
                )
        shutil.rmtree(os.path.join(partial, "pip"), ignore_errors=True)
        try:
            os.rename(partial, target)
        except OSError:
            if not os.path.isdir(target):
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _find_pip(recipe: Recipe, folder: str, log: int) -> List[str]:
    if run_process([recipe.python, "-m", "pip", "--version"], recipe.env, None, log) == 0:
        return [recipe.python, "-m", "pip"]
    if run_process([recipe.python, "-m", "venv", folder], recipe.env, None, log) == 0:
        return [os.path.join(folder, "bin", "python"), "-m", "pip"]
    raise NotReady(f"{recipe.python} has no pip to fetch wheels with")


def _remove_leftovers(recipe: Recipe, token: str) -> None:
    """Whatever those before us left half done. We have the lock."""
    linked = os.path.basename(os.path.realpath(recipe.link)) if recipe.is_built() else ""
    for name in os.listdir(recipe.root):
        path = os.path.join(recipe.root, name)
        if (
            name.startswith(recipe.key + ".")
            and os.path.isdir(path)
            and token not in name
            and name != linked
        ):
            shutil.rmtree(path, ignore_errors=True)


def _read_failure(recipe: Recipe) -> Optional[Dict[str, Any]]:
    try:
        with open(f"{recipe.link}.failed", encoding="utf-8") as file:
            found: Dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None
