"""Learn the law behind an oscillation: a neural ODE is fitted to noisy curves and judged on curves it has not seen.

The truth is a damped pendulum. The network gets angle and speed and tells how fast both change; a solver turns that
into a curve. First only the beginning of each curve is fitted, then all of it: from the start the whole is too hard.
What to expect: with `--lr 0.01` the error on new curves falls below 0.1, with 0.001 and 8 units it stays far above;
wide networks need fewer steps. The solver makes little difference.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import windlass  # always there inside a trial; to start this by hand, install Windlass

TIMES = jnp.linspace(0.0, 6.0, 41)
CURVES, NOISE, REPORT_EVERY = 16, 0.05, 20
SOLVERS = {"tsit5": diffrax.Tsit5, "heun": diffrax.Heun}


def pendulum(_time: jax.Array, state: jax.Array, _args: None) -> jax.Array:
    angle, speed = state
    return jnp.array([speed, -2.0 * jnp.sin(angle) - 0.25 * speed])


def solve(
    law: Callable[..., jax.Array], start: jax.Array, solver: diffrax.AbstractSolver
) -> jax.Array:
    """The states at TIMES of the curve that begins at `start`."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(law),
        solver,
        t0=TIMES[0],
        t1=TIMES[-1],
        dt0=0.15,
        y0=start,
        saveat=diffrax.SaveAt(ts=TIMES),
        stepsize_controller=diffrax.ConstantStepSize(),
        max_steps=256,
    )
    return solution.ys


def make_curves(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Curves of the true pendulum from random starts: half as they are measured, half as they are."""
    where, how = jax.random.split(key)
    starts = jax.random.uniform(where, (2 * CURVES, 2), minval=-1.5, maxval=1.5)
    curves = jax.vmap(lambda start: solve(pendulum, start, diffrax.Tsit5()))(starts)
    seen, unseen = jnp.split(curves, 2)
    return seen + NOISE * jax.random.normal(how, seen.shape), unseen


class Law(eqx.Module):
    """The learned law of motion."""

    network: eqx.nn.MLP

    def __init__(self, width: int, key: jax.Array) -> None:
        self.network = eqx.nn.MLP(2, 2, width, depth=2, activation=jnp.tanh, key=key)

    def __call__(self, _time: jax.Array, state: jax.Array, _args: None) -> jax.Array:
        return self.network(state)


def train(lr: float, width: int, solver: diffrax.AbstractSolver, steps: int, seed: int) -> float:
    data, start = jax.random.split(jax.random.PRNGKey(seed))
    seen, unseen = make_curves(data)
    law = Law(width, start)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(lr))
    state = optimizer.init(eqx.filter(law, eqx.is_inexact_array))

    def distance(law: Law, curves: jax.Array, until: float | jax.Array) -> jax.Array:
        """Mean square over the times before `until`: a weight, so that one compilation serves all lengths."""
        weights = (until >= TIMES)[None, :, None]
        found = jax.vmap(lambda start: solve(law, start, solver))(curves[:, 0])
        return jnp.mean(weights * (found - curves) ** 2) / jnp.mean(weights)

    @eqx.filter_jit
    def step(law: Law, state: optax.OptState, until: jax.Array) -> tuple[Law, optax.OptState]:
        slopes = eqx.filter_grad(distance)(law, seen, until)
        updates, state = optimizer.update(slopes, state)
        return eqx.apply_updates(law, updates), state

    judge = eqx.filter_jit(lambda law: jnp.sqrt(distance(law, unseen, TIMES[-1])))
    error = float(judge(law))
    for number in range(1, steps + 1):
        law, state = step(law, state, TIMES[len(TIMES) // 3] if number <= steps // 3 else TIMES[-1])
        if number % REPORT_EVERY == 0 or number == steps:
            error = float(judge(law))
            print(f"step {number}  error {error:.4f}")
            windlass.log(step=number, error=error)
    return error


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit a neural ODE to noisy curves of a pendulum.")
    parser.add_argument("--lr", type=float, default=0.01, help="step size of Adam")
    parser.add_argument(
        "--width", type=int, default=16, help="units in each of the two hidden layers"
    )
    parser.add_argument("--solver", choices=sorted(SOLVERS), default="tsit5")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train(options.lr, options.width, SOLVERS[options.solver](), options.steps, options.seed)


if __name__ == "__main__":
    main()
