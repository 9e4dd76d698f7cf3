"""The numbered files in ``claims/``: which is the newest, how the next one is made, how long old ones stay.

A listing of the folder may be old: clients of network file systems keep one for up to a minute. Opening a file by its
name asks the server. So the numbers that follow the highest one listed are tried by name. States are kept for longer
than listings are, so that the highest one listed is still there. When changes are so frequent that this would be too
many files, the older ones are removed all the same, but for every 64th: from one of those to the next a reader with an
old listing finds its way. Python 3.9, standard library.
"""

from __future__ import annotations

import os
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from windlass.core.claims.disk import Content, Disk, chance
from windlass.core.errors import FolderError

LISTED_S = 90.0  # States stay for so long: longer than a client keeps a listing (60 s for NFS, 20 s for sshfs).
FEWEST = 6  # so many stay, however old they are
MOST = 64  # so many stay at most, but for the landmarks
LANDMARKS = 16  # of the states whose number is a multiple of MOST, so many stay
_REMOVED_AT_ONCE = 4  # by one change, for their age: more than it adds, so that their number falls
_PATIENCE_S = 120.0  # for a listing that shows only states that are gone


class StatesLost(FolderError):
    """The folder of the register is not there."""


class Look(NamedTuple):
    """What one look at the folder has found. Number 0 means that there is no state yet."""

    names: List[str]  # as listed
    number: int  # of the newest state
    content: Content  # of the newest state
    # Whether the listing shows the newest state: if not, it is older than that state.
    is_listed: bool

    def numbers(self) -> List[int]:
        """All that are known, the newest first."""
        listed = {int(name) for name in self.names if name.isdigit()}
        return sorted(
            {self.number, *(number for number in listed if number < self.number)}, reverse=True
        )


_NOTHING = Content(b"", 0.0)


