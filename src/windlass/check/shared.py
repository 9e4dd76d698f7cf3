"""Item: shared file systems are spared. Counts what one trial writes there, and what the whole study would."""

from __future__ import annotations

from windlass.check.item import Item, failed, passed, skipped
from windlass.check.trial import TriedTrial
from windlass.core.counted import counted
from windlass.core.units import render_bytes, render_duration

NAME = "shared folders"
FILES_AN_HOUR, BYTES_AN_HOUR = 1000, 10**9


def check_shared(tried: TriedTrial | None, trials: int) -> Item:
    """The item on shared file systems: fails where the whole study would write too many files or bytes an hour there.

    It is skipped where no trial was executed.
    """
    if tried is None:
        return skipped(NAME, "the program was not started", "leave out --no-run")
    if tried.problem:
        return skipped(NAME, f"the trial {tried.problem}")
    files, size = len(tried.shared_files), tried.shared_bytes
    files_an_hour = _an_hour(files, tried, trials)
    bytes_an_hour = _an_hour(size, tried, trials)
    wrote = f"a trial wrote {counted(files, 'file')}, {render_bytes(size)} to shared file systems"
    wrote += (
        f" in {render_duration(tried.seconds)} (everywhere: {render_bytes(tried.written_bytes)})"
    )
    if files_an_hour <= FILES_AN_HOUR and bytes_an_hour <= BYTES_AN_HOUR:
        return passed(NAME, wrote)
    much = (
        f"{files_an_hour:,.0f} files"
        if files_an_hour > FILES_AN_HOUR
        else render_bytes(bytes_an_hour)
    )
    todo = (
        "write to $SLURM_TMPDIR, or to a relative path, and name what is to be kept under outputs:"
    )
    return failed(
        NAME, f"{wrote}; in an hour of one slot that is {much}", todo, tried.shared_files[:5]
    )


def _an_hour(amount: int, tried: TriedTrial, trials: int) -> float:
    """What comes together in an hour of one slot; a study of few, short trials never gets so far."""
    rate = amount * 3600 / max(tried.seconds, 0.1)
    return min(rate, amount * trials) if tried.ended else rate
