"""The most that a study may hold. Everything above is refused with an error that names the limit."""

from __future__ import annotations

# Of a study file, a task file or a file of settings; all of it is held in memory.
MOST_FILE_BYTES = 256 << 20
# Of a study file without its long lists: YAML is read at a few hundred kB a second.
MOST_YAML_BYTES = 4 << 20
MOST_TRIALS = 10_000_000  # of a study: each has a line in trials.jsonl
MOST_VALUES = 10_000_000  # of one parameter
DEEPEST = 50  # lists and mappings inside each other
# Of a whole number: larger ones cannot be compared with numbers that have a fraction.
MOST_DIGITS = 300
MOST_REPEATED = 1_000_000  # values that aliases (`*name`) may stand for, all together

FILE_HINT = "put the settings into a CSV, JSON or JSONL file: parameters: {file: settings.csv}"


def show_count(count: int) -> str:
    """A number of things; one of many digits as a power of ten."""
    return f"{count:,}" if count < 10**15 else f"10^{len(str(count)) - 1} or more"
