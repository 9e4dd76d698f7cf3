"""Dispatch: N × /bin/true, two at a time, output captured and journal on, against the C floor; and its peers."""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path

from common import build_floor, report, timed, timed_with_memory, windlass, workplace

PROGRAM = "/bin/true"


def make_study(folder: Path, name: str, trials: int) -> Path:
    """A task file of so many trials."""
    tasks = folder / f"{name}.txt"
    tasks.write_text(f"{PROGRAM}\n" * trials)
    return tasks


def agent_only(folder: Path, trials: int) -> tuple[float, float]:
    """Time and memory of the agent alone, on a folder prepared beforehand."""
    from windlass.bundle.folder import prepare_folder
    from windlass.places.local import LocalPlace
    from windlass.planning import make_plan
    from windlass.search import iterate_trials
    from windlass.spec import Overrides, load_study

    study = load_study(str(make_study(folder, f"agent{trials}", trials)), Overrides())
    plan = make_plan(LocalPlace(), study, {"slots": 2, "folder": str(folder / "agents")})
    prepared = prepare_folder(plan, iterate_trials(study), list, "bench")
    return timed_with_memory([sys.executable, "-I", prepared.paths.agent, prepared.paths.folder])


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    turns = 5
    with workplace() as folder:
        floor = build_floor(folder)
        floors = [timed([floor, str(trials), "2", PROGRAM])]
        whole, agent = [], []
        for turn in range(turns):
            place = folder / str(turn)
            place.mkdir()
            agent_s = agent_only(place, trials)[0]
            floors.append(timed([floor, str(trials), "2", PROGRAM]))
            agent.append((floors[-2] + floors[-1]) / 2 / agent_s)
            tasks = make_study(place, "whole", trials)
            whole_s = timed(
                windlass("run", str(tasks), "--slots", "2", "--quiet", "--folder", str(place / "w"))
            )
            floors.append(timed([floor, str(trials), "2", PROGRAM]))
            whole.append((floors[-2] + floors[-1]) / 2 / whole_s)
        base = statistics.median(floors)
        print(
            f"floor: {trials / base:,.0f} tasks/s (from {trials / max(floors):,.0f} to {trials / min(floors):,.0f})"
        )
        median = f"{statistics.median(agent):.2f}"
        report("agent against the posix_spawn floor, median of 5", median, "0.60, aiming at 0.80")
        report("  least and best of the 5", f"{min(agent):.2f}, {max(agent):.2f}", "–")
        report("whole `windlass run` against the floor", f"{statistics.median(whole):.2f}", "–")
        peers(folder, trials, base)
        _, small_mb = agent_only(folder, 1_000)
        _, large_mb = agent_only(folder, 100_000)
        report(
            "memory of the agent, 1,000 and 100,000 trials",
            f"{small_mb:.0f}, {large_mb:.0f} MB",
            "flat",
        )


def peers(folder: Path, trials: int, base: float) -> None:
    tasks = make_study(folder, "peers", trials)
    commands = {
        "xargs": f"xargs -P2 -n1 -a {tasks} {PROGRAM}",
        "parallel": f"parallel -j2 --joblog {folder}/joblog < {tasks}",
    }
    for name, text in commands.items():
        if shutil.which(name):
            report(
                f"{name}, two at a time, against the floor",
                f"{base / timed(['sh', '-c', text]):.2f}",
                "–",
            )


if __name__ == "__main__":
    main()
