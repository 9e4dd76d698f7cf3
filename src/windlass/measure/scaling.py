"""How much faster one trial gets with more processes: what `windlass measure --scaling` keeps in scaling.json."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict

from windlass.core.errors import input_error
from windlass.core.files import write_whole
from windlass.measured import Measurement, Scaling, ScalingPoint


def parse_counts(text: str) -> list[int]:
    """`1,2,4` as numbers, in order; 1 is always among them, because the others are compared with it."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and int(word) for word in words):
        raise input_error(
            f"--scaling {text}: these are not numbers of processes", "--scaling 1,2,4"
        )
    return sorted({1, *map(int, words)})


def point_of(count: int, measurement: Measurement) -> ScalingPoint:
    """What one trial with so many processes showed."""
    probe = measurement.probes[0]
    return ScalingPoint(
        count,
        None if probe.step_s is None else 1 / probe.step_s[1],
        None if probe.time_s is None else probe.time_s[1],
        probe.rank_mb,
    )


@contextlib.contextmanager
def kept_aside(path: str) -> Iterator[None]:
    """Let measurements write this file, and put back what was in it before: they are of other sizes of a trial."""
    before: str | None = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            before = file.read()
    try:
        yield
    finally:
        if before is not None:
            write_whole(path, before)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def write_scaling(folder: str, scaling: Scaling) -> None:
    """Keep the result beside measured.json."""
    write_whole(os.path.join(folder, "scaling.json"), json.dumps(asdict(scaling), indent=1) + "\n")
