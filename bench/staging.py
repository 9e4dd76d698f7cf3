"""How fast data of many small files come to a node: against GNU tar, and against copying the folder.

    python bench/staging.py [FILES]

All on tmpfs, in turns, best of several. What a shared file system costs is computed, not slept: strace counts the calls
that would go to its server (open, stat, list; for us also every read of the archive), and each counts 0.5 ms on top of
the time measured on tmpfs. Calls on open files, such as fstat, read and close of the copying programs, count nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import report
from windlass.agent.node.store import NodeStore
from windlass.bundle.data import pack_items
from windlass.model import Data

_TIMES = 5
_CALL_S = 0.0005
_AGENTS = 8
_UNPACK = """
import json, sys
from windlass.agent.node.store import NodeStore
store = NodeStore(sys.argv[1], print)
store.unpack(json.loads(sys.argv[2]), "data")
store.close()
"""
_TARFILE = "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])"


def make_files(folder: Path, count: int) -> None:
    for number in range(count):
        path = folder / f"{number % 100:02d}" / f"{number:06d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(4096))


class Bench:
    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.source = folder / "shared/set"
        make_files(self.source, count)
        (self.entry,) = pack_items(
            [Data("set")], str(folder / "shared"), str(folder / "shared"), "", print
        )
        self.archive = self.entry["archive"]

    def timed(self, action: Callable[[str], object]) -> float:
        """Seconds that an action takes to fill an empty folder."""
        target = str(self.folder / "target")
        os.mkdir(target)
        began = time.perf_counter()
        action(target)
        seconds = time.perf_counter() - began
        shutil.rmtree(target)
        return seconds

    def ours(self, target: str) -> None:
        store = NodeStore(target, lambda text: None)
        store.unpack(self.entry, "data")
        store.close()

    def words(self, name: str, target: str) -> list[str]:
        return {
            "tar xf": ["tar", "xf", self.archive, "-C", target],
            "cp -r": ["cp", "-r", str(self.source), target],
            "rsync -a": ["rsync", "-a", str(self.source), target],
            "tarfile": [sys.executable, "-c", _TARFILE, self.archive, target],
            "ours": [sys.executable, "-c", _UNPACK, target, json.dumps(self.entry)],
        }[name]

    def measure(self) -> dict[str, float]:
        best: dict[str, float] = {}
        for turn in range(_TIMES):
            for name in ("tar xf", "ours", "cp -r", "rsync -a", "tarfile"):
                if name == "tarfile" and turn:
                    continue
                seconds = self.timed(self.ours if name == "ours" else self._runner(name))
                best[name] = min(seconds, best.get(name, seconds))
        return best

    def _runner(self, name: str) -> Callable[[str], object]:
        return lambda target: subprocess.run(self.words(name, target), check=True)

    def calls(self, name: str) -> int:
        """Calls to the shared folder, by strace."""
        log = self.folder / "strace"
        which = "%file,getdents64" + (",read" if name == "ours" else "")
        words = ["strace", "-f", "-y", "-qq", "-s", "4096", "-e", f"trace={which}", "-o", str(log)]
        self.timed(lambda target: subprocess.run([*words, *self.words(name, target)], check=True))
        shared = re.compile(rf"""["<]{re.escape(str(self.folder / "shared"))}""")
        ours = [line for line in log.open(errors="replace") if shared.search(line)]
        # An empty path means an open file: fstat, by another name. A call that was interrupted has a second line.
        count = sum(
            1
            for line in ours
            if not any(mark in line for mark in ("execve(", ', "", ', " resumed>"))
        )
        log.unlink()
        return count

    def unpackings(self) -> int:
        """How often the archive is unpacked when several agents start at once."""
        root = str(self.folder / "root")
        words = [sys.executable, "-c", _UNPACK, root, json.dumps(self.entry)]
        agents = [
            subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(_AGENTS)
        ]
        return sum("unpacked in" in agent.communicate()[0] for agent in agents)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="?", type=int, default=20_000)
    options = parser.parse_args()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-", dir=memory))
    try:
        bench = Bench(folder, options.files)
        best = bench.measure()
        what = f"stage-in of {options.files:,} files of 4 kB"
        report(f"{what} / GNU tar xf", f"{best['ours'] / best['tar xf']:.2f}", "at most 1.2")
        report("cp -r / stage-in, on tmpfs", f"{best['cp -r'] / best['ours']:.2f}", "above 1")
        report("rsync -a / stage-in, on tmpfs", f"{best['rsync -a'] / best['ours']:.2f}", "above 1")
        report("Python's tarfile / stage-in", f"{best['tarfile'] / best['ours']:.1f}", "–")
        if shutil.which("strace"):
            calls = {name: bench.calls(name) for name in ("ours", "cp -r", "rsync -a")}
            shared = {name: best[name] + calls[name] * _CALL_S for name in calls}
            for name in ("cp -r", "rsync -a"):
                figure = f"{shared[name] / shared['ours']:.1f}"
                text = (
                    f"{name} / stage-in, 0.5 ms a call ({calls[name]:,} / {calls['ours']:,} calls)"
                )
                report(text, figure, "above 3")
        else:
            print("strace is missing: what a shared file system costs cannot be counted")
        report(f"{_AGENTS} agents at once: unpackings", str(bench.unpackings()), "1")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
