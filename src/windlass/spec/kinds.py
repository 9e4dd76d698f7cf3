"""Kinds of values: how the study file, the command line and a site's profile write them, and how they are checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.core.units import (
    DURATION_FORMS,
    SIZE_FORMS,
    parse_duration_s,
    parse_memory_mb,
    parse_slurm_time_s,
)
from windlass.model import ANY_FILES
from windlass.settings import Row
from windlass.spec import fields as f
from windlass.spec import fields_pack as pack
from windlass.spec import fields_search as search
from windlass.spec.fields_ladder import check_ladder
from windlass.spec.units import HEADROOM_FORMS, check_gpus, parse_headroom

_TEXT = {"type": ["string", "number"]}
_LIST = {"type": ["array", "string"]}
_NUMBER = {"type": "number"}
_WHOLE = {"type": "integer"}


@dataclass(frozen=True)
class Kind:
    """One kind of value."""

    label: str  # the type that the reference names
    check: Callable[[Any], Any]  # a value of the study file → what it means; raises WrongValue
    # A value of the command line or of a profile → the same; raises ValueError.
    parse: Callable[[Any], Any] = str
    metavar: str | None = None  # the placeholder of an option in --help
    number: type | None = None  # int or float, where the option takes a number
    hint: str = ""  # what to write instead of an option's value that cannot be read
    schema: Mapping[str, Any] = field(default_factory=dict)  # JSON schema; {}: any value
    empty: Any = None  # the value of a setting that nobody has given
    # The only values there are, where a folder of the code has them.
    choices: Callable[[], tuple[str, ...]] = tuple


def choices_of(row: Row) -> tuple[str, ...]:
    """The only values that a row can have; none where it can have others."""
    return row.choices or KINDS[row.kind].choices()


def check_value(row: Row, value: Any) -> Any:
    """What a value of the study file means. Raises WrongValue, which says what is wrong and how to write it."""
    if (
        isinstance(value, bool) and "on" in row.choices
    ):  # YAML has two opinions on whether `on` is a word
        value = "on" if value else "off"
    found = KINDS[row.kind].check(value)
    choices = choices_of(row)
    return f.one_of(found, choices) if choices else found


def parse_value(row: Row, value: Any) -> Any:
    """What a value of the command line, of an environment variable or of a site's profile means; or ValueError."""
    found = KINDS[row.kind].parse(value)
    choices = choices_of(row)
    if choices and found not in choices:
        raise ValueError(f"one of {', '.join(choices)} is wanted, not {value}")
    return found


def default_value(row: Row) -> Any:
    return KINDS[row.kind].empty if row.default is None else parse_value(row, row.default)


def kind_label(row: Row) -> str:
    """The type of a row in the words of the reference."""
    quoted = [f"`{choice}`" for choice in choices_of(row)]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}" if quoted else KINDS[row.kind].label


# -- Values of the command line and of profiles, which are text or plain numbers


def _number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # a whole number of hundreds of digits
    except (ValueError, TypeError):
        raise ValueError(f"a number is wanted, not {value!r}") from None


def _whole(value: Any) -> int:
    number = _number(value)
    if not 0 <= number < math.inf or int(number) != number:
        raise ValueError(f"a whole number is wanted, not {value!r}")
    return int(number)


def _count(value: Any) -> int:
    if _whole(value) < 1:
        raise ValueError(f"1 or more is wanted, not {value}")
    return _whole(value)


def _amount(value: Any) -> float:
    number = _number(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"a number of 0 or more is wanted, not {value!r}")
    return number


def _cores(value: Any) -> float:
    if _amount(value) <= 0:
        raise ValueError(f"more than 0 is wanted, not {value}")
    return _amount(value)


def _factor(value: Any) -> float:
    if _amount(value) < 1:
        raise ValueError(f"1 or more is wanted, not {value}")
    return _amount(value)


def _gpus(value: Any) -> float:
    gpus = _amount(value)
    try:
        return check_gpus(gpus)
    except ValueError as error:
        raise ValueError(
            f"{error}; write {math.ceil(gpus)}, or a fraction below 1 to share one"
        ) from None


def _retries(value: Any) -> dict[str, int]:
    if isinstance(value, Mapping):
        return {str(cause).replace("_", " "): _whole(times) for cause, times in value.items()}
    return {"any": _whole(value)}


def _time(value: Any) -> float:
    time_s = parse_slurm_time_s(str(value))
    if time_s <= 0:
        raise ValueError(f"more than no time is wanted, not {value}")
    return time_s


def _words(value: Any) -> tuple[str, ...]:
    words = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(str(word).strip().upper() for word in words)


def _options(value: Any) -> dict[str, Any]:
    """Options of sbatch: a mapping, or words as on its command line."""
    if isinstance(value, Mapping):
        return {str(name).lstrip("-").replace("_", "-"): given for name, given in value.items()}
    options: dict[str, Any] = {}
    for word in value:
        name, equals, given = word.partition("=")
        if not name.startswith("--") or len(name) < 3:
            raise ValueError(
                f"{word!r} is no long option of sbatch; write --sbatch --constraint=cascade"
            )
        options[name[2:]] = given if equals else True
    return options


def _small_files(value: Any) -> int:
    try:
        return ANY_FILES if value == "allow" else _whole(value)
    except ValueError:
        raise ValueError(f"a number of files, or `allow`, is wanted, not {value!r}") from None


