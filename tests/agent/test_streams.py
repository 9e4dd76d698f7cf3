"""The agent's own output is a file on the shared folder, and its loss does not end the agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from windlass.agent.report.streams import outlive_output
outlive_output()
print("lost" * 10_000, flush=True)
print("lost as well", file=sys.stderr)
open(sys.argv[1], "w").write("went on")
"""


def test_output_that_cannot_be_written_is_lost(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-c", PROGRAM, str(tmp_path / "mark")]
        done = subprocess.run(words, stdout=full, stderr=full, check=False)
    assert done.returncode == 0 and (tmp_path / "mark").read_text() == "went on"


def test_output_that_can_be_written_is_not(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "mark")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "lost" * 10_000 + "\n" and done.stderr == "lost as well\n"
