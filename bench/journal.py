"""How fast a study of very many finished trials is looked at: the first time, and again.

    python bench/journal.py [TRIALS] [--seeds N] [--keep FOLDER]

Every look is a process of its own, timed from its start to its answer. The floors are measured in the same run:
reading the same bytes and doing nothing with them, parsing each line and doing nothing with it, and starting Python
with sqlite3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TextIO

from common import report as report_figure
from common import timed_with_memory, windlass
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.ids import trial_id
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import append_trials

_AGENTS = 4
_BLOCK = 500  # trials that an agent claims at a time

_READ = """
import glob, sys
for path in glob.glob(sys.argv[1] + "/*.jsonl"):
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass
"""
_PARSE = """
import glob, json, sys
for path in glob.glob(sys.argv[1] + "/*.jsonl"):
    with open(path, "rb") as file:
        for line in file:
            json.loads(line)
"""


def make_study(paths: StudyPaths, count: int, seeds: int) -> None:
    """`count` finished trials, done by a few agents side by side."""
    for folder in paths.folders():
        os.makedirs(folder, exist_ok=True)
    everything = [(0, count)]
    # Before there are trials: a folder that has some and no register is taken for a damaged one.
    RegisterFile(paths.claims, "bench").update(lambda _: Register(count, everything, [], {}, []))
    append_trials(paths, 0, _trial_lines(count, seeds))
    for number in range(_AGENTS):
        with open(paths.journal_of(f"agent-{number}"), "w", encoding="utf-8") as file:
            _write_journal(file, number, count)
    with open(paths.plan, "w", encoding="utf-8") as file:
        json.dump(
            {
                "version": 1,
                "name": "bench",
                "metric": "loss",
                "goal": "minimize",
                "seed_name": "seed",
                "metrics": {},
            },
            file,
        )


def _write_journal(file: TextIO, agent: int, count: int) -> None:
    header = {"e": "agent", "t": 1.7e9, "v": 1, "id": f"agent-{agent}", "host": "node", "slots": 2}
    file.write(json.dumps(header) + "\n")
    for i in range(count):
        if i // _BLOCK % _AGENTS != agent:
            continue
        t = 1.7e9 + i * 0.01
        loss = (i * 7919) % 1_000_003 / 1_000_003
        file.write(
            f'{{"e":"start","t":{t:.3f},"i":{i},"n":1,"s":{i % 2}}}\n'
            f'{{"e":"end","t":{t + 0.008:.3f},"i":{i},"n":1,"cause":"done","code":0,"start":{t:.3f},"dur":0.008,'
            f'"out":123,"rss_mb":12.5,"cpu_s":0.004,"step":10,"m":{{"loss":[{loss:.6f},{loss:.6f},1.5,10]}}}}\n'
        )


def _trial_lines(count: int, seeds: int) -> Iterator[tuple[str, bytes]]:
    for i in range(count):
        settings = {"lr": i // max(seeds, 1) / count, **({"seed": i % seeds} if seeds else {})}
        name = trial_id(settings, "python train.py {args}")
        words = ["python", "train.py", *(f"--{key}={value}" for key, value in settings.items())]
        line = json.dumps({"id": name, "settings": settings, "stages": [["main", words]]})
        yield name, line.encode() + b"\n"


def timed(code: str, *words: str) -> tuple[float, str]:
    """Seconds from the start of a Python process to its end, and what it printed."""
    begin = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], check=True, stdout=subprocess.PIPE, text=True
    )
    return time.perf_counter() - begin, ended.stdout.strip()


def best_of(times: int, code: str, *words: str) -> float:
    return min(timed(code, *words)[0] for _ in range(times))


def report(paths: StudyPaths, count: int) -> None:
    size = sum(entry.stat().st_size for entry in os.scandir(paths.journal))
    started = best_of(5, "import sqlite3")
    read = best_of(3, _READ, paths.journal)
    parsed = best_of(1, _PARSE, paths.journal)
    print(f"{count:,} trials, {size / 1e6:.0f} MB of journals in {_AGENTS} files")
    print(f"floor  python -c 'import sqlite3'   {started:8.3f} s")
    print(f"floor  read the bytes               {read:8.3f} s")
    print(f"floor  parse the lines              {parsed:8.3f} s")
    for name, words in (("status", ["status"]), ("results --best", ["results", "--best"])):
        look = windlass(words[0], paths.folder, *words[1:])
        first, memory_mb = timed_with_memory(look, cwd=paths.folder)
        again = min(timed_with_memory(look, cwd=paths.folder)[0] for _ in range(5))
        report_figure(
            f"first {name}, against parsing the lines", f"{first / parsed:.2f} ×", "linear"
        )
        report_figure(f"first {name}: memory", f"{memory_mb:.0f} MB", "–")
        report_figure(
            f"{name} again", f"{again:.2f} s, {again / started:.0f} × sqlite3", "below 1 s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trials", nargs="?", type=int, default=1_000_000)
    parser.add_argument(
        "--seeds", type=int, default=0, help="repeat each setting so often; the best is by its mean"
    )
    parser.add_argument("--keep", help="make the study here and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as scratch:
        os.makedirs(os.path.join(scratch, "local"))
        os.environ["TMPDIR"] = os.path.join(scratch, "local")  # no index of an earlier bench is met
        paths = StudyPaths(options.keep or os.path.join(scratch, "study"))
        if not os.path.exists(paths.trials):
            make_study(paths, options.trials, options.seeds)
        report(paths, options.trials)


if __name__ == "__main__":
    main()
