"""Judge a trained model by documents it has not seen, and write down what it said of each."""

from __future__ import annotations

import argparse
import csv
import os

from letters import load_model, read_documents

import windlass  # always there inside a trial; to start this by hand, install Windlass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with train and test")
    parser.add_argument("--model", default="model.json", help="what train.py wrote")
    parser.add_argument("--to", default="results", help="folder for predictions.csv")
    arguments = parser.parse_args()
    model = load_model(arguments.model)
    documents = read_documents(os.path.join(arguments.data, "test"), model.order)
    os.makedirs(arguments.to, exist_ok=True)
    with open(os.path.join(arguments.to, "predictions.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["language", "guess"])
        writer.writerows([language, model.guess(pieces)] for language, pieces in documents)
    error = model.error(documents)
    windlass.log(error=error)
    print(f"error on new documents {error:.3f}")


if __name__ == "__main__":
    main()
