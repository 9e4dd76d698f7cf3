"""What it costs to give each trial a working folder of its own, against copying the project for each.

    python bench/folders.py [FILES]

For one slot and for sixteen: the first trial of a slot, which copies the project, and every later one, which finds the
project put back after the trial before it had written three files and changed one. Milliseconds a trial; the floor is
`cp -a` of the same project in the same run. Each is the best of twenty.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path

from common import report, workplace
from windlass.agent.keep.trial_folder import FrozenOrigin, Origin, TrialFolders
from windlass.agent.node.live_origin import LiveOrigin

_ROUNDS = 20


def make_project(folder: Path, count: int) -> list[str]:
    names = [f"package{number % 25}/module{number}.py" for number in range(count)]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n" * 400)
    return names


def use(folders: TrialFolders, slot: int) -> None:
    """What a trial does to its folder."""
    project = Path(folders.project_of(slot))
    for number in range(3):
        (project / f"out{number}.txt").write_text("result")
    (project / "package0/module0.py").write_text("changed")


def measure(origin: Origin, root: Path, slots: int) -> tuple[float, float]:
    """Seconds for the first trial of a slot, and for a later one: to make its folder ready and to settle it."""
    root.mkdir()
    folders = TrialFolders(origin, str(root), origin.root)
    first, later = [], []
    for number in range(_ROUNDS):
        for slot in range(slots):
            began = time.perf_counter()
            folders.enter(slot)
            ready = time.perf_counter()
            use(folders, slot)
            ended = time.perf_counter()
            folders.place_of(slot)
            folders.clear(slot)
            seconds = ready - began + time.perf_counter() - ended
            (later if number else first).append(seconds)
    return min(first), min(later)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=500)
    files = parser.parse_args().files
    with workplace() as folder:
        project = folder / "project"
        names = make_project(project, files)
        copies = []
        for number in range(_ROUNDS):
            began = time.perf_counter()
            subprocess.run(["cp", "-a", str(project), str(folder / f"copy{number}")], check=True)
            copies.append(time.perf_counter() - began)
        floor = min(copies)
        print(f"{files} files; cp -a: {floor * 1e3:.1f} ms")
        for slots in (1, 16):
            for kind in ("frozen", "live"):
                origin = (
                    FrozenOrigin(str(project))
                    if kind == "frozen"
                    else LiveOrigin(str(project), names, [])
                )
                first, later = measure(origin, folder / f"{kind}{slots}", slots)
                what = f"{kind}, {slots} slot{'s' if slots > 1 else ''}"
                report(
                    f"{what}: first trial, over cp -a",
                    f"{first / floor:.2f}",
                    f"1.5 ({first * 1e3:.1f} ms)",
                )
                report(
                    f"{what}: later trials, ms",
                    f"{later * 1e3:.1f}",
                    f"5 ({later / floor:.2f} of cp -a)",
                )


if __name__ == "__main__":
    main()
