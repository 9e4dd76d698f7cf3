"""Packs the data of a study into archives, once for each content."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Literal

from windlass.bundle.pack import (
    choose_compression,
    find_doubt,
    find_packed,
    pack_folder,
    packed_places,
    scan_folder,
)
from windlass.core.errors import InputError, Problem
from windlass.core.paths import STUDIES
from windlass.model import Data, Plan

# Ending of an archive → how it is packed.
ARCHIVES = {".tar": "tar", ".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}


def pack_data(plan: Plan) -> list[dict[str, Any]]:
    """What plan.json says of the data: one entry for each archive."""
    study = plan.study
    return pack_items(
        study.data, os.path.dirname(plan.folder), study.project_dir, study.source, _say, plan.folder
    )


def _say(text: str) -> None:
    print(text if text.startswith("warning:") else f"data {text}", file=sys.stderr, flush=True)


def pack_items(
    items: Sequence[Data],
    scratch: str,
    project: str,
    file: str,
    say: Callable[[str], None],
    study_folder: str = "",
) -> list[dict[str, Any]]:
    """Entries for the archives of these items; folders are packed. Raises InputError with all that is wrong."""
    places = find_items(items, scratch, project, file, study_folder)
    return [_entry(item, path, scratch, project, say) for item, path in places]


def pack_again(entries: Sequence[dict[str, Any]], scratch: str) -> list[dict[str, Any]]:
    """The same items as they are now. One that is no longer there stays as it was packed."""
    return [
        _renewed(entry, scratch) if os.path.exists(entry["source"]) else entry for entry in entries
    ]


def _renewed(entry: dict[str, Any], scratch: str) -> dict[str, Any]:
    if not os.path.isdir(entry["source"]):
        return {**entry, **_foreign(entry["source"])}
    how: Literal["none", "gzip", "zstd"] = (
        entry["kind"] if entry["kind"] in ("gzip", "zstd") else "none"
    )
    packed = pack_folder(os.path.realpath(entry["source"]), how, scratch, _say)
    return {**entry, **asdict(packed), "key": f"data-{packed.key}"}


def find_items(
    items: Sequence[Data], scratch: str, project: str, file: str, study_folder: str = ""
) -> list[tuple[Data, str]]:
    """Where each item is; without those that come with a folder they are in. Raises InputError."""
    places: list[tuple[Data, str]] = []
    problems: list[Problem] = []
    for item in items:
        found = find_item(item, scratch, project, study_folder)
        if isinstance(found, Problem):
            problems.append(Problem(found.message, found.hint, file))
        else:
            places.append((item, found))
    problems += [Problem(text, "leave one of them out", file) for text in _overlaps(places)]
    if problems:
        raise InputError(problems)
    chosen: dict[str, tuple[Data, str]] = {}
    for item, path in places:
        real = os.path.realpath(path)
        if not any(real.startswith(os.path.realpath(outer) + os.sep) for _, outer in places):
            chosen.setdefault(real, (item, path))
    return list(chosen.values())


def find_item(item: Data, scratch: str, project: str, study_folder: str = "") -> str | Problem:
    """Where an item is: below the scratch of the project, then below the project; an archive may be anywhere."""
    path = os.path.expandvars(item.path)
    parts = path.split(os.sep)
    if os.path.isabs(path):
        if archive_kind(path) is None:
            hint = f"put it below {scratch} or {project} and write its path from there"
            return Problem(
                f"data: {item.path} is an absolute path, which only archives may have", hint
            )
        return (
            path
            if os.path.isfile(path)
            else Problem(f"data: there is no file {path}", "look at its name")
        )
    if os.pardir in parts:
        return Problem(
            f"data: {item.path} leads outside",
            f"write its path from {scratch} or {project}, without `..`",
        )
    name = os.path.normpath(path)
    if name == os.curdir:
        return Problem("data: `.` is the whole project", "name the folder that trials read")
    for root in (scratch, project):
        found = os.path.join(root, name)
        if study_folder and (study_folder + os.sep).startswith(os.path.realpath(found) + os.sep):
            return Problem(
                f"data: {item.path} holds this study itself", "name the folder that trials read"
            )
        if os.path.exists(found):
            return found
    return Problem(
        f"data: there is no {item.path} in {scratch} or in {project}",
        "put it there, or correct its path",
    )


def archive_kind(path: str) -> str | None:
    return next((kind for ending, kind in ARCHIVES.items() if path.endswith(ending)), None)


def _overlaps(places: Sequence[tuple[Data, str]]) -> list[str]:
    """Items that would appear inside of each other without being so."""
    seen = [(_appears_as(item, path), path) for item, path in places]
    wrong = []
    for number, (name, path) in enumerate(seen):
        for other, other_path in seen[:number]:
            (inner, inner_path), (outer, outer_path) = sorted(
                [(name, path), (other, other_path)], key=lambda x: -len(x[0])
            )
            inside = inner == outer or inner.startswith(outer + os.sep)
            real = (os.path.realpath(inner_path) + os.sep).startswith(
                os.path.realpath(outer_path) + os.sep
            )
            if inside and not real:
                wrong.append(
                    f"data: {outer_path} and {inner_path} would both be {outer} on the node"
                )
    return wrong


def _appears_as(item: Data, path: str) -> str:
    """The path below $SLURM_TMPDIR. What is in an archive appears in a folder of the archive's name."""
    given = os.path.expandvars(item.path)
    name = os.path.basename(path) if os.path.isabs(given) else os.path.normpath(given)
    if archive_kind(path) is None or os.path.isdir(path):
        return name
    ending = max((ending for ending in ARCHIVES if name.endswith(ending)), key=len)
    return name.removesuffix(ending)


