"""Use of disks and shares as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.core.units import render_bytes
from windlass.site.usage import Answer, Disk
from windlass.view.numbers import render_percent
from windlass.view.table import render_table


def render_usage(disks: Sequence[Disk], answers: Sequence[Answer]) -> str:
    """A table of file systems, then what each program says, as it says it."""
    table = render_table([_row(disk) for disk in disks], width=100).rstrip("\n")
    parts = (
        ["file systems\n" + "\n".join(f"  {line}" for line in table.splitlines())] if disks else []
    )
    for answer in answers:
        text = f"no answer: {answer.problem}" if answer.problem else answer.text
        indented = "\n".join(f"  {line}" for line in text.splitlines())
        parts.append(f"$ {answer.command}\n{indented}")
    if not answers:
        parts.append(
            "no program here reports quotas or shares (diskusage_report, quota, lfs quota, sshare)"
        )
    return "\n\n".join(parts)


def usage_to_json(disks: Sequence[Disk], answers: Sequence[Answer]) -> dict[str, Any]:
    """Disks and the programs' answers for `--json`, with stable keys."""
    return {
        "disks": [asdict(disk) for disk in disks],
        "answers": [asdict(answer) for answer in answers],
    }


def _row(disk: Disk) -> dict[str, Any]:
    """A file system as a row of the table."""
    return {
        "folder": disk.path,
        "kind": disk.file_system or None,
        "size": render_bytes(disk.total_bytes),
        "free": render_bytes(disk.free_bytes),
        "used": _percent(disk.free_bytes, disk.total_bytes),
        "files used": _percent(disk.free_files, disk.total_files),
    }


def _percent(free: int | None, total: int | None) -> str | None:
    """The used share as text; None where the file system does not report its size."""
    return None if not total or free is None else render_percent(100 * (1 - free / total))
