"""Tells errors of a network file system that may pass from those that stay. The agent needs it: Python 3.9."""

from __future__ import annotations

import errno

# A server that is being started anew, a connection that was lost, a handle that has become stale: the same call may
# succeed a moment later, or after the file was opened again.
_NAMES = (
    "EIO", "ESTALE", "ENOTCONN", "ETIMEDOUT", "ECONNRESET", "ECONNABORTED", "ECONNREFUSED", "EHOSTDOWN",
    "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET", "EAGAIN", "EINTR", "EREMOTEIO", "ESHUTDOWN", "ECOMM",
    "EBADFD", "ETIME", "EKEYEXPIRED", "ENOLINK", "EPIPE",
)  # fmt: skip
_PASSING = frozenset(getattr(errno, name) for name in _NAMES if hasattr(errno, name))


def passing_error(error: BaseException) -> OSError | None:
    """The error of the file system that may pass, where that is the cause of `error`; None where it is not."""
    seen = 0
    cause: BaseException | None = error
    while cause is not None and seen < 5:
        if isinstance(cause, OSError):
            return cause if cause.errno in _PASSING else None
        cause = cause.__cause__
        seen += 1
    return None
