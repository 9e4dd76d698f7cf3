"""How a large finished study is looked at: many agents' journals, trials with curves, output and kept files.

    python bench/look.py [AGENTS] [TRIALS_EACH] [--keep FOLDER]

Every look is a process of its own. `first` is without an index on local disk, `again` with it. Figures are processor
time, against floors measured in the same run: a Python process that reads the journals and calls json.loads() for each
line, and one that imports the command line. `cat` of the journals is shown as well; with the files in memory no parser
comes near it. Then the same looks are timed with each call on the study's folder delayed by 1 ms, as on shared storage,
against `cat` with the same delay; there the calls are counted as well.

    python bench/look.py --linear [AGENTS] [TRIALS_EACH]

measures first looks at a tenth, three tenths and all of so many journals. `linear` is the time for each trial at the
largest, without the start of Python, divided by that at the smallest. With `--failed-every 0` no trial has failed, and
`run` of the finished study is measured too: with failures it would execute them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common import report, windlass
from large_study import FAILED_EVERY, make_large_study

_DELAY_US = 1000
_AGAIN = 3
# From a small parent, so that the figures are those of the command alone: exit status, wall and processor seconds.
_MEASURE = """
import json, os, sys, time
began = time.perf_counter()
out = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
environment = {**os.environ, **json.loads(sys.argv[1])}
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], environment, file_actions=out)
_, status, usage = os.wait4(pid, 0)
print(json.dumps([status, time.perf_counter() - began, usage.ru_utime + usage.ru_stime]))
"""


_PARSE = """
import json, sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        for line in file:
            json.loads(line)
