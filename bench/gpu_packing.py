"""Sixty-four short trials on one GPU: one at a time, as many as fit, and as many as Windlass chooses.

    PYTHONPATH=build/deps:src python3 bench/gpu_packing.py --workload mlp --out DIR      on a machine with a GPU
    python bench/gpu_packing.py --report DIR... --docs docs                              what the runs found, as a page

Parts, in this order: `cold` (three trials without warm starts, the GPU's memory polled beside them, and three with;
from which follows how many steps a trial is to have), `measure` (`windlass measure`), `choice`, `alone` and `fit` (the
study itself), `sweep` (every k with and without MPS by the benchmark's own means). What is known stands in
DIR/WORKLOAD.json after every part; with `--parts` the others are taken from there. `--dry` tries the benchmark on a
machine without a GPU, with tiny numbers; `--skip-measure FILE` takes a measurement from elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from common import report, windlass, workplace
from gpu_report import find_checks, read_results, render_result, write_page
from gpu_side_by_side import PROGRAM, MemoryPoll, have_mps, mps, sweep
from windlass.measured import parse_measurement
from windlass.view.curve_svg import render_curve_svg

PARTS = ("cold", "measure", "choice", "alone", "fit", "sweep")
COLD_STEPS = {"mlp": 1500, "cnn": 600, "transformer": 200}
FEW = 3
_GB = 1024


class Bench:
    """One workload on one machine. `found` is what stands in the file."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.workload: str = options.workload
        self.dry: bool = options.dry
        self.trials: int = 6 if options.dry else options.trials
        self.alone_s: float = 4.0 if options.dry else options.alone_s
        self.ks = [1, 2] if options.dry else options.ks
        self.window_s = 0.3 if options.dry else options.window_s
        self.steps: int | None = options.steps
        self.given: Path | None = options.skip_measure
        self.folder = folder
        self.out: Path = options.out
        self.found: dict[str, Any] = {
            "workload": self.workload,
            "when": time.time(),
            "trials": self.trials,
            "is_trial": self.dry,  # of the benchmark itself: no result
            "cores": len(os.sched_getaffinity(0)),
            **ask_torch(),
        }
        self.out.mkdir(parents=True, exist_ok=True)

    def set_steps(self, steps: int) -> None:
        """Of one trial. What was found with others cannot stand beside what will be."""
        if steps != self.found["steps"]:
            for part in ("measure_s", "measured", "learned", "choice", "alone", "fit"):
                self.found.pop(part, None)
        self.found["steps"] = steps

    def keep(self) -> None:
        (self.out / f"{self.workload}.json").write_text(json.dumps(self.found, indent=1) + "\n")

    # -- the study

    def write_study(self, name: str, steps: int, warm: str) -> Path:
        command = [sys.executable, str(PROGRAM), "train", "--workload", self.workload]
        keys: dict[str, Any] = {
            "name": name,
            "command": [*command, "--steps", str(steps), "--seed", "{seed}"],
            "seeds": self.trials,
            "metric": {"name": "loss", "goal": "minimize"},
            "warm": warm,
        }
        if not self.dry:
            keys["needs"] = {"gpus": 1}
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(keys))
        return path

    def run_study(self, study: Path, place: str, *words: str) -> dict[str, Any]:
        """Seconds of the whole `windlass run`, and of its trials from the first start to the last end."""
        root = self.folder / place
        command = windlass(
            "run", str(study), "--folder", str(root), "--on", "local", "--quiet", *words
        )
        began = time.perf_counter()
        self.call(command, (0, 1))  # 1: not all trials are done, which is counted below
        seconds = time.perf_counter() - began
        ends = read_ends(root / study.stem)
        done = [event for event in ends if event["cause"] == "done"]
        if not done:
            raise SystemExit(
                f"no trial of {study.stem} was done: {ends[0]['cause'] if ends else 'none began'}"
            )
        first = min(event["start"] for event in ends)
        makespan_s = max(event["t"] for event in ends) - first
        return {
            "command_s": seconds,
            "makespan_s": makespan_s,
            "done": len(done),
            "attempts": len(ends),
            "trials_per_h": len(done) / makespan_s * 3600,
            "trial_s": sorted(event["dur"] for event in done)[len(done) // 2],
            "spans": [
                [round(event["start"] - first, 2), round(event["dur"], 2), event["cause"]]
                for event in ends
            ],
        }

    def call(self, command: list[str], fine: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode not in fine:
            raise SystemExit(
                f"{' '.join(command[2:5])} ended with {done.returncode}\n{done.stderr[-3000:]}"
            )
        return done.stdout

    # -- the parts

    def cold(self) -> None:
        """Trials without warm starts, then a few with: what is left of the start says how many steps fill a trial."""
        steps = self.steps or (60 if self.dry else COLD_STEPS[self.workload])
        words = ("--sample", "1" if self.steps else str(FEW), "--slots", "1", "--mps", "off")
        with MemoryPoll() as poll:
            took = self.run_study(self.write_study("cold", steps, "off"), "cold", *words)
        self.found |= {"peak_mb": poll.peak_mb, "gpu_memory_mb": poll.total_mb, "steps": steps}
        self.found["cold"] = {**took, "trial_s": took["makespan_s"] / took["done"], "steps": steps}
        if self.steps:
            return
        self.run_study(self.write_study("warm", steps, "auto"), "warm", *words)
        (cold, said_cold), (last, said) = self.read_said("cold")[-1], self.read_said("warm")[-1]
        start_s = last["dur"] - steps / said["rate"]
        cold_start_s = cold["dur"] - steps / said_cold["rate"]
        wanted_s = self.alone_s / self.trials
        work_s = max(wanted_s - start_s, 0.3 * wanted_s)
        self.found["steps"] = max(40 if self.dry else 100, round(said["rate"] * work_s / 20) * 20)
        self.found["warm"] = {"start_s": start_s, "cold_start_s": cold_start_s, **said}

    def read_said(self, study: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """How trials ended and what they said last, in order."""
        ends = sorted(read_ends(self.folder / study / study), key=lambda event: float(event["t"]))
        logs = [self.ask("logs", str(event["i"]), "--study", study, root=study) for event in ends]
        return [
            (event, json.loads(log.strip().splitlines()[-1]))
            for event, log in zip(ends, logs, strict=True)
        ]

    def ask(self, *words: str, root: str) -> str:
        return self.call([*windlass(*words), "--folder", str(self.folder / root)])

    def study(self) -> Path:
        return self.write_study("packed", self.found["steps"], "auto")

    def measure(self) -> None:
        if self.given is not None:
            self.found |= {"measured": json.loads(self.given.read_text()), "is_trial": True}
            return
        began = time.perf_counter()
        self.ask("measure", str(self.study()), "--on", "local", "--json", root="measured")
        self.found["measure_s"] = time.perf_counter() - began
        place = self.folder / "measured/packed"
        self.found["measured"] = json.loads((place / "measured.json").read_text())
        if (place / "warm.json").exists():
            self.found["learned"] = json.loads((place / "warm.json").read_text())

    def sweep(self) -> None:
        choice = self.found.get("measured", {}).get("choice") or {"k": 1}
        ks = sorted({*self.ks, choice["k"]})
        self.found["sweep"] = []
        for mode in ("plain", "mps") if have_mps() else ("plain",):
            context: AbstractContextManager[dict[str, str]] = (
                mps() if mode == "mps" else nullcontext({})
            )
            with context as variables:
                rows = sweep(self.workload, ks, self.window_s, variables)
            self.found["sweep"] += [{"mode": mode, **row} for row in rows]

    def alone(self) -> None:
        self.found["alone"] = self.run_study(self.study(), "alone", "--slots", "1", "--mps", "off")

    def fit(self) -> None:
        """What the memory rule allows: the peak up to the next whole GB, as often as the GPU holds it."""
        slots = self.trials
        if self.found["peak_mb"]:
            budget_mb = (int(self.found["peak_mb"] / _GB) + 1) * _GB
            slots = min(self.trials, self.found["gpu_memory_mb"] // budget_mb)
        share = () if self.dry else ("--gpus", str(1 / slots))
        took = self.run_study(self.study(), "fit", "--slots", str(slots), "--mps", "off", *share)
        self.found["fit"] = {**took, "slots": slots}

    def choice(self) -> None:
        study = self.study()
        place = self.folder / "choice" / study.stem
        place.mkdir(parents=True)
        (place / "measured.json").write_text(json.dumps(self.found["measured"]))
        if "learned" in self.found:
            (place / "warm.json").write_text(json.dumps(self.found["learned"]))
        plan = json.loads(self.ask("plan", str(study), "--on", "local", "--json", root="choice"))
        took = self.run_study(study, "choice")
        planned = {
            "slots": plan["slots"],
            "because": plan["slots_because"],
            "estimate_s": plan.get("estimate_s"),
        }
        self.found["choice"] = {**took, **planned}

    def run(self, parts: list[str]) -> bool:
        """Whether all went well. One part that does not leaves the others their turn: time on a GPU is dear."""
        failed = []
        for part in parts:
            began = time.perf_counter()
            try:
                getattr(self, part)()
            except (SystemExit, KeyError, OSError, ValueError, subprocess.SubprocessError) as error:
                failed.append(part)
                print(
                    f"{part} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True
                )
            self.found.setdefault("took_s", {})[part] = round(time.perf_counter() - began, 1)
            self.keep()
            print(f"{part:<10} {self.found['took_s'][part]:6.1f} s", flush=True)
        return not failed


def read_ends(folder: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for path in (folder / "journal").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [event for event in map(json.loads, lines) if event["e"] == "end"]


def ask_torch() -> dict[str, Any]:
    """Asked in a process of its own: the benchmark itself must not hold the GPU."""
    code = (
        "import json, torch; on = torch.cuda.is_available(); print(json.dumps({'torch': torch.__version__, "
        "'device': torch.cuda.get_device_name() if on else None}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {"torch": None, "device": None}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument("--workload", choices=sorted(COLD_STEPS))
    parser.add_argument("--out", type=Path, default=Path("build/gpu-packing"))
    parser.add_argument("--parts", default=",".join(PARTS), help="only these, with commas")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument(
        "--alone-s", type=float, default=320.0, help="all trials one at a time take about so long"
    )
    parser.add_argument("--steps", type=int, help="of one trial; without calibration then")
    parser.add_argument(
        "--ks", type=lambda text: [int(k) for k in text.split(",")], default=[1, 2, 4, 8, 16, 32]
    )
    parser.add_argument("--window-s", type=float, default=2.5)
    parser.add_argument(
        "--skip-measure", type=Path, metavar="FILE", help="a measured.json, to try the benchmark"
    )
    parser.add_argument(
        "--dry", action="store_true", help="tiny numbers, no GPU: does the benchmark work?"
    )
    parser.add_argument(
        "--report",
        type=Path,
        nargs="+",
        metavar="DIR",
        help="write the page from what was left there",
    )
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where --report writes")
    options = parser.parse_args()
    if not options.report and not options.workload:
        parser.error("--workload or --report is wanted")
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = parse_options()
    if options.report:
        write_page(read_results(options.report), options.docs)
        return
    # Trials are executed elsewhere: what is relative here would be somewhere else there.
    if path := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(one) for one in path.split(os.pathsep)
        )
    options.out = options.out.resolve()
    with workplace() as folder:
        bench = Bench(options, folder)
        if not bench.dry and not bench.found["device"]:
            sys.exit("torch sees no GPU here; --dry tries the benchmark without one")
        earlier = bench.out / f"{bench.workload}.json"
        if "cold" not in options.parts and earlier.exists():
            bench.found = json.loads(earlier.read_text()) | {"when": bench.found["when"]}
            bench.set_steps(options.steps or bench.found["steps"])
        went_well = bench.run(options.parts.split(","))
    for check in find_checks(bench.found):
        report(check.name, check.figure, check.wanted)
    (bench.out / f"{bench.workload}.md").write_text(render_result(bench.found))
    if bench.found.get("measured"):
        measurement = parse_measurement(bench.found["measured"])
        title = f"{bench.workload} on {bench.found['device'] or 'no GPU'}"
        (bench.out / f"{bench.workload}.svg").write_text(render_curve_svg(measurement, title))
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    main()
