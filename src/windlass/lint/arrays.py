"""An array's range held against the files or lines that its tasks take: twenty files are not `--array=0-20`."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from windlass.core.counted import counted
from windlass.lint.notes import Note, remark, wrong
from windlass.slurm.directives import Script

_ID = "SLURM_ARRAY_TASK_ID"
_MARK = "\0"  # stands for the task's number in a word
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_MOST_TASKS = 100_000  # no cluster takes longer arrays; more are not looked at one by one
_RANGE = r"[0-9]{1,18}(?:-[0-9]{1,18}(?::[0-9]{1,18})?)?"
_TASKS = re.compile(rf"{_RANGE}(?:,{_RANGE})*(?:%[0-9]*)?")
_WRITES = re.compile(r"out|log|save|result|dest|write|checkpoint|ckpt|tmp|dir", re.IGNORECASE)
_READERS = ("cat", "source", ".", "bash", "sh", "zsh", "tar", "unzip")
# `sed -n "${SLURM_ARRAY_TASK_ID}p" FILE`, `sed "…q;d" FILE`, `awk "NR==…" FILE`: a line for each task.
_LINE_OF = re.compile(rf"{_MARK}p|{_MARK}q;\s*d|NR\s*==\s*{_MARK}")


@dataclass
class _Place:
    """Where the script is, as far as it can be followed, and what its variables hold."""

    folder: str | None
    variables: dict[str, str] = field(default_factory=dict)

    def fill(self, word: str) -> str | None:
        """A word with its variables replaced; None where one of them is not known."""
        unknown = False

        def value(found: re.Match[str]) -> str:
            nonlocal unknown
            known = self.variables.get(found[1] or found[2])
            unknown = unknown or known is None
            return known or ""

        filled = _VARIABLE.sub(value, word)
        return None if unknown or "$" in filled or "`" in filled else filled

    def path(self, word: str) -> str | None:
        filled = self.fill(word)
        if filled is None or (self.folder is None and not os.path.isabs(filled)):
            return None
        return os.path.normpath(os.path.join(self.folder or "/", filled))


def lint_array(
    script: Script, folder: str, environ: Mapping[str, str], given: str | None = None
) -> Iterator[Note]:
    """`given`: the range on sbatch's command line, which has the last word."""
    text = given or script.value("array") or ""
    tasks = parse_tasks(text)
    if not tasks:
        return
    chdir = script.value("chdir")
    base = os.path.join(folder, chdir) if chdir else folder
    known = {name: environ[name] for name in ("HOME", "USER", "SCRATCH") if environ.get(name)}
    place = _Place(base, {**known, _ID: _MARK, "SLURM_SUBMIT_DIR": base})
    for number, line in _commands(script):
        words = _split(line)
        _follow(place, words)
        yield from _lint_line(number, words, place, tasks, text)


def parse_tasks(text: str) -> list[int]:
    """The numbers of an array's tasks, in order; none where the text is no range."""
    if not _TASKS.fullmatch(text):
        return []
    tasks: set[int] = set()
    for part in text.partition("%")[0].split(","):
        first, last, step = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part).groups()  # type: ignore[union-attr]
        tasks.update(
            range(int(first), min(int(last or first), _MOST_TASKS) + 1, int(step or 1) or 1)
        )
    return sorted(tasks)


def render_tasks(numbers: list[int], like: str = "") -> str:
    """Numbers as ranges, with the throttle of `like`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    text = ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
    return text + like[like.index("%") :] if "%" in like else text


def _commands(script: Script) -> Iterator[tuple[int, str]]:
    """The commands of a script, with the line on which each begins; lines that end in a backslash are put together."""
    begin, text = 0, ""
    for number, line in enumerate(script.lines, 1):
        if not script.first_command or number < script.first_command or number in script.quoted:
            continue
        if not text and line.lstrip().startswith("#"):
            continue
        begin = begin if text else number
        text += line
        if text.endswith("\\"):
            text = text[:-1] + " "
            continue
        yield begin, text
        text = ""


def _split(line: str) -> list[str]:
    """Words and operators of a command; nothing where a quote is left open or the shell computes a word."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="<>|;&()")
        lexer.whitespace_split = True
        return list(lexer)
    except ValueError:
        return []