def _signal(value: Any) -> str:
    return str(value).upper().removeprefix("SIG")


def _check_signal(value: Any) -> str:
    return _signal(f.check_text(value))


def _duration(value: Any) -> float:
    return parse_duration_s(str(value))


def _memory(value: Any) -> int:
    return parse_memory_mb(str(value))


def _size(value: Any) -> int:
    return parse_memory_mb(str(value)) << 20


def _headroom(value: Any) -> str:
    return parse_headroom(str(value))


def _unchanged(value: Any) -> Any:
    return value


_DURATION_HINT = f"accepted are {DURATION_FORMS}"
_SIZE_HINT = f"accepted are {SIZE_FORMS}"
KINDS: dict[str, Kind] = {
    "choice": Kind("text", _unchanged),
    "method": Kind("text", search.check_method, choices=search.search_methods),
    "launch": Kind("text", pack.check_launch, pack.check_launch, choices=pack.launchers),
    "signal": Kind("text", _check_signal, _signal),
    "text": Kind("text", f.check_text, schema=_TEXT),
    "path": Kind("path", f.check_text, metavar="PATH", schema=_TEXT),
    "truth": Kind("true or false", f.check_truth, schema={"type": "boolean"}),
    "integer": Kind("number", f.check_integer, _whole, number=int, schema=_WHOLE),
    "count": Kind("number", f.check_count, _count, number=int, schema={**_WHOLE, "minimum": 1}),
    "repeat": Kind("number", search.check_repeat, number=int, schema={**_WHOLE, "minimum": 1}),
    "cores": Kind("number", f.check_amount, _cores, "N", float, schema={**_NUMBER, "minimum": 0}),
    "gpus": Kind("number", f.check_gpu_amount, _gpus, "N", float, schema={**_NUMBER, "minimum": 0}),
    "factor": Kind(
        "number of 1 or more",
        pack.check_safety,
        _factor,
        "X",
        float,
        schema={**_NUMBER, "minimum": 1},
    ),
    "memory": Kind(
        "size",
        f.check_memory,
        _memory,
        "SIZE",
        None,
        f"for example 4GB; {_SIZE_HINT}",
        {"type": "string"},
    ),
    "size": Kind(
        "size",
        f.check_size,
        _size,
        "SIZE",
        None,
        f"for example 10MB; {_SIZE_HINT}",
        {"type": "string"},
    ),
    "duration": Kind(
        "duration",
        f.check_duration,
        _duration,
        "TIME",
        None,
        f"for example 30m; {_DURATION_HINT}",
        _TEXT,
    ),
    "time": Kind(
        "duration",
        f.check_time_with_unit,
        _time,
        "TIME",
        None,
        f"for example 90m; {_DURATION_HINT}",
        _TEXT,
    ),
    "headroom": Kind(
        "`next`, share or size",
        pack.check_headroom,
        _headroom,
        "AMOUNT",
        None,
        f"for example 1GB; accepted are {HEADROOM_FORMS}",
        {"type": "string"},
    ),
    "retries": Kind(
        "number, or mapping of causes to numbers",
        f.check_retries,
        _retries,
        "N",
        int,
        schema={"type": ["integer", "object"]},
        empty={},
    ),
    "small_files": Kind(
        "number of files, or `allow` for any number",
        f.check_small_files,
        _small_files,
        "N",
        hint="for example 5000, or allow for any number",
        schema={"type": ["integer", "string"]},
    ),
    "words": Kind("text or list", f.check_words, _words, schema=_LIST),
    "lines": Kind("text or list of lines", f.check_lines, schema=_LIST),
    "options": Kind("mapping", f.check_options, _options, schema={"type": "object"}, empty={}),
    "section": Kind("mapping", _unchanged, schema={"type": "object"}),
    "command": Kind("text or list of words", f.check_command, schema=_LIST),
    "stages": Kind("mapping of names to commands", f.check_stages, schema={"type": "object"}),
    "parameters": Kind(
        "mapping, or list of mappings",
        search.check_parameters,
        schema={"type": ["object", "array"]},
    ),
    "config": Kind("path, or mapping with `file` and `new_keys`", pack.check_config),
    "zip": Kind("list of names", search.check_zip_groups, schema={"type": "array"}),
    "exclude": Kind(
        "list of mappings of names to a value or a list of values", search.check_exclude
    ),
    "seeds": Kind(
        "number, range or list of numbers",
        search.check_seeds,
        schema={"type": ["integer", "string", "array"]},
    ),
    "metric": Kind("name, or mapping", f.check_metric, schema={"type": ["string", "object"]}),
    "metrics": Kind("list of names, or mapping", f.check_metrics),
    "variants": Kind("name or list of names", pack.check_variants, schema=_LIST),
    "progress": Kind(
        "regular expression, or mapping with `pattern` and `steps`", pack.check_progress
    ),
    "ladder": Kind(
        "list of mappings with `name`, `args`, `parameters`, `command`, `expect`, `timeout`",
        check_ladder,
        schema={"type": "array"},
    ),
    "env": Kind("mapping of names to text", f.check_env, schema={"type": "object"}),
    "outputs": Kind("list of patterns", f.check_outputs, schema=_LIST),
    "data": Kind(
        "list of paths, or of mappings with `path`, `compress` and `writable`", f.check_data
    ),
    "warm": Kind("`auto`, `off` or list of modules", f.check_warm),
}
