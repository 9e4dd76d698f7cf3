"""Drafts a study for a script from the options its ``--help`` names."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Sequence
from decimal import Decimal

from windlass.core.counted import counted
from windlass.search.template import AGENT_WORDS, ARGS_WORDS, BUILT_IN, NAME_PATTERN
from windlass.spec.help_forms import HYDRA, UNKNOWN, Form
from windlass.spec.help_option import HelpOption
from windlass.spec.help_text import parse_help
from windlass.spec.option_names import (
    INTEGER,
    NUMBER,
    is_logarithmic,
    is_never_swept,
    is_of_framework,
    is_output_folder,
    is_output_place,
    is_seed,
    own_place,
    usual_value,
)

__all__ = ["HelpOption", "parse_help", "render_study"]

_MOST_SWEPT = 3  # so that the first grid is small
_SEEDS = 5
_MOST_NAMED = 20  # of the options that nothing is known about
_TRUTH = {"true", "false", "null", "yes", "no"}
_TAKEN = ARGS_WORDS | AGENT_WORDS | BUILT_IN  # names that mean something else in a command


def render_study(
    script: str,
    options: Sequence[HelpOption],
    interpreter_words: Sequence[str],
    form: Form = UNKNOWN,
    command_words: Sequence[str] = (),
) -> str:
    """The text of a study that tries a small grid over the most telling options; the others are comments.

    The command uses every parameter that is no comment, and gives each trial its own place for what the script
    writes. `command_words` follow the script (``fit``). What the user must fill in begins with TO_FILL_; `plan` and
    `run` refuse a command that still has such a word.
    """
    swept = _choose_swept(options)
    seed = _choose_seed(options)
    tells_defaults = any(option.default for option in options)
    places = [
        option
        for option in options
        if _is_place(option, tells_defaults) and option not in (*swept, seed)
    ]
    chosen = [*swept, *places, seed]
    to_fill_in = [option for option in options if option.required and option not in chosen]
    to_fill_in.sort(key=lambda option: bool(option.flag))  # positional arguments first
    others = [option for option in options if option.flag and option not in (*chosen, *to_fill_in)]
    library = f" ({form.package}: {form.written})" if form.package else ""
    lines = [
        f"# A study of {_one_line(script)}, drafted from its --help{library}. `windlass plan` shows what it would do.",
        f"# {_count_text(swept, seed is not None)}",
    ]
    if to_fill_in:
        lines.append(f"# Fill in by hand: {', '.join(_to_fill(option) for option in to_fill_in)}")
    if places or form is HYDRA:
        lines.append("# Each trial writes to a place of its own, by {trial_id}.")
    words = [_literal(word) for word in (*interpreter_words, script, *command_words)]
    for option in to_fill_in:
        words += _option_words(option, _to_fill(option), form)
    for option in places:
        words += _option_words(option, _own_place(option), form)
    if form is HYDRA:
        # Hydra's own name for it is the time, to the second.
        words.append("hydra.run.dir=outputs/{trial_id}")
    if form.as_args:
        words.append("{args}")
    else:
        for option in swept:
            words += [option.flag, f"{{{option.name}}}"]
        words += [seed.flag, "{seed}"] if seed else []
    lines.append(f"command: {_yaml_line(_join_words(words))}")
    if form.as_args:
        lines.append("args: k=v")
    lines += ["", *_parameter_lines(swept, others, form)]
    if seed:
        lines += _seed_lines(seed, form)
    return "\n".join([*lines, *_METRIC_LINES, ""])


def _option_words(option: HelpOption, value: str, form: Form) -> list[str]:
    if form.as_args:
        return [f"{option.name}={value}"]
    return [option.flag, value] if option.flag else [value]


def _seed_lines(seed: HelpOption, form: Form) -> list[str]:
    lines = [f"seeds: {_SEEDS}  # every setting is repeated with this many different seeds"]
    if form.as_args and seed.name != "seed":
        lines.append(f"seed_name: {seed.name}")
    return [*lines, ""]


def _may_be_place(option: HelpOption) -> bool:
    if (
        not option.flag
        or option.kind != "str"
        or option.several
        or option.choices
        or not is_output_place(option.name)
    ):
        return False
    return not (option.default and "$" in option.default)  # such a one follows from other settings


def _is_place(option: HelpOption, tells_defaults: bool) -> bool:
    """Whether an option says where the script writes.

    Without a default the script may not write there at all. But the help of plain argparse tells no defaults: then a
    folder is taken for one that has some.
    """
    if not _may_be_place(option):
        return False
    if option.required or option.default or option.name.endswith("default_root_dir"):
        return True
    return not tells_defaults and is_output_folder(option.name)


def _own_place(option: HelpOption) -> str:
    """The place that the help names, with a part of each trial's own."""
    return own_place(_literal(option.default or "outputs"))


