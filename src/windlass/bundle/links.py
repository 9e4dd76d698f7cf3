"""Finds relative links that lead somewhere now and will lead nowhere where the files are unpacked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

_SHOWN = 5


def find_lost_links(root: str, links: Iterable[str], travels: Callable[[str], bool]) -> list[str]:
    """Those of the links, by their names in `root`, whose target does not travel along, as `name -> target`.

    A link with an absolute target leads to the same file from everywhere, and one that is broken already is left alone.
    """
    lost = []
    for name in links:
        path = os.path.join(root, name)
        target = os.readlink(path)
        if os.path.isabs(target) or not os.path.exists(path):
            continue
        inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if inside.split(os.sep)[0] == os.pardir or not travels(inside):
            lost.append(f"{name} -> {target}")
    return lost


def render_lost_links(what: str, lost: list[str]) -> str:
    """One sentence about the links, and what to do."""
    shown = ", ".join(lost[:_SHOWN]) + (
        f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    )
    return (
        f"{what} has links that will lead nowhere on a node, because what they lead to is not packed with it: {shown}; "
        "put the files in their place, or make the links absolute"
    )
