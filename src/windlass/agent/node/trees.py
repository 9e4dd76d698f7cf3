"""Copies and removes whole folders on a node's disk. Python 3.9, standard library."""

from __future__ import annotations

import os
import shutil
import subprocess


def remove_tree(path: str) -> None:
    """Remove a folder with all that is in it, also folders that are closed to us."""
    if not os.path.lexists(path):
        return
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        for folder, _, _ in os.walk(path):
            for name in os.listdir(folder) if os.access(folder, os.R_OK) else []:
                below = os.path.join(folder, name)
                if os.path.isdir(below) and not os.path.islink(below):
                    os.chmod(below, 0o700)
            os.chmod(folder, 0o700)
        shutil.rmtree(path, ignore_errors=True)


def copy_tree(tree: str, copy: str) -> None:
    """With `cp`, which is several times faster than Python at it."""
    program = shutil.which("cp")
    if program is not None:
        argv = [program, "-a", "--", tree, copy]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode == 0:
            return
        remove_tree(copy)
    try:
        if os.path.isdir(tree):
            shutil.copytree(tree, copy, symlinks=True)
        else:
            shutil.copy2(tree, copy)
    except shutil.Error as error:
        raise OSError(error.args[0][0][2]) from error
