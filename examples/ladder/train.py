"""Learn to read hand-drawn digits of 8 by 8 dots with a network of one hidden layer, in plain NumPy.

The digits are drawn by the script itself: ten shapes, shifted, bent and covered with noise, so that nothing has to be
downloaded. `--limit` trains on the first so many of them alone. A network that cannot learn one digit by heart has a
mistake in it that no search over step sizes will find.
"""

from __future__ import annotations

import argparse

import numpy as np

import windlass  # always there inside a trial; to start this by hand, install Windlass

SHAPES = (
    "01110 10001 10001 10001 10001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00010 00100 01000 11111", "11110 00001 00001 01110 00001 00001 11110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
)  # fmt: skip
NOISE = 0.35


def draw_digits(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """So many digits as rows of 64 dots, and which ones they are."""
    labels = rng.integers(0, 10, count)
    images = np.zeros((count, 8, 8))
    for image, label in zip(images, labels, strict=True):
        shape = np.array([[int(dot) for dot in row] for row in SHAPES[label].split()], float)
        top, left = rng.integers(0, 2), rng.integers(0, 4)
        image[top : top + 7, left : left + 5] = shape * rng.uniform(0.7, 1.3)
    return (images + rng.normal(0, NOISE, images.shape)).reshape(count, 64), labels


class Network:
    """One hidden layer of rectified units, trained with Adam."""

    def __init__(self, hidden: int, rng: np.random.Generator) -> None:
        self.weights = [
            rng.normal(0, (2 / 64) ** 0.5, (64, hidden)), np.zeros(hidden),
            rng.normal(0, (2 / hidden) ** 0.5, (hidden, 10)), np.zeros(10),
        ]  # fmt: skip
        self.first = [np.zeros_like(weight) for weight in self.weights]
        self.second = [np.zeros_like(weight) for weight in self.weights]
        self.steps = 0

    def scores(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        into, shift, out, bias = self.weights
        seen = np.maximum(images @ into + shift, 0)
        return seen, seen @ out + bias

    def loss(self, images: np.ndarray, labels: np.ndarray) -> float:
        _, scores = self.scores(images)
        scores = scores - scores.max(1, keepdims=True)
        return float(
            np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels])
        )

    def accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        return float(np.mean(self.scores(images)[1].argmax(1) == labels))

    def learn(self, images: np.ndarray, labels: np.ndarray, lr: float) -> None:
        """One step down the cross-entropy of this batch."""
        seen, scores = self.scores(images)
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        chances[np.arange(len(labels)), labels] -= 1
        chances /= len(labels)
        back = (chances @ self.weights[2].T) * (seen > 0)
        slopes = [images.T @ back, back.sum(0), seen.T @ chances, chances.sum(0)]
        self.steps += 1
        for layer, slope in enumerate(slopes):
            self.first[layer] += 0.1 * (slope - self.first[layer])
            self.second[layer] += 0.001 * (slope**2 - self.second[layer])
            spread = np.sqrt(self.second[layer] / (1 - 0.999**self.steps)) + 1e-8
            self.weights[layer] -= lr * self.first[layer] / (1 - 0.9**self.steps) / spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.003, help="step size of Adam")
    parser.add_argument("--hidden", type=int, default=32, help="hidden units")
    parser.add_argument("--batch", type=int, default=64, help="digits a step")
    parser.add_argument("--limit", type=int, default=2000, help="digits to learn from")
    parser.add_argument("--steps", type=int, default=600, help="steps in all")
    parser.add_argument("--seed", type=int, default=0, help="seed of digits and weights")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    images, labels = draw_digits(arguments.limit, rng)
    new_images, new_labels = draw_digits(1000, rng)
    network = Network(arguments.hidden, rng)
    for step in range(1, arguments.steps + 1):
        batch = rng.integers(0, len(labels), min(arguments.batch, len(labels)))
        network.learn(images[batch], labels[batch], arguments.lr)
        if step % 100 == 0 or step == arguments.steps:
            loss, accuracy = network.loss(images, labels), network.accuracy(new_images, new_labels)
            windlass.log(step=step, of=arguments.steps, loss=loss, accuracy=accuracy)
            print(f"step {step:4d}  loss {loss:.4f}  accuracy {accuracy:.3f}")
    np.savez("model.npz", *network.weights)


if __name__ == "__main__":
    main()
