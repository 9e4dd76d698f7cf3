"""The few file-system calls that the register consists of. Python 3.9, standard library.

They are here together so that their number can be read off, and so that tests can put another file system in their
place: one with old listings, with answers that were lost on the way, or without hard links.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import List, NamedTuple, Optional

# What link() answers where a file system has no hard links.
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Content(NamedTuple):
    """What a file holds, and when it was last written, by the clock of the file system."""

    data: bytes
    written: float


class Disk:
    """The calls as the operating system has them. A method makes as many of them as its docstring says."""

    def list_names(self, folder: str) -> List[str]:
        """All names in a folder. A network file system may answer with a listing that it made up to a minute ago."""
        return os.listdir(folder)

    def read(self, path: str) -> Optional[Content]:
        """Open, read and close; None where there is no such file. The server is asked, whatever listings show."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                return Content(b"", status.st_mtime)
            data = os.read(descriptor, status.st_size + 1)
            while 0 < len(data) < status.st_size:
                more = os.read(descriptor, status.st_size - len(data))
                if not more:
                    break
                data += more
            return Content(data, status.st_mtime)
        except OSError as error:
            if error.errno == errno.ESTALE:
                return None  # removed on the server after it was opened here
            raise
        finally:
            os.close(descriptor)

    def write(self, path: str, data: bytes) -> None:
        """Create, write, sync and close. Raises FileExistsError where the name is taken."""
        self._create(path, data, sync=True)

    def touch(self, path: str) -> None:
        """Create an empty file and close it; nothing happens where it is there already.

        A client of a network file system forgets its listing of a folder, and which names are missing there, as soon
        as it has itself made a file in it.
        """
        try:
            self._create(path, b"", sync=False)
        except FileExistsError:
            pass

    def _create(self, path: str, data: bytes, sync: bool) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                os.fsync(descriptor)
        except OSError:
            self.remove(path)  # A file that holds a part only is of no use to anybody.
            raise
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str, data: bytes) -> bool:
        """Give a file, which holds `data`, a second name; False where that name is taken. One call.

        Where the file system has no hard links, a file of that name is created and then written. False does not prove
        that the name was given to another file: an answer may have been lost, and the request sent again.
        """
        try:
            os.link(source, target)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                # An error may be reported for a link that was made: the link count tells.
                if os.stat(source).st_nlink == 2:
                    return True
                raise
        return self._claim_name(target, data)

    def _claim_name(self, target: str, data: bytes) -> bool:
        try:
            self.write(target, data)
            return True
        except FileExistsError:
            return False
        except PermissionError:
            # Some file systems refuse O_EXCL in this way where the name is taken.
            if os.path.lexists(target):
                return False
            raise

    def remove(self, path: str) -> None:
        """Remove a file if it is there and can be removed. One call."""
        try:
            os.unlink(path)
        except OSError:
            pass

    def written(self, path: str) -> Optional[float]:
        """When a file was last written; None where it is gone. One call."""
        try:
            return os.stat(path).st_mtime
        except OSError:
            return None


def chance() -> float:
    """A random number from 0 to 1. The module `random` takes longer to load than most commands need it for."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
