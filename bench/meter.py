"""What measuring costs: 8 trials of 4 processes each, looked at every 2 s, as a share of one core."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from common import report
from windlass.agent.gauge.meter import Meter

TRIALS, PROCESSES, GAP_S, LOOKS = 8, 4, 2.0, 15

# Memory that changes all the time is the worst case: then PSS is always due.
PROGRAM = f"""
import os, sys, threading, time
for _ in range({PROCESSES - 1}):
    if os.fork() == 0: break
areas = [bytearray(os.urandom(1)) * (40 << 20)]
print(flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    time.sleep(1.0)
    areas = areas[:1] + [bytearray(b"x") * (2 << 20)] * 1 if len(areas) > 8 else areas + [bytearray(b"x") * (2 << 20)]
"""


def start() -> list[subprocess.Popen[bytes]]:
    trials = []
    for number in range(TRIALS):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            env={**os.environ, "WINDLASS_TRIAL": f"bench{number}"},
        )
        trials.append(process)
    for process in trials:
        assert process.stdout is not None
        for _ in range(PROCESSES):
            process.stdout.readline()
    return trials


def main() -> None:
    trials = start()
    try:
        meter = Meter()
        for number, process in enumerate(trials):
            meter.watch(f"bench{number}", process.pid)
        began_s, cpu_s = time.monotonic(), time.process_time()
        first = meter.sample()
        first_s = time.process_time() - cpu_s
        for _ in range(LOOKS):
            time.sleep(GAP_S)
            samples = meter.sample()
        share = (time.process_time() - cpu_s) / (time.monotonic() - began_s)
        members = sum(sample.processes for sample in samples.values())
        others = sum(name.isdigit() for name in os.listdir("/proc")) - members
        print(
            f"{members} processes measured, {others} others; memory of one trial: {samples['bench0'].memory_mb:.0f} MB"
        )
        print(
            f"memory as {first['bench0'].memory_source} at first, {samples['bench0'].memory_source} at last"
        )
        report("the meter's share of one core", f"{100 * share:.2f} %", "under 1 %")
        report("  the first look, in milliseconds of CPU", f"{1000 * first_s:.1f}", "–")
    finally:
        for process in trials:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            process.wait()
            process.stdout.close()


if __name__ == "__main__":
    main()
