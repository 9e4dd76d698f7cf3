"""Learn to balance poles with PPO or A2C: carts, network and learning in PyTorch, on a GPU where there is one.

Deep reinforcement learning often looks like this: a small network, many small steps, a GPU that waits most of the time.
One trial leaves room for others. All memory is taken before the first step and none afterwards, so the peak is known
after a moment. What to expect: an untrained policy keeps a pole up for about 20 ticks, 500 is perfect. What
decides is `--gamma 0.99`: PPO then balances with any step of 0.001 or more, A2C with 0.001, while 0.01 ruins it.
"""

from __future__ import annotations

import argparse
import math

import torch

import windlass  # always there inside a trial; to start this by hand, install Windlass

GRAVITY, CART_MASS, POLE_MASS, HALF_POLE_M, FORCE_N, TICK_S = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TRACK_M, FALLEN_RADIANS, LONGEST = 2.4, 12 * math.pi / 180, 500
TRACE, CLIP, ENTROPY, REPORT_EVERY = 0.95, 0.2, 0.01, 256
# Ticks between two updates, how often what was seen is learned from, in how many parts.
SCHEDULES = {"a2c": (8, 1, 1), "ppo": (32, 4, 4)}


class Carts:
    """Many carts with a pole each (Gym's CartPole-v1), moved together. A pole that falls is put up again."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.state = torch.empty(count, 4, device=device).uniform_(-0.05, 0.05)
        self._age = torch.zeros(count, device=device)
        self._ticks = torch.zeros(
            (), device=device
        )  # of all that have ended since `mean_length` was asked
        self._ended = torch.zeros((), device=device)

    def push(self, right: torch.Tensor) -> torch.Tensor:
        """One tick with a push to the right (1) or left (0); gives 1 for every cart whose episode is over."""
        _, speed, angle, spin = self.state.unbind(1)
        mass = CART_MASS + POLE_MASS
        force = FORCE_N * (2.0 * right - 1.0)
        sine, cosine = angle.sin(), angle.cos()
        drive = (force + POLE_MASS * HALF_POLE_M * spin**2 * sine) / mass
        tilt = (GRAVITY * sine - cosine * drive) / (
            HALF_POLE_M * (4 / 3 - POLE_MASS * cosine**2 / mass)
        )
        thrust = drive - POLE_MASS * HALF_POLE_M * tilt * cosine / mass
        moved = self.state + TICK_S * torch.stack([speed, thrust, spin, tilt], dim=1)
        self._age += 1
        lost = (
            (moved[:, 0].abs() > TRACK_M)
            | (moved[:, 2].abs() > FALLEN_RADIANS)
            | (self._age >= LONGEST)
        )
        over = lost.float()
        self._ticks += (self._age * over).sum()
        self._ended += over.sum()
        self._age *= 1 - over
        self.state = torch.where(
            lost[:, None], torch.empty_like(moved).uniform_(-0.05, 0.05), moved
        )
        return over

    def mean_length(self) -> float:
        """Of the episodes that ended since the last time; of those under way where none did."""
        mean = torch.where(
            self._ended > 0, self._ticks / self._ended.clamp(min=1), self._age.mean()
        )
        self._ticks.zero_()
        self._ended.zero_()
        return float(mean)


class Agent(torch.nn.Module):
    """A network that says how good each push is, and how long the pole will stay up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        body = [
            torch.nn.Linear(4, width),
            torch.nn.Tanh(),
            torch.nn.Linear(width, width),
            torch.nn.Tanh(),
        ]
        self.body = torch.nn.Sequential(*body)
        self.policy, self.value = torch.nn.Linear(width, 2), torch.nn.Linear(width, 1)
        torch.nn.init.orthogonal_(self.policy.weight, 0.01)
        self.register_buffer("scale", torch.tensor([1 / TRACK_M, 0.5, 1 / FALLEN_RADIANS, 0.5]))

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.body(state * self.scale)
        return self.policy(seen).log_softmax(-1), self.value(seen).squeeze(-1)


