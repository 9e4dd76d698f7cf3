"""Values of directives that sbatch refuses, or takes for something else than was meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from windlass.lint.notes import Note, remark, wrong
from windlass.slurm.directives import Option, Script
from windlass.slurm.placeholders import find_placeholder

_N = "[0-9]{1,18}"  # no number of Slurm is longer
_TIME = re.compile(
    rf"-1|{_N}|{_N}:{_N}|{_N}:{_N}:{_N}|{_N}-|{_N}-{_N}|{_N}-{_N}:{_N}|{_N}-{_N}:{_N}:{_N}|(?i:unlimited|infinite)"
)
_SIZE = re.compile(rf"{_N}([KMGT]B?)?", re.IGNORECASE)
_ARRAY = re.compile(rf"{_N}(?:-{_N}(?::{_N})?)?(?:,{_N}(?:-{_N}(?::{_N})?)?)*(%[0-9]*)?")
_COUNT = re.compile(rf"{_N}[kKmM]?")
_MAILS = {
    "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT", "TIME_LIMIT_90",
    "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS",
}  # fmt: skip
_LOGS = ("output", "error")
_SIZES = ("mem", "mem-per-cpu", "mem-per-gpu", "tmp")
_COUNTS = ("cpus-per-task", "ntasks", "ntasks-per-node", "cpus-per-gpu")


def lint_values(
    script: Script, folder: str, environ: Mapping[str, str], given: str | None = None
) -> Iterator[Note]:
    """Each value by itself, and then log files with what the other options say of them.

    `given` is the range of an array on sbatch's command line.
    """
    array = script.value("array") if given is None else given
    if given is not None:
        yield from _array(0, given, "--array=0-9%3")
    chdir = script.value("chdir")
    base = os.path.join(folder, chdir) if chdir else folder
    for option in script.options:
        value = option.value
        if value is None:
            continue
        yield from _common(option, value)
        if option.name in ("time", "time-min"):
            yield from _time(option, value)
        elif option.name in _SIZES:
            yield from _size(option, value)
        elif option.name == "array":
            yield from _array(option.line, value, "#SBATCH --array=0-9%3")
        elif option.name == "mail-type":
            yield from _mail(option, value, array)
        elif option.name in _COUNTS and not _COUNT.fullmatch(value):
            yield wrong(option.line, f"--{option.name} must be a whole number, not {value!r}")
        elif option.name in _LOGS:
            yield from _log(option, value, script, array is not None, base, environ)
        elif option.name == "job-name" and "%" in value:
            yield remark(option.line, "% is filled in in names of log files, not in the job's name")
        elif option.name == "chdir" and "$" not in value and not os.path.isdir(base):
            yield wrong(
                option.line,
                f"there is no folder {base}: the job would run in /tmp",
                f"mkdir -p {base}",
            )


def _common(option: Option, value: str) -> Iterator[Note]:
    found = find_placeholder(value, whole=True)
    if found:
        yield wrong(
            option.line,
            f"--{option.name}: {found} is a placeholder that nobody replaced",
            "fill it in",
        )
    elif re.search(r"\$[A-Za-z_{(]|`", value):
        yield wrong(
            option.line, f"--{option.name}: variables mean nothing here: sbatch takes {value!r} as it stands",
            "give it on the command line instead" + ("; %u, %x, %j are filled in" if option.name in _LOGS else ""),
        )  # fmt: skip
    elif re.search("[“”‘’„]", value):
        yield wrong(
            option.line,
            f"--{option.name}: typographic quotes become part of the value",
            "type them anew, or leave them out",
        )
    elif "," in value and value.endswith(","):
        yield remark(
            option.line, f"--{option.name}: a list that ends with a comma; a blank ends a value"
        )


def _time(option: Option, value: str) -> Iterator[Note]:
    if not _TIME.fullmatch(value):
        yield wrong(
            option.line,
            f"--{option.name}={value} is no time that sbatch reads",
            f"#SBATCH --{option.name}=D-HH:MM:SS",
        )
    elif value in ("0", "-1"):
        yield remark(option.line, f"--{option.name}={value} asks for no limit at all")
    elif value.isdigit():
        if int(value) <= 168:
            yield remark(
                option.line,
                f"--{option.name}={value} is {value} minutes",
                f"{value} hours are --{option.name}={value}:00:00",
            )
    elif re.fullmatch(r"\d+:\d+", value):
        minutes, _, seconds = value.partition(":")
        yield remark(
            option.line, f"--{option.name}={value} is {int(minutes)} minutes and {int(seconds)} seconds",
            f"hours and minutes are --{option.name}={value}:00",
        )  # fmt: skip


def _size(option: Option, value: str) -> Iterator[Note]:
    found = _SIZE.fullmatch(value)
    if not found:
        yield wrong(
            option.line,
            f"--{option.name}={value} is no size that sbatch reads",
            f"#SBATCH --{option.name}=8000M, or 8G",
        )
    elif int(re.match(r"\d+", value)[0]) == 0:  # type: ignore[index]
        if option.name == "mem":
            yield remark(option.line, "--mem=0 takes all the memory of a node")
    elif not found[1] and int(value) < 512:
        yield remark(
            option.line, f"--{option.name}={value} is {value} MB", f"--{option.name}={value}G"
        )


def _array(line: int, value: str, example: str) -> Iterator[Note]:
    found = _ARRAY.fullmatch(value)
    if not found:
        yield wrong(line, f"--array={value} is no list of numbers: sbatch refuses it", example)
        return
    if found[1] == "%":
        yield remark(line, "a % without a number is no limit", example)
    for first, last in re.findall(r"(\d+)-(\d+)", value):
        if int(first) > int(last):
            yield wrong(
                line,
                f"--array={value}: {first} is above {last}: sbatch refuses it",
                f"{last}-{first}",
            )


def _mail(option: Option, value: str, array: str | None) -> Iterator[Note]:
    words = [word.strip().upper() for word in value.split(",")]
    for word in words:
        if word not in _MAILS:
            yield wrong(option.line, f"--mail-type={word}: sbatch does not know it", "END,FAIL")
    if "ARRAY_TASKS" in words and array:
        yield remark(
            option.line, "a mail for every task of the array", "END,FAIL: one for the whole array"
        )
    elif "ALL" in words and array:
        yield remark(option.line, "mail of every kind for an array is a flood", "END,FAIL")


def _log(
    option: Option, value: str, script: Script, array: bool, base: str, environ: Mapping[str, str]
) -> Iterator[Note]:
    if value.startswith("~"):
        yield wrong(
            option.line,
            f"~ means nothing here: the log would go to a folder called {value.split('/', maxsplit=1)[0]!r}",
            "write it out",
        )
        return
    if re.search(r"\$[A-Za-z_{(]|`", value):
        return
    if "\\" in value:
        yield remark(option.line, "a backslash in a log's name keeps Slurm from filling in any %")
        return
    marks = set(re.findall(r"%\d*([A-Za-z])", value.replace("%%", "")))
    if marks & {"a", "A"} and not array:
        yield remark(
            option.line,
            "without --array, %a is 4294967294"
            if "a" in marks
            else "without --array, %A is the same as %j",
            "%j",
        )
    if array and not marks & {"a", "j"} and value != "/dev/null":
        yield remark(
            option.line, "all tasks of the array write to this one file", "%A_%a in its name"
        )
    if marks & {"n", "t", "s"}:
        yield remark(
            option.line,
            f"%{sorted(marks & {'n', 't', 's'})[0]} tells nothing in a batch script",
            "%j, %A, %a, %x, %N",
        )
    yield from _log_folder(option, value, script, base, environ)


def _log_folder(
    option: Option, value: str, script: Script, base: str, environ: Mapping[str, str]
) -> Iterator[Note]:
    folder = os.path.dirname(value)
    known = {"%": "%", "u": environ.get("USER", ""), "x": script.value("job-name") or ""}
    marks = re.findall(r"%(\d*[A-Za-z]|%)", folder)
    unknown = [mark for mark in marks if not known.get(mark)]
    if {"u", "x"} & set(unknown) and set(unknown) <= {"u", "x"}:
        return
    if unknown:
        yield wrong(
            option.line, f"Slurm makes no folders, and one named by %{unknown[0]} cannot be there before the job is",
            f"put %{unknown[0]} into the file's name",
        )  # fmt: skip
        return
    filled = os.path.join(base, re.sub(r"%([ux%])", lambda mark: known[mark[1]], folder))
    if not os.path.isdir(filled):
        shown = filled.rstrip("/")
        yield wrong(
            option.line,
            f"there is no folder {shown}: the job would fail at once, without a log",
            f"mkdir -p {shown}",
        )
