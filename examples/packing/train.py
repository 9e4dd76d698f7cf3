"""Learn to tell two interleaved half-moons apart with a small network, and report how often it errs on new points.

With PyTorch it trains on the GPU the trial was given, or on the CPU where there is none; without PyTorch it does the
same in plain Python. What to expect: small steps leave it far from the end after 150 of them, and two hidden units are
too few; the best settings err on 2 points in 100.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from collections.abc import Iterator

import windlass  # always there inside a trial; to start this by hand, install Windlass

try:
    import torch
except ImportError:
    torch = None

POINTS, NOISE, MOMENTUM = 100, 0.15, 0.9
Point = tuple[float, float, float]  # x, y, and which moon: -1 or 1


def make_moons(count: int, rng: random.Random) -> list[Point]:
    """Points on two half circles that reach into each other."""
    points = []
    for number in range(count):
        angle, moon = rng.uniform(0, math.pi), number % 2
        x, y = (
            (1 - math.cos(angle), 0.5 - math.sin(angle))
            if moon
            else (math.cos(angle), math.sin(angle))
        )
        points.append(
            (x - 0.5 + rng.gauss(0, NOISE), y - 0.25 + rng.gauss(0, NOISE), 2.0 * moon - 1)
        )
    return points


def train_plainly(
    train: list[Point], test: list[Point], hidden: int, lr: float, steps: int
) -> Iterator[float]:
    """Gradient descent on the logistic loss, written out. Yields the error on `test` after every step."""
    units = [
        [random.gauss(0, 1), random.gauss(0, 1), 0.0, random.gauss(0, 1) / hidden]
        for _ in range(hidden)
    ]
    speeds = [[0.0] * 4 for _ in units]
    for _ in range(steps):
        slopes = [[0.0] * 4 for _ in units]
        for x, y, moon in train:
            seen = [math.tanh(a * x + b * y + c) for a, b, c, _ in units]
            score = sum(unit[3] * value for unit, value in zip(units, seen, strict=True))
            pull = -moon / (1 + math.exp(min(moon * score, 500.0))) / len(train)
            for unit, slope, value in zip(units, slopes, seen, strict=True):
                back = pull * unit[3] * (1 - value * value)
                slope[0] += back * x
                slope[1] += back * y
                slope[2] += back
                slope[3] += pull * value
        for unit, speed, slope in zip(units, speeds, slopes, strict=True):
            for place in range(4):
                speed[place] = MOMENTUM * speed[place] - lr * slope[place]
                unit[place] += speed[place]
        scores = [sum(d * math.tanh(a * x + b * y + c) for a, b, c, d in units) for x, y, _ in test]
        yield sum(
            score * moon <= 0 for score, (_, _, moon) in zip(scores, test, strict=True)
        ) / len(test)


def train_with_torch(
    train: list[Point], test: list[Point], hidden: int, lr: float, steps: int
) -> Iterator[float]:
    """The same with PyTorch, on a GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    points, new = torch.tensor(train, device=device), torch.tensor(test, device=device)
    network = torch.nn.Sequential(
        torch.nn.Linear(2, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 1)
    ).to(device)
    descent = torch.optim.SGD(network.parameters(), lr=lr, momentum=MOMENTUM)
    for _ in range(steps):
        descent.zero_grad()
        torch.nn.functional.softplus(-points[:, 2] * network(points[:, :2])[:, 0]).mean().backward()
        descent.step()
        with torch.no_grad():
            yield float((new[:, 2] * network(new[:, :2])[:, 0] <= 0).float().mean())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="two moons", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.3, help="step size")
    parser.add_argument("--hidden", type=int, default=8, help="hidden units")
    parser.add_argument("--steps", type=int, default=150, help="steps of gradient descent")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the points and the first weights"
    )
    parser.add_argument(
        "--plain", action="store_true", help="without PyTorch even where it is installed"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    rng = random.Random(arguments.seed)
    train, test = make_moons(POINTS, rng), make_moons(4 * POINTS, rng)
    plain = arguments.plain or torch is None
    random.seed(arguments.seed) if plain else torch.manual_seed(arguments.seed)
    learn = train_plainly if plain else train_with_torch
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    for step, error in enumerate(
        learn(train, test, arguments.hidden, arguments.lr, arguments.steps), 1
    ):
        windlass.log(step=step, error=error)
        if step % 50 == 0 or step == arguments.steps:
            print(f"step {step:4d}  error {error:.3f}  GPU {gpu}")


if __name__ == "__main__":
    main()
