"""Writes small files so that readers never see a part of one. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Iterator, Optional, Union

PART = ".part-"  # stands in the name of every file that is still being written
# What link() answers where a file system has no hard links.
NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """The name of a file beside `path`, which gets the name `path` once the block has ended without an error.

    The block writes the file, as large and with whatever mode it likes. After an error nothing is left of it, and what
    was at `path` before is still there. Processes of several machines may do this for one path at the same time.
    """
    partial = _partial_name(path)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        remove_if_there(partial)
        raise


def write_whole(
    path: str, data: Union[str, bytes], *, sync: bool = False, mode: Optional[int] = None
) -> None:
    """Replace the content of a file in one step. Text is UTF-8, and may hold names of files that are not.

    With `sync` the content is on the disk before the file has its name. `mode` is that of the new file, which nobody
    else can read before it has that mode; without it the umask decides. Raises OSError, after which the file is as it
    was before.
    """
    with replacing(path) as partial:
        _write(partial, data, sync, 0o666 if mode is None else 0o600)
        if mode is not None:
            os.chmod(partial, mode)


def write_first(path: str, data: Union[str, bytes]) -> bool:
    """Make a file with this content; False where there is one of that name. Of several processes one succeeds."""
    partial = _partial_name(path)
    try:
        _write(partial, data)
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _create(path, data)
    finally:
        remove_if_there(partial)
    return True


def remove_if_there(path: str) -> None:
    """Remove a file. Nothing happens where there is none, or where it cannot be removed."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _partial_name(path: str) -> str:
    return f"{path}{PART}{os.uname().nodename}-{os.getpid()}"


def _write(path: str, data: Union[str, bytes], sync: bool = False, mode: int = 0o666) -> None:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(_encode(data))
        if sync:
            file.flush()
            os.fsync(file.fileno())


def _create(path: str, data: Union[str, bytes]) -> bool:
    try:
        with open(path, "xb") as file:
            file.write(_encode(data))
    except FileExistsError:
        return False
    return True


def _encode(data: Union[str, bytes]) -> bytes:
    return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
