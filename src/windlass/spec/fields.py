"""Values of single keys → what they mean. Each raises `wrong(…)` with a sentence and a line that mends it."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any, cast

from pydantic_core import PydanticCustomError

from windlass.model import ANY_FILES, Data, Metric, MetricPattern, Warm
from windlass.spec.goals import GOALS, guess_goal, parse_metric
from windlass.spec.units import (
    DURATION_FORMS,
    LONGEST_S,
    SIZE_FORMS,
    check_gpus,
    parse_duration_s,
    parse_memory_mb,
    parse_size_bytes,
)
from windlass.states import NEVER_RETRIED, Cause

ARGS_FORMATS = ("--k v", "--k=v", "k=v", "fire")
_SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|SECRET_?KEY|ACCESS_?KEY)($|_)", re.IGNORECASE)
_RANGE = re.compile(r"(-?\d{1,300})\s*\.\.\s*(-?\d{1,300})")
_MOST_SEEDS = 1_000_000  # they are kept in memory


def wrong(message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """An error with a plain sentence; `at` is the path below the key, where the wrong part stands."""
    context = {"message": message, "hint": hint, "at": at}
    return PydanticCustomError("windlass", "{message}", context)


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
        raise wrong(f"this must be text, not {kind_of(value)}")
    if not str(value).strip():
        raise wrong("this is empty")
    return str(value)


def check_words(value: Any) -> tuple[str, ...]:
    """One or several words: a list, or a text with commas."""
    words = value if isinstance(value, list) else str(check_text(value)).split(",")
    return tuple(check_text(word).strip() for word in words)


def check_options(value: Any) -> dict[str, Any]:
    """Options of a program by their long names: text, numbers, or true for one without a value."""
    if not isinstance(value, dict):
        raise wrong(f"this must be a mapping, not {kind_of(value)}", "options: {constraint: cascade}")
    options: dict[str, Any] = {}
    for name, given in value.items():
        if isinstance(given, (dict, list)) or given is None:
            raise wrong(f"{name} must be text, a number or true, not {kind_of(given)}", f"{name}: true", (name,))
        options[str(name).lstrip("-").replace("_", "-")] = given if isinstance(given, bool) else str(given)
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
        said = item if isinstance(item, dict) else {"path": item}
        unknown = [name for name in said if name not in ("path", "compress", "writable")]
        if unknown or "path" not in said:
            text = "each of data is a path, or a mapping with path, compress and writable"
            raise wrong(text, "path: datasets/text", (number,))
        compress = one_of(said.get("compress", "none"), ("none", "gzip", "zstd", "auto"))
        writable = check_truth(said.get("writable", False))
        found.append(Data(check_text(said["path"]), cast(Any, compress), writable))
    return tuple(found)


def check_small_files(value: Any) -> int:
    """A number of files, or `allow`, which is any number."""
    if value == "allow":
        return ANY_FILES
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise wrong(f"this must be a number of files, or `allow`, not {value!r}", "small_files: 5000")
    return value


def check_code(value: Any) -> str:
    return one_of(value, ("frozen", "live"))


def check_share(value: Any) -> str:
    return one_of(value, ("group", "nobody"))


def check_keep(value: Any) -> str:
    return one_of(value, ("all", "best", "none"))


def check_place(value: Any) -> str:
    return one_of(value, ("shared", "node"))


def check_signal(value: Any) -> str:
    name = check_text(value).upper().removeprefix("SIG")
    return one_of(name, ("TERM", "USR1", "USR2", "INT"))


def check_truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(f"this must be true or false, not {kind_of(value)}")
    return value


def check_integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(f"this must be a whole number, not {_shown(value)}")
    return value


def check_count(value: Any) -> int:
    if check_integer(value) < 1:
        raise wrong(f"this must be 1 or more, not {value}")
    return int(value)


def check_amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(f"this must be a number, not {_shown(value)}")
    if not 0 <= value < float("inf"):
        raise wrong(f"this must be 0 or more, not {value}")
    return float(value) if isinstance(value, float) else value


def check_gpu_amount(value: Any) -> float:
    amount = check_amount(value)
    try:
        return check_gpus(amount)
    except ValueError as error:
        raise wrong(str(error), f"gpus: {math.ceil(amount)} for GPUs of its own, gpus: 0.5 to share one") from None


def _shown(value: Any) -> str:
    return f"the text {value!r}" if isinstance(value, str) else kind_of(value)


def _with_unit(value: Any, parse: Callable[[str], float], forms: str, example: str) -> float:
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as error:
            raise wrong(f"{error}; accepted are {forms}", _unit_hint(value, example)) from None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise wrong(f"the number {value} has no unit; accepted are {forms}", f"{value}{example.lstrip('0123456789')}")
    raise wrong(f"this must be a text such as {forms}, not {kind_of(value)}", example)


def _unit_hint(value: str, example: str) -> str:
    number = re.match(r"\s*(\d+(?:\.\d+)?)\s*$", value)
    return f"{number[1]}{example.lstrip('0123456789')}" if number else f"for example {example}"


def check_duration(value: Any) -> float:
    """A duration; a plain number is seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 < value < float("inf"):
            raise wrong(f"a duration must be more than 0, not {value}", f"accepted are {DURATION_FORMS}")
        if value > LONGEST_S:
            raise wrong("this duration is longer than 100 years", f"accepted are {DURATION_FORMS}")
        return float(value)
    seconds = _with_unit(value, parse_duration_s, DURATION_FORMS, "30m")
    if seconds <= 0:
        raise wrong(f"a duration must be more than 0, not {value}")
    return seconds


