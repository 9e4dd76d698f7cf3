"""The known name that was probably meant by one that is not known, for hints."""

from __future__ import annotations

from typing import Iterable


def nearest_word(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The known name that is most like this one, whatever the case of their letters; "" where none is."""
    import difflib  # Only to explain what went wrong: a command that works does not load it.

    by_lower = {name.lower(): name for name in reversed(list(known))}
    matches = difflib.get_close_matches(word.lower(), list(by_lower), 1, likeness)
    return by_lower[matches[0]] if matches else ""


def did_you_mean(word: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """A question with the nearest known name; "" where none is near."""
    nearest = nearest_word(word, known, likeness)
    return f"did you mean {nearest}?" if nearest else ""
