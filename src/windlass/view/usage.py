"""Use of disks and shares as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from windlass.site.usage import Answer, Disk
from windlass.view.table import render_table


def render_usage(disks: Sequence[Disk], answers: Sequence[Answer]) -> str:
    """A table of file systems, then what each program says, as it says it."""
    table = render_table([_row(disk) for disk in disks], width=100).rstrip("\n")
    parts = ["file systems\n" + "\n".join(f"  {line}" for line in table.splitlines())] if disks else []
    for answer in answers:
        said = f"no answer: {answer.problem}" if answer.problem else answer.text
        parts.append(f"$ {answer.command}\n" + "\n".join(f"  {line}" for line in said.splitlines()))
    if not answers:
        parts.append("nothing here tells of quotas or shares (diskusage_report, quota, lfs quota, sshare)")
    return "\n\n".join(parts)


def usage_to_json(disks: Sequence[Disk], answers: Sequence[Answer]) -> dict[str, Any]:
    return {"disks": [asdict(disk) for disk in disks], "answers": [asdict(answer) for answer in answers]}


def _row(disk: Disk) -> dict[str, Any]:
    return {
        "folder": disk.path,
        "kind": disk.file_system or None,
        "size": _gigabytes(disk.total_bytes),
        "free": _gigabytes(disk.free_bytes),
        "used": _percent(disk.free_bytes, disk.total_bytes),
        "files used": _percent(disk.free_files, disk.total_files),
    }


def _gigabytes(count: int) -> str:
    return f"{count / (1 << 30):,.3g} GB" if count < 1000 << 30 else f"{count / (1 << 40):,.3g} TB"


def _percent(free: int | None, total: int | None) -> str | None:
    return None if not total or free is None else f"{100 * (1 - free / total):.0f} %"
