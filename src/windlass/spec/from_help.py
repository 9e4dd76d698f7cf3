"""Drafts a study for a script from the options its ``--help`` names."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Sequence
from decimal import Decimal

from windlass.counted import counted
from windlass.search.template import AGENT_WORDS, ARGS_WORDS, BUILT_IN, NAME_PATTERN
from windlass.spec.help_text import HelpOption, parse_help
from windlass.spec.option_names import INTEGER, NUMBER, is_logarithmic, is_never_swept, is_seed, usual_value

__all__ = ["HelpOption", "parse_help", "render_study"]

_MOST_SWEPT = 3  # so that the first grid is small
_SEEDS = 5
_TAKEN = ARGS_WORDS | AGENT_WORDS | BUILT_IN  # names that mean something else in a command


def render_study(script: str, options: Sequence[HelpOption], interpreter_words: Sequence[str]) -> str:
    """The text of a study that tries a small grid over the most telling options; the others are comments.

    The command uses every parameter that is no comment. What the user must fill in begins with TO_FILL_; `plan` and
    `run` refuse a command that still has such a word.
    """
    swept = _choose_swept(options)
    seed = _choose_seed(options)
    required = [option for option in options if option.required and option not in (*swept, seed)]
    to_fill_in = sorted(required, key=lambda option: bool(option.flag))  # positional arguments first
    others = [option for option in options if option.flag and option not in (*swept, *to_fill_in, seed)]
    lines = [
        f"# A study of {_one_line(script)}, drafted from its --help. `windlass plan` shows what it would do.",
        f"# {_count_text(swept, seed is not None)}",
    ]
    if to_fill_in:
        lines.append(f"# Fill in by hand: {', '.join(_to_fill(option) for option in to_fill_in)}")
    words = [_literal(word) for word in (*interpreter_words, script)]
    for option in to_fill_in:
        words += [option.flag, _to_fill(option)] if option.flag else [_to_fill(option)]
    for option in swept:
        words += [option.flag, f"{{{option.name}}}"]
    words += [seed.flag, "{seed}"] if seed else []
    lines += [f"command: {_yaml_line(_join_words(words))}", "", *_parameter_lines(swept, others)]
    if seed:
        lines += [f"seeds: {_SEEDS}  # every setting is repeated with this many different seeds", ""]
    return "\n".join([*lines, *_METRIC_LINES, ""])


def _to_fill(option: HelpOption) -> str:
    """A word that slurm/placeholders.py knows for one that nobody has replaced."""
    return f"TO_FILL_{option.name.upper()}"


_METRIC_LINES = (
    "# What the best setting is chosen by; the script tells it with windlass.log(step=…, loss=…):",
    "# metric: {name: loss, goal: minimize}",
    '# Without windlass.log, values are read from output such as "loss=0.12":',
    "# metrics: [loss]",
)


def _choose_swept(options: Sequence[HelpOption]) -> list[HelpOption]:
    """At most three: learning rates before other fractions, those before counts, those before choices."""

    def rank(option: HelpOption) -> int:
        if option.choices:
            return 3
        return 2 if option.kind == "int" else 0 if is_logarithmic(option.name) else 1

    worth = [option for option in options if _is_worth_sweeping(option)]
    chosen = sorted(worth, key=rank)[:_MOST_SWEPT]
    return [option for option in options if option in chosen]


def _choose_seed(options: Sequence[HelpOption]) -> HelpOption | None:
    """The option that takes the seed; one called just that before one such as ``--data-seed``."""
    seeds = [option for option in options if option.flag and is_seed(option.name) and option.kind == "int"]
    return min(seeds, key=lambda option: option.name != "seed", default=None)


def _is_worth_sweeping(option: HelpOption) -> bool:
    if not option.flag or not option.name.isidentifier() or option.name in _TAKEN or is_seed(option.name):
        return False
    return 2 <= len(_values_to_try(option)) <= 6 and not is_never_swept(option.name)


def _parameter_lines(swept: Sequence[HelpOption], others: Sequence[HelpOption]) -> list[str]:
    lines = []
    if swept:
        lines.append("parameters:")
    lines += [f"  {option.name}: {_value_list(option)}{_remark(option)}" for option in swept]
    with_values = [option for option in others if _values_to_try(option)]
    if with_values:
        lead = "  # " if swept else "# "
        lines.append(f"{lead}To try one of these as well, uncomment it and add its flag to the command:")
        if not swept:
            lines.append("# parameters:")
        lines += [
            f"  # {option.name}: {_value_list(option)}  # {option.flag} {{{option.name}}}" for option in with_values
        ]
    rest = [option.flag for option in others if option not in with_values]
    if rest:
        lines.append(f"# Other options of the script: {' '.join(rest)}")
    return [*lines, ""] if lines else []


def _count_text(swept: Sequence[HelpOption], has_seed: bool) -> str:
    """For example ``3 lr x 2 hidden x 5 seeds = 30 trials``."""
    counts = [(len(_values_to_try(option)), option.name) for option in swept]
    if has_seed:
        counts.append((_SEEDS, "seeds"))
    total = math.prod(count for count, _ in counts)
    trials = counted(total, "trial")
    return " x ".join(f"{count} {name}" for count, name in counts) + f" = {trials}" if counts else trials


def _remark(option: HelpOption) -> str:
    about = f"default {option.default}" if option.default else option.help
    return f"  # {_one_line(about)[:70].strip()}" if about else ""


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _literal(word: str) -> str:
    """Braces of a path are no placeholder."""
    return re.sub(rf"(?<!\$)\{{({NAME_PATTERN})\}}", r"{{\1}}", word)


def _join_words(words: Sequence[str]) -> str:
    """As a shell would read it, but with placeholders unquoted."""
    return " ".join(word if re.fullmatch(r"\{\w+\}", word) else shlex.quote(word) for word in words)


def _yaml_line(text: str) -> str:
    plain = re.fullmatch(r"[A-Za-z0-9_./~][^:#\\\"']*", text) and text.isprintable() and text == text.strip()
    return text if plain else json.dumps(text, ensure_ascii=False)


def _value_list(option: HelpOption) -> str:
    return f"[{', '.join(_yaml_value(value) for value in _values_to_try(option))}]"


def _yaml_value(value: str) -> str:
    number = INTEGER.fullmatch(value) or (NUMBER.fullmatch(value) and not re.match(r"[-+]?0\d", value))
    word = re.fullmatch(r"[A-Za-z][\w.+/-]*", value) and value.lower() not in _YAML_WORDS
    return value if number or word else json.dumps(value, ensure_ascii=False)


_YAML_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def _is_number(option: HelpOption) -> bool:
    return option.kind in ("int", "float") and not option.several


def _values_to_try(option: HelpOption) -> tuple[str, ...]:
    """Every choice, or values on both sides of the default, smallest first; empty when nothing is known."""
    if option.choices:
        return option.choices
    middle = option.default or usual_value(option.name)
    if not _is_number(option) or middle is None or not NUMBER.fullmatch(middle):
        return ()
    if option.kind == "int" and INTEGER.fullmatch(middle):
        number = int(middle)
        around = {0, 1, 2} if number == 0 else {number // 2 or 1, number, number * 2}
        return tuple(str(value) for value in sorted(around))
    exact = Decimal(middle)
    around_exact = _around(exact, is_logarithmic(option.name))
    return tuple(middle if value == exact else repr(float(value)) for value in sorted(around_exact))


def _around(middle: Decimal, logarithmic: bool) -> set[Decimal]:
    """Powers of ten; for 0.9 and its like half and twice the distance to 1; else half and twice as much."""
    if middle == 0:
        return set(map(Decimal, ("0", "0.0001", "0.01") if logarithmic else ("0", "0.1", "0.2")))
    if logarithmic:
        return {middle / 10, middle, middle * 10}
    if Decimal("0.5") < middle < 1:
        return {1 - (1 - middle) * 2, middle, 1 - (1 - middle) / 2}
    return {middle / 2, middle, middle * 2}
