"""Where agents run; one file or sub-package a place, which is found here without being mentioned elsewhere."""

from __future__ import annotations

import os

_NOT_PLACES = {"base", "choose"}


def place_names() -> list[str]:
    """The names of all places, as `--on` and plan.json have them. Nothing is imported for that."""
    files = [name for folder in __path__ for name in os.listdir(folder) if name[0] not in "_."]
    names = {name.removesuffix(".py") for name in files if name.endswith(".py") or "." not in name}
    return sorted(names - _NOT_PLACES, reverse=True)
