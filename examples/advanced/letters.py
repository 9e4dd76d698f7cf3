"""Documents as counts of letters, and a classifier over them, in plain Python."""

from __future__ import annotations

import json
import math
import os
import pathlib
import random

Document = tuple[str, dict[str, float]]  # language, and how often each piece occurs in it


class Model:
    """Softmax regression: a weight for each language and each piece of text."""

    def __init__(self, languages: list[str], order: int) -> None:
        self.languages = languages
        self.order = order
        self.epoch = 0
        self.weights: dict[str, dict[str, float]] = {language: {} for language in languages}

    def probabilities(self, pieces: dict[str, float]) -> dict[str, float]:
        scores = {
            language: sum(weights.get(piece, 0.0) * count for piece, count in pieces.items())
            for language, weights in self.weights.items()
        }
        highest = max(scores.values())
        powers = {language: math.exp(score - highest) for language, score in scores.items()}
        total = sum(powers.values())
        return {language: power / total for language, power in powers.items()}

    def guess(self, pieces: dict[str, float]) -> str:
        found = self.probabilities(pieces)
        return max(found, key=lambda language: found[language])

    def learn(self, documents: list[Document], lr: float, rng: random.Random) -> None:
        """One epoch of stochastic gradient descent."""
        for language, pieces in rng.sample(documents, len(documents)):
            for other, probability in self.probabilities(pieces).items():
                push = lr * ((other == language) - probability)
                weights = self.weights[other]
                for piece, count in pieces.items():
                    weights[piece] = weights.get(piece, 0.0) + push * count
        self.epoch += 1

    def error(self, documents: list[Document]) -> float:
        return sum(self.guess(pieces) != language for language, pieces in documents) / len(
            documents
        )

    def save(self, path: str) -> None:
        """Whole or not at all: whoever finds the file finds all of it."""
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path + ".tmp", "w") as file:
            json.dump(vars(self), file)
        os.replace(path + ".tmp", path)


def load_model(path: str) -> Model:
    with open(path) as file:
        said = json.load(file)
    model = Model(said["languages"], said["order"])
    vars(model).update(said)
    return model


def read_documents(folder: str, order: int) -> list[Document]:
    paths = sorted(pathlib.Path(folder).glob("*/*.txt"))
    return [(path.parent.name, count_pieces(path.read_text(), order)) for path in paths]


def count_pieces(text: str, order: int) -> dict[str, float]:
    """How often each run of `order` letters occurs, as a share."""
    pieces: dict[str, float] = {}
    for start in range(len(text) - order + 1):
        piece = text[start : start + order]
        pieces[piece] = pieces.get(piece, 0.0) + 10.0 / len(text)
    return pieces
