"""Values of single keys → what they mean. Each raises WrongValue with a sentence and a line that mends it."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any, cast

from windlass.core.states import NEVER_RETRIED, Cause
from windlass.core.units import (
    DURATION_FORMS,
    LONGEST_S,
    SIZE_FORMS,
    parse_duration_s,
    parse_memory_mb,
    parse_size_bytes,
)
from windlass.model import ANY_FILES, Data, Metric, MetricPattern, Warm
from windlass.spec.goals import GOALS, guess_goal, parse_metric
from windlass.spec.units import check_gpus

_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|SECRET_?KEY|ACCESS_?KEY)($|_)", re.IGNORECASE
)


class WrongValue(ValueError):
    """A value that a key cannot have: what is wrong, what to write instead, and where below the key it stands."""

    def __init__(self, message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.at = at


def kind_of(value: Any) -> str:
    """What a value is, in a user's words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else "a number"


def check_text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise WrongValue(f"this must be text, not {kind_of(value)}")
    if not str(value).strip():
        raise WrongValue("this is empty")
    return str(value)


def check_words(value: Any) -> tuple[str, ...]:
    """One or several words: a list, or a text with commas."""
    words = value if isinstance(value, list) else str(check_text(value)).split(",")
    return tuple(check_text(word).strip() for word in words)


def check_options(value: Any) -> dict[str, Any]:
    """Options of a program by their long names: text, numbers, or true for one without a value."""
    if not isinstance(value, dict):
        raise WrongValue(
            f"this must be a mapping, not {kind_of(value)}", "options: {constraint: cascade}"
        )
    options: dict[str, Any] = {}
    for name, given in value.items():
        if isinstance(given, (dict, list)) or given is None:
            raise WrongValue(
                f"{name} must be text, a number or true, not {kind_of(given)}",
                f"{name}: true",
                (name,),
            )
        options[str(name).lstrip("-").replace("_", "-")] = (
            given if isinstance(given, bool) else str(given)
        )
    return options


def check_lines(value: Any) -> tuple[str, ...]:
    """Lines for a shell: a text of several lines, or a list."""
    lines = value if isinstance(value, list) else str(check_text(value)).splitlines()
    return tuple(check_text(line) for line in lines)


def check_data(value: Any) -> tuple[Data, ...]:
    """Paths, or mappings with `path`, `compress` and `writable`."""
    items = value if isinstance(value, list) else [value]
    found = []
    for number, item in enumerate(items):
        given = item if isinstance(item, dict) else {"path": item}
        unknown = [name for name in given if name not in ("path", "compress", "writable")]
        if unknown or "path" not in given:
            text = "each of data is a path, or a mapping with path, compress and writable"
            raise WrongValue(text, "path: datasets/text", (number,))
        compress = one_of(given.get("compress", "none"), ("none", "gzip", "zstd", "auto"))
        writable = check_truth(given.get("writable", False))
        found.append(Data(check_text(given["path"]), cast(Any, compress), writable))
    return tuple(found)


def check_small_files(value: Any) -> int:
    """A number of files, or `allow`, which is any number."""
    if value == "allow":
        return ANY_FILES
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WrongValue(
            f"this must be a number of files, or `allow`, not {value!r}", "small_files: 5000"
        )
    return value


def check_truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValue(f"this must be true or false, not {kind_of(value)}")
    return value


def check_integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongValue(f"this must be a whole number, not {_shown(value)}")
    return value


def check_count(value: Any) -> int:
    if check_integer(value) < 1:
        raise WrongValue(f"this must be 1 or more, not {value}")
    return int(value)


def check_amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongValue(f"this must be a number, not {_shown(value)}")
    if not 0 <= value < float("inf"):
        raise WrongValue(f"this must be 0 or more, not {value}")
    return float(value) if isinstance(value, float) else value


def check_gpu_amount(value: Any) -> float:
    amount = check_amount(value)
    try:
        return check_gpus(amount)
    except ValueError as error:
        raise WrongValue(
            str(error), f"gpus: {math.ceil(amount)} for GPUs of its own, gpus: 0.5 to share one"
        ) from None


def _shown(value: Any) -> str:
    return f"the text {value!r}" if isinstance(value, str) else kind_of(value)


