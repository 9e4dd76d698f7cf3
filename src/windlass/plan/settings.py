"""Settings that several layers may say: the command line beats the study, the study the site, the site the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.errors import InputError, Problem
from windlass.model import Needs, Setting
from windlass.spec.units import parse_duration_s, parse_memory_mb

GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Known:
    """One setting: its name in files, its name in the model, how it is read, what it is without anybody's word."""

    word: str
    key: str
    parse: Callable[[Any], Any]
    default: Any
    help: str


def _count(value: Any) -> int:
    if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
        raise ValueError(f"a whole number is wanted, not {value!r}")
    return int(value)


def _amount(value: Any) -> float:
    if isinstance(value, bool) or float(value) < 0:
        raise ValueError(f"a number of 0 or more is wanted, not {value!r}")
    return float(value)


def _retries(value: Any) -> dict[str, int]:
    if isinstance(value, Mapping):
        return {str(cause).replace("_", " "): _count(times) for cause, times in value.items()}
    return {"any": _count(value)}


def _bytes(value: Any) -> int:
    return parse_memory_mb(str(value)) << 20


def _text(value: Any) -> str:
    return str(value)


SETTINGS: tuple[Known, ...] = (
    Known("slots", "slots", _count, None, "trials at a time on one machine"),
    Known("cpus", "cpus", _amount, None, "cores one trial needs"),
    Known("memory", "memory_mb", lambda value: parse_memory_mb(str(value)), None, "memory one trial needs"),
    Known("gpus", "gpus", _amount, None, "GPUs one trial needs; a fraction shares one"),
    Known("gpu_memory", "gpu_memory_mb", lambda value: parse_memory_mb(str(value)), None, "GPU memory one trial needs"),
    Known("time", "time_s", lambda value: parse_duration_s(str(value)), None, "time one trial needs"),
    Known(
        "timeout", "timeout_s", lambda value: parse_duration_s(str(value)), None, "a trial that takes longer is ended"
    ),
    Known("grace", "grace_s", lambda value: parse_duration_s(str(value)), 10.0, "time between TERM and KILL"),
    Known("retries", "retries", _retries, {}, "further attempts after a failure"),
    Known("output_limit", "output_limit_bytes", _bytes, 2 * GIGABYTE, "output kept of one trial and stream"),
    Known("folder", "folder", _text, None, "where studies' folders are made"),
)
_NEEDS = ("cpus", "memory_mb", "gpus", "gpu_memory_mb", "time_s")


def resolve_settings(
    flags: Mapping[str, Any], study_said: Mapping[str, Any], site_said: Mapping[str, Any], site_file: str
) -> dict[str, Setting]:
    """Every setting by its key, with the layer it came from. `flags` and the site's words are still text."""
    needs: Needs = study_said.get("needs") or Needs()
    from_study = {**study_said, **{key: getattr(needs, key) for key in _NEEDS}}
    site_words = {**site_said, **site_said.get("needs", {})}
    problems: list[Problem] = _unknown_words(site_said, site_file)
    resolved: dict[str, Setting] = {}
    for known in SETTINGS:
        try:
            if flags.get(known.word) is not None:
                setting = Setting(known.parse(flags[known.word]), "command line")
            elif from_study.get(known.key) is not None:
                setting = Setting(from_study[known.key], "study")
            elif site_words.get(known.word) is not None:
                setting = Setting(known.parse(site_words[known.word]), "site")
            else:
                setting = Setting(known.default, "default")
            resolved[known.key] = setting
        except (ValueError, TypeError) as error:
            flagged = flags.get(known.word) is not None
            place = f"--{known.word.replace('_', '-')}" if flagged else known.word
            problems.append(Problem(f"{place}: {error}", "", "" if flagged else site_file))
    if problems:
        raise InputError(problems)
    return resolved


def _unknown_words(site_said: Mapping[str, Any], site_file: str) -> list[Problem]:
    words = {known.word for known in SETTINGS} | {"needs"}
    return [
        Problem(f"unknown setting {word!r}", f"known are: {', '.join(sorted(words))}", site_file)
        for word in site_said
        if word not in words
    ]