def _to_fill(option: HelpOption) -> str:
    """A word that slurm/placeholders.py knows for one that nobody has replaced."""
    return "TO_FILL_" + re.sub(r"\W", "_", option.name).upper()


_METRIC_LINES = (
    "# What the best setting is chosen by. The script reports it with windlass.log(step=…, loss=…); without that,",
    '# it is read from output such as "loss=0.12":',
    "# metric: {name: loss, goal: minimize}",
    "# Other values that are read from output:",
    "# metrics: [accuracy]",
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
    seeds = [
        option
        for option in options
        if option.flag and is_seed(option.name) and option.kind == "int"
    ]
    return min(seeds, key=lambda option: option.name != "seed", default=None)


def _is_worth_sweeping(option: HelpOption) -> bool:
    if not option.flag or option.name in _TAKEN or is_seed(option.name):
        return False
    if not re.fullmatch(NAME_PATTERN, option.name) or _TRUTH.issuperset(
        map(str.lower, option.choices or ("-",))
    ):
        return False
    return 2 <= len(_values_to_try(option)) <= 6 and not is_never_swept(option.name)


def _parameter_lines(
    swept: Sequence[HelpOption], others: Sequence[HelpOption], form: Form
) -> list[str]:
    lines = []
    if swept:
        lines.append("parameters:")
    lines += [f"  {option.name}: {_value_list(option)}{_remark(option)}" for option in swept]
    with_values = [option for option in others if _may_be_tried(option)]
    if with_values:
        lead = "  # " if swept else "# "
        task = "uncomment it" if form.as_args else "uncomment it and add its flag to the command"
        lines.append(f"{lead}To try one of these as well, {task}:")
        if not swept:
            lines.append("# parameters:")
        for option in with_values:
            flag = "" if form.as_args else f"  # {option.flag} {{{option.name}}}"
            lines.append(f"  # {option.name}: {_value_list(option)}{flag}")
    shared = [option.flag for option in others if _may_be_place(option)]
    if shared:
        lines.append(
            "# All trials write to the same place if these have a default; {trial_id} in a value tells trials"
        )
        lines.append(f"# apart: {' '.join(shared)}")
    rest = [
        option.flag for option in others if option not in with_values and option.flag not in shared
    ]
    if rest:
        more = f" and {len(rest) - _MOST_NAMED} more" if len(rest) > _MOST_NAMED else ""
        lines.append(f"# Other options of the script: {' '.join(rest[:_MOST_NAMED])}{more}")
    return [*lines, ""] if lines else []


def _may_be_tried(option: HelpOption) -> bool:
    return (
        bool(_values_to_try(option))
        and option.name not in _TAKEN
        and not is_of_framework(option.name)
    )


def _count_text(swept: Sequence[HelpOption], has_seed: bool) -> str:
    """For example ``3 lr x 2 hidden x 5 seeds = 30 trials``."""
    counts = [(len(_values_to_try(option)), option.name) for option in swept]
    if has_seed:
        counts.append((_SEEDS, "seeds"))
    total = math.prod(count for count, _ in counts)
    trials = counted(total, "trial")
    return (
        " x ".join(f"{count} {name}" for count, name in counts) + f" = {trials}"
        if counts
        else trials
    )


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
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in words)


# A word that a shell reads as it stands, but for its placeholders.
_PLAIN_WORD = re.compile(rf"(?:[\w@%+=:,./-]|(?<!\{{)\{{{NAME_PATTERN}\}}(?!\}}))+", re.ASCII)


def _yaml_line(text: str) -> str:
    plain = (
        re.fullmatch(r"[A-Za-z0-9_./~][^:#\\\"']*", text)
        and text.isprintable()
        and text == text.strip()
    )
    return text if plain else json.dumps(text, ensure_ascii=False)


def _value_list(option: HelpOption) -> str:
    return f"[{', '.join(_yaml_value(value) for value in _values_to_try(option))}]"


def _yaml_value(value: str) -> str:
    number = INTEGER.fullmatch(value) or (
        NUMBER.fullmatch(value) and not re.match(r"[-+]?0\d", value)
    )
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
