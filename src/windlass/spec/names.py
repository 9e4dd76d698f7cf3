"""Keys that speak of parameters by their names: `variants` and the steps of `progress`."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.meant import nearest_word
from windlass.spec.document import Path, Problems
from windlass.spec.keys import Keys


def check_names(keys: Keys, names: Sequence[str], problems: Problems) -> None:
    """A problem for each name that is no parameter of the study."""
    given = problems.document.value.get("variants")
    for number, name in enumerate(keys.variants or ()):
        path: Path = ("variants", number) if isinstance(given, list) else ("variants",)
        if name not in names:
            problems.add(
                path, f"variants: {name!r} is no parameter of this study", _hint(name, names)
            )
    steps = keys.progress.steps if keys.progress is not None else None
    if isinstance(steps, str) and steps[1:-1] not in names:
        message = f"progress.steps: {steps[1:-1]!r} is no parameter of this study"
        problems.add(("progress", "steps"), message, _hint(steps[1:-1], names))


def _hint(name: str, names: Sequence[str]) -> str:
    nearest = nearest_word(name, names)
    if nearest:
        return f"did you mean {nearest}?"
    return f"its parameters are {', '.join(names)}" if names else "it has no parameters"
