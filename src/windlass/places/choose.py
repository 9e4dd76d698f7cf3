"""Chooses the place of a study: the one that was named, that of the study so far, or the one that is offered."""

from __future__ import annotations

import importlib

from windlass import places
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_file
from windlass.places.base import Place


def load_places() -> dict[str, type[Place]]:
    """All places by name. A file has its place in itself, a sub-package in its module `place`."""
    found = {}
    for name in places.place_names():
        module = importlib.import_module(f"{places.__name__}.{name}")
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"{module.__name__}.place")
        kinds = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Place)
        ]
        found[name] = next(kind for kind in kinds if kind is not Place and kind.name == name)
    return found


def choose_place(on: str | None, site: str | None, insists: bool) -> Place:
    """The place that the user names, or the one that studies go to where nobody names one."""
    kinds = load_places()
    if on is not None:
        return kinds[on].open(site, insists)
    offered = [kind for kind in kinds.values() if kind.is_offered(site)]
    return max(offered, key=lambda kind: kind.elsewhere).open(site, insists)


def place_of(paths: StudyPaths, on: str | None = None) -> Place:
    """The place where a study that exists goes on: `on` where it can, else where it ran last."""
    kinds = load_places()
    recorded = read_plan_file(paths.plan).launcher
    names = [name for name in (on, recorded, *kinds) if name in kinds]
    return next(kinds[name] for name in names if kinds[name].can_continue(paths))()
