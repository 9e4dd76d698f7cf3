"""Before the training: are the data here, and complete?"""

from __future__ import annotations

import argparse
import pathlib
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder with train and test")
    folder = pathlib.Path(parser.parse_args().data)
    counts = {part: len(list((folder / part).glob("*/*.txt"))) for part in ("train", "test")}
    if not all(counts.values()):
        sys.exit(f"{folder} is not complete: {counts}; `python make_data.py` writes it")
    print(f"{counts['train']} documents to learn from, {counts['test']} to judge by")


if __name__ == "__main__":
    main()
