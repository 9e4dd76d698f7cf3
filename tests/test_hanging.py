"""A command whose file system does not answer says on standard error what it waits for, and goes on once it answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_READ = """
import sys
from windlass import hanging
from windlass.patience import patient_calls
hanging.SILENT_S = 0.2
with patient_calls():
    with open(sys.argv[1]) as file:
        print(file.read())
    import time
    time.sleep(0.5)
"""


def start(path: Path) -> subprocess.Popen[str]:
    """A process that opens a pipe with a name, which waits in the kernel until somebody writes to it."""
    os.mkfifo(path)
    command = [sys.executable, "-c", _READ, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_call_that_hangs_is_reported_once_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "slow file"
    process = start(path)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(
        f"waiting for {path}: the file system has not answered"
    )
    path.write_text("content")
    out, rest = process.communicate(timeout=60)
    assert out == "content\n" and process.returncode == 0
    assert rest.startswith("it answers again after") and rest.count("\n") == 1


def test_a_call_that_hangs_is_interrupted(tmp_path: Path) -> None:
    process = start(tmp_path / "slow file")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("waiting for")
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=60)
    assert process.returncode != 0 and out == "" and "KeyboardInterrupt" in rest
