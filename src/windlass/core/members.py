"""Finds the members of a folder that is its own registry: a new file there is a new member. Python 3.9.

Such a folder is a package. Each of its modules defines one member, `MEMBER`, which goes by the name of the module.
`base` has the interface of the members, and `shared` what several of them use; neither is a member.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any, List

_NO_MEMBERS = ("base", "shared")


def member_names(package: ModuleType) -> List[str]:
    """The names of all members, sorted. Nothing is imported, so that this also serves error messages and schemas."""
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return sorted(name for name in names if name not in _NO_MEMBERS and not name.startswith("_"))


def load_member(package: ModuleType, name: str) -> Any:
    """The member of that name; only its own module is imported. Raises KeyError where there is none."""
    if name not in member_names(package):
        raise KeyError(name)
    return importlib.import_module(f"{package.__name__}.{name}").MEMBER
