"""Reads a batch script as sbatch does: which lines count, and which options they give. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from windlass.slurm.options import LETTERS, VALUES, find_options

_HEREDOC = re.compile(r"<<(-?)\s*\\?(['\"]?)([A-Za-z_]\w*)\2")


@dataclass(frozen=True)
class Option:
    """One option of a directive. `name` is the long one."""

    line: int
    name: str
    value: str | None
    written: str  # the word as it stands there
    part: int = 0  # of a heterogeneous job


@dataclass(frozen=True)
class Mistake:
    """A directive that sbatch refuses, or that says something else than it seems to."""

    line: int
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Script:
    """A batch script, taken apart."""

    lines: tuple[str, ...]
    options: tuple[Option, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    first_command: int = 0  # its line; 0: there is none
    parts: int = 1  # of a heterogeneous job
    quoted: frozenset[int] = field(default_factory=frozenset)  # lines inside here documents

    def value(self, name: str) -> str | None:
        """What sbatch would take: the last one wins."""
        return next(
            (option.value or "" for option in reversed(self.options) if option.name == name), None
        )


@dataclass
class _Words:
    """The words of one directive, and what broke them."""

    found: list[str] = field(default_factory=list)
    error: str = ""
    cut: str = ""  # a word that a # cut short


def parse_script(text: str) -> Script:
    """Take a script apart. Lines end in a line feed; nothing is checked that does not belong to directives."""
    lines = tuple(text.split("\n"))
    first = next(
        (
            number
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        ),
        0,
    )
    options: list[Option] = []
    mistakes: list[Mistake] = []
    part = 0
    for number, line in enumerate(lines[: first - 1] if first else lines, 1):
        if not line.startswith("#SBATCH"):
            continue
        words = split_words(line.removeprefix("#SBATCH"))
        if words.error:
            mistakes.append(Mistake(number, *_explain_break(words.error)))
        elif words.found[:1] in (["hetjob"], ["packjob"]):
            part += 1
        else:
            if words.cut:
                message = f"# cuts {words.cut!r} short: what follows is a comment"
                mistakes.append(Mistake(number, message, "put the value in quotes"))
            for found in parse_words(words.found, number, part):
                (options if isinstance(found, Option) else mistakes).append(found)  # type: ignore[arg-type]
    return Script(
        lines,
        tuple(options),
        tuple(mistakes),
        first,
        part + 1,
        frozenset(_quoted_lines(lines, first)),
    )


def split_words(text: str) -> _Words:
    """Cut a directive into words: quotes hold together, a backslash keeps a character, # ends it all."""
    words = _Words()
    place = 0
    while True:
        while place < len(text) and text[place] in " \t\v\f\r":
            place += 1
        if place >= len(text) or text[place] == "#":
            return words
        if text[place] == ":":
            words.error = ":"
            return words
        word, place, open_quote = _next_word(text, place)
        if open_quote:
            words.error = open_quote
            return words
        words.found.append(word)
        if place < len(text) and text[place] == "#":
            # A comment begins with a blank; this may have been meant as part of the value.
            words.cut = "" if text[place + 1 : place + 2] in ("", " ", "\t") else word
            return words


def _next_word(text: str, place: int) -> tuple[str, int, str]:
    """A word, where it ends, and the quote that was never closed. A space ends it even after a backslash."""
    word, quote, kept = "", "", False
    while place < len(text) and (quote or text[place] not in " \t\v\f\r"):
        letter = text[place]
        if kept:
            word, kept = word + letter, False
        elif letter == "\\":
            kept = True
        elif quote and letter == quote:
            quote = ""
        elif not quote and letter in "'\"":
            quote = letter
        elif not quote and letter == "#":
            break
        else:
            word += letter
        place += 1
    return word, place, quote