class Rollout:
    """What was seen since the last update, in tensors that are made once: nothing grows while it learns."""

    def __init__(self, ticks: int, carts: int, device: torch.device) -> None:
        self.states = torch.zeros(ticks, carts, 4, device=device)
        self.pushes = torch.zeros(ticks, carts, dtype=torch.long, device=device)
        self.chances, self.values, self.over, self.advantages = torch.zeros(
            4, ticks, carts, device=device
        ).unbind(0)

    @torch.no_grad()
    def fill(self, agent: Agent, carts: Carts, gamma: float) -> None:
        """Play, then say how much better each push was than expected (generalised advantages)."""
        for tick in range(len(self.states)):
            chances, self.values[tick] = agent(carts.state)
            pushes = torch.multinomial(chances.exp(), 1)
            self.states[tick], self.pushes[tick] = carts.state, pushes.squeeze(1)
            self.chances[tick] = chances.gather(1, pushes).squeeze(1)
            self.over[tick] = carts.push(self.pushes[tick].float())
        following, ahead = agent(carts.state)[1], torch.zeros_like(self.values[0])
        for tick in reversed(range(len(self.states))):
            goes_on = 1 - self.over[tick]
            # One point a tick, in a unit in which a pole that never falls is worth 1 whatever gamma is.
            surprise = (1 - gamma) + gamma * following * goes_on - self.values[tick]
            ahead = surprise + gamma * TRACE * ahead * goes_on
            self.advantages[tick], following = ahead, self.values[tick]


def improve(
    agent: Agent, seen: Rollout, optimiser: torch.optim.Optimizer, epochs: int, parts: int
) -> None:
    """PPO's clipped objective; on the first pass it is A2C's."""
    states, pushes, old = seen.states.flatten(0, 1), seen.pushes.flatten(), seen.chances.flatten()
    advantages, goals = seen.advantages.flatten(), (seen.advantages + seen.values).flatten()
    for _ in range(epochs):
        order = torch.randperm(len(states), device=states.device)
        for part in order.chunk(parts):
            chances, values = agent(states[part])
            better = advantages[part]
            better = (better - better.mean()) / (better.std() + 1e-8)
            ratio = (chances.gather(1, pushes[part, None]).squeeze(1) - old[part]).exp()
            gain = torch.minimum(ratio * better, ratio.clamp(1 - CLIP, 1 + CLIP) * better).mean()
            spread = -(chances.exp() * chances).sum(1).mean()
            loss = torch.nn.functional.mse_loss(values, goals[part]) - gain - ENTROPY * spread
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimiser.step()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="PPO and A2C on CartPole",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--algo", choices=sorted(SCHEDULES), default="ppo", help="how it learns")
    parser.add_argument("--lr", type=float, default=0.003, help="learning rate of Adam")
    parser.add_argument(
        "--gamma", type=float, default=0.99, help="how much what comes later counts"
    )
    parser.add_argument("--width", type=int, default=64, help="units of each hidden layer")
    parser.add_argument("--carts", type=int, default=64, help="carts that are pushed together")
    parser.add_argument("--steps", type=int, default=4096, help="ticks that every cart is pushed")
    parser.add_argument("--seed", type=int, default=0, help="seed of carts, network and pushes")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    torch.manual_seed(options.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ticks, epochs, parts = SCHEDULES[options.algo]
    ticks = min(ticks, options.steps)
    carts, agent = Carts(options.carts, device), Agent(options.width).to(device)
    seen = Rollout(ticks, options.carts, device)
    optimiser = torch.optim.Adam(agent.parameters(), lr=options.lr, eps=1e-5)
    for step in range(ticks, options.steps + 1, ticks):
        seen.fill(agent, carts, options.gamma)
        improve(agent, seen, optimiser, epochs, parts)
        if step % REPORT_EVERY == 0 or step + ticks > options.steps:
            length = carts.mean_length()
            windlass.log(step=step, of=options.steps, ret=length)
            print(f"step {step}/{options.steps}  return {length:.1f}  on {device.type}", flush=True)


if __name__ == "__main__":
    main()
