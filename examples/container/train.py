"""Fits a line to noisy points by gradient descent. Only the standard library: any image with a Python can run it."""

import argparse
import platform
import random

import windlass

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()

random.seed(arguments.seed)
points = [(x / 50, 3 * x / 50 + 1 + random.gauss(0, 0.1)) for x in range(50)]
slope = offset = 0.0
for step in range(1, 201):
    errors = [(slope * x + offset - y, x) for x, y in points]
    slope -= arguments.lr * sum(2 * error * x for error, x in errors) / len(points)
    offset -= arguments.lr * sum(2 * error for error, _ in errors) / len(points)
    if step % 20 == 0:
        windlass.log(step=step, loss=sum(error**2 for error, _ in errors) / len(points))
print(f"Python {platform.python_version()}: slope {slope:.3f}, offset {offset:.3f}")
