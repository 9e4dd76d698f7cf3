"""Write datasets/letters: documents in four made-up languages, 125 of each, every one a small file.

All four use the same letters equally often. What tells them apart is which letter follows which.
"""

from __future__ import annotations

import pathlib
import random

LETTERS = "abcdefghijklmnop"
LANGUAGES, TRAIN, TEST, LENGTH = 4, 100, 25, 120
STRICT = 0.06  # how often a letter is followed by the one its language wants


def make_language(rng: random.Random) -> dict[str, str]:
    """Letter → the one that likes to follow it. No letter is liked twice, so all stay equally frequent."""
    followers = list(LETTERS)
    rng.shuffle(followers)
    return dict(zip(LETTERS, followers, strict=True))


def write_document(followers: dict[str, str], rng: random.Random) -> str:
    text = rng.choice(LETTERS)
    while len(text) < LENGTH:
        text += followers[text[-1]] if rng.random() < STRICT else rng.choice(LETTERS)
    return text


def main() -> None:
    root = pathlib.Path(__file__).parent / "datasets/letters"
    rng = random.Random(0)
    for language in range(LANGUAGES):
        followers = make_language(rng)
        for number in range(TRAIN + TEST):
            folder = root / ("train" if number < TRAIN else "test") / f"language{language}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:03d}.txt").write_text(write_document(followers, rng))
    print(f"wrote {LANGUAGES * (TRAIN + TEST)} documents below {root}")


if __name__ == "__main__":
    main()
