"""Learn the values of a 19-state random walk with TD(λ), and report how far they are from the true ones.

A walker starts in the middle and steps left or right with equal chance; leaving on the left pays -1, on the
right +1. The true values are known: a straight line from -0.9 to 0.9. The answer is known too (Sutton and
Barto, Reinforcement Learning, chapters 7 and 12): an intermediate step size is best, and the longer the
trace, the smaller it is.

As in the book, the error is averaged over states, episodes and many independent learners.
"""

from __future__ import annotations

import argparse

import numpy as np

import windlass  # always there inside a trial; to start this by hand, install Windlass

STATES = 19
LEFT_END, START, RIGHT_END = 0, (STATES + 1) // 2, STATES + 1
TRUE_VALUES = np.linspace(-1.0, 1.0, STATES + 2)[1:-1]


def learn_episode(values: np.ndarray, lr: float, trace: float, rng: np.random.Generator) -> None:
    """Walk one episode with every learner (a row of `values`) and improve its values in place."""
    learners = np.arange(len(values))
    state = np.full(len(values), START)
    traces = np.zeros_like(values)
    walking = np.ones(len(values), dtype=bool)
    while walking.any():
        following = state + rng.choice([-1, 1], size=len(values))
        reward = 1.0 * (following == RIGHT_END) - 1.0 * (following == LEFT_END)
        surprise = reward + values[learners, following] - values[learners, state]
        traces *= trace
        traces[learners, state] = 1.0  # "replacing" traces: stable for every step size up to 1
        values += lr * (surprise * walking)[:, None] * traces  # who has arrived learns nothing more
        walking &= (following != LEFT_END) & (following != RIGHT_END)
        state = np.where(walking, following, state)


def rms_error(values: np.ndarray) -> float:
    """Distance from the true values: root of the mean square over states, then the mean over learners."""
    return float(np.sqrt(np.mean((values[:, 1:-1] - TRUE_VALUES) ** 2, axis=1)).mean())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="TD(λ) on a random walk", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.1, help="step size, 0 to 1")
    parser.add_argument("--trace", type=float, default=0.0, help="decay of the traces, 0 (plain TD) to 1")
    parser.add_argument("--steps", type=int, default=10, help="episodes to learn from")
    parser.add_argument("--learners", type=int, default=100, help="independent learners to average over")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random walks")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    rng = np.random.default_rng(arguments.seed)
    values = np.zeros((arguments.learners, STATES + 2))  # with both ends, whose values stay 0
    errors = []
    for step in range(1, arguments.steps + 1):
        learn_episode(values, arguments.lr, arguments.trace, rng)
        errors.append(rms_error(values))
        mean_error = float(np.mean(errors))
        windlass.log(step=step, error=mean_error, error_now=errors[-1])
        print(f"episode {step:3d}  error now {errors[-1]:.4f}  mean so far {mean_error:.4f}")


if __name__ == "__main__":
    main()
