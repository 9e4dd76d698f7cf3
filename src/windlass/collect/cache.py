"""Where the index of a study's journals lives: a SQLite file on local disk, or memory; it may vanish."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from dataclasses import dataclass

from windlass.core.paths import StudyPaths, make_own_folder

SCHEMA_VERSION = 11
MEMORY_BELOW_BYTES = 4 << 20  # so little is read anew faster than a file is worth
_BUSY_S = 60.0
_KEPT_S = 30 * 86400.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS journal (
    writer TEXT PRIMARY KEY, offset_bytes INTEGER, damaged INTEGER, state TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trial (
    number INTEGER PRIMARY KEY, state, cause, t, rank, writer, starts, attempt, start, duration_s, exit_code,
    signal, stage, output_bytes, rss_mb, cpu_s, step, metrics, note, use, why, round, more
);
CREATE INDEX IF NOT EXISTS trial_not_done ON trial (state) WHERE state <> 'done';
CREATE TABLE IF NOT EXISTS note (t, writer, text, number, routine);
CREATE TABLE IF NOT EXISTS summary (
    state TEXT, cause TEXT, trials INTEGER, timed INTEGER, duration_s REAL, PRIMARY KEY (state, cause)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answer (question TEXT PRIMARY KEY, generation INTEGER, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""
TABLES = ("journal", "trial", "note", "summary", "answer")


@dataclass(frozen=True)
class Cache:
    """An open index and the file it is in; no file when it is in memory."""

    connection: sqlite3.Connection
    path: str | None


def open_memory() -> Cache:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    _prepare(connection)
    return Cache(connection, None)


def open_cache(paths: StudyPaths) -> Cache:
    """The study's index on local disk, made anew if it cannot be used; in memory if it has no place."""
    folder = _private_folder()
    if folder is None:
        return open_memory()
    stem = _stem(paths)
    for name in sorted(_names(folder, stem), reverse=True)[:1]:
        path = os.path.join(folder, name)
        try:
            return Cache(_open_file(path), path)
        except sqlite3.Error:
            continue
    return _open_new(folder, stem)


def replace_cache(paths: StudyPaths) -> Cache:
    """A new, empty index in place of one that turned out to be broken."""
    folder = _private_folder()
    return open_memory() if folder is None else _open_new(folder, _stem(paths))


def _open_new(folder: str, stem: str) -> Cache:
    """Always under a name never used before.

    SQLite finds an interrupted write by the name of the file, so a file that others may still have open must
    never be replaced under its own name.
    """
    old_names = _names(folder, stem)
    path = os.path.join(folder, f"{stem}.{time.time_ns():020d}-{os.urandom(3).hex()}.sqlite")
    try:
        cache = Cache(_open_file(path), path)
    except sqlite3.Error:
        return open_memory()
    for name in [*old_names, *_unused_names(folder)]:
        for suffix in ("", "-journal"):
            try:
                os.unlink(os.path.join(folder, name + suffix))
            except OSError:
                pass
    return cache


def _unused_names(folder: str) -> list[str]:
    """Indexes that nobody has looked at for long, of studies that may be gone."""
    unused = []
    for name in _names(folder, ""):
        try:
            status = os.lstat(os.path.join(folder, name))
        except OSError:
            continue
        if max(status.st_mtime, status.st_atime) < time.time() - _KEPT_S:
            unused.append(name)
    return unused


def _open_file(path: str) -> sqlite3.Connection:
    """Open the file of an index. Raises sqlite3.Error where it is damaged."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        # Without waiting for the disk: a kill of this process cannot harm the file. A power cut can, but the
        # next boot uses another file.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -32768")
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables where there are none; raise sqlite3.Error where they are another version's."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == SCHEMA_VERSION:
        return
    if version != 0:
        raise sqlite3.DatabaseError(f"the index has schema {version}")
    connection.executescript(
        f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )


def _private_folder() -> str | None:
    """A folder that only this user can write to; None where there is none to be had."""
    import tempfile  # slow to import, and seldom needed

    try:
        base = make_own_folder(os.path.join(tempfile.gettempdir(), f"windlass-{os.getuid()}"))
        folder = os.path.join(base, "index")
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _names(folder: str, stem: str) -> list[str]:
    """The files of indices of one study; none where the folder cannot be listed."""
    try:
        return [
            name
            for name in os.listdir(folder)
            if name.startswith(stem) and name.endswith(".sqlite")
        ]
    except OSError:
        return []


def _stem(paths: StudyPaths) -> str:
    """A name for this very folder in this boot: another one at the same path has another name."""
    try:
        inode = os.stat(paths.folder).st_ino
    except OSError:
        inode = 0
    identity = [os.path.realpath(paths.folder), inode, "", _boot_id()]
    return hashlib.blake2b(json.dumps(identity).encode(), digest_size=10).hexdigest()


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
