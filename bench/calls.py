"""How often agents call the file system of the study's folder: idle ones, and busy ones with a trial that takes long.

    python bench/calls.py [--seconds 120] [--idle 1] [--busy 1] [--settle 60]

Real agents, each under strace in a process-number namespace and with a host name of its own where that is allowed, as
on nodes of a cluster. Counted is every system call that names a path in the study's folder or works on a descriptor
opened there, but for reading the agent's own program. The first `--settle` seconds are printed apart: an agent that has
just become idle looks more often.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from common import workplace

_CALL = re.compile(r"^(?:\d+ +)?(\d+\.\d+) (?:<\.\.\. )?(\w+)")
_UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
_AGENT = 'hostname "$1" 2>/dev/null; shift; exec "$@"'


def make_study(folder: Path, trials: int, trial_s: float) -> tuple[str, str]:
    """A prepared study of trials that sleep. Returns the agent's program and the study's folder."""
    from windlass.bundle.folder import prepare_folder
    from windlass.places.local import LocalPlace
    from windlass.planning import make_plan
    from windlass.search import iterate_trials
    from windlass.spec import Overrides, load_study

    tasks = folder / "calls.txt"
    tasks.write_text("".join(f"sleep {trial_s + number / 1000}\n" for number in range(trials)))
    study = load_study(str(tasks), Overrides())
    plan = make_plan(LocalPlace(), study, {"slots": 1, "folder": str(folder / "shared")})
    paths = prepare_folder(plan, iterate_trials(study), list, "bench").paths
    return paths.agent, paths.folder


def count_calls(log: Path, folder: str, since: float, until: float) -> Counter[str]:
    """Calls on `folder` between two moments, by name, from the log of strace."""
    found: Counter[str] = Counter()
    with open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = _CALL.match(line)
            if (
                match
                and folder in line
                and "/agent.pyz" not in line
                and since <= float(match.group(1)) < until
                and "resumed>" not in line
            ):
                found[match.group(2)] += 1
    return found


class Agents:
    """Agents under strace, each as on a node of its own where this machine allows that."""

    def __init__(self, folder: Path, program: str, study: str) -> None:
        self._folder, self._program, self._study = folder, program, study
        self._processes: list[subprocess.Popen[bytes]] = []
        allowed = (
            shutil.which("unshare")
            and not subprocess.run([*_UNSHARE, "true"], check=False).returncode
        )
        self._apart = _UNSHARE if allowed else []
        if not self._apart:
            print("agents share one machine: namespaces are not allowed here", file=sys.stderr)

    def start(self, name: str) -> Path:
        log = self._folder / f"{name}.strace"
        trace = [
            "strace",
            "-f",
            "-y",
            "-ttt",
            "-qq",
            "-s",
            "256",
            "-e",
            "trace=%file,%desc",
            "-o",
            str(log),
        ]
        agent = [sys.executable, "-I", self._program, self._study, "--slots", "1", "--linger"]
        words = [
            *self._apart,
            "sh",
            "-c",
            _AGENT,
            "agent",
            name if self._apart else "",
            *trace,
            *agent,
        ]
        self._processes.append(subprocess.Popen(words, cwd=self._folder, stdin=subprocess.DEVNULL))
        return log

    def stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()


def report(name: str, calls: list[Counter[str]], seconds: float, as_json: bool) -> None:
    total: Counter[str] = sum(calls, Counter())
    if as_json:
        print(
            json.dumps(
                {"agents": name, "number": len(calls), "seconds": seconds, "calls": total.total()}
            )
        )
        return
    rate = total.total() / seconds / max(len(calls), 1)
    parts = ", ".join(f"{call} {count}" for call, count in total.most_common(8))
    print(
        f"{name}: {rate:.2f} calls a second each, over {seconds:.0f} s ({parts or 'none'})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="how long calls are counted")
    parser.add_argument(
        "--settle", type=float, default=60.0, help="how long before that agents have been there"
    )
    parser.add_argument("--idle", type=int, default=1)
    parser.add_argument("--busy", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    if not shutil.which("strace"):
        raise SystemExit("strace is missing: install it (Debian: apt-get install strace)")
    with workplace() as folder:
        program, study = make_study(folder, options.busy, 10_000.0)
        agents = Agents(folder, program, study)
        try:
            busy = [agents.start(f"busy{number}") for number in range(options.busy)]
            while (
                sum(b'"e":"start"' in path.read_bytes() for path in Path(study).glob("journal/*"))
                < options.busy
            ):
                time.sleep(0.2)
            idle = [agents.start(f"idle{number}") for number in range(options.idle)]
            began = time.time()
            time.sleep(options.settle)
            settled = time.time()
            time.sleep(options.seconds)
            ended = time.time()
        finally:
            agents.stop()
        for kind, logs in (("idle", idle), ("busy", busy)):
            at_first = [count_calls(log, study, began, settled) for log in logs]
            if options.settle:
                report(f"{kind}, from its start", at_first, settled - began, options.json)
            later = [count_calls(log, study, settled, ended) for log in logs]
            report(
                f"{kind}, afterwards" if options.settle else kind,
                later,
                ended - settled,
                options.json,
            )


if __name__ == "__main__":
    main()