class States:
    """The states of one register, as files. Knows nothing of their content."""

    def __init__(self, folder: str, who: str, disk: Optional[Disk] = None) -> None:
        self.folder = folder
        self.disk = disk or Disk()
        self._who = who
        # The state after the one to be removed next, and when it was written.
        self._oldest: Tuple[int, float] = 0, 0.0

    def path(self, number: int) -> str:
        return os.path.join(self.folder, f"{number:08d}")

    def list_names(self) -> List[str]:
        try:
            return self.disk.list_names(self.folder)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StatesLost(str(error.strerror)) from error
        except OSError as error:
            raise self._unreadable(self.folder, error) from error

    def read(self, number: int) -> Optional[Content]:
        """The content of one state; None where it is gone."""
        try:
            return self.disk.read(self.path(number))
        except OSError as error:
            raise self._unreadable(self.path(number), error) from error

    def _unreadable(self, path: str, error: OSError) -> FolderError:
        return FolderError(
            f"{path}: cannot be read ({error.strerror})\n  hint: make it readable for this user"
        )

    def look(self) -> Look:
        """Find the newest state: one listing, one read, and one attempt to open the number that would follow."""
        deadline = time.monotonic() + _PATIENCE_S
        attempt = 0
        while True:
            names = self.list_names()
            listed = highest(names)
            found = self._follow(listed, attempt)
            if found is not None:
                number, content = found
                return Look(names, number, content, number == listed)
            attempt += 1
            if not listed and attempt > 1:
                return Look(names, 0, _NOTHING, True)
            if time.monotonic() > deadline:
                raise FolderError(
                    f"{self.folder}: all files that its listing shows have been gone for {_PATIENCE_S:.0f} s\n"
                    "  hint: this file system keeps old listings for too long; try again later"
                )
            self.refresh()
            if attempt > 2:
                time.sleep(chance() * min(1.0, 0.01 * 2 ** min(attempt, 10)))

    def refresh(self) -> None:
        """Have the next listing be a new one, where this process may write to the folder."""
        probe = os.path.join(self.folder, f".look-{self._who}-{os.urandom(4).hex()}")
        try:
            self.disk.touch(probe)
        except OSError:
            return
        self.disk.remove(probe)

    def _follow(self, listed: int, attempt: int) -> Optional[Tuple[int, Content]]:
        """The newest state, from the highest one listed on; None where that is gone and no landmark is found."""
        number, content = listed, self.read(listed) if listed else None
        if content is None and attempt and listed:
            number, content = self._find_landmark(listed)
        if content is None and listed:
            return None
        while True:
            following = self.read(number + 1)
            if following is None:
                return None if content is None else (number, content)
            number, content = number + 1, following

    def _find_landmark(self, gone: int) -> Tuple[int, Optional[Content]]:
        """The last of those that follow a state which is gone."""
        number, content = gone, None
        for landmark in range(gone // MOST + 1, gone // MOST + 1 + LANDMARKS):
            found = self.read(landmark * MOST)
            if found is not None:
                number, content = landmark * MOST, found
            elif content is not None:
                break
        return number, content

    def put(self, number: int, data: bytes, token: str) -> bool:
        """Make the state of this number; False where the number is taken, by another process or by this very call.

        The content is on disk before it gets its number. The temporary file has a name of its own for each change:
        writing to the one of an earlier change could overwrite a state that is linked to it.
        """
        temporary = os.path.join(self.folder, f".{self._who}-{token}.tmp")
        try:
            self.disk.write(temporary, data)
            return self.disk.link(temporary, self.path(number), data)
        finally:
            self.disk.remove(temporary)

    def remove_old(self, look: Look, now: float) -> None:
        """Remove states that nobody needs any more; `now` is a time by the clock of the file system, or before it."""
        numbers = look.numbers()
        landmarks = [number for number in numbers if number % MOST == 0][:LANDMARKS]
        excess = [number for number in numbers[MOST:] if number not in landmarks]
        for number in excess:
            self.disk.remove(self.path(number))
        # The oldest first, so that none is missing between two that are there. A state is needed for as long as a
        # listing may show it as the newest, and it was the newest until the next one was written.
        left = [number for number in numbers if number not in excess]
        for place in range(len(left) - 1, FEWEST - 1, -1)[:_REMOVED_AT_ONCE]:
            number, following = left[place], left[place - 1]
            if self._oldest[0] != following:
                self._oldest = (following, self.disk.written(self.path(following)) or now)
            if self._oldest[1] > now - LISTED_S:
                break
            self.disk.remove(self.path(number))

    def tidy(self) -> None:
        """Remove all but the newest few, where no change is expected for a while. Others list the folder anew."""
        numbers = sorted(int(name) for name in self.list_names() if name.isdigit())
        for number in numbers[:-FEWEST]:
            self.disk.remove(self.path(number))


def highest(names: List[str]) -> int:
    """The highest number among the names in the folder; 0 when there is none."""
    return max((int(name) for name in names if name.isdigit()), default=0)


# A command that cancels or adds trials reads journals before it makes its change. That may take seconds, and an agent
# has claimed something meanwhile. A process that has lost several races makes a file that asks all others to wait. They
# see it in the listing that they make anyway. They wait for a limited time: its maker may have been killed.
_WAIT_PREFIX = "wait~"
_WAIT_LOSSES = 3  # races that a process loses before it asks the others to wait
_WAIT_S = 20.0  # that others wait for one process


class Precedence:
    """What one process knows of those that ask it to wait, and its own request that others wait."""

    def __init__(self, states: States, who: str) -> None:
        self._states = states
        self._who = who
        self._own = ""
        self._since: Dict[str, float] = {}  # name of a file → when it was first seen here

    def note_loss(self, lost: int) -> None:
        """This process has lost so many races while making one change."""
        if lost >= _WAIT_LOSSES and not self._own:
            self._own = f"{_WAIT_PREFIX}{self._who}~{os.urandom(4).hex()}"
            try:
                self._states.disk.touch(os.path.join(self._states.folder, self._own))
            except OSError:
                self._own = ""

    def end(self) -> None:
        """The change is made."""
        if self._own:
            self._states.disk.remove(os.path.join(self._states.folder, self._own))
            self._own = ""

    def wait(self, names: Iterable[str]) -> bool:
        """Wait a moment if another process has asked for that; returns whether. `names` are the folder's."""
        asking = [name for name in names if name.startswith(_WAIT_PREFIX) and name != self._own]
        if not asking and not self._since:
            return False
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in asking}
        if self._own:
            # Two that ask: one after the other.
            asking = [name for name in asking if name < self._own]
        for name in asking:
            if now - self._since[name] > _WAIT_S:
                self._states.disk.remove(os.path.join(self._states.folder, name))
        if all(now - self._since[name] > _WAIT_S for name in asking):
            return False
        time.sleep(0.05 + 0.1 * chance())
        return True
