"""From the arguments before the cursor to those that may follow, in the form that the shell's function reads."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from windlass.completion.candidates import KINDS, Asked, Candidate
from windlass.completion.table import Verb, Word, read_table
from windlass.core.paths import YAML_ENDINGS

PLAIN, NO_SPACE, FILES, FOLDERS, PATHS = "plain", "nospace", "files", "folders", "paths"
_MOST = 200
_BREAKS = "=:"  # characters at which bash begins another argument; only what follows the last one may be answered
_SPECIAL = re.compile(r"([^\w@%+=:,./~\-])")
_STUDY_VERBS = ("study", "study-or-trial")


@dataclass(frozen=True)
class Answer:
    """`how`: whether a space follows, or that the shell itself lists files. Then the candidates that fit."""

    how: str = PLAIN
    candidates: tuple[Candidate, ...] = ()


@dataclass
class _Read:
    """What the arguments before the cursor are."""

    verb: Verb
    values: dict[str, str] = field(default_factory=dict)  # option → its last value
    arguments: list[str] = field(default_factory=list)
    pending: Word | None = None  # an option that waits for its value
    program: bool = False  # behind `--`: the arguments of the user's program
    named: bool = False  # whether the verb itself stands there


def main(shell: str, arguments: Sequence[str]) -> int:
    """Answer the shell's function. Whatever goes wrong, the shell shows nothing: a tab must never print an error.

    bash gives its line up to the cursor as one argument; zsh and fish give all of them, the unfinished one last.
    """
    sys.stderr = io.StringIO()  # what readers of damaged files warn of, other verbs show
    try:
        given = split_line(arguments[0]) if shell == "bash" else list(arguments)
        answer = find_answer(read_table(), given[1:-1], given[-1])
        sys.stdout.write(render_answer(answer, shell, given[-1]))
        sys.stdout.flush()
    except Exception:
        return 1
    return 0


def split_line(line: str) -> list[str]:
    """The arguments of an unfinished command line as a shell reads them; the last one is the one under the cursor."""
    arguments, argument, quote, begun = [], "", "", False
    letters = iter(line)
    for letter in letters:
        if quote:
            if letter == quote:
                quote = ""
            elif letter == "\\" and quote == '"':
                argument += next(letters, "")
            else:
                argument += letter
        elif letter in "'\"":
            quote, begun = letter, True
        elif letter == "\\":
            argument, begun = argument + next(letters, ""), True
        elif letter.isspace():
            if begun:
                arguments.append(argument)
            argument, begun = "", False
        else:
            argument, begun = argument + letter, True
    return [*arguments, argument]


def find_answer(table: Verb, arguments: Sequence[str], unfinished: str) -> Answer:
    """What may stand in place of `unfinished` behind these arguments."""
    read = _read_words(table, arguments)
    if read.program:
        return Answer(FILES)
    if read.pending is not None:
        return _complete_value(read.pending, read, unfinished)
    name, equals, value = unfinished.partition("=")
    if unfinished.startswith("--") and equals:
        option = read.verb.options.get(name)
        if option is None or not option.takes_value:
            return Answer()
        inner = _complete_value(option, read, value)
        return Answer(
            inner.how, tuple(Candidate(f"{name}={one.value}", one.help) for one in inner.candidates)
        )
    if unfinished.startswith("-"):
        return _fitting(_list_options(read.verb, unfinished), unfinished)
    if read.verb.verbs:
        return _fitting(
            (Candidate(name, one.help) for name, one in read.verb.verbs.items()), unfinished
        )
    return _complete_value(read.verb.argument(len(read.arguments)), read, unfinished)


def _read_words(table: Verb, arguments: Sequence[str]) -> _Read:
    """Options, their values and arguments, as far as they are typed."""
    read = _Read(table)
    option = ""
    for argument in arguments:
        if read.pending is not None:
            read.values[option], read.pending = argument, None
        elif argument == "--":
            read.program = True
            return read
        elif argument.startswith("-") and len(argument) > 1:
            option, equals, value = argument.partition("=")
            known = read.verb.options.get(option)
            if equals:
                read.values[option] = value
            elif known is not None and known.takes_value:
                read.pending = known
        elif argument in read.verb.verbs:
            read = _Read(read.verb.verbs[argument], read.values)
        else:
            read.arguments.append(argument)
    return read


def _list_options(verb: Verb, unfinished: str) -> Iterable[Candidate]:
    """Long options, and the short ones once a single dash stands there; of an option with several names, the first
    long one, unless another is being typed."""
    shown: set[int] = set()
    for name, option in verb.options.items():
        if not name.startswith("--"):
            if unfinished == name:
                yield Candidate(name, option.help)
            continue
        if id(option) in shown and not (len(unfinished) > 2 and name.startswith(unfinished)):
            continue
        shown.add(id(option))
        yield Candidate(name, option.help)


def _complete_value(argument: Word, read: _Read, unfinished: str) -> Answer:
    """The values that may stand for an option or argument. Files and folders are left to the shell itself."""
    if argument.choices:
        return _fitting((Candidate(choice) for choice in argument.choices), unfinished)
    if argument.kind in (FILES, FOLDERS):
        return Answer(argument.kind)
    if argument.kind not in KINDS:
        return Answer()
    found = _fitting(KINDS[argument.kind](_asked(read), unfinished), unfinished)
    if argument.kind in ("study-file", "script"):
        return Answer(PATHS, found.candidates)
    open_ended = all(one.value.endswith("=") for one in found.candidates)
    return Answer(NO_SPACE, found.candidates) if open_ended and found.candidates else found


def _asked(read: _Read) -> Asked:
    """Which study is meant: by `--study`, by an argument, or by a study file."""
    file = read.values.get("--configs") or read.values.get("-C")
    study = read.values.get("--study")
    for place, value in enumerate(read.arguments):
        kind = read.verb.argument(place).kind
        if kind == "study-file" and value.endswith(YAML_ENDINGS) and os.path.isfile(value):
            file = value
        elif kind in _STUDY_VERBS and not value.isdecimal():
            study = study or value
    return Asked(study, read.values.get("--folder"), file)


def _fitting(candidates: Iterable[Candidate], unfinished: str) -> Answer:
    """Those that begin as what stands there. Values with control characters are left out: a terminal obeys them."""
    fitting = []
    for one in candidates:
        if one.value.startswith(unfinished) and one.value.isprintable():
            fitting.append(one)
            if len(fitting) == _MOST:
                break
    return Answer(PLAIN, tuple(fitting))


def render_answer(answer: Answer, shell: str, unfinished: str) -> str:
    """A line that says how, then a line a candidate; zsh and fish get the help behind a tab."""
    lines = [answer.how]
    for one in answer.candidates:
        if shell == "bash":
            lines.append(_for_bash(one.value, unfinished))
        else:
            text = "".join(letter if letter.isprintable() else " " for letter in one.help)
            lines.append(f"{one.value}\t{text}")
    return "\n".join(lines) + "\n"


def _for_bash(value: str, unfinished: str) -> str:
    """bash replaces only what follows the last `=` or `:`, and takes candidates as they are: with their quotes."""
    cut = 0
    for place, letter in enumerate(unfinished):
        if letter in _BREAKS:
            cut = place + 1
    return _SPECIAL.sub(r"\\\1", value[cut:])
