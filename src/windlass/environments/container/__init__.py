"""A container of Apptainer or Singularity. The agent stays outside, trials run inside. Python 3.9, standard library."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from windlass.core.errors import NotReady
from windlass.environments.base import (
    Command,
    EnvironmentKind,
    Findings,
    Folders,
    Inside,
    Key,
    Node,
    Say,
    Trouble,
    Unusable,
    Variables,
    Wanted,
)
from windlass.environments.container.binds import (
    EXPECTED,
    Bind,
    choose_folders,
    hides_home,
    make_mount_points,
    parse_bind,
)
from windlass.environments.container.image import BadImage, Image, copy_image, look_at_image
from windlass.environments.container.inside import ContainerInside
from windlass.environments.container.source import (
    find_source,
    is_limited_root,
    made_path,
    make_image,
    source_digest,
)
from windlass.environments.shared.python_folder import without

_PROGRAMS = ("apptainer", "singularity")
# What the host's Python and its libraries go by. Inside there is another Python.
_HOSTS_OWN = (
    "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    "CONDA_EXE", "CONDA_PYTHON_EXE", "CONDA_SHLVL", "PYENV_VERSION", "PYENV_VIRTUAL_ENV", "LD_PRELOAD",
)  # fmt: skip


class Container(EnvironmentKind):
    """An image, copied once to each node; a folder that holds one; or what an image is built from."""

    name = "container"
    keys = (
        Key(
            "container",
            "path",
            "Image of a container (Apptainer or Singularity) in which trials run.",
            "image.sif",
            "Also a folder with the files of one, a definition file (`image.def`) or a reference such as "
            "`docker://python:3.12`, from which the image is made once. See docs/containers.md.",
            ("-s", "--container", "--singularity-container"),
        ),
        Key(
            "bind",
            "words",
            "More folders of the node that trials see inside: SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro.",
            "[/datasets, '$SCRATCH/models:/models:ro']",
            "The folders of the project, of the study and of the job are there at their own paths.",
        ),
        Key(
            "runtime",
            "text",
            "The program that starts containers.",
            "singularity",
            "Without it: the one that the site's profile names, or else apptainer or singularity.",
        ),
    )

    def __init__(self) -> None:
        self._prefix: Command = []
        self._inside: Optional[ContainerInside] = None

    # -- on the client

    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        troubles = _find_source_troubles(wanted)
        for text in wanted.options.get("bind", ()):
            if "$SLURM" in text or "${SLURM" in text:
                continue  # known on the node only
            try:
                parse_bind(text, env, wanted.project)
            except NotReady as missing:
                troubles.append(Trouble("bind", str(missing)))
        # Nodes of a cluster may have it where a login host has none: then the first agent tells.
        is_cluster = shutil.which("sbatch", path=env.get("PATH", os.defpath)) is not None
        if not wanted.modules and not is_cluster and find_runtime(wanted, env) is None:
            message = f"there is no {_name_program(wanted)} here"
            hint = "modules: [apptainer], where the site has it as a module"
            troubles.append(Trouble("container", message, hint))
        return Findings(troubles, env)

    def render(self, wanted: Wanted, folders: Folders, env: Variables) -> Wanted:
        module = wanted.options.get("site_module")
        if module and module not in wanted.modules:
            wanted = replace(wanted, modules=[module, *wanted.modules])
        source = find_source(wanted)
        if source is None:
            return replace(wanted, value=wanted.expand(wanted.value))
        digest = source_digest(source)
        build = {"source": source, "root": folders.built}
        return replace(wanted, value=made_path(folders.built, digest), digest=digest, build=build)

    def refresh(self, wanted: Wanted, say: Say) -> Wanted:
        if not wanted.build:
            return wanted
        digest = source_digest(wanted.build["source"])
        return replace(wanted, value=made_path(wanted.build["root"], digest), digest=digest)

    def name_source(self, wanted: Wanted) -> str:
        return str(wanted.build["source"]) if wanted.build else wanted.value

    def fetch(self, wanted: Wanted, has_internet: Optional[bool], say: Say) -> None:
        self.make(wanted, say)

    def make(self, wanted: Wanted, say: Say) -> str:
        if not wanted.build:
            return ""
        env = dict(os.environ)
        return make_image(_require_runtime(wanted, env), wanted, env, say)

    def find_made(self, wanted: Wanted) -> Tuple[str, bool]:
        return wanted.value, os.path.exists(wanted.value)

    def wrap_here(
        self, wanted: Wanted, env: Mapping[str, str], command: Command
    ) -> Optional[Command]:
        program = find_runtime(wanted, env)
        image = wanted.expand(wanted.value)
        if program is None or not _is_usable(image):
            return None
        binds = choose_folders([wanted.project])
        flags = [*_device_flags(), *_privilege_flags(), "--no-home"]
        # Without the right to mount an image, its files are unpacked for this one command.
        flags += ["--unsquash"] if _mounts_by_fuse(program, dict(env)) else []
        return [*_exec(program, flags, binds, image), *command]

    # -- on the node

    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        program = _require_runtime(wanted, env)
        local = _local_folder(node)
        env = {"PYTHONNOUSERSITE": "1", **without(env, *_HOSTS_OWN), **_cache_folders(env, local)}
        if wanted.build and not os.path.exists(wanted.value):
            make_image(program, wanted, env, node.say)
        try:
            image = _provide(look_at_image(wanted.value), program, env, node)
        except BadImage as error:
            raise NotReady(f"{error} (on {os.uname().nodename})") from None
        binds = _choose_binds(wanted, env, node)
        home = _make_home(env, local, binds)
        flags = [*_device_flags(), *_privilege_flags(), *home]
        self._prefix = _exec(program, flags, binds, image)
        self._inside = ContainerInside(lambda words: self.wrap(wanted, words), env)
        self._inside.look(EXPECTED)
        more = _expected_binds(self._inside.free, env, node, local)
        self._prefix = _exec(program, flags, [*binds, *more], image)
        return env

    def wrap(self, wanted: Wanted, command: Command) -> Command:
        prefix = self._prefix or [_name_program(wanted), "exec", wanted.value]
        return [*prefix, *command]

    @property
    def inside(self) -> Optional[Inside]:
        return self._inside


def _is_usable(image: str) -> bool:
    """Whether a container can be started from it; where not, `find_problems` says why."""
    try:
        look_at_image(image)
    except BadImage:
        return False
    return True


# -- the program


def _name_program(wanted: Wanted) -> str:
    return str(wanted.options.get("runtime") or " or ".join(_PROGRAMS))


def find_runtime(wanted: Wanted, env: Mapping[str, str]) -> Optional[str]:
    """The path of apptainer or singularity, or of the program that the study or the site names."""
    named = wanted.options.get("runtime")
    for name in [named] if named else _PROGRAMS:
        found = shutil.which(name, path=env.get("PATH", os.defpath))
        if found:
            return found
    return None


def _require_runtime(wanted: Wanted, env: Mapping[str, str]) -> str:
    found = find_runtime(wanted, env)
    if found is None:
        raise NotReady(f"there is no {_name_program(wanted)} on {os.uname().nodename}")
    return found


def _exec(program: str, flags: Sequence[str], binds: Sequence[Bind], image: str) -> Command:
    words = [program, "--silent", "exec", *flags]
    for bind in binds:
        words += bind.render()
    return [*words, image]


def _device_flags() -> List[str]:
    """What makes the GPUs of the node usable inside."""
    flags = ["--nv"] if os.path.exists("/dev/nvidiactl") else []
    return [*flags, *(["--rocm"] if os.path.exists("/dev/kfd") else [])]


def _privilege_flags() -> List[str]:
    return ["--drop-caps", "CAP_SYS_RESOURCE"] if is_limited_root() else []


# -- the image


def _find_source_troubles(wanted: Wanted) -> List[Trouble]:
    try:
        if find_source(wanted) is not None:
            return []
        look_at_image(wanted.expand(wanted.value))
    except (BadImage, Unusable) as error:
        hint = "`windlass env build` makes one from a definition file: container: image.def"
        is_missing = str(error).startswith("there is no")
        return [Trouble("container", str(error), hint if is_missing else "")]
    return []


def _provide(image: Image, program: str, env: Variables, node: Node) -> str:
    """The image that this node starts containers from: its own copy, or a folder with the files of it."""
    path = image.path
    if image.is_folder:
        return path
    if env.get("SLURM_JOB_ID"):

        def copy(folder: str) -> None:
            try:
                copy_image(image, folder)
            except BadImage as error:
                raise NotReady(str(error)) from None

        what = f"image {os.path.basename(path)}"
        folder = node.store.provide(f"image-{image.key}", copy, image.size_bytes, 1, what)
        path = os.path.join(folder, "image.sif")
        look_at_image(path)
    if not _mounts_by_fuse(program, env):
        return path

    # A program of FUSE would serve the files of the image, and signals to a whole job would end it before the trials.
    def unpack(folder: str) -> None:
        words = [program, "--silent", "build", "--sandbox", os.path.join(folder, "rootfs"), path]
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-600:]
            raise NotReady(f"{path} cannot be unpacked on {os.uname().nodename}: {said}")

    what = f"files of the image {os.path.basename(image.path)}"
    folder = node.store.provide(f"rootfs-{image.key}", unpack, 3 * image.size_bytes, 0, what)
    return os.path.join(folder, "rootfs")


def _mounts_by_fuse(program: str, env: Variables) -> bool:
    """Whether an ordinary user's containers get their files through FUSE: the program is not installed set-uid."""
    if os.getuid() == 0:
        return False
    try:
        done = subprocess.run([program, "buildcfg"], env=env, capture_output=True, check=False)
    except OSError:
        return True
    return b"_SUID_INSTALL=1" not in done.stdout


