"""What the benchmarks share: every figure is a ratio to a floor or a peer measured in the same run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def timed(words: Sequence[str], cwd: str | Path | None = None) -> float:
    """Wall time of a command that must succeed, in seconds."""
    began = time.perf_counter()
    subprocess.run(
        list(words), cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return time.perf_counter() - began


# A process starts with its parent's peak in its own books: measured from a small parent, the figure is true.
_MEASURE = """
import json, os, sys, time
began = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)])
_, status, usage = os.wait4(pid, 0)
print(json.dumps([status, time.perf_counter() - began, usage.ru_maxrss / 1024]))
"""


def timed_with_memory(words: Sequence[str], cwd: str | Path | None = None) -> tuple[float, float]:
    """Wall time in seconds and peak memory in MB of a command that must succeed."""
    python = [sys.executable, "-S", "-E", "-c", _MEASURE]
    done = subprocess.run([*python, *words], cwd=cwd, check=True, stdout=subprocess.PIPE)
    status, seconds, memory_mb = json.loads(done.stdout)
    if status:
        raise SystemExit(f"{words} ended with {status}")
    return seconds, memory_mb


@contextmanager
def workplace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def windlass(*words: str) -> list[str]:
    return [sys.executable, "-m", "windlass", *words]


def build_floor(folder: Path) -> str:
    target = folder / "floor"
    source = Path(__file__).with_name("floor.c")
    subprocess.run(["cc", "-O2", "-o", str(target), str(source)], check=True)
    return str(target)


def count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def report(name: str, figure: str, wanted: str) -> None:
    print(f"{name:<58} {figure:>14}   wanted {wanted}", flush=True)
