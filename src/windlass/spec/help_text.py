"""Reads what the ``--help`` of a script prints."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from windlass.core.errors import InputError, input_error
from windlass.spec.help_absl import absl_options
from windlass.spec.help_forms import (
    ABSL,
    ARGPARSE,
    FIRE,
    HYDRA,
    Form,
    find_commands,
    find_library,
    recognise,
)
from windlass.spec.help_hydra import hydra_options
from windlass.spec.help_option import HelpOption
from windlass.spec.option_names import Kind, kind_of

_MINIMAL_STUDY = """write study.yaml by hand; the smallest is
    command: python train.py --lr {lr} --seed {seed}
    parameters:
      lr: [0.1, 0.01]
    seeds: 5"""
_DEFAULT_MARK = re.compile(
    r"(?i)\bdefault\s*[:=]\s*|\bdefaults to\s+|\bdefault is\s+|(?<=[\[(])default\s+"
)
_FIRE_FACTS = ("Type: ", "Default: ")
_NOT_OPTIONS = {"help", "h", "version", "install_completion", "show_completion", "print_config"}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|.\x08")
_FLAG = re.compile(r"(?<![\w\-<\[{])-{1,2}[A-Za-z][\w.-]*")
_FLAGS_ONLY = re.compile(r"-{1,2}[A-Za-z][\w.-]*(?:[,/ ]+-{1,2}[A-Za-z][\w.-]*)*")
_TYPE_ONLY = re.compile(
    r"<[^<>]+>|\[[^\[\]]+\|[^\[\]]+\]"
    r"|(?:INTEGER|INT|FLOAT|TEXT|BOOLEAN|PATH|FILENAME|FILE|DIRECTORY)(?: RANGE)?"
)
_BRACE_CHOICES = re.compile(r"\{([^{}]+)\}")
_BAR_CHOICES = re.compile(r"[\[<]([^\[\]<>|]+(?:\|[^\[\]<>|]+)+)[\]>]")


_TRACEBACK = "Traceback (most recent call last)"


def parse_help(
    text: str, source: str = "", script: str = "train.py", words: Sequence[str] = ()
) -> tuple[HelpOption, ...]:
    """The options in the order of the help text, each once; without ``--help`` and its like.

    `source` is what is in the script, where that is known; `words` are what stood before ``--help``. Raises InputError
    when no option can be found, or when the script has commands of which one has to be named.
    """
    form = recognise(text, source)
    options: dict[str, HelpOption] = {}
    for option in _options_of(form, text, source):
        # jsonargparse has --NAME.help beside --NAME; a command behind the script stands in the usage like an argument.
        is_help = option.name in _NOT_OPTIONS or option.flag.endswith(".help")
        if not is_help and (option.flag or option.name not in words):
            options.setdefault(option.name, option)
    commands = find_commands(text)
    if commands and not any(option.default or option.choices for option in options.values()):
        raise _needs_command(commands, script)
    if not options:
        raise _nothing_found(text, source)
    return tuple(options.values())


def _options_of(form: Form, text: str, source: str) -> Iterator[HelpOption]:
    lines = _cleaned(text)
    if form is HYDRA:
        return hydra_options("\n".join(lines))
    if form is ABSL:
        return absl_options(lines, source)
    if form is FIRE:
        return _fire_options(lines)
    return _column_options(lines)


def _needs_command(commands: Sequence[str], script: str) -> InputError:
    likely = next(
        (name for name in commands if name in ("train", "fit", "run", "main")), commands[0]
    )
    hint = f"name the one that trials execute: windlass init {shlex.quote(script)} {likely}"
    return input_error(
        f"the script has several commands ({', '.join(commands)}), each with its own options", hint
    )


def _nothing_found(text: str, source: str) -> InputError:
    library = find_library(source)
    uses = (
        f" (it uses {library.package})" if library is not None and library is not ARGPARSE else ""
    )
    if _TRACEBACK in text:
        error = next(line.strip() for line in reversed(text.splitlines()) if line.strip())
        hint = "install what is missing, or activate the script's environment first; or "
        return input_error(
            f"no options found, the script's --help fails{uses}: {error[:200]}",
            hint + _MINIMAL_STUDY,
        )
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    saw = f"; it begins with {first[:80]!r}" if first else "; it is empty"
    hint = (
        "if it has several commands, name one behind it (windlass init train.py fit); or "
        if library
        else ""
    )
    return input_error(f"no options found in the script's --help{uses}{saw}", hint + _MINIMAL_STUDY)


def _cleaned(text: str) -> list[str]:
    """Lines without colours, and without the boxes that typer draws around them."""
    lines = []
    for line in _ESCAPES.sub("", text).expandtabs().splitlines():
        if line.startswith(("╭", "╰", "┌", "└")):
            lines.append(line.strip("╭╮╰╯┌┐└┘─ "))
        elif line.startswith(("│", "┃")):
            # The star in the first column says "required", as do the words at the end of the line.
            lines.append(re.sub(r"^(\s*)\*", r"\1 ", line.strip("│┃").rstrip()))
        else:
            lines.append(line.rstrip())
    return lines


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _column_options(lines: Sequence[str]) -> Iterator[HelpOption]:
    """argparse, click and typer: an entry starts with a dash, its help is to the right or on deeper lines."""
    usage, rest = _split_usage(lines)
    flags, positionals = _required_words(usage)
    for declaration, description in _entries(rest):
        option = _column_option(declaration, description)
        if option is not None:
            yield replace(option, required=option.required or option.flag in flags)
    for name in positionals:
        yield HelpOption(_plain_name(name).lower(), "", None, (), "str", "", required=True)


def _split_usage(lines: Sequence[str]) -> tuple[str, list[str]]:
    """The usage as one line, and all other lines. In both formats an empty line ends it."""
    starts = [
        number for number, line in enumerate(lines) if line.strip().lower().startswith("usage:")
    ]
    if not starts:
        return "", list(lines)
    first = starts[0]
    stop = next(
        (number for number in range(first, len(lines)) if not lines[number].strip()), len(lines)
    )
    usage = " ".join(line.strip() for line in lines[first:stop])
    return usage[len("usage:") :].strip(), [*lines[:first], *lines[stop:]]


def _required_words(usage: str) -> tuple[set[str], list[str]]:
    """Flags and positional arguments that stand in no brackets. What picks a subcommand is left out."""
    if "[" not in usage:
        return set(), []
    optional = usage[usage.index("[") :]  # before it stands the name of the program
    while (shorter := re.sub(r"\[[^\[\]]*\](?:\.\.\.)?|\([^()]*\)", " ", optional)) != optional:
        optional = shorter
    words = re.sub(
        r"(?:\{[^{}]*,[^{}]*\}|\bCOMMAND\b)\s*\.\.\.|\bCOMMAND\b|\.\.\.", " ", optional
    ).split()
    flags, positionals = set(), []
    is_value = False
    for word in words:
        if word.startswith("-"):
            flags.add(word)
        elif not is_value:
            positionals.append(word.strip("{}<>"))
        is_value = word.startswith("-")
    return flags, positionals


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(declaration, help) of every option; deeper lines belong to the option above them."""
    declaration, description, entry_indent = "", "", math.inf
    for line in lines:
        if not line.strip():
            continue
        indent = _indent(line)
        if indent == 0:
            entry_indent = math.inf  # a headline: the next section may be indented otherwise
        if indent and indent <= entry_indent and _FLAG.match(line.strip()):
            if declaration:
                yield declaration, description
            entry_indent = indent
            declaration, description = _split_entry(line.strip())
        elif declaration and indent > entry_indent:
            description = f"{description} {line.strip()}".strip()
        elif declaration:
            yield declaration, description
            declaration = ""
    if declaration:
        yield declaration, description


