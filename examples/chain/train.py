"""Learn to tell two spirals apart, for longer than one job lasts: it saves what it has and goes on where it was.

What makes it fit for a chain of jobs is in `main`: it saves under another name first, so that a checkpoint is whole or
not there; it saves the state of its random numbers too, so that an interrupted training ends exactly as one in a single
piece; and when it is told to stop, it saves and exits with 42, which means: give me another turn.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from typing import Any

import windlass  # always there inside a trial; to start this by hand, install Windlass

POINTS, TURNS, BATCH, MOMENTUM, ANOTHER_TURN = 200, 3.0, 16, 0.9, 42
Point = tuple[float, float, float]  # x, y, and which spiral: -1 or 1


def make_spirals() -> list[Point]:
    points = []
    for number in range(POINTS):
        side = 2.0 * (number % 2) - 1
        way = math.sqrt((number + 1) / POINTS)
        angle = TURNS * 2 * math.pi * way
        points.append((side * way * math.cos(angle), side * way * math.sin(angle), side))
    return points


def new_state(seed: int, hidden: int) -> dict[str, Any]:
    rng = random.Random(seed)
    units = [
        [rng.gauss(0, 4), rng.gauss(0, 4), rng.gauss(0, 2), rng.gauss(0, 0.1)]
        for _ in range(hidden)
    ]
    return {
        "step": 0,
        "units": units,
        "speeds": [[0.0] * 4 for _ in units],
        "random": rng.getstate(),
    }


def learn(state: dict[str, Any], points: list[Point], lr: float, steps: int) -> None:
    """So many steps of gradient descent on the logistic loss, each on a few points."""
    rng = random.Random()
    version, numbers, gauss = state["random"]
    rng.setstate((version, tuple(numbers), gauss))
    units, speeds = state["units"], state["speeds"]
    for _ in range(steps):
        slopes = [[0.0] * 4 for _ in units]
        for x, y, side in (points[int(rng.random() * POINTS)] for _ in range(BATCH)):
            seen = [math.tanh(a * x + b * y + c) for a, b, c, _ in units]
            score = sum(unit[3] * value for unit, value in zip(units, seen, strict=True))
            pull = -side / (1 + math.exp(min(side * score, 500.0))) / BATCH
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
    state["step"] += steps
    state["random"] = rng.getstate()


def error_of(state: dict[str, Any], points: list[Point]) -> float:
    scores = [
        sum(d * math.tanh(a * x + b * y + c) for a, b, c, d in state["units"]) for x, y, _ in points
    ]
    return sum(score * side <= 0 for score, (_, _, side) in zip(scores, points, strict=True)) / len(
        points
    )


def save(state: dict[str, Any], folder: str) -> None:
    """Whole or not at all: the name appears when the content is on the disk."""
    path = os.path.join(folder, f"step-{state['step']:08d}.json")
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="two spirals", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.03, help="step size")
    parser.add_argument("--hidden", type=int, default=16, help="hidden units")
    parser.add_argument(
        "--steps", type=int, default=60_000, help="steps of gradient descent in all"
    )
    parser.add_argument("--every", type=int, default=500, help="steps between two reports")
    parser.add_argument(
        "--save-every", type=int, default=2_000, help="steps between two checkpoints"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first weights and of the order of points"
    )
    parser.add_argument("--save-to", metavar="FOLDER", help="where checkpoints go")
    parser.add_argument("--load", metavar="FILE", help="the checkpoint to go on from")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds to wait after each report"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    points = make_spirals()
    state = new_state(arguments.seed, arguments.hidden)
    if arguments.load:
        with open(arguments.load, encoding="utf-8") as file:
            state = json.load(file)
        print(f"going on from step {state['step']}")
    while state["step"] < arguments.steps:
        learn(state, points, arguments.lr, min(arguments.every, arguments.steps - state["step"]))
        error = error_of(state, points)
        windlass.log(step=state["step"], error=error)
        done = state["step"] >= arguments.steps
        if state["step"] % (10 * arguments.every) == 0 or done:
            print(f"step {state['step']:6d}  error {error:.3f}")
        stop = windlass.should_stop() and not done
        if arguments.save_to and (done or stop or state["step"] % arguments.save_every == 0):
            save(state, arguments.save_to)
        if stop:
            print(f"told to stop at step {state['step']}")
            sys.exit(ANOTHER_TURN)
        time.sleep(arguments.pause)


if __name__ == "__main__":
    main()