# -- folders


def _cache_folders(env: Mapping[str, str], local: str) -> Dict[str, str]:
    """Where Apptainer keeps what it caches: never in the home folder."""
    root = os.path.join(local, "apptainer")
    os.makedirs(root, mode=0o700, exist_ok=True)
    names = ("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "SINGULARITY_CACHEDIR", "SINGULARITY_TMPDIR")
    return {name: root for name in names if not env.get(name)}


def _local_folder(node: Node) -> str:
    """A folder of this job on the node's own disk; the same path on all nodes of the job."""
    if node.local:
        folder = os.path.join(node.local, "container")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return folder
    return node.store.make_folder()


def _choose_binds(wanted: Wanted, env: Variables, node: Node) -> List[Bind]:
    own = choose_folders([node.workdir, node.local, *node.folders])
    texts = [*wanted.options.get("site_binds", ()), *wanted.options.get("bind", ())]
    given = [parse_bind(text, env, wanted.project) for text in texts]
    targets = {bind.target for bind in given}
    return [*(bind for bind in own if bind.target not in targets), *given]


def _make_home(env: Mapping[str, str], local: str, binds: List[Bind]) -> List[str]:
    """An empty home folder on the node's own disk, so that nothing of the host's is imported from there.

    Credentials of W&B and others in ~/.netrc stay within reach. Where the home folder itself is bound, it is that one.
    """
    home = env.get("HOME", "")
    if not home or hides_home(home, binds):
        return []
    overlay = os.path.join(local, "home")
    os.makedirs(overlay, mode=0o700, exist_ok=True)
    secrets = os.path.join(home, ".netrc")
    if os.path.isfile(secrets):
        binds.append(Bind(secrets, secrets, "ro"))
    make_mount_points(home, overlay, binds)
    return ["--home", f"{overlay}:{home}"]


def _expected_binds(
    free: Sequence[str], env: Mapping[str, str], node: Node, local: str
) -> List[Bind]:
    """The folders that older images expect, where this image has nothing there."""
    binds: List[Bind] = []
    sources = {
        "/data": node.local or node.workdir,
        "/scratch_storage": env.get("SCRATCH", "") if os.path.isdir(env.get("SCRATCH", "")) else "",
    }
    for target in free:
        source = sources.get(target, "")
        if not source:
            source = os.path.join(local, os.path.basename(target))
            os.makedirs(source, mode=0o700, exist_ok=True)
        binds.append(Bind(source, target))
    return binds


MEMBER = Container
