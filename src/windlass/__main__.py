"""``python -m windlass`` and the command `windlass`."""

import os
import sys


def main() -> None:
    """Entry point. A shell that asks for completions is answered before anything slow is imported."""
    shell = os.environ.pop("_WINDLASS_COMPLETE", "")
    if shell:
        from windlass.completion.answer import main as answer

        sys.exit(answer(shell, sys.argv[1:]))
    from windlass.cli import main as run

    run()


if __name__ == "__main__":
    main()
