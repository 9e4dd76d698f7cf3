"""Open files tell on which kind of file system a trial reads and writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from windlass.agent.gauge.filesystems import OpenFiles, is_shared, read_mounts

PROGRAM = """
import sys
file = open(sys.argv[1], "rb", buffering=0)
while file.read(1 << 20): pass
log = open(sys.argv[2], "wb", buffering=0)
log.write(bytes(1 << 20))
print(flush=True)
sys.stdin.read()
"""


def look(tmp_path: Path, kind: str) -> OpenFiles:
    data = tmp_path / "data"
    data.write_bytes(bytes(3 << 20))
    files = OpenFiles({os.stat(tmp_path).st_dev: kind})
    words = [sys.executable, "-c", PROGRAM, str(data), str(tmp_path / "log")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        files.look([process.pid])
        files.look([process.pid, 1 << 22])  # one that is gone
        process.stdin.close()
    return files


def test_on_a_shared_one(tmp_path: Path) -> None:
    files = look(tmp_path, "nfs4")
    assert files.kinds == {"nfs4"} and files.shared_mb == 4


def test_on_a_local_one(tmp_path: Path) -> None:
    files = look(tmp_path, "ext4")
    assert not files.kinds and not files.shared_mb


def test_which_are_shared() -> None:
    assert [
        kind
        for kind in ("nfs", "nfs4", "lustre", "fuse.sshfs", "xfs", "tmpfs", "overlay")
        if is_shared(kind)
    ] == [
        "nfs",
        "nfs4",
        "lustre",
        "fuse.sshfs",
    ]


def test_this_machine_has_mounts() -> None:
    assert read_mounts()[os.stat("/proc").st_dev] == "proc"
