"""The journal of the command line: what the user did to a study."""

from __future__ import annotations

import functools
import time
from typing import Any

from windlass.claims.alive import identity
from windlass.events import JOURNAL_VERSION
from windlass.ids import agent_id
from windlass.journal.write import JournalWriter
from windlass.paths import StudyPaths


@functools.lru_cache(maxsize=1)
def client_name() -> str:
    """This process's name in journals and claims."""
    return "client-" + agent_id()


class ClientJournal:
    """One file a process, made when there is something to say."""

    def __init__(self, paths: StudyPaths) -> None:
        self._paths = paths

    def write(self, event: dict[str, Any]) -> None:
        now = round(time.time(), 3)
        header = {"e": "client", "t": now, "v": JOURNAL_VERSION, "id": client_name(), **identity()}
        writer = JournalWriter(self._paths.journal_of(f"{client_name()}-{time.monotonic_ns()}"), header)
        writer.add({**event, "t": now})
        writer.flush()
        writer.sync()
        writer.close()
