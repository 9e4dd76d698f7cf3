"""What the benchmarks share: every figure is a ratio to a floor or a peer measured in the same run."""

from __future__ import annotations

import os
import resource
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
    subprocess.run(list(words), cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def timed_with_memory(words: Sequence[str], cwd: str | Path | None = None) -> tuple[float, float]:
    """Wall time in seconds and peak memory in MB of a command, its children left out."""
    began = time.perf_counter()
    pid = os.posix_spawnp(words[0], list(words), os.environ) if cwd is None else _spawn_in(words, cwd)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{words} ended with {status}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def _spawn_in(words: Sequence[str], cwd: str | Path) -> int:
    pid = os.fork()
    if pid == 0:
        os.chdir(cwd)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.execvp(words[0], list(words))
    return pid


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


def peak_of_children_mb() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def report(name: str, figure: str, wanted: str) -> None:
    print(f"{name:<58} {figure:>14}   wanted {wanted}", flush=True)
