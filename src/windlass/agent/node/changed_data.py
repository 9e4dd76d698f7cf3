"""Tells a study that data which its trials read were changed meanwhile. Python 3.9, standard library."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Set

from windlass.agent.node.store import NodeStore
from windlass.core.journal.events import Ended, decode_event
from windlass.core.journal.read import JournalReader
from windlass.core.journal.write import append_event

_MOST_TRIALS = 1000  # that get a note of their own


def record_changed_data(store: NodeStore, journal: str) -> None:
    """Look at the end of an agent whether data that its trials read in place are still what was unpacked.

    Permissions keep trials from writing there, but not root. What was changed is noted in the agent's journal, which
    its writer has closed: once for the study, and for each trial that the agent has executed.
    """
    changed = store.find_changed()
    if not changed:
        return
    trials = _executed(journal)
    for what in changed:
        text = f"{what}; the trials that this agent executed ({len(trials)}) may have read changed data"
        _note(journal, {"text": text})
        for number in trials[:_MOST_TRIALS]:
            # For `explain`: the study's own note was written before.
            _note(journal, {"text": text, "i": number, "routine": True})


def _note(journal: str, values: Dict[str, Any]) -> None:
    append_event(journal, {"e": "note", "t": round(time.time(), 3), **values})


def _executed(journal: str) -> List[int]:
    """The trials that ended here, whatever became of them."""
    found: Set[int] = set()
    reader = JournalReader(journal)
    events = reader.read()
    while events:
        found.update(
            event.number for event in map(decode_event, events) if isinstance(event, Ended)
        )
        events = reader.read()
    return sorted(found)
