"""Files without a name, handed to another process by their descriptor: no size limit, and nothing to clean up.

Python 3.9, standard library.
"""

from __future__ import annotations

import os


def write_hidden_file(data: bytes) -> int:
    """A descriptor, not inherited unless made so, of a file that holds `data`; positioned at its beginning."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("windlass")
    else:
        import tempfile  # slow to import, and only needed where the system has nothing better

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with os.fdopen(os.dup(descriptor), "wb") as writer:
        writer.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