def _split_entry(line: str) -> tuple[str, str]:
    """The declaration ends at two spaces; but typer has columns for short flags and for the type."""
    cells = re.split(r"\s{2,}", line)
    count = 1
    while count < len(cells) and (
        _FLAGS_ONLY.fullmatch(cells[count]) or _TYPE_ONLY.fullmatch(cells[count])
    ):
        count += 1
    return " ".join(cells[:count]), " ".join(cells[count:])


def _column_option(declaration: str, description: str) -> HelpOption | None:
    flags = list(_FLAG.finditer(declaration))
    if not flags or "…" in declaration:  # typer shortens what does not fit
        return None
    flag = _best_flag([match.group() for match in flags])
    value = declaration[flags[-1].end() :].strip(" =,/")
    choices = _parse_choices(value)
    several = not choices and (
        "..." in value or len(re.sub(r"(?i) range\b|\[.*?[<>].*?\]", "", value).split()) > 1
    )
    default = _parse_default(description)
    if not value:
        kind: Kind = "bool"
    elif several:
        kind = "str"
    else:
        stated = re.search(r"\(type: (\w+)[,)]", description)  # as jsonargparse has it
        kind = kind_of(_plain_name(flag), stated[1] if stated else value, default, choices)
    required = bool(re.search(r"[\[;] ?required\]|\(required\)", description))
    return HelpOption(
        _plain_name(flag), flag, default, choices, kind, description, required, several
    )


