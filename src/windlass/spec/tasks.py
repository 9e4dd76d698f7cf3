"""Task files: one command a line, with comments, blank lines and backslash continuation."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.errors import Problem
from windlass.spec.words import UnclosedQuoteError, first_operator, split_words


@dataclass(frozen=True)
class _Line:
    """A logical line: what a backslash continued, joined."""

    text: str
    number: int  # of its first physical line, 1-based


def parse_tasks(text: str, file: str) -> tuple[tuple[tuple[str, ...], ...], list[Problem]]:
    """The words of every command in the file, and what is wrong with it."""
    tasks: list[tuple[str, ...]] = []
    problems: list[Problem] = []
    for line in _logical_lines(text, file, problems):
        words = _words_of(line, file, problems)
        if words:
            tasks.append(words)
    if not tasks and not problems:
        problems.append(
            Problem("there is no command in this file", "write one command a line", file)
        )
    return tuple(tasks), sorted(problems, key=lambda problem: problem.line)


def _logical_lines(text: str, file: str, problems: list[Problem]) -> list[_Line]:
    """Lines joined where they end with a backslash; one that is only a comment does not end a joined line."""
    lines: list[_Line] = []
    parts: list[str] = []
    first = 0
    for number, physical in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        stripped = physical.strip()
        if stripped.startswith("#"):
            continue
        if not parts:
            first = number
        _check_backslash(physical, number, file, problems)
        if _continues(physical):
            parts.append(physical[:-1])
            continue
        parts.append(physical)
        lines.append(_Line("".join(parts), first))
        parts = []
    if parts:
        lines.append(_Line("".join(parts), first))
    return [line for line in lines if line.text.strip()]


def _continues(physical: str) -> bool:
    """Ends with a backslash that is not itself escaped."""
    return (len(physical) - len(physical.rstrip("\\"))) % 2 == 1


def _check_backslash(physical: str, number: int, file: str, problems: list[Problem]) -> None:
    before, backslash, after = physical.rpartition("\\")
    blank = after.strip() == "" or after.strip().startswith("#")
    if backslash and after and after[0] in " \t" and blank and (not before or before[-1] in " \t"):
        message = "this backslash does not continue the line: something follows it"
        problems.append(
            Problem(message, "end the line with the backslash", file, number, len(before) + 1)
        )


def _words_of(line: _Line, file: str, problems: list[Problem]) -> tuple[str, ...]:
    try:
        words = split_words(line.text, comments=True)
    except UnclosedQuoteError as error:
        message = f"the line ends inside a quote: {error.quote} is opened and never closed"
        hint = f"close it, or write \\{error.quote} for the character itself"
        problems.append(Problem(message, hint, file, line.number, error.position + 1))
        return ()
    operator = first_operator(words)
    if operator is not None:
        message = f"{operator} means something only to a shell, and no shell is involved"
        problems.append(Problem(message, "write the line as bash -c '…'", file, line.number))
    elif words and words[0].text.startswith("-"):
        message = f"the line begins with {words[0].text}, which is no command"
        problems.append(
            Problem(message, "end the line before it with a backslash", file, line.number)
        )
    return tuple(word.text for word in words)
