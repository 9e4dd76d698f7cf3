"""Learn to tell languages apart. Saves a checkpoint after every epoch and goes on from one if it is given.

What to expect: letters by themselves (order 1) tell nothing, and it errs on three new documents of four. Pairs (2)
tell most: one of five is wrong. Of threes (3) there are too many for so few documents: two of five.
"""

from __future__ import annotations

import argparse
import os
import random

from letters import Model, load_model, read_documents

import windlass  # always there inside a trial; to start this by hand, install Windlass


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="train", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder with train and test")
    parser.add_argument("--order", type=int, default=2, help="letters that are looked at together")
    parser.add_argument("--lr", type=float, default=0.1, help="step size")
    parser.add_argument("--epochs", type=int, default=5, help="times that all documents are seen")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the order in which they are seen"
    )
    parser.add_argument("--model", default="model.json", help="where the model is written")
    parser.add_argument("--checkpoints", default="checkpoints", help="folder for checkpoints")
    parser.add_argument("--resume", help="checkpoint to go on from")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    documents = read_documents(os.path.join(arguments.data, "train"), arguments.order)
    model = Model(sorted({language for language, _ in documents}), arguments.order)
    if arguments.resume:
        model = load_model(arguments.resume)
        print(f"going on after epoch {model.epoch}")
    while model.epoch < arguments.epochs:
        # The order of an epoch depends on its number alone: a training that was interrupted ends like any other.
        model.learn(documents, arguments.lr, random.Random(f"{arguments.seed} {model.epoch}"))
        model.save(os.path.join(arguments.checkpoints, f"epoch-{model.epoch:03d}.json"))
        error = model.error(documents)
        windlass.log(step=model.epoch, train_error=error)
        print(f"epoch {model.epoch}  error {error:.3f}")
    model.save(arguments.model)


if __name__ == "__main__":
    main()
