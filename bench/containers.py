"""Trials in a container against `apptainer exec` by hand, in one run.

    python bench/containers.py [trials]

The start of one trial: from the agent's record of its start to its end, for a program that ends at once. A hundred
trials: the whole `windlass run` with warm starts, against as many `apptainer exec` of the same script. On both sides
one runs after another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from common import report, timed, windlass, workplace

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.images import AS_ROOT, build_image, find_apptainer, make_rootfs

SCRIPT = """\
import argparse, asyncio, email, http.client, json, logging, sqlite3, sys, unittest, xml.dom
print(sys.argv[1])
"""


def ends_of(folder: Path, study: str) -> list[dict[str, float]]:
    journal = (
        next((folder / "studies" / study / "journal").glob("*.jsonl")).read_text().splitlines()
    )
    return [event for event in map(json.loads, journal) if event["e"] == "end"]


def run_study(folder: Path, name: str, command: list[str], trials: int, warm: str) -> float:
    """Seconds of the whole `windlass run`."""
    keys = {
        "name": name,
        "command": command,
        "parameters": {"n": list(range(trials))},
        "warm": warm,
        "environment": {"container": "image.sif"},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(keys))
    words = windlass("run", f"{name}.yaml", "--on", "local", "--slots", "1", "--quiet")
    return timed([*words, "--folder", str(folder / "studies")], cwd=folder)


def by_hand(apptainer: str, folder: Path, words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(
        [apptainer, "--silent", "exec", "image.sif", *words],
        cwd=folder, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **AS_ROOT},
    )  # fmt: skip
    return time.perf_counter() - began


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    apptainer = find_apptainer()
    if apptainer is None:
        raise SystemExit(
            "there is no Apptainer here: `sh scripts/apptainer.sh /opt/windlass-apptainer`"
        )
    os.environ["PATH"] += os.pathsep + os.path.dirname(apptainer)
    with workplace() as folder:
        build_image(apptainer, make_rootfs(folder / "rootfs"), folder / "image.sif")
        (folder / "train.py").write_text(SCRIPT)
        by_hand(apptainer, folder, ["true"])  # the image is in the page cache from here on
        hand = [by_hand(apptainer, folder, ["true"]) for _ in range(20)]
        run_study(folder, "cold", ["true", "{n}"], 20, "off")
        ours = [event["t"] - event["start"] for event in ends_of(folder, "cold")]
        hand += [by_hand(apptainer, folder, ["true"]) for _ in range(20)]
        times = f"{median(ours) * 1000:.0f} ms, {median(hand) * 1000:.0f} ms"
        report(
            "start in a container against `apptainer exec` by hand",
            f"{median(ours) / median(hand):.2f} x ({times})",
            "1.2 x",
        )
        warm_s = run_study(folder, "warm", ["python3", "train.py", "{n}"], trials, "auto")
        hand_s = sum(
            by_hand(apptainer, folder, ["python3", "train.py", str(n)]) for n in range(trials)
        )
        report(
            f"{trials} `apptainer exec` against {trials} trials with warm starts",
            f"{hand_s / warm_s:.1f} x ({hand_s:.1f} s, {warm_s:.1f} s)",
            "5 x",
        )


if __name__ == "__main__":
    main()
