"""Tells errors of a network file system that may pass from those that stay: the one list of them. Python 3.9."""

from __future__ import annotations

import errno

# A server that is being started anew, a connection that was lost, a handle that has become stale: the same call may
# succeed a moment later, or after the file was opened again.
_NAMES = (
    "EIO", "ESTALE", "ENOTCONN", "ETIMEDOUT", "ECONNRESET", "ECONNABORTED", "ECONNREFUSED", "EHOSTDOWN",
    "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET", "EINTR", "EREMOTEIO", "ESHUTDOWN", "ECOMM", "EBADFD",
    "ETIME", "EKEYEXPIRED", "ENOLINK",
)  # fmt: skip
PASSING = frozenset(getattr(errno, name) for name in _NAMES if hasattr(errno, name))
# A step of an agent that fails with one of these is taken again as well. A command must not wait for them: it may have
# called for a pipe, which is closed (`windlass results | head`) or has nothing to read yet.
_PASSING_STEPS = PASSING | {errno.EAGAIN, errno.EPIPE}


def passing_error(error: BaseException) -> OSError | None:
    """The error of the file system that may pass, where that is the cause of `error`; None where it is not."""
    seen = 0
    cause: BaseException | None = error
    while cause is not None and seen < 5:
        if isinstance(cause, OSError):
            return cause if cause.errno in _PASSING_STEPS else None
        cause = cause.__cause__
        seen += 1
    return None