def _follow(place: _Place, words: list[str]) -> None:
    """Changes of the folder, and variables that hold something known."""
    if words[:1] == ["cd"]:
        place.folder = place.path(words[1]) if len(words) > 1 else place.variables.get("HOME")
    for word in words[1:] if words[:1] == ["export"] else words[:1]:
        name, equals, value = word.partition("=")
        if equals and name.isidentifier():
            filled = place.fill(value) if len(words) < 3 or words[0] == "export" else None
            if filled is None:
                place.variables.pop(name, None)
            else:
                place.variables[name] = filled


def _lint_line(
    number: int, words: list[str], place: _Place, tasks: list[int], text: str
) -> Iterator[Note]:
    filled = [place.fill(word) or "" for word in words]
    line_of = next((index for index, word in enumerate(filled) if _LINE_OF.search(word)), None)
    if line_of is not None:
        file = next(
            (word for word in words[line_of + 1 :] if not re.fullmatch(r"[<>|;&()]+|-.*", word)), ""
        )
        yield from _lint_lines(number, place.path(file) if file else None, tasks, text)
        return
    for index, word in enumerate(filled):
        before = words[index - 1] if index else ""
        if _MARK not in word or before.startswith((">", "&>")) or re.match(r"\w+=", word):
            continue
        option, _, value = word.rpartition("=") if word.startswith("-") else (before, "", word)
        if option.startswith("-") and _WRITES.search(option):
            continue
        path = place.path(words[index].rpartition("=")[2] if word.startswith("-") else words[index])
        if path is not None and _MARK in value:
            certain = before == "<" or os.path.basename(before) in _READERS
            yield from _lint_files(number, path, tasks, text, certain)


def _lint_files(
    number: int, path: str, tasks: list[int], text: str, certain: bool
) -> Iterator[Note]:
    """`certain`: the word is a file that is read, and not, say, one that the task will write."""
    before, _, after = path.partition(_MARK)
    found = [
        name[len(before) : len(name) - len(after)]
        for name in glob.glob(f"{glob.escape(before)}*{_escape(after)}")
    ]
    there = {int(middle) for middle in found if re.fullmatch(r"0|[1-9]\d*", middle)}
    missing = [task for task in tasks if not os.path.exists(path.replace(_MARK, str(task)))]
    shown = os.path.basename(path)
    if missing and (certain or len(there) > 1):
        have = (
            f"there {'is' if len(there) == 1 else 'are'} {counted(len(there), 'such file')}"
            if there
            else "there is none of these files"
        )
        absent = shown.replace(_MARK, str(missing[0]))
        message = f"--array={text}: there is no {absent} for task {_count(missing)}; {have}"
        hint = f"--array={render_tasks(sorted(there), text)}" if there else "write the files first"
        yield (wrong if certain else remark)(number, message, hint)
    unused = sorted(there - set(tasks))
    if unused and certain:
        message = f"--array={text} leaves out {shown.replace(_MARK, str(unused[0]))}" + (
            f" and {counted(len(unused) - 1, 'more file')}" if len(unused) > 1 else ""
        )
        yield remark(number, message, f"--array={render_tasks(sorted(there), text)}")


def _lint_lines(number: int, path: str | None, tasks: list[int], text: str) -> Iterator[Note]:
    """Tasks that take the line of their number out of one file."""
    if path is None or _MARK in path:
        return
    try:
        with open(path, "rb") as file:
            lines = len(file.read().splitlines())
    except OSError:
        return
    name, right = os.path.basename(path), f"--array={render_tasks(list(range(1, lines + 1)), text)}"
    outside = [task for task in tasks if not 1 <= task <= lines]
    if outside:
        message = f"--array={text}: {name} has lines 1 to {lines}, and there is none for task {_count(outside)}"
        yield wrong(number, message, right)
    elif len(tasks) < lines and tasks == list(range(tasks[0], tasks[-1] + 1)):
        yield remark(
            number, f"--array={text} takes {len(tasks)} of the {lines} lines of {name}", right
        )


def _escape(text: str) -> str:
    """For glob; the task's number may stand there more than once."""
    return "*".join(glob.escape(part) for part in text.split(_MARK))


def _count(tasks: list[int]) -> str:
    return f"{tasks[0]}" if len(tasks) == 1 else f"{tasks[0]} and {len(tasks) - 1} more"