def parse_words(words: list[str], line: int, part: int = 0) -> Iterator[Option | Mistake]:
    """Options as getopt reads them; also their short forms, and long ones cut short."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and len(word) > 2:
            yield _long(word, rest, line, part)
        elif word.startswith("-") and len(word) > 1:
            yield from _short(word, rest, line, part)
        elif word:
            yield Mistake(
                line, f"{word!r} is no option: sbatch refuses the script", _explain_stray(word)
            )


def _long(word: str, rest: list[str], line: int, part: int) -> Option | Mistake:
    written, equals, value = word[2:].partition("=")
    found = find_options(written)
    if len(found) > 1:
        few = ", ".join(f"--{name}" for name in found[:6])
        return Mistake(line, f"--{written} can mean {few}: sbatch refuses it", f"--{found[0]}")
    name = found[0] if found else written
    kind = VALUES.get(name, "?")
    if equals:
        if found and kind == "":
            return Mistake(line, f"--{name} takes no value: sbatch refuses it", f"#SBATCH --{name}")
        if kind == "=" and not value:
            return Mistake(
                line,
                f"--{name}= has no value",
                f"no space after =: #SBATCH --{name}={''.join(rest[:1]) or 'VALUE'}",
            )
        return Option(line, name, value, word, part)
    if kind != "=":
        return Option(line, name, None, word, part)
    if not rest:
        return Mistake(line, f"--{name} needs a value", f"#SBATCH --{name}=VALUE")
    given = rest.pop(0)
    if given.startswith("="):
        shown = (given[1:] or "".join(rest[:1])) or "VALUE"
        rest.clear()
        return Mistake(
            line,
            f"no space before or after = : {given!r} is taken for the value",
            f"#SBATCH --{name}={shown}",
        )
    return Option(line, name, given, word, part)


def _short(word: str, rest: list[str], line: int, part: int) -> Iterator[Option | Mistake]:
    for place, letter in enumerate(word[1:], 1):
        name = LETTERS.get(letter)
        after = word[place + 1 :]
        if name is None:
            hint = f"-{word}" if find_options(word[1:].partition("=")[0]) else ""
            yield Mistake(
                line, f"sbatch has no option -{letter}", f"did you mean {hint}?" if hint else ""
            )
            return
        if not VALUES[name]:
            yield Option(line, name, None, word, part)
            continue
        long = word[1:].partition("=")[0]
        if place == 1 and len(long) > 2 and find_options(long):
            yield Mistake(
                line,
                f"{word} is read as -{letter} with the value {after!r}",
                f"two dashes: -{word}",
            )
        elif after.startswith("="):
            yield Mistake(
                line, f"{word}: the = is taken as part of the value", f"#SBATCH --{name}{after}"
            )
        elif after or VALUES[name] == "?":
            yield Option(line, name, after or None, word, part)
        elif rest:
            yield Option(line, name, rest.pop(0), word, part)
        else:
            yield Mistake(line, f"-{letter} needs a value", f"#SBATCH --{name}=VALUE")
        return


def _explain_break(error: str) -> tuple[str, str]:
    if error == ":":
        return (
            "a directive cannot begin a word with a colon: sbatch refuses the script",
            "#SBATCH --option=value",
        )
    return (
        f"the quote {error} is never closed: sbatch refuses the script",
        f"close it, or write \\{error}",
    )


def _explain_stray(word: str) -> str:
    if re.match("[–—−‐]", word):
        return "these dashes are typographic ones; type them anew: --"
    if word.startswith("\u00a0"):
        return "there is a no-break space here; type the line anew"
    if word.startswith("//"):
        return "a comment begins with #"
    if find_options(word.partition("=")[0]):
        return f"#SBATCH --{word}"
    return "put a value with spaces in quotes"


def _quoted_lines(lines: tuple[str, ...], first: int) -> Iterator[int]:
    """Lines of here documents: text for another program, whatever it looks like."""
    waiting: list[tuple[str, bool]] = []
    for number, line in enumerate(lines, 1):
        if waiting:
            yield number
            end, indented = waiting[0]
            if (line.lstrip("\t") if indented else line) == end:
                waiting.pop(0)
        elif first and number >= first and not line.lstrip().startswith("#"):
            waiting = [
                (found[3], found[1] == "-")
                for found in _HEREDOC.finditer(line.replace("<<<", "   "))
            ]
