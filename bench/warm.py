"""Fifty trials of a script that imports torch and takes three optimiser steps: fresh interpreters against warm starts.

Two trials run at a time in both. The warm side begins with nothing: its time holds the server's start, the first trial
and learning what it imports. Usage: python bench/warm.py [trials]
"""

from __future__ import annotations

import importlib.util
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
sys.path.insert(0, str(SOURCE))

from windlass.agent.warm import Ended, Gone, Refused, Started, WarmServer, python_command  # noqa: E402

IN_FLIGHT = 2
GOAL = 20
SCRIPT = """\
import sys
import torch

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(8, 1)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    optimiser.zero_grad()
    loss = (model(torch.randn(16, 8)) ** 2).mean()
    loss.backward()
    optimiser.step()
print(loss.item())
"""


def run_cold(script: str, trials: int, env: dict[str, str]) -> tuple[float, list[bytes]]:
    """Seconds and outputs, with a fresh interpreter a trial."""
    start = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    outputs = []
    for seed in range(trials):
        if len(running) == IN_FLIGHT:
            outputs.append(running.pop(0).communicate()[0])
        running.append(subprocess.Popen([sys.executable, script, str(seed)], env=env, stdout=subprocess.PIPE))
    outputs += [process.communicate()[0] for process in running]
    return time.monotonic() - start, outputs


def run_warm(script: str, trials: int, env: dict[str, str], folder: str) -> tuple[float, list[bytes]]:
    """Seconds and outputs, with ``warm: auto``."""
    start = time.monotonic()
    first = python_command([sys.executable, script, "0"], env, folder)
    server = WarmServer(first, env, [], True, str(SOURCE), os.path.join(folder, "warm.json"))
    server.start()
    poll = select.poll()
    poll.register(server, select.POLLIN)
    paths = [os.path.join(folder, f"{number}.out") for number in range(trials)]
    asked = ended = 0
    while ended < trials:
        while asked < trials and asked - ended < IN_FLIGHT:
            command = python_command([sys.executable, script, str(asked)], env, folder)
            with open(paths[asked], "wb") as file:
                server.spawn(asked, command, env, file.fileno(), 2)
            asked += 1
        poll.poll()
        for event in server.read():
            if isinstance(event, (Gone, Refused)):
                sys.exit(f"the warm server gave up: {event.reason}")
            if isinstance(event, Started) and event.cold_because:
                sys.exit(f"a trial started cold: {event.cold_because}")
            if isinstance(event, Ended):
                if event.status != 0:
                    sys.exit(f"trial {event.token} ended with status {event.status}")
                ended += 1
    duration_s = time.monotonic() - start
    server.close()
    return duration_s, [Path(path).read_bytes() for path in paths]


def main() -> int:
    if importlib.util.find_spec("torch") is None:
        sys.exit("bench/warm.py needs torch: pip install torch")
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "train.py")
        Path(script).write_text(SCRIPT)
        subprocess.run(
            [sys.executable, script, "0"], env=env, stdout=subprocess.DEVNULL, check=True
        )  # fill the page cache
        warm_s, warm_outputs = run_warm(script, trials, env, folder)
        cold_s, cold_outputs = run_cold(script, trials, env)
    if warm_outputs != cold_outputs:
        sys.exit("warm and cold trials printed different things")
    ratio = cold_s / warm_s
    print(f"{trials} torch trials, {IN_FLIGHT} at a time: cold {cold_s:.2f} s, warm {warm_s:.2f} s")
    print(f"ratio {ratio:.1f} (goal {GOAL})")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