def _with_unit(value: Any, parse: Callable[[str], float], forms: str, example: str) -> float:
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as error:
            raise WrongValue(f"{error}; accepted are {forms}", _unit_hint(value, example)) from None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise WrongValue(
            f"the number {value} has no unit; accepted are {forms}",
            f"{value}{example.lstrip('0123456789')}",
        )
    raise WrongValue(f"this must be a text such as {forms}, not {kind_of(value)}", example)


def _unit_hint(value: str, example: str) -> str:
    number = re.match(r"\s*(\d+(?:\.\d+)?)\s*$", value)
    return f"{number[1]}{example.lstrip('0123456789')}" if number else f"for example {example}"


def check_duration(value: Any) -> float:
    """A duration; a plain number is seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 < value < float("inf"):
            raise WrongValue(
                f"a duration must be more than 0, not {value}", f"accepted are {DURATION_FORMS}"
            )
        if value > LONGEST_S:
            raise WrongValue(
                "this duration is longer than 100 years", f"accepted are {DURATION_FORMS}"
            )
        return float(value)
    seconds = _with_unit(value, parse_duration_s, DURATION_FORMS, "30m")
    if seconds <= 0:
        raise WrongValue(f"a duration must be more than 0, not {value}")
    return seconds


def check_time_with_unit(value: Any) -> float:
    """A duration that must say its unit: Slurm would read a plain number as minutes."""
    time_s = _with_unit(value, parse_duration_s, DURATION_FORMS, "60m")
    if time_s <= 0:
        raise WrongValue(f"this must be more than no time, not {value}", "for example 60m")
    return time_s


def check_memory(value: Any) -> int:
    return int(_with_unit(value, parse_memory_mb, SIZE_FORMS, "4GB"))


def check_size(value: Any) -> int:
    return int(_with_unit(value, parse_size_bytes, SIZE_FORMS, "10MB"))


def check_command(value: Any) -> Any:
    """Text or a list of words, left as it is."""
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, list) and value:
        return _words(value)
    if isinstance(value, (str, list)):
        raise WrongValue("the command is empty", "command: python train.py {args}")
    raise WrongValue(
        f"the command must be text or a list of words, not {kind_of(value)}",
        "command: python train.py {args}",
    )


def _words(value: list[Any]) -> list[str]:
    for number, word in enumerate(value):
        if isinstance(word, (dict, list)) or word is None or isinstance(word, bool):
            raise WrongValue(
                f"each word of a command must be text, not {kind_of(word)}",
                "put it in quotes",
                (number,),
            )
    return [getattr(word, "text", None) or str(word) for word in value]


def check_stages(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise WrongValue(
            "stages must be a mapping of names to commands",
            "stages: {train: python train.py {args}}",
        )
    for name, item in value.items():
        if not isinstance(item, (str, list)) or not item:
            raise WrongValue(
                f"the stage {name} must be a command: text or a list of words", "", (name,)
            )
    return value


def one_of(value: Any, accepted: tuple[str, ...]) -> str:
    if value not in accepted:
        raise WrongValue(
            f"{value!r} is not one of {', '.join(accepted)}",
            f"use {accepted[0]}" if len(accepted) == 2 else "",
        )
    return str(value)


def check_metric(value: Any) -> Metric:
    """A name, ``name:goal``, or a mapping with name and goal."""
    if isinstance(value, str) and value.strip():
        return parse_metric(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise WrongValue(
            "metric must be a name, or a mapping with name and goal",
            "metric: {name: loss, goal: minimize}",
        )
    unknown = next((key for key in value if key not in ("name", "goal", "target", "impute")), None)
    if unknown is not None:
        raise WrongValue(
            f"metric has no key {unknown!r}", "metric: {name: loss, goal: minimize}", (unknown,)
        )
    goal = value.get("goal", guess_goal(value["name"]))
    if not isinstance(goal, str) or goal not in GOALS:
        raise WrongValue(
            f"the goal {goal!r} is neither minimize nor maximize", "goal: minimize", ("goal",)
        )
    return Metric(value["name"], GOALS[goal])  # type: ignore[arg-type]


def check_metrics(value: Any) -> tuple[MetricPattern, ...]:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(MetricPattern(name) for name in value)
    if not isinstance(value, dict):
        raise WrongValue(
            "metrics must be a list of names, or a mapping of names to regular expressions",
            "metrics: [loss]",
        )
    return tuple(MetricPattern(name, _regex(name, pattern)) for name, pattern in value.items())


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """A regular expression as agents use it: on bytes, which know no escapes such as ``\\u2014``. Raises ValueError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python may read otherwise
            return re.compile(text.encode())
    except (re.error, OverflowError, RecursionError, UnicodeError) as error:
        hint = "; write the character itself" if "bad escape" in str(error) else ""
        raise ValueError(f"{error}{hint}") from None


