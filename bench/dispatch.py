"""Dispatch: N × /bin/true, two at a time, output captured and journal on, against the C floor; and its peers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from common import build_floor, report, timed, timed_with_memory, windlass, workplace

PROGRAM = "/bin/true"


def make_study(folder: Path, name: str, trials: int) -> Path:
    """A prepared study's folder: planned by `windlass run` on a first trial that stops it from the start."""
    tasks = folder / f"{name}.txt"
    tasks.write_text(f"{PROGRAM}\n" * trials)
    return tasks


def agent_only(folder: Path, trials: int) -> tuple[float, float]:
    """Time and memory of the agent alone, on a folder prepared beforehand."""
    from windlass.bundle.folder import prepare_folder
    from windlass.flow import make_plan
    from windlass.search import iterate_trials
    from windlass.site.local import fetch_local_site
    from windlass.spec import Overrides, load_study

    study = load_study(str(make_study(folder, f"agent{trials}", trials)), Overrides())
    plan = make_plan(study, {"slots": 2, "folder": str(folder / "agents")}, fetch_local_site())
    prepared = prepare_folder(plan, iterate_trials(study), [], "bench")
    return timed_with_memory([sys.executable, "-I", prepared.paths.agent, prepared.paths.folder])


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with workplace() as folder:
        floor = build_floor(folder)
        floors, whole, agent = [], [], []
        for turn in range(3):
            floors.append(timed([floor, str(trials), "2", PROGRAM]))
            tasks = make_study(folder, f"whole{turn}", trials)
            whole.append(timed(windlass("run", str(tasks), "--slots", "2", "--quiet", "--folder", str(folder / "w"))))
            agent.append(agent_only(folder / str(turn) if (folder / str(turn)).mkdir() is None else folder, trials)[0])
            floors.append(timed([floor, str(trials), "2", PROGRAM]))
        base = sorted(floors)[len(floors) // 2]
        print(f"floor: {trials / base:,.0f} tasks/s (spread {min(floors) / base:.2f} to {max(floors) / base:.2f})")
        report("agent against the posix_spawn floor", f"{base / sorted(agent)[1]:.2f}", "0.60, aiming at 0.80")
        report("whole `windlass run` against the floor", f"{base / sorted(whole)[1]:.2f}", "–")
        peers(folder, trials, base)
        _, small = agent_only(folder, 1_000)
        _, large = agent_only(folder, 100_000)
        report("memory of the agent, 1,000 and 100,000 trials", f"{small:.0f}, {large:.0f} MB", "flat")


def peers(folder: Path, trials: int, base: float) -> None:
    tasks = make_study(folder, "peers", trials)
    words = {
        "xargs -P2": f"xargs -P2 -n1 -I{{}} {PROGRAM} < {tasks}",
        "GNU parallel --joblog": f"parallel -j2 --joblog {folder}/jl < {tasks}",
    }
    for name, text in words.items():
        if shutil.which(name.split()[0]):
            report(f"{name} against the floor", f"{base / timed(['sh', '-c', text]):.2f}", "–")


if __name__ == "__main__":
    main()
    sys.stdout.write(json.dumps({}) if "--json" in sys.argv else "")
