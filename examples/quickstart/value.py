"""Learn the values of a 19-state random walk with TD(λ), and report how far they are from the true ones.

A walker starts in the middle and steps left or right with equal chance; leaving on the left pays -1, on the
right +1. The true values are known: a straight line from -0.9 to 0.9. The answer is known too (Sutton and
Barto, Reinforcement Learning, chapters 7 and 12): an intermediate step size is best, and the longer the
trace, the smaller it is.

As in the book, the error is averaged over states, episodes and many independent learners. Standard library only.
"""

from __future__ import annotations

import argparse
import math
import random
from statistics import fmean

import windlass  # always there inside a trial; to start this by hand, install Windlass

STATES = 19
LEFT_END, START, RIGHT_END = 0, (STATES + 1) // 2, STATES + 1
TRUE_VALUES = [state / START - 1.0 for state in range(1, STATES + 1)]
FAINT = 1e-4  # a trace below this changes nothing that could be seen


def learn_episode(values: list[float], lr: float, trace: float, rng: random.Random) -> None:
    """Walk one episode and improve the learner's values in place."""
    state = START
    traces: dict[int, float] = {}
    while state not in (LEFT_END, RIGHT_END):
        following = state + rng.choice((-1, 1))
        reward = 1.0 * (following == RIGHT_END) - 1.0 * (following == LEFT_END)
        surprise = reward + values[following] - values[state]
        traces = {
            visited: trace * strength
            for visited, strength in traces.items()
            if trace * strength > FAINT
        }
        traces[state] = 1.0  # "replacing" traces: stable for every step size up to 1
        for visited, strength in traces.items():
            values[visited] += lr * surprise * strength
        state = following


def rms_error(values: list[float]) -> float:
    """Distance from the true values: root of the mean square over states."""
    return math.sqrt(
        fmean((values[state] - true) ** 2 for state, true in enumerate(TRUE_VALUES, 1))
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="TD(λ) on a random walk", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.1, help="step size, 0 to 1")
    parser.add_argument(
        "--trace", type=float, default=0.0, help="decay of the traces, 0 (plain TD) to 1"
    )
    parser.add_argument("--steps", type=int, default=10, help="episodes to learn from")
    parser.add_argument(
        "--learners", type=int, default=25, help="independent learners to average over"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random walks")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    rng = random.Random(arguments.seed)
    learners = [
        [0.0] * (STATES + 2) for _ in range(arguments.learners)
    ]  # with both ends, whose values stay 0
    errors = []
    for step in range(1, arguments.steps + 1):
        for values in learners:
            learn_episode(values, arguments.lr, arguments.trace, rng)
        errors.append(fmean(map(rms_error, learners)))
        mean_error = fmean(errors)
        windlass.log(step=step, error=mean_error, error_now=errors[-1])
        print(f"episode {step:3d}  error now {errors[-1]:.4f}  mean so far {mean_error:.4f}")


if __name__ == "__main__":
    main()