def _regex(name: str, pattern: Any) -> str | None:
    if pattern is None:
        return None
    example = name + r": 'loss=(\S+)'"
    if not isinstance(pattern, str):
        raise WrongValue(
            f"the pattern of {name} must be text, not {kind_of(pattern)}", example, (name,)
        )
    try:
        groups = compile_pattern(pattern).groups
    except ValueError as error:
        raise WrongValue(
            f"the pattern of {name} is not a regular expression: {error}", example, (name,)
        ) from None
    if groups != 1:
        raise WrongValue(
            f"the pattern of {name} must have one group, it has {groups}", example, (name,)
        )
    return pattern


def check_retries(value: Any) -> dict[str, int]:
    """Causes to numbers; a plain number is kept under ``any``."""
    if not isinstance(value, dict):
        return {"any": _retry_count(value, ())}
    known = {cause.value for cause in Cause if cause not in NEVER_RETRIED} | {"any"}
    found = {}
    for key, number in value.items():
        cause = key.replace("_", " ")
        if cause not in known:
            accepted = ", ".join(sorted(word.replace(" ", "_") for word in known))
            raise WrongValue(
                f"{key!r} is no cause that is tried again; there are {accepted}",
                "retries: {killed: 2}",
                (key,),
            )
        found[cause] = _retry_count(number, (key,))
    return found


def _retry_count(value: Any, at: tuple[str, ...]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WrongValue(
            f"retries must be a whole number, 0 or more, not {value!r}", "retries: 2", at
        )
    return value


def check_env(value: Any) -> dict[str, str]:
    """The variables of `env`, all as text. Raises WrongValue, also for what looks like a secret."""
    if not isinstance(value, dict):
        raise WrongValue(
            f"env must be a mapping of names to text, not {kind_of(value)}", "env: {NAME: value}"
        )
    found = {}
    for name, item in value.items():
        if item is None or isinstance(item, (dict, list)):
            raise WrongValue(
                f"the value of {name} must be text, not {kind_of(item)}", f"{name}: ''", (name,)
            )
        if "=" in name or "\0" in f"{name}{item}":
            raise WrongValue(f"{name!r} cannot be the name of an environment variable", "", (name,))
        if isinstance(item, str) and item and _SECRET.search(name) and "{" not in item:
            hint = f"remove it here and export {name} in your shell; trials inherit it"
            raise WrongValue(
                f"{name} looks like a secret and would be written to disk", hint, (name,)
            )
        found[name] = item if isinstance(item, str) else _plain(item)
    return found


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return getattr(value, "text", None) or str(value)


def check_outputs(value: Any) -> tuple[str, ...]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list) or not all(
        isinstance(item, str) and item for item in patterns
    ):
        raise WrongValue("outputs must be a list of patterns", "outputs: ['results/*.npz']")
    for number, pattern in enumerate(patterns):
        if pattern.startswith("~") or ".." in pattern.split("/"):
            hint = "use a relative path, an absolute one, or $SLURM_TMPDIR/…"
            raise WrongValue(
                f"{pattern!r} leaves the folder the trial is executed in", hint, (number,)
            )
    return tuple(patterns)


def check_warm(value: Any) -> Warm:
    if value is True or value == "auto":
        return Warm("auto")
    if value is False or value == "off":
        return Warm("off")
    if isinstance(value, list) and value and all(_is_module(item) for item in value):
        return Warm("list", tuple(value))
    raise WrongValue("warm must be auto, off or a list of modules", "warm: auto")


def _is_module(value: Any) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))
