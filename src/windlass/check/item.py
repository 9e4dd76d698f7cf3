"""What one item of the checklist found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["pass", "fail", "skipped"]


@dataclass(frozen=True)
class Item:
    """An item, how it was decided, and what to do about it."""

    name: str
    verdict: Verdict
    why: str
    todo: str = ""
    places: tuple[str, ...] = ()  # file:line


def passed(name: str, why: str) -> Item:
    return Item(name, "pass", why)


def failed(name: str, why: str, todo: str, places: tuple[str, ...] = ()) -> Item:
    return Item(name, "fail", why, todo, places)


def skipped(name: str, why: str, todo: str = "") -> Item:
    return Item(name, "skipped", why, todo)
