"""Item: what one trial needs is known."""

from __future__ import annotations

from windlass.check.item import Item, failed, passed
from windlass.model import Plan

NAME = "needs"
_ASKED = {"time_s": "time", "memory_mb": "memory"}  # what a job cannot be asked for without


def check_needs(plan: Plan) -> Item:
    """Time and memory must be given, by the user or the site; GPUs are only shown where they are given."""
    missing = [word for key, word in _ASKED.items() if plan.settings[key].value is None]
    gpus = plan.settings["gpus"].value
    if gpus and plan.settings["gpu_memory_mb"].value is None and gpus < 1:
        missing.append("gpu_memory")
    if missing:
        example = {"time": "time: 2h", "memory": "memory: 8GB", "gpu_memory": "gpu_memory: 3GB"}
        todo = "in the study: needs: {" + ", ".join(example[word] for word in missing) + "}"
        return failed(
            NAME, f"the study does not state how much {' and '.join(missing)} one trial needs", todo
        )
    given = [
        f"{word} {plan.settings[key].value:g}{key[len(word) :].replace('_', ' ')}"
        for key, word in _ASKED.items()
    ]
    return passed(NAME, ", ".join([*given, f"GPUs {gpus:g}" if gpus else "no GPU"]))
