"""The trainings that bench/gpu_packing.py packs: an RL-sized MLP, a small CNN, a small transformer.

    python bench/gpu_workloads.py train --workload mlp --steps 2000 --seed 1     one trial, as a study's command
    python bench/gpu_workloads.py serve --workload mlp --folder F --number 3     steps when the benchmark says so

On a GPU where there is one. Without torch, `mlp` is done in NumPy, only to try the benchmark itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

_BEGAN = time.perf_counter()
HAVE_TORCH = importlib.util.find_spec("torch") is not None
if HAVE_TORCH:
    import torch
    from torch import nn
else:
    import numpy as np
_IMPORT_S = time.perf_counter() - _BEGAN

LOG_EVERY = 20
Step = Callable[[], None]
Loss = Callable[[], float]  # of the last step; waits until the device has done it


def make_torch(workload: str, seed: int) -> tuple[Step, Loss]:
    """A training step on fixed random data, and its loss."""
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = torch.bfloat16 if workload == "transformer" and device.type == "cuda" else torch.float32
    if workload == "mlp":
        layers = [nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)]
        model: nn.Module = nn.Sequential(*layers)
        into, out = (64, 16), (64, 4)
    elif workload == "cnn":
        layers = []
        for before, after in ((3, 32), (32, 64), (64, 128)):
            layers += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 10))
        into, out = (128, 3, 32, 32), (128, 10)
    else:
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6)
        into = out = (16, 256, 512)
    model = model.to(device, kind)
    data, goal = (
        torch.randn(into, device=device, dtype=kind),
        torch.randn(out, device=device, dtype=kind),
    )
    optimiser = torch.optim.Adam(model.parameters(), 1e-4)
    last = [torch.zeros(())]

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(data), goal)
        loss.backward()
        optimiser.step()
        last[0] = loss.detach()

    return step, lambda: float(last[0])


def make_numpy(seed: int) -> tuple[Step, Loss]:
    """A two-layer network, its gradient written out."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(0, 0.2, (16, 256)), rng.normal(0, 0.05, (256, 4))
    data, goal = rng.normal(size=(64, 16)), rng.normal(size=(64, 4))
    last = [0.0]

    def step() -> None:
        hidden = np.maximum(data @ first, 0)
        error = (hidden @ second - goal) / len(data)
        last[0] = float((error**2).sum() * len(data))
        behind = (error @ second.T) * (hidden > 0)
        np.subtract(second, 0.01 * (hidden.T @ error), out=second)
        np.subtract(first, 0.01 * (data.T @ behind), out=first)

    return step, lambda: last[0]


def make(workload: str, seed: int) -> tuple[Step, Loss]:
    return make_torch(workload, seed) if HAVE_TORCH else make_numpy(seed)


def train(workload: str, steps: int, seed: int) -> None:
    """One trial. Prints how it spent its time: only the first line of a fresh process holds the import."""
    import windlass  # always there inside a trial

    began = time.perf_counter()
    step, loss = make(workload, seed)
    first_s = steady = 0.0
    for number in range(1, steps + 1):
        step()
        if number == 1 or number % LOG_EVERY == 0 or number == steps:
            value = loss()
            if number == LOG_EVERY:
                steady = time.perf_counter()
            if number == 1:
                first_s = time.perf_counter() - began
            else:
                windlass.log(step=number, of=steps, loss=value)
    rate = (steps - LOG_EVERY) / (time.perf_counter() - steady) if steps > LOG_EVERY else None
    print(
        json.dumps({"import_s": _IMPORT_S, "first_s": first_s, "rate": rate, "loss": value}),
        flush=True,
    )


def serve(workload: str, folder: Path, number: int) -> None:
    """Make ready, then step through every window in which this process takes part.

    The benchmark writes window-N.json {k, begin, end}, in seconds of the machine's own clock; those with a smaller
    number than k step from begin to end and say how often. An empty file `stop` ends it.
    """
    step, loss = make(workload, number)
    for _ in range(LOG_EVERY):
        step()
    loss()
    write(folder / f"ready-{number}", {})
    window, parent = 0, os.getppid()
    while not (folder / "stop").exists() and os.getppid() == parent:
        try:
            said = json.loads((folder / f"window-{window}.json").read_text())
        except FileNotFoundError:
            time.sleep(0.02)
            continue
        if number < said["k"]:
            write(
                folder / f"done-{window}-{number}",
                step_until(step, loss, said["begin"], said["end"]),
            )
        window += 1


def step_until(step: Step, loss: Loss, begin: float, end: float) -> dict[str, float]:
    """Steps from `begin` to `end`, counted from the first look at the clock after the beginning."""
    while time.monotonic() < begin:
        step()
        loss()
    count, since, now = 0, time.monotonic(), 0.0
    while now < end:
        for _ in range(10):
            step()
        loss()
        count += 10
        now = time.monotonic()
    return {"rate": count / (now - since)}


def write(path: Path, value: dict[str, float]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("train", "serve"))
    parser.add_argument("--workload", choices=("mlp", "cnn", "transformer"), required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--number", type=int, default=0)
    options = parser.parse_args()
    if options.what == "train":
        train(options.workload, options.steps, options.seed)
    else:
        serve(options.workload, options.folder, options.number)


if __name__ == "__main__":
    main()
