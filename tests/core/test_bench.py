"""Benchmarks that are cut off leave nothing behind and do not end in a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import HERE
from tests.conftest import wait_for

BENCH = HERE.parent / "bench"


def test_agents_of_a_benchmark_that_is_cut_off_are_ended() -> None:
    """Also where one of them has ended by itself and was waited for."""
    text = f"""
import os, subprocess, sys
sys.path.insert(0, {str(BENCH)!r})
import scale
gone = subprocess.Popen(["true"])
gone.wait()
there = subprocess.Popen(["sleep", "60"])
scale.end_agents({{gone.pid, there.pid}})
assert there.wait() == -9
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_benchmark_can_be_cut_off_at_any_moment(tmp_path: Path) -> None:
    words = ["--agents", "30", "--every", "0.2", "--delay-ms", "1", "--alone", "--seconds", "60"]
    for moment_s in (0.0, 0.05, 0.5):
        bench = subprocess.Popen(
            [sys.executable, str(BENCH / "scale.py"), *words],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children")
        wait_for(lambda: bool(children.read_text().split()))  # noqa: B023
        time.sleep(moment_s)
        bench.send_signal(signal.SIGTERM)
        _, errors = bench.communicate(timeout=30)
        assert (bench.returncode, errors) == (143, b"")
        wait_for(lambda: not _has_group(bench.pid))  # noqa: B023


def _has_group(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