def _entry(
    item: Data, path: str, scratch: str, project: str, say: Callable[[str], None]
) -> dict[str, Any]:
    name = _appears_as(item, path)
    entry: dict[str, Any] = {
        "as": name,
        "inner": os.path.basename(name),
        "project": None,
        "source": path,
    }
    if item.writable:
        entry["writable"] = True
    if not os.path.isdir(path):
        return {**entry, **_foreign(path)}
    real = os.path.realpath(path)
    inside = os.path.relpath(path, project)
    is_inside = inside.split(os.sep)[0] not in (os.pardir, STUDIES)
    try:
        packed = pack_folder(real, item.compress, scratch, say)
    except PermissionError as error:
        text = f"data: {error.filename} cannot be read ({error.strerror})"
        raise InputError([Problem(text, "mend its mode, or move it elsewhere")]) from error
    entry.update(inner=os.path.basename(real), project=inside if is_inside else None)
    return {**entry, **asdict(packed), "key": f"data-{packed.key}"}


def look_at_item(item: Data, path: str, scratch: str) -> dict[str, Any]:
    """What an item is and whether it is packed. Nothing is written."""
    row: dict[str, Any] = {"as": _appears_as(item, path), "source": path}
    if not os.path.isdir(path):
        return {**row, "files": 1, "bytes": os.stat(path).st_size, "archive": path}
    real = os.path.realpath(path)
    scan = scan_folder(real)
    how = choose_compression(real, item.compress, lambda text: None)
    packed = find_packed(real, scan, how, packed_places(real, scratch))
    row.update(files=scan.files, bytes=scan.size, archive=None)
    if packed is not None:
        row.update(archive=packed.archive, doubt=find_doubt(packed))
    return row


def _foreign(path: str) -> dict[str, Any]:
    """An archive of the user's, or a single file. It is not read here: it may be large."""
    status = os.stat(path)
    kind = archive_kind(path)
    identity = f"{os.path.realpath(path)}\0{status.st_size}\0{status.st_mtime_ns}"
    return {
        "archive": path,
        "key": "data-" + hashlib.sha256(os.fsencode(identity)).hexdigest()[:16],
        "kind": kind or "file",
        "bytes": status.st_size,
        # At least this; for a compressed archive nobody knows before it is unpacked.
        "unpacked_bytes": status.st_size,
        "files": 0 if kind else 1,
        "foreign": kind is not None,
    }
