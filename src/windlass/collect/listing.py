"""Listings of a folder as it is now, where a network file system would answer with an earlier one."""

from __future__ import annotations

import contextlib
import os

from windlass.journal.read import journal_files


def renew_listing(folder: str) -> None:
    """Have the next listing of a journals' folder, and the sizes of its files, come from the file system's server.

    NFS and sshfs answer from a cache for up to a minute, so that the journal of an agent that has begun and ended
    meanwhile is not there, or is shorter. A client drops what it has cached of a folder when it changes the folder
    itself, and of a file when it opens it. Where this user may not write there, the cache's own time has to pass.
    """
    with contextlib.suppress(OSError):
        path = os.path.join(folder, f".look-{os.uname().nodename}-{os.getpid()}")
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.unlink(path)
    for path in journal_files(folder):
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