def _best_flag(flags: Sequence[str]) -> str:
    """The long one, and not the one that says no."""
    positive = [flag for flag in flags if not flag.startswith("--no-")] or list(flags)
    return next((flag for flag in positive if flag.startswith("--")), positive[0])


def _plain_name(flag: str) -> str:
    return re.sub(r"\W", "_", flag.lstrip("-"))


def _parse_choices(value: str) -> tuple[str, ...]:
    if braces := _BRACE_CHOICES.search(value):
        return tuple(choice.strip() for choice in braces.group(1).split(","))
    if bars := _BAR_CHOICES.search(value):
        return tuple(choice.strip() for choice in bars.group(1).split("|"))
    return ()


def _parse_default(description: str) -> str | None:
    """The value behind ``default: ``, ``default=`` or ``defaults to``; None when there is none."""
    marks = list(_DEFAULT_MARK.finditer(description))
    if not marks:
        return None
    before, behind = description[: marks[-1].start()], description[marks[-1].end() :]
    in_brackets = sum(map(before.count, "([")) > sum(map(before.count, ")]"))
    depth = 0
    for position, sign in enumerate(behind):
        depth += (sign in "([") - (sign in ")]")
        if depth < 0 or (depth == 0 and (sign == ";" or (sign == " " and not in_brackets))):
            behind = behind[:position]
            break
    return _stated(behind.strip().rstrip(".,"))


def _stated(default: str) -> str | None:
    """Without quotes; None where the help says that nothing is set."""
    default = default.strip("'\"")
    return None if default in ("", "None", "null", "(dynamic)") else default


def _fire_options(lines: Sequence[str]) -> Iterator[HelpOption]:
    """fire: sections POSITIONAL ARGUMENTS and FLAGS, each entry followed by deeper lines about it."""
    section = ""
    entries: list[tuple[str, list[str]]] = []
    for line in lines:
        if line and _indent(line) == 0:
            section = line.strip()
        elif line.strip() and section in ("POSITIONAL ARGUMENTS", "FLAGS"):
            if _indent(line) > 4 and entries:
                entries[-1][1].append(line.strip())
            elif section == "FLAGS" and line.strip().startswith("-"):
                entries.append((line.strip(), []))
            elif section == "POSITIONAL ARGUMENTS":
                # fire takes a positional argument by its flag as well.
                entries.append((f"--{line.strip().lower()} (required)", []))
    for declaration, about in entries:
        yield _fire_option(declaration, about)


def _fire_option(declaration: str, about: Sequence[str]) -> HelpOption:
    flag = _best_flag(_FLAG.findall(declaration))
    facts = {
        key: next((line[len(key) :] for line in about if line.startswith(key)), "")
        for key in _FIRE_FACTS
    }
    description = " ".join(line for line in about if not line.startswith(_FIRE_FACTS))
    type_name = re.sub(r"Optional\[(.*)\]", r"\1", facts["Type: "])
    default = _stated(facts["Default: "])
    kind = kind_of(_plain_name(flag), type_name, default, ())
    required = declaration.endswith("(required)")
    return HelpOption(_plain_name(flag), flag, default, (), kind, description, required)
