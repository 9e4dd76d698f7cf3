"""``python -m windlass`` and the command `windlass`."""

import importlib
import os
import sys


def main() -> None:
    """Entry point. A shell that asks for completions is answered before anything slow is imported."""
    shell = os.environ.pop("_WINDLASS_COMPLETE", "")
    if shell:
        sys.exit(importlib.import_module("windlass.completion.answer").main(shell, sys.argv[1:]))
    importlib.import_module("windlass.cli").main()


if __name__ == "__main__":
    main()
