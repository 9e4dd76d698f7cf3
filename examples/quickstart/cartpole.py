"""Learn to balance a pole on a cart with REINFORCE: the cart, the policy network and its gradient in NumPy.

The cart is the classic one (Barto, Sutton & Anderson 1983; Gym's CartPole-v1): a push to the left or to the
right every 0.02 s, one point for every step the pole stays up, 500 at most. The answer is known: an untrained
policy earns about 20 points, a good one 500.
"""

from __future__ import annotations

import argparse

import numpy as np

import windlass  # always there inside a trial; to start this by hand, install Windlass

GRAVITY, CART_MASS, POLE_MASS, HALF_POLE_M, FORCE_N, TICK_S = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TRACK_M, FALLEN_RADIANS = 2.4, 12 * np.pi / 180
LONGEST, DISCOUNT = 500, 0.99


def push(carts: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Every cart (position, speed, angle, angular speed) one tick after a push to the right or left."""
    _, speed, angle, spin = carts.T
    mass = CART_MASS + POLE_MASS
    force = np.where(right, FORCE_N, -FORCE_N)
    sine, cosine = np.sin(angle), np.cos(angle)
    drive = (force + POLE_MASS * HALF_POLE_M * spin**2 * sine) / mass
    tilt = (GRAVITY * sine - cosine * drive) / (
        HALF_POLE_M * (4 / 3 - POLE_MASS * cosine**2 / mass)
    )
    thrust = drive - POLE_MASS * HALF_POLE_M * tilt * cosine / mass
    return carts + TICK_S * np.stack([speed, thrust, spin, tilt], axis=1)


class Policy:
    """A network with one hidden layer that says how likely a push to the right is; learns with Adam."""

    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        self.weights = [
            rng.normal(0, 0.5, (4, hidden)),
            np.zeros(hidden),
            np.zeros(hidden),
            np.zeros(1),
        ]
        self.mean = [np.zeros_like(weight) for weight in self.weights]
        self.square = [np.zeros_like(weight) for weight in self.weights]
        self.updates = 0

    def right(self, carts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chance of a push to the right for every cart, and the hidden layer it came from."""
        into, bias, out, last = self.weights
        hidden = np.tanh(carts @ into + bias)
        return 1 / (1 + np.exp(-(hidden @ out + last))), hidden

    def improve(
        self, carts: np.ndarray, pushes: np.ndarray, advantages: np.ndarray, lr: float
    ) -> None:
        """Make pushes with a high advantage likelier: one step along the policy gradient."""
        chance, hidden = self.right(carts)
        at_output = (pushes - chance) * advantages / len(carts)
        at_hidden = np.outer(at_output, self.weights[2]) * (1 - hidden**2)
        gradients = [carts.T @ at_hidden, at_hidden.sum(0), hidden.T @ at_output, at_output.sum()]
        self.updates += 1
        for layer, gradient in enumerate(gradients):
            self.mean[layer] += 0.1 * (gradient - self.mean[layer])
            self.square[layer] += 0.001 * (gradient**2 - self.square[layer])
            mean = self.mean[layer] / (1 - 0.9**self.updates)
            square = self.square[layer] / (1 - 0.999**self.updates)
            self.weights[layer] += lr * mean / (np.sqrt(square) + 1e-8)


def play(policy: Policy, episodes: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Play episodes side by side: states, pushes and which poles were up, each by step and episode."""
    carts = rng.uniform(-0.05, 0.05, (episodes, 4))
    up = np.ones(episodes, dtype=bool)
    states, pushes, alive = [], [], []
    while up.any() and len(states) < LONGEST:
        right = rng.random(episodes) < policy.right(carts)[0]
        states.append(carts)
        pushes.append(right)
        alive.append(up)
        carts = np.where(up[:, None], push(carts, right), carts)
        up = up & (np.abs(carts[:, 0]) < TRACK_M) & (np.abs(carts[:, 2]) < FALLEN_RADIANS)
    return np.array(states), np.array(pushes), np.array(alive)


def advantages_of(alive: np.ndarray) -> np.ndarray:
    """How much longer each pole stayed up than the others did from the same step on, discounted."""
    ahead = np.zeros(alive.shape)
    following = np.zeros(alive.shape[1])
    for step in reversed(range(len(alive))):
        following = alive[step] * (1 + DISCOUNT * following)
        ahead[step] = following
    average = ahead.mean(axis=1, keepdims=True)  # a pole that has fallen counts as 0
    advantages = (ahead - average)[alive]
    return advantages / (advantages.std() + 1e-8)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="REINFORCE on CartPole", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.03, help="learning rate of Adam")
    parser.add_argument("--hidden", type=int, default=16, help="hidden units of the policy")
    parser.add_argument("--steps", type=int, default=60, help="updates of the policy")
    parser.add_argument("--episodes", type=int, default=20, help="episodes played for one update")
    parser.add_argument("--seed", type=int, default=0, help="seed of the policy and the episodes")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    rng = np.random.default_rng(arguments.seed)
    policy = Policy(arguments.hidden, rng)
    for step in range(1, arguments.steps + 1):
        states, pushes, alive = play(policy, arguments.episodes, rng)
        policy.improve(states[alive], pushes[alive], advantages_of(alive), arguments.lr)
        points = float(alive.sum(axis=0).mean())
        windlass.log({"return": points}, step=step)
        print(f"update {step:3d}  return {points:.1f}")


if __name__ == "__main__":
    main()
