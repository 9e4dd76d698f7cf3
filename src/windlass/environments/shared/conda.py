"""Finds conda and its environments without a setting that names them. Python 3.9, standard library."""

from __future__ import annotations

import os
import shutil
from typing import Dict, List, Mapping, Optional

_USUAL = (
    "miniconda3",
    "miniforge3",
    "mambaforge",
    "anaconda3",
    "micromamba",
    "miniconda",
    "anaconda",
)
_SHARED = (
    "/opt/conda",
    "/opt/miniconda3",
    "/opt/miniforge3",
    "/opt/anaconda3",
    "/usr/local/miniconda3",
)


def find_roots(env: Mapping[str, str]) -> List[str]:
    """Folders that conda may be installed in, the likeliest first."""
    roots = [env.get("CONDA_ROOT", ""), env.get("MAMBA_ROOT_PREFIX", "")]
    for program in (env.get("CONDA_EXE") or None, shutil.which("conda", path=env.get("PATH", ""))):
        if program:
            roots.append(os.path.dirname(os.path.dirname(program)))
            roots.append(os.path.dirname(os.path.dirname(os.path.realpath(program))))
    home = env.get("HOME") or os.path.expanduser("~")
    roots += [os.path.join(home, name) for name in _USUAL]
    roots += _SHARED
    return list(dict.fromkeys(root for root in roots if root))


def find_conda_script(env: Mapping[str, str]) -> Optional[str]:
    """conda.sh, which defines what ``conda activate`` needs in a shell that is no login shell."""
    for root in find_roots(env):
        path = os.path.join(root, "etc", "profile.d", "conda.sh")
        if os.path.isfile(path):
            return path
    return None


def is_folder_name(value: str) -> bool:
    return os.sep in value or value.startswith((".", "~"))


def find_environment_folder(name: str, env: Mapping[str, str]) -> Optional[str]:
    """The folder of a conda environment of that name, by the places where conda itself looks."""
    home = env.get("HOME") or os.path.expanduser("~")
    places = [
        place for place in env.get("CONDA_ENVS_PATH", "").replace(",", ":").split(":") if place
    ]
    places += [os.path.join(root, "envs") for root in find_roots(env)]
    places.append(os.path.join(home, ".conda", "envs"))
    folders = [os.path.join(place, name) for place in places]
    if name == "base":
        folders += find_roots(env)
    folders += [folder for folder in _known_folders(home) if os.path.basename(folder) == name]
    return next(
        (folder for folder in folders if os.path.exists(os.path.join(folder, "bin", "python"))),
        None,
    )


def list_environment_names(env: Mapping[str, str]) -> List[str]:
    """Names to choose from, for an error message."""
    home = env.get("HOME") or os.path.expanduser("~")
    names: Dict[str, None] = {}
    for place in [
        *(os.path.join(root, "envs") for root in find_roots(env)),
        os.path.join(home, ".conda", "envs"),
    ]:
        try:
            names.update(
                dict.fromkeys(
                    name for name in sorted(os.listdir(place)) if not name.startswith(".")
                )
            )
        except OSError:
            continue
    names.update(dict.fromkeys(os.path.basename(folder) for folder in _known_folders(home)))
    return [name for name in names if name]


def _known_folders(home: str) -> List[str]:
    try:
        with open(
            os.path.join(home, ".conda", "environments.txt"), encoding="utf-8", errors="replace"
        ) as file:
            return [line.strip() for line in file if line.strip()]
    except OSError:
        return []
