"""Builds small container images for tests from files of this machine: its Python, a shell, and the libraries of both.

Nothing is fetched. The Python is that of the system rather than the one that runs the tests, so that a test can tell
whether a program runs inside.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = "/opt/windlass-apptainer"  # where scripts/apptainer.sh installs it
_TOOLS = ("sh", "bash", "env", "cat", "ls", "sleep", "echo", "true", "id", "mkdir", "rm", "kill")
_LEFT_OUT = shutil.ignore_patterns(
    "test", "tests", "idlelib", "ensurepip", "tkinter", "lib2to3", "__pycache__", "*.a",
    "site-packages", "dist-packages", "config-3*", "turtledemo", "pydoc_data",
)  # fmt: skip


def find_apptainer() -> str | None:
    """The program, if this machine has it."""
    path = os.pathsep.join([os.environ.get("PATH", ""), f"{FOLDER}/bin"])
    return shutil.which("apptainer", path=path) or shutil.which("singularity", path=path)


def require_image(folder: Path) -> Path:
    """An image with Python in it, made anew. Skips the test where there is no Apptainer, also in CI.

    Debian 12 and Ubuntu have no package of it: scripts/apptainer.sh gets it from a later Debian.
    """
    apptainer = find_apptainer()
    if apptainer is None:
        pytest.skip(
            "Apptainer is needed; `sh scripts/apptainer.sh /opt/windlass-apptainer` installs it"
        )
    rootfs = make_rootfs(folder / "rootfs")
    try:
        image = build_image(apptainer, rootfs, folder / "image.sif")
        words = [apptainer, "exec", str(image), "true"]
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, **AS_ROOT})
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Apptainer does not run here: {error.stderr.decode()[-300:]}")
    return image


def make_rootfs(folder: Path, python: str = "/usr/bin/python3") -> Path:
    """A folder that holds what an image needs to run Python."""
    ask = "import sys,sysconfig;print(sys.base_prefix,sysconfig.get_path('stdlib'),sep='\\n')"
    python = os.path.realpath(python if os.path.exists(python) else sys.executable)
    _, stdlib = subprocess.run(
        [python, "-c", ask], capture_output=True, text=True, check=True
    ).stdout.split("\n")[:2]
    programs = [python, *filter(None, map(shutil.which, _TOOLS))]
    extensions = glob.glob(f"{stdlib}/lib-dynload/*.so")
    for path in {*programs, *_libraries([*programs, *extensions])}:
        _copy(path, folder)
    shutil.copytree(stdlib, f"{folder}{stdlib}", ignore=_LEFT_OUT, dirs_exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink(f"/{name}") and not (folder / name).exists():
            (folder / "usr" / name).mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "var/tmp", "proc", "sys", "dev", "etc", "root", "home", "usr/bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        link = folder / "usr/bin" / name
        if not link.exists():
            link.symlink_to(python)
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\n")
    (folder / "etc/inside").write_text("image\n")
    return folder


def _copy(path: str, folder: Path) -> None:
    """One file, under the name by which it is found and with what that name leads to."""
    real = os.path.realpath(path)
    for name in {
        os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)),
        real,
    }:
        target = Path(f"{folder}{name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy2(real, target)


def _libraries(paths: list[str]) -> set[str]:
    """All shared libraries that these programs and libraries load, and the loader."""
    done = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False)
    words = {word for line in done.stdout.splitlines() for word in line.split()}
    return {
        word for word in words if word.startswith("/") and ".so" in word and os.path.exists(word)
    }


def build_image(apptainer: str, rootfs: Path, image: Path) -> Path:
    """A SIF image of a folder."""
    quick = "-comp gzip -Xcompression-level 1"
    subprocess.run(
        [apptainer, "build", "--force", "--mksquashfs-args", quick, str(image), str(rootfs)],
        check=True, capture_output=True, env={**os.environ, **AS_ROOT},
    )  # fmt: skip
    return image


# A root without the capability CAP_SYS_RESOURCE, as in a container of a CI service, cannot pass all capabilities on.
AS_ROOT = {"APPTAINER_DROP_CAPS": "CAP_SYS_RESOURCE"} if os.getuid() == 0 else {}