def check_time_with_unit(value: Any) -> float:
    """A duration that must say its unit: Slurm would read a plain number as minutes."""
    time_s = _with_unit(value, parse_duration_s, DURATION_FORMS, "60m")
    if time_s <= 0:
        raise wrong(f"this must be more than no time, not {value}", "for example 60m")
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
        raise wrong("the command is empty", "command: python train.py {args}")
    raise wrong(
        f"the command must be text or a list of words, not {kind_of(value)}",
        "command: python train.py {args}",
    )


def _words(value: list[Any]) -> list[str]:
    for number, word in enumerate(value):
        if isinstance(word, (dict, list)) or word is None or isinstance(word, bool):
            raise wrong(f"each word of a command must be text, not {kind_of(word)}", "put it in quotes", (number,))
    return [getattr(word, "text", None) or str(word) for word in value]


def check_stages(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        raise wrong("stages must be a mapping of names to commands", "stages: {train: python train.py {args}}")
    for name, item in value.items():
        if not isinstance(item, (str, list)) or not item:
            raise wrong(f"the stage {name} must be a command: text or a list of words", "", (name,))
    return value


def check_parameters(value: Any) -> Any:
    if not isinstance(value, (dict, list)):
        raise wrong(
            f"parameters must be a mapping of names to values, not {kind_of(value)}",
            "parameters: {lr: [0.1, 0.01]}",
        )
    return value


def check_zip_groups(value: Any) -> tuple[tuple[str, ...], ...]:
    groups = value if isinstance(value, list) and value and all(isinstance(item, list) for item in value) else [value]
    for group in groups:
        if not isinstance(group, list) or len(group) < 2 or not all(isinstance(name, str) for name in group):
            raise wrong(
                "zip takes a list of two or more parameter names, or a list of such lists",
                "zip: [model, batch_size]",
            )
    return tuple(tuple(group) for group in groups)


def check_exclude(value: Any) -> list[dict[str, Any]]:
    rules = [value] if isinstance(value, dict) else value
    if not isinstance(rules, list):
        raise wrong(f"exclude takes a list of rules, not {kind_of(value)}", "exclude: [{optimizer: sgd, lr: 0.1}]")
    for number, rule in enumerate(rules):
        if not isinstance(rule, dict) or not rule:
            at = (number,) if isinstance(value, list) else ()
            raise wrong("a rule is a mapping of parameter names to values", "exclude: [{optimizer: sgd, lr: 0.1}]", at)
    return rules


def check_seeds(value: Any) -> tuple[int, ...]:
    """A number n for 1 to n, a range, a list."""
    found = _seed_numbers(value)
    if not found:
        raise wrong("there is no seed in this", "seeds: 5")
    _check_seed_count(len(found))
    met: set[int] = set()
    for seed in found:
        if seed in met:
            raise wrong(f"the seed {seed} stands here twice", "keep one of the two")
        met.add(seed)
    return found


def _check_seed_count(count: int) -> None:
    if count > _MOST_SEEDS:
        raise wrong(f"these are more than {_MOST_SEEDS:,} seeds", "seeds: 5")


def check_repeat(value: Any) -> int:
    count = int(value) if isinstance(value, str) and re.fullmatch(r"\s*\d{1,300}\s*", value) else value
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_SEEDS:
        raise wrong(f"repeat takes a whole number from 1 to {_MOST_SEEDS:,}, not {value!r}", "repeat: 30")
    return count


def _seed_numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        _check_seed_count(value)
        return tuple(range(1, value + 1))
    if isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        if match:
            _check_seed_count(int(match[2]) - int(match[1]) + 1)
            return tuple(range(int(match[1]), int(match[2]) + 1))
        pieces = [piece.strip() for piece in value.split(",")]
        if all(re.fullmatch(r"-?\d{1,300}", piece) for piece in pieces):
            return tuple(int(piece) for piece in pieces) if len(pieces) > 1 else _seed_numbers(int(pieces[0]))
    if isinstance(value, list) and all(isinstance(seed, int) and not isinstance(seed, bool) for seed in value):
        return tuple(value)
    raise wrong(
        "seeds must be a number, a range or a list of whole numbers",
        "seeds: 5, seeds: 1..5 or seeds: [1, 2, 3]",
    )


def one_of(value: Any, accepted: tuple[str, ...]) -> str:
    if value not in accepted:
        raise wrong(
            f"{value!r} is not one of {', '.join(accepted)}",
            f"use {accepted[0]}" if len(accepted) == 2 else "",
        )
    return str(value)


def check_args_format(value: Any) -> str:
    return one_of(value, ARGS_FORMATS)


def check_method(value: Any) -> str:
    if value in ("bayes", "bayesian", "tpe"):
        raise wrong(f"method {value} is not available", "method: random, with trials: 50")
    return one_of(value, ("grid", "random", "list"))


def check_on_nan(value: Any) -> str:
    return one_of(value, ("warn", "stop", "ignore"))


def check_metric(value: Any) -> Metric:
    """A name, ``name:goal``, or a mapping with name and goal."""
    if isinstance(value, str) and value.strip():
        return parse_metric(value)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise wrong("metric must be a name, or a mapping with name and goal", "metric: {name: loss, goal: minimize}")
    unknown = next((key for key in value if key not in ("name", "goal", "target", "impute")), None)
    if unknown is not None:
        raise wrong(f"metric has no key {unknown!r}", "metric: {name: loss, goal: minimize}", (unknown,))
    goal = value.get("goal", guess_goal(value["name"]))
    if not isinstance(goal, str) or goal not in GOALS:
        raise wrong(f"the goal {goal!r} is neither minimize nor maximize", "goal: minimize", ("goal",))
    return Metric(value["name"], GOALS[goal])  # type: ignore[arg-type]


def check_metrics(value: Any) -> tuple[MetricPattern, ...]:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(MetricPattern(name) for name in value)
    if not isinstance(value, dict):
        raise wrong("metrics must be a list of names, or a mapping of names to regular expressions", "metrics: [loss]")
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
        raise wrong(f"the pattern of {name} must be text, not {kind_of(pattern)}", example, (name,))
    try:
        groups = compile_pattern(pattern).groups
    except ValueError as error:
        raise wrong(f"the pattern of {name} is not a regular expression: {error}", example, (name,)) from None
    if groups != 1:
        raise wrong(f"the pattern of {name} must have one group, it has {groups}", example, (name,))
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
            raise wrong(
                f"{key!r} is no cause that is tried again; there are {accepted}",
                "retries: {killed: 2}",
                (key,),
            )
        found[cause] = _retry_count(number, (key,))
    return found


def _retry_count(value: Any, at: tuple[str, ...]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise wrong(f"retries must be a whole number, 0 or more, not {value!r}", "retries: 2", at)
    return value


def check_env(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wrong(f"env must be a mapping of names to text, not {kind_of(value)}", "env: {NAME: value}")
    found = {}
    for name, item in value.items():
        if item is None or isinstance(item, (dict, list)):
            raise wrong(f"the value of {name} must be text, not {kind_of(item)}", f"{name}: ''", (name,))
        if "=" in name or "\0" in f"{name}{item}":
            raise wrong(f"{name!r} cannot be the name of an environment variable", "", (name,))
        if isinstance(item, str) and item and _SECRET.search(name) and "{" not in item:
            hint = f"remove it here and export {name} in your shell; trials inherit it"
            raise wrong(f"{name} looks like a secret and would be written to disk", hint, (name,))
        found[name] = item if isinstance(item, str) else _plain(item)
    return found


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return getattr(value, "text", None) or str(value)


def check_outputs(value: Any) -> tuple[str, ...]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list) or not all(isinstance(item, str) and item for item in patterns):
        raise wrong("outputs must be a list of patterns", "outputs: ['results/*.npz']")
    for number, pattern in enumerate(patterns):
        if pattern.startswith("~") or ".." in pattern.split("/"):
            hint = "use a relative path, an absolute one, or $SLURM_TMPDIR/…"
            raise wrong(f"{pattern!r} leaves the folder the trial is executed in", hint, (number,))
    return tuple(patterns)


def check_warm(value: Any) -> Warm:
    if value is True or value == "auto":
        return Warm("auto")
    if value is False or value == "off":
        return Warm("off")
    if isinstance(value, list) and value and all(_is_module(item) for item in value):
        return Warm("list", tuple(value))
    raise wrong("warm must be auto, off or a list of modules", "warm: auto")


def _is_module(value: Any) -> bool:
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))
