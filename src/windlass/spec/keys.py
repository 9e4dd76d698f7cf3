"""The checked keys of a study file, or of one of its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.settings import rows_of


class Keys:
    """The values of the keys, as attributes; None for one that is not given. The table of settings has all keys."""

    def __init__(self, section: str, values: Mapping[str, Any]) -> None:
        self._section = section
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name not in rows_of(self._section):
            raise AttributeError(f"a study file has no key {self._section}.{name}")
        return self._values.get(name)
