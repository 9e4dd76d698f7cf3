"""Settings that several layers may say: the command line beats the study, the study the site, the site the default."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.errors import InputError, Problem
from windlass.model import ANY_FILES, Needs, Setting
from windlass.spec.units import (
    DURATION_FORMS,
    HEADROOM_FORMS,
    SIZE_FORMS,
    check_gpus,
    parse_duration_s,
    parse_headroom,
    parse_memory_mb,
    parse_slurm_time_s,
)

GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Known:
    """One setting: its name in files, its name in the model, how it is read, what it is without anybody's word."""

    word: str
    key: str
    parse: Callable[[Any], Any]
    default: Any
    help: str
    flag: str = ""  # where it is not the word


def _count(value: Any) -> int:
    number = _number(value)
    if not 0 <= number < math.inf or int(number) != number:
        raise ValueError(f"a whole number is wanted, not {value!r}")
    return int(number)


def _amount(value: Any) -> float:
    number = _number(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"a number of 0 or more is wanted, not {value!r}")
    return number


def _number(value: Any) -> float:
    """Raises ValueError, in our own terms, for what is no number."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except OverflowError:
        return math.copysign(math.inf, value)  # a whole number of hundreds of digits
    except (ValueError, TypeError):
        raise ValueError(f"a number is wanted, not {value!r}") from None


def _gpus(value: Any) -> float:
    gpus = _amount(value)
    try:
        return check_gpus(gpus)
    except ValueError as error:
        raise ValueError(f"{error}; write {math.ceil(gpus)}, or a fraction below 1 to share one") from None


def _retries(value: Any) -> dict[str, int]:
    if isinstance(value, Mapping):
        return {str(cause).replace("_", " "): _count(times) for cause, times in value.items()}
    return {"any": _count(value)}


def _bytes(value: Any) -> int:
    return parse_memory_mb(str(value)) << 20


def _text(value: Any) -> str:
    return str(value)


def _duration(value: Any) -> float:
    return parse_duration_s(str(value))


def _memory(value: Any) -> int:
    return parse_memory_mb(str(value))


def _time(value: Any) -> float:
    time_s = parse_slurm_time_s(str(value))
    if time_s <= 0:
        raise ValueError(f"more than no time is wanted, not {value}")
    return time_s


def _positive(value: Any) -> int:
    if _count(value) < 1:
        raise ValueError(f"1 or more is wanted, not {value}")
    return _count(value)


def _cores(value: Any) -> float:
    if _amount(value) <= 0:
        raise ValueError(f"more than 0 is wanted, not {value}")
    return _amount(value)


def _choice(*accepted: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in accepted:
            raise ValueError(f"one of {', '.join(accepted)} is wanted, not {value}")
        return str(value)

    return parse


def _headroom(value: Any) -> str:
    return parse_headroom(str(value))


def _factor(value: Any) -> float:
    if _amount(value) < 1:
        raise ValueError(f"1 or more is wanted, not {value}")
    return _amount(value)


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
            raise ValueError(f"{word!r} is no long option of sbatch; write --sbatch --constraint=cascade")
        options[name[2:]] = given if equals else True
    return options


def _small_files(value: Any) -> int:
    """A number of files; `allow` is any number."""
    try:
        return ANY_FILES if value == "allow" else _count(value)
    except ValueError:
        raise ValueError(f"a number of files, or `allow`, is wanted, not {value!r}") from None


# What to write instead of a value that cannot be read, by how it is read.
_EXAMPLES: dict[Callable[[Any], Any], str] = {
    _duration: f"for example 30m; accepted are {DURATION_FORMS}",
    _time: f"for example 90m; accepted are {DURATION_FORMS}",
    _memory: f"for example 4GB; accepted are {SIZE_FORMS}",
    _bytes: f"for example 10MB; accepted are {SIZE_FORMS}",
    _small_files: "for example 5000, or allow for any number",
    _headroom: f"for example 1GB; accepted are {HEADROOM_FORMS}",
}
SETTINGS: tuple[Known, ...] = (
    Known("slots", "slots", _positive, None, "trials at a time on one machine"),
    Known("cpus", "cpus", _cores, None, "cores one trial needs"),
    Known("memory", "memory_mb", _memory, None, "memory one trial needs"),
    Known("gpus", "gpus", _gpus, None, "GPUs one trial needs; a fraction below 1 shares one"),
    Known("gpu_memory", "gpu_memory_mb", _memory, None, "GPU memory one trial needs"),
    Known("gpu_type", "gpu_type", _text, None, "type of GPU, by the cluster's name for it"),
    Known("time", "time_s", _time, None, "time one trial needs"),
    Known("most", "most", _positive, None, "trials that share a GPU, at most", "most_per_gpu"),
    Known("prefer", "prefer", _choice("throughput", "latency"), "throughput", "trials an hour, or each of them quick"),
    Known("headroom", "headroom", _headroom, "next", "GPU memory beyond the measured peak"),
    Known("mps", "mps", _choice("auto", "on", "off"), "auto", "NVIDIA MPS where trials share a GPU"),
    Known("safety", "safety", _factor, 1.3, "so many times the estimated time is asked for"),
    Known("timeout", "timeout_s", _duration, None, "a trial that takes longer is ended"),
    Known("grace", "grace_s", _duration, 10.0, "time between TERM and KILL"),
    Known("retries", "retries", _retries, {}, "further attempts after a failure"),
    Known("output_limit", "output_limit_bytes", _bytes, 2 * GIGABYTE, "output kept of one trial and stream"),
    Known("small_files", "small_files", _small_files, 1000, "files of a folder that trials read from a shared disk"),
    Known("folder", "folder", _text, None, "where studies' folders are made"),
    Known("share", "share", _choice("group", "nobody"), None, "who else may work in the study's folder"),
    Known("code", "code", _text, None, "frozen: a copy as at submission; live: the project itself"),
    Known("keep", "keep", _text, "all", "whose outputs are kept"),
    Known("lead", "lead_s", _duration, 120.0, "trials are told so long before a job's time is up"),
    Known("stop_signal", "stop_signal", _text, "TERM", "the signal that tells them"),
    Known("again_code", "again_code", _count, 42, "exit code that means: another turn"),
    Known("unit", "unit_s", _duration, 86400.0, "how long one job of a chain may be"),
    Known("patience", "patience_s", _duration, 180.0, "how long sbatch may take to answer"),
    Known("lease", "lease_s", _duration, 300.0, "an agent that nobody heard of for so long is taken for dead"),
    Known("account", "account", _text, None, "the account that pays for jobs"),
    Known("partition", "partition", _text, None, "where jobs wait"),
    Known("qos", "qos", _text, None, "quality of service of jobs"),
    Known("gpus_per_job", "gpus_per_job", _positive, None, "GPUs of one job"),
    Known("mem_per_gpu", "mem_per_gpu_mb", _memory, None, "memory of a job for each of its GPUs"),
    Known("nodes", "nodes", _positive, 1, "nodes of one job"),
    Known("agents", "agents", _positive, None, "agents that share the trials"),
    Known("max_jobs", "max_jobs", _positive, None, "never more agents than this"),
    Known("throttle", "throttle", _positive, None, "agents at a time"),
    Known("mail_user", "mail_user", _text, None, "who is told by mail"),
    Known("mail_type", "mail_type", _words, ("END", "FAIL"), "what of"),
    Known("options", "options", _options, {}, "further options of sbatch"),
)
_NEEDS = ("cpus", "memory_mb", "gpus", "gpu_memory_mb", "gpu_type", "time_s")
# sbatch lets these win over the script; so that a plan says what will be, they are a layer of their own.
_VARIABLES = {
    "account": ("SBATCH_ACCOUNT", "SLURM_ACCOUNT"),
    "partition": ("SBATCH_PARTITION", "SLURM_PARTITION"),
    "qos": ("SBATCH_QOS", "SLURM_QOS"),
}


def resolve_settings(
    flags: Mapping[str, Any],
    study_said: Mapping[str, Any],
    site_said: Mapping[str, Any],
    site_file: str,
    environ: Mapping[str, str] | None = None,
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
            elif variable := _variable(known.word, environ or {}):
                setting = Setting(known.parse((environ or {})[variable]), variable)
            elif site_words.get(known.word) is not None:
                setting = Setting(known.parse(site_words[known.word]), "site")
            else:
                setting = Setting(known.default, "default")
            resolved[known.key] = setting
        except (ValueError, TypeError) as error:
            flagged = flags.get(known.word) is not None
            place = f"--{(known.flag or known.word).replace('_', '-')}" if flagged else known.word
            problems.append(Problem(f"{place}: {error}", _EXAMPLES.get(known.parse, ""), "" if flagged else site_file))
    if problems:
        raise InputError(problems)
    if resolved["options"].source == "command line":
        resolved["options"] = Setting({**from_study.get("options", {}), **resolved["options"].value}, "command line")
    return resolved


def _variable(word: str, environ: Mapping[str, str]) -> str | None:
    return next((name for name in _VARIABLES.get(word, ()) if environ.get(name)), None)


def _unknown_words(site_said: Mapping[str, Any], site_file: str) -> list[Problem]:
    words = {known.word for known in SETTINGS} | {"needs"}
    return [
        Problem(f"unknown setting {word!r}", f"known are: {', '.join(sorted(words))}", site_file)
        for word in site_said
        if word not in words
    ]
