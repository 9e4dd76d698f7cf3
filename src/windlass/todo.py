"""Changes what is to be done in a study that exists: trials are cancelled or put back, agents limited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windlass.bundle.again import refresh_folder
from windlass.bundle.folder import folder_error
from windlass.collect.index import open_index, read_done
from windlass.collect.look import find_lost
from windlass.collect.trial_ids import TrialIds
from windlass.core.claims import ranges as rs
from windlass.core.claims.client import ClientJournal, client_name
from windlass.core.claims.first import forget_first
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.recover import ended_trials, recover
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.journal.write import DiskFull
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.patience import insist


def cancel_trials(paths: StudyPaths, chosen: Ranges) -> Ranges:
    """Take trials off the list; agents stop those under way within seconds. Returns what was cancelled."""
    register_file = RegisterFile(paths.claims, client_name())
    cancelled: Ranges = []

    def change(register: Register) -> Register:
        """Take the chosen trials off the list, and mark those that agents hold. Finished ones stay as they are."""
        # Read after the register: what an agent has finished it may hold for a while yet.
        finished = {number for agent in register.held for number in ended_trials(paths, agent)}
        held = rs.subtract(register.held_ranges(), rs.from_numbers(finished))
        cancelled[:] = rs.intersect(rs.union(register.todo, held), chosen)
        register.todo = rs.subtract(register.todo, chosen)
        register.cancelled = rs.union(register.cancelled, cancelled)
        return register

    # Of those under way their agents tell more when they have ended; if they still can.
    _change(paths, register_file, change, "cancel", cancelled)
    return cancelled


def refresh_code(paths: StudyPaths) -> Mapping[str, Any] | None:
    """Have trials that are put back use the project as it is now. Returns the frozen code; None where it is live."""
    try:
        return refresh_folder(paths, client_name())
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def retry_trials(paths: StudyPaths, chosen: Ranges, keep_going: bool = False) -> Ranges:
    """Put trials back on the list, whatever became of them; not those under way. Returns what was put back.

    A study that has stopped because its first trials all failed alike goes on. It may stop again for the same reason,
    unless other trials of it are done or `keep_going` is set.
    """
    register_file = RegisterFile(paths.claims, client_name())
    put_back: Ranges = []

    def change(register: Register) -> Register:
        """Put the chosen trials back on the list, except those that an agent holds."""
        # Also those that are on the list already: what a dead agent held has just been put there.
        put_back[:] = rs.subtract(chosen, register.held_ranges())
        register.todo = rs.union(register.todo, put_back)
        register.cancelled = rs.subtract(register.cancelled, chosen)
        done = rs.intersect(rs.from_numbers(read_done(paths)), register.current)
        register.learned = forget_first(
            register.learned, keep_going or bool(rs.subtract(done, put_back))
        )
        return register

    _change(paths, register_file, change, "retry", put_back)
    return put_back


def set_throttle(paths: StudyPaths, limit: int) -> None:
    """Let so many agents hold trials at a time, 0 for any number. Those that are too many end by themselves."""

    def change(register: Register) -> Register | None:
        before, register.throttle = register.throttle, limit or None
        return None if register.throttle == before else register

    try:
        RegisterFile(paths.claims, client_name()).update(change)
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def _change(
    paths: StudyPaths,
    register_file: RegisterFile,
    change: Callable[[Register], Register],
    kind: str,
    changed: Ranges,
) -> None:
    """Make a change of the register and write it down; `change` fills `changed`."""

    def record() -> None:
        with ClientJournal(paths) as journal:
            journal.write({"e": kind, "r": changed, **TrialIds(paths).render(changed)})

    try:
        insist(lambda: recover(paths, register_file), paths.folder)
        insist(lambda: register_file.update(change), paths.folder)
        if changed:
            insist(record, paths.folder)
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def chosen_states(paths: StudyPaths, register: Register, states: Sequence[State]) -> Ranges:
    """The trials of the study as it stands now that are in one of these states."""
    with open_index(paths) as index:
        found = set(index.numbers(states))
        if State.INTERRUPTED in states:
            found |= find_lost(paths, index)
        return rs.intersect(rs.from_numbers(found), register.current)
