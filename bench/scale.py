"""How long a claim takes when many agents share one register, with the delays of shared storage.

    python bench/scale.py                                  # the table of docs/benchmarks.md, about 8 minutes
    python bench/scale.py --agents 1000 --every 20 --delay-ms 3 --seconds 60

N processes are forked from one that has imported everything. Each claims a block of ten trials every so many seconds,
beginning at a random moment of the first interval, and lets go of the ten before. Each of these calls sleeps for the
delay before it is made: os.open, os.read, os.write, os.fsync, os.close, os.link, os.unlink, os.listdir, os.stat. The
folder itself is in memory where there is /dev/shm, so that the delay is what counts. `alone` is the same program with
every agent making its changes by itself, as few agents do: the peer to compare with.

After each row it is checked that every trial was handed out exactly once and that none is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from windlass.agent.claim import Claimer
from windlass.core.claims import combine
from windlass.core.claims import ranges as rs
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.paths import StudyPaths

BLOCK = 10
DELAYED = ("open", "read", "write", "fsync", "close", "link", "unlink", "listdir", "stat")
ENDLESS = 10**9
# agents, seconds between two claims of one agent, milliseconds a call, whether requests are combined
TABLE = (
    (8, 1.0, 3.0, False),
    (8, 1.0, 3.0, True),
    (200, 10.0, 1.0, True),
    (500, 10.0, 1.0, True),
    (500, 10.0, 3.0, True),
    (1000, 20.0, 1.0, True),
    (1000, 20.0, 3.0, False),
    (1000, 20.0, 3.0, True),
    (3000, 20.0, 3.0, True),
)


def delay_calls(delay_s: float) -> None:
    """Have each file-system call of this process take longer."""
    for name in DELAYED:
        setattr(os, name, _delayed(getattr(os, name), delay_s))


def _delayed(call: Any, delay_s: float) -> Any:
    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(delay_s)
        return call(*arguments, **options)

    return slow


def claim_blocks(
    paths: StudyPaths, agent: str, row: tuple[int, float, float, bool], end: float
) -> dict[str, Any]:
    """What one agent does until the end. Returns what it has seen."""
    _, every_s, delay_ms, _ = row
    claimer = Claimer(paths, agent)
    seconds: list[float] = []
    taken: list[rs.Range] = []
    error = ""
    due = time.monotonic() + random.random() * every_s
    delay_calls(delay_ms / 1000)
    try:
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            taken += claimer.take(BLOCK, 0.0, set())
            seconds.append(time.monotonic() - began)
            due = max(due + every_s, time.monotonic())
    except Exception as problem:  # whatever it is, this agent has given up, and the table says so
        error = f"{type(problem).__name__}: {problem}"
    return {
        "agent": agent,
        "seconds": seconds,
        "taken": taken,
        "lost": claimer._desk.lost,
        "error": error,
    }


def start_agents(
    paths: StudyPaths,
    results: Path,
    row: tuple[int, float, float, bool],
    seconds: float,
    pids: set[int],
) -> None:
    """Fork the agents and add them to `pids` one by one, so that the caller can end those that are there."""
    agents, _, _, is_combined = row
    end = time.monotonic() + 2 + seconds
    gc.collect()
    gc.freeze()
    for number in range(agents):
        pid = os.fork()
        if pid:
            pids.add(pid)
            continue
        code = 1
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            if not is_combined:
                combine.FEW = combine._LOSSES = ENDLESS  # type: ignore[misc]
            # Names as long as those of real agents are: they make up most of a state.
            found = claim_blocks(paths, f"20260101-000000-{number:06x}", row, end)
            (results / f"{number}.json").write_text(json.dumps(found))
            code = 0
        finally:
            os._exit(code)


def check(paths: StudyPaths, total: int, found: list[dict[str, Any]]) -> None:
    """Every trial is with exactly one agent, or still open."""
    register = RegisterFile(paths.claims, "check").read()
    given = sorted(tuple(pair) for one in found for pair in one["taken"])
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(given)), (
        "a trial was handed out twice"
    )
    everything = rs.union(rs.normalise(given), register.todo)
    if not any(one["error"] for one in found):
        assert everything == [(0, total)], (
            f"trials are missing: {rs.subtract([(0, total)], everything)}"
        )
        assert rs.count(register.todo) + rs.count(given) == total, (
            "a trial was handed out and is open"
        )
    everything = rs.union(rs.union(register.held_ranges(), register.ended), register.todo)
    assert everything == [(0, total)], "the register has lost a trial"


def end_agents(pids: set[int]) -> None:
    """End the agents of a run that was interrupted: nobody else would. Some may have ended by themselves."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def measure(row: tuple[int, float, float, bool], seconds: float, folder: Path) -> dict[str, Any]:
    """One row of the table."""
    agents, every_s, _, _ = row
    paths = StudyPaths(str(folder / "study"))
    results = folder / "results"
    for path in (*paths.folders(), str(results)):
        os.makedirs(path, exist_ok=True)
    total = int(2 * BLOCK * agents * (seconds / every_s + 2))
    RegisterFile(paths.claims, "bench").update(
        lambda _: Register(total, [(0, total)], [(0, total)], {}, [])
    )
    cpu_s = 0.0
    pids: set[int] = set()
    try:
        start_agents(paths, results, row, seconds, pids)
        while pids:
            pid, _, used = os.wait3(
                0
            )  # whichever is next, so that `pids` has those that are still there
            pids.discard(pid)
            cpu_s += used.ru_utime + used.ru_stime
    finally:
        end_agents(pids)
    found = [json.loads(path.read_text()) for path in results.iterdir()]
    assert len(found) == agents, f"{agents - len(found)} agents left nothing"
    check(paths, total, found)
    times = sorted(one for agent in found for one in agent["seconds"])
    errors = [agent["error"] for agent in found if agent["error"]]
    return {
        "claims": len(times),
        "rate": len(times) / seconds,
        "median": times[len(times) // 2],
        "p99": times[int(len(times) * 0.99)],
        "longest": times[-1],
        "lost": sum(agent["lost"] for agent in found) / len(times),
        "changes": RegisterFile(paths.claims, "bench").newest_number(),
        "cpu": cpu_s / len(times),
        "files": len(os.listdir(paths.claims)),
        "gave_up": len(errors),
        "errors": sorted(set(errors))[:3],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int)
    parser.add_argument(
        "--every", type=float, default=20.0, help="seconds between two claims of one agent"
    )
    parser.add_argument("--delay-ms", type=float, default=3.0, help="of each file-system call")
    parser.add_argument("--alone", action="store_true", help="do not combine requests")
    parser.add_argument("--seconds", type=float, default=45.0, help="for each row")
    words = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = TABLE
    if words.agents:
        rows = ((words.agents, words.every, words.delay_ms, not words.alone),)
    figures = "claims/s | median | p99 | longest | lost races | gave up | CPU | files"
    print(f"| agents | a claim each | delay | changes | {figures} |")
    print("| ---: | ---: | ---: | --- |" + " ---: |" * 8)
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for row in rows:
        folder = Path(tempfile.mkdtemp(prefix="windlass-scale-", dir=where))
        try:
            found = measure(row, words.seconds, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        agents, every_s, delay_ms, is_combined = row
        way = "combined" if is_combined else "alone"
        print(
            f"| {agents:,} | {every_s:g} s | {delay_ms:g} ms | {way}, {found['changes']:,} | {found['rate']:.0f}"
            f" | {found['median'] * 1000:.0f} ms | {found['p99']:.2f} s | {found['longest']:.2f} s"
            f" | {found['lost']:.2f} | {found['gave_up']} | {found['cpu'] * 1000:.0f} ms | {found['files']} |",
            flush=True,
        )
        for error in found["errors"]:
            print(f"  {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
