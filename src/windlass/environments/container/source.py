"""What an image is made from: a definition file, a reference to a registry. Python 3.9, standard library."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from typing import Callable, Optional

from windlass.core.errors import NotReady
from windlass.core.files import remove_if_there
from windlass.core.lock import making_lock
from windlass.environments.base import Say, Unusable, Variables, Wanted
from windlass.environments.shared.shell import run_process

_REFERENCES = ("docker://", "oras://", "library://", "shub://", "docker-archive:", "oci-archive:")
_POLL_S = 0.5
_CAP_SYS_RESOURCE = 1 << 24
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)


def is_reference(value: str) -> bool:
    """Whether this names an image that is pulled, not a file."""
    return value.startswith(_REFERENCES)


def find_source(wanted: Wanted) -> Optional[str]:
    """What the image of a study is made from; None where it is there already. Raises Unusable."""
    if is_reference(wanted.value):
        return wanted.value
    path = wanted.expand(wanted.value)
    if not path.endswith(".def"):
        return None
    if not os.path.isfile(path):
        raise Unusable(f"there is no {path}")
    return path


def source_digest(source: str) -> str:
    """Of a reference, its text; of a definition file, its contents. Raises Unusable."""
    if is_reference(source):
        return hashlib.sha256(source.encode()).hexdigest()
    try:
        with open(source, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as error:
        raise Unusable(f"{source} cannot be read: {error.strerror}") from None


def made_path(root: str, digest: str) -> str:
    return os.path.join(root, f"image-{digest[:16]}.sif")


def make_image(program: str, wanted: Wanted, env: Variables, say: Say) -> str:
    """Build or pull the image, while others who want it wait. Returns its path. Raises NotReady."""
    assert wanted.build is not None
    source, path = str(wanted.build["source"]), wanted.value
    os.makedirs(os.path.dirname(path), exist_ok=True)
    token = f"{os.uname().nodename}-{os.getpid()}-{time.time_ns():x}"
    lock = making_lock(f"{path}.turn", token)
    while not os.path.exists(path):
        if not lock.take():
            time.sleep(_POLL_S)
            continue
        try:
            if not os.path.exists(path):
                say(f"making {os.path.basename(path)} from {source}")
                _build(program, source, path, env, lock.beat)
        finally:
            lock.release()
    return path


def is_limited_root() -> bool:
    """A root that lacks capabilities itself, as in a virtual machine for tests, cannot pass all of them on."""
    if os.getuid() != 0:
        return False
    with open("/proc/self/status", encoding="ascii") as file:
        found = dict(line.split(":", 1) for line in file if line.startswith("CapPrm"))
    return not int(found["CapPrm"], 16) & _CAP_SYS_RESOURCE


def _build(program: str, source: str, path: str, env: Variables, beat: Callable[[], None]) -> None:
    """Beside its place first, so that an image that is there is whole."""
    part = f"{path}.part"
    # Builds fail in a temporary folder whose name has quotes or blanks.
    near = os.path.dirname(path) if _PLAIN.fullmatch(os.path.dirname(path)) else None
    scratch = tempfile.mkdtemp(prefix="image-", dir=near)
    names = ("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR", "SINGULARITY_CACHEDIR", "SINGULARITY_TMPDIR")
    env = {**env, **{name: scratch for name in names if not env.get(name)}}
    try:
        with tempfile.TemporaryFile() as output:
            words = [program, "build", "--force", part, source]
            if is_limited_root():
                words = ["unshare", "--map-root-user", *words]
            # Paths of a definition file are relative to it.
            folder = os.path.dirname(source) if os.path.isfile(source) else None
            code = run_process(words, env, folder, output.fileno(), beat=beat)
            output.seek(0)
            said = " ".join(output.read().decode("utf-8", "replace").split())
        if code:
            raise NotReady(f"{program} cannot make an image from {source}: {said[-600:]}")
        os.replace(part, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        remove_if_there(part)