"""


def measure(
    words: Sequence[str], cwd: Path, env: dict[str, str] | None = None
) -> tuple[float, float]:
    """Wall time and processor time of a command that must succeed, in seconds."""
    python = [sys.executable, "-S", "-E", "-c", _MEASURE, json.dumps(env or {})]
    done = subprocess.run([*python, *words], cwd=cwd, check=True, stdout=subprocess.PIPE)
    status, wall_s, cpu_s = json.loads(done.stdout)
    if status:
        raise SystemExit(f"{words} ended with {status}")
    return wall_s, cpu_s


class Looks:
    """The verbs, each in a process of its own, with an index that can be thrown away."""

    def __init__(self, project: Path, folder: Path, trials: int, with_run: bool = False) -> None:
        self._project = project
        self._local = project.parent / "local"
        middle = str(trials // 2)
        study = ["--study", folder.name]
        self.verbs = {
            "status": ["status", folder.name],
            "results --best": ["results", folder.name, "--best"],
            "results -n 20": ["results", folder.name, "-n", "20"],
            "results": ["results", folder.name],
            "results, as CSV": ["results", folder.name, "--format", "csv"],
            "logs of one trial": ["logs", middle, *study],
            "logs --failed": ["logs", "--failed", *study],
            "plan": ["plan", "study.yaml", "--on", "local"],
        }
        if with_run:
            self.verbs["run"] = ["run", "study.yaml", "--on", "local"]

    def forget(self) -> None:
        shutil.rmtree(self._local, ignore_errors=True)
        self._local.mkdir()

    def take(self, words: Sequence[str], env: dict[str, str] | None = None) -> tuple[float, float]:
        return measure(windlass(*words), self._project, {"TMPDIR": str(self._local), **(env or {})})


def measure_parsing(journals: list[str], project: Path) -> float:
    """Processor time of a Python process that reads the journals and does nothing with them, in seconds."""
    return min(
        measure([sys.executable, "-S", "-E", "-c", _PARSE, *journals], project)[1]
        for _ in range(_AGAIN)
    )


def measure_start(project: Path) -> float:
    """Processor time until the command line is there, in seconds."""
    start = [sys.executable, "-c", "import windlass.cli, windlass.cli.status, sqlite3"]
    return min(measure(start, project)[1] for _ in range(_AGAIN))


def report_linearity(scratch: Path, options: argparse.Namespace) -> None:
    """First looks at three sizes, each the shorter of two."""
    sizes = [max(1, options.agents * part // 10) for part in (1, 3, 10)]
    found: dict[str, list[float]] = {}
    floors: list[float] = []
    for agents in sizes:
        place = scratch / str(agents)
        looks, journals, _ = make_study(place, agents, options.trials_each, options.failed_every)
        start_s = measure_start(place / "project")
        floors.append(measure_parsing(journals, place / "project"))
        for name, words in looks.verbs.items():
            times = []
            for _ in range(2):
                looks.forget()
                times.append(looks.take(words)[1])
            found.setdefault(name, []).append(min(times) - start_s)
    trials = [agents * options.trials_each for agents in sizes]
    print(
        "processor time of the first look, without the start of Python, for "
        + ", ".join(f"{n:,}" for n in trials)
    )
    for name, times in found.items():
        each = [f"{1e6 * time_s / count:.0f}" for time_s, count in zip(times, trials, strict=True)]
        linear = times[-1] / trials[-1] / (times[0] / trials[0])
        text = f"{', '.join(each)} µs a trial, linear {linear:.2f}, {times[-1] / floors[-1]:.1f} × parsing"
        report(name, text, "0.8 to 1.2, below 5 ×")


def report_processor_time(looks: Looks, journals: list[str], project: Path) -> None:
    read_s = min(measure(["cat", *journals], project)[1] for _ in range(_AGAIN))
    parse_s = measure_parsing(journals, project)
    start_s = measure_start(project)
    print(f"floor  cat of the journals                  {read_s:8.3f} s")
    print(f"floor  Python, json.loads() of each line    {parse_s:8.3f} s")
    print(f"floor  Python, importing the command line   {start_s:8.3f} s")
    for name, words in looks.verbs.items():
        looks.forget()
        first_s = looks.take(words)[1]
        again_s = min(looks.take(words)[1] for _ in range(_AGAIN))
        report(
            f"{name}: first look",
            f"{first_s:.2f} s, {first_s / parse_s:.1f} × parsing",
            "below 5 ×",
        )
        report(f"{name}: again", f"{again_s:.2f} s, {again_s / start_s:.1f} × start", "below 1 s")


def report_delayed(looks: Looks, journals: list[str], folder: Path, project: Path) -> None:
    library = project.parent / "slow.so"
    source = Path(__file__).with_name("slow.c")
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    counts = project.parent / "counts"
    slow = {"SLOW_FOLDER": str(folder), "SLOW_US": str(_DELAY_US), "SLOW_COUNTS": str(counts)}
    slow["LD_PRELOAD"] = str(library)

    def calls() -> int:
        lines = counts.read_text().splitlines()
        counts.unlink()
        return sum(int(word) for line in lines for word in line.split())

    read_s = measure(["cat", *journals], project, slow)[0]
    print(
        f"floor  cat of the journals, {_DELAY_US / 1000:.0f} ms a call   {read_s:8.2f} s, {calls()} calls"
    )
    for name in ("status", "results --best", "logs of one trial", "logs --failed", "plan"):
        words = looks.verbs[name]
        looks.forget()
        first_s, first_calls = looks.take(words, slow)[0], calls()
        again_s, again_calls = looks.take(words, slow)[0], calls()
        report(
            f"{name}, delayed: first look",
            f"{first_s / read_s:.2f} × cat, {first_calls} calls",
            "below 5 ×",
        )
        report(f"{name}, delayed: again", f"{again_s:.2f} s, {again_calls} calls", "below 1 s")


def make_study(
    place: Path, agents: int, trials_each: int, failed_every: int
) -> tuple[Looks, list[str], Path]:
    """A large study below a folder, unless it is there already: how it is looked at, its journals, its folder."""
    project = place / "project"
    if not project.exists():
        project.mkdir(parents=True)
        os.chdir(project)
        make_large_study(project, agents, trials_each, failed_every)
    folder = project / ".windlass" / "large"
    journals = sorted(str(path) for path in (folder / "journal").glob("*.jsonl"))
    trials = agents * trials_each
    size = sum(os.path.getsize(path) for path in journals)
    print(f"{trials:,} trials in {len(journals)} journals of {size / 1e6:.0f} MB", flush=True)
    return Looks(project, folder, trials, with_run=not failed_every), journals, folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("agents", nargs="?", type=int, default=1000)
    parser.add_argument("trials_each", nargs="?", type=int, default=100)
    parser.add_argument("--keep", help="make the study in this folder and leave it")
    parser.add_argument("--linear", action="store_true", help="first looks at three sizes")
    parser.add_argument(
        "--failed-every", type=int, default=FAILED_EVERY, help="one trial in so many; 0: none"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as scratch:
        place = Path(options.keep or scratch).absolute()
        if options.linear:
            report_linearity(place, options)
            return
        looks, journals, folder = make_study(
            place, options.agents, options.trials_each, options.failed_every
        )
        report_processor_time(looks, journals, place / "project")
        report_delayed(looks, journals, folder, place / "project")


if __name__ == "__main__":
    main()
