"""A million-trial grid: `windlass plan` against a lazy itertools.product with a hash a point."""

from __future__ import annotations

import sys

from common import report, timed, timed_with_memory, windlass, workplace

PRODUCT = """
import hashlib, itertools, json
values = [range(10)] * 6
for point in itertools.product(*values):
    text = json.dumps(dict(zip("abcdef", point)), sort_keys=True, separators=(",", ":"))
    hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
"""
EXPAND = """
import sys
from windlass.search import iterate_trials
from windlass.spec import load_study
print(sum(1 for _ in iterate_trials(load_study(sys.argv[1]))))
"""


def main() -> None:
    with workplace() as folder:
        study = folder / "study.yaml"
        names = "abcdef"
        parameters = "".join(f"  {name}: {list(range(10))}\n" for name in names)
        study.write_text("command: echo {args}\nparameters:\n" + parameters)
        floor = timed([sys.executable, "-c", PRODUCT])
        seconds, memory_mb = timed_with_memory(windlass("plan", str(study)), cwd=folder)
        expand, expand_mb = timed_with_memory(
            [sys.executable, "-c", EXPAND, str(study)], cwd=folder
        )
        report(
            "plan of 1,000,000 trials against product + hash",
            f"{seconds / floor:.2f} ×",
            "below 5 ×",
        )
        report("its memory", f"{memory_mb:.0f} MB", "below 300 MB")
        report(
            "all 1,000,000 trials expanded, with commands and ids", f"{expand / floor:.2f} ×", "–"
        )
        report("its memory", f"{expand_mb:.0f} MB", "–")


if __name__ == "__main__":
    main()
