"""The journal of the command line: what the user did to a study."""

from __future__ import annotations

import functools
import time
from typing import Any

from windlass.core.claims.alive import identity
from windlass.core.ids import agent_id
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.journal.write import JournalWriter
from windlass.core.paths import StudyPaths


@functools.lru_cache(maxsize=1)
def client_name() -> str:
    """This process's name in journals and claims."""
    return "client-" + agent_id()


class ClientJournal:
    """One file for what one command does, made when there is something to say. What `write` returned for is safe."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths
        self._writer: JournalWriter | None = None

    def __enter__(self) -> ClientJournal:
        return self

    def write(self, event: dict[str, Any]) -> None:
        now = round(time.time(), 3)
        if self._writer is None:
            header = {
                "e": "client",
                "t": now,
                "v": JOURNAL_VERSION,
                "id": client_name(),
                **identity(),
            }
            path = self._paths.journal_of(f"{client_name()}-{time.monotonic_ns()}")
            self._writer = JournalWriter(path, header)
        self._writer.add({**event, "t": now})
        self._writer.flush()
        self._writer.sync()

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
