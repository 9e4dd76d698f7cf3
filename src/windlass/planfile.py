"""plan.json: what was planned at the last `windlass run`, with a checksum. The agent needs it: Python 3.9."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from windlass.errors import FolderError

_REMEDY = "`windlass run` with the study file writes it anew"


def encode_plan_file(plan: Mapping[str, Any]) -> bytes:
    """The content of plan.json."""
    fields = {key: value for key, value in plan.items() if key != "crc"}
    return (json.dumps({"crc": _checksum(fields), **fields}, indent=1) + "\n").encode()


def load_plan(path: str) -> dict[str, Any]:
    """The fields of plan.json. Raises FolderError, which names the file, where it is missing, unreadable or damaged.

    Plans of earlier versions have no checksum. They must at least be JSON objects with a version.
    """
    try:
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
    except OSError as error:
        remedy = _REMEDY if isinstance(error, FileNotFoundError) else "make it readable, or remove it and run again"
        raise FolderError(f"{path}: cannot be read ({error.strerror})\n  hint: {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path}: is damaged ({error})\n  hint: {_REMEDY}") from error
    if not isinstance(plan, dict) or not isinstance(plan.get("version"), int):
        raise FolderError(f"{path}: is damaged (it is no plan)\n  hint: {_REMEDY}")
    checksum = plan.pop("crc", None)
    if checksum is not None and checksum != _checksum(plan):
        raise FolderError(f"{path}: is damaged, or was edited (the checksum does not fit)\n  hint: {_REMEDY}")
    return plan


def _checksum(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"
