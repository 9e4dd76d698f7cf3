"""How an agent comes to its end, and the exit code that says so. Python 3.9, standard library."""

from __future__ import annotations

import enum

EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_NOT_READY, EXIT_TIME_UP, EXIT_FULL, EXIT_STOPPED = (
    0,
    1,
    2,
    3,
    4,
    5,
    130,
)
EXIT_AWAY = 7  # the study's folder was out of reach for too long; 6 is taken, see outdated.py


class Mode(enum.Enum):
    """What the agent does with trials."""

    RUN = "run"
    DRAIN = "drain"  # take no more, let those under way end
    NEAR = "near"  # the end is near: take no more, those under way are notified
    STOP = "stop"  # end those under way
