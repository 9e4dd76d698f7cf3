"""The options that describe a study and its settings, as the table of settings has them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from typing import Any

import click

from windlass.cli.options import Function, take_one
from windlass.core.paths import TASK_ENDINGS, YAML_ENDINGS
from windlass.settings import GROUPS, RUNNING, Row, find_row, flagged, settings
from windlass.spec.kinds import KINDS, choices_of

_PROGRAMS = (
    "bash",
    "sh",
    "torchrun",
    "accelerate",
    "deepspeed",
    "srun",
    "mpirun",
    "Rscript",
    "julia",
)


class CommandWithProgram(click.Command):
    """A verb whose command line may end with ``-- program arguments``, kept exactly as written."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before `--`. Those after it are the user's program, kept under "arguments" in `ctx.meta`.

        Where parsing fails because a program stands there without `--`, the hint shows the line as it should be.
        """
        ctx.meta["arguments"] = ()
        if "--" in args:
            cut = args.index("--")
            ctx.meta["arguments"] = tuple(args[cut + 1 :])
            args = args[:cut]
        try:
            return super().parse_args(ctx, spread_data(args))
        except click.UsageError as error:
            begin = _find_program(args)
            if begin is None or ctx.meta["arguments"]:
                raise
            before = ["python"] if args[begin].endswith(".py") else []
            line = shlex.join(
                ["windlass", ctx.info_name or "run", *args[:begin], "--", *before, *args[begin:]]
            )
            text = f"{error.format_message()}\n  hint: a command stands behind `--`: {line}"
            raise click.UsageError(text, ctx) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM ARGUMENTS...]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings; those of the verb itself stand under the last one."""
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections[getattr(param, "group", RUNNING)].append(record)
        for group, records in sections.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)


def _find_program(args: list[str]) -> int | None:
    """The place of the first argument that is a program rather than a study; None where there is none."""
    for place, argument in enumerate(args):
        name = os.path.basename(argument)
        if (
            name.startswith("python")
            or name in _PROGRAMS
            or (argument.endswith(".py") and os.path.isfile(argument))
        ):
            return place
    return None


def spread_data(args: list[str]) -> list[str]:
    """``--data a b`` as ``--data a --data b``: all arguments up to the next option are data, but not a last study file.

    This is how the option works in the scripts that people come from; click takes one value an option.
    """
    spread: list[str] = []
    place = 0
    while place < len(args):
        argument = args[place]
        place += 1
        spread.append(argument)
        if argument not in ("-d", "--data") or place == len(args):
            continue
        end = place + 1
        while end < len(args) and not args[end].startswith("-"):
            end += 1
        if (
            end - place > 1
            and args[end - 1].endswith((*YAML_ENDINGS, *TASK_ENDINGS))
            and os.path.isfile(args[end - 1])
        ):
            end -= 1
        spread += args[place : place + 1]
        spread += [part for path in args[place + 1 : end] for part in (argument, path)]
        place = end
    return spread


class RowOption(click.Option):
    """The option of a row. `group` is the heading of --help that it stands under."""

    def __init__(self, *args: Any, group: str = RUNNING, **facts: Any) -> None:
        super().__init__(*args, **facts)
        self.group = group


def _make_option(row: Row) -> Callable[[Function], Function]:
    """The click option for a row of the table of settings."""
    kind, choices = KINDS[row.kind], choices_of(row)
    return click.option(
        *row.flags,
        parameter_name(row),
        cls=RowOption,
        group=row.group,
        type=click.Choice(choices) if choices else kind.number,
        metavar=None if choices else row.metavar or kind.metavar,
        # Of several values of an ordinary option the last would win silently.
        multiple=row.several or row.name == "metric",
        callback=take_one if row.name == "metric" else None,
        help=describe_option(row),
    )


def parameter_name(row: Row) -> str:
    """The name under which a verb gets the value of a row's option."""
    return row.short_name if row.is_setting else row.name


def describe_option(row: Row) -> str:
    """The help of a row, with its default at the end."""
    text = row.help.removesuffix(".")
    return f"{text} (default: {row.default_text})." if row.default_text else row.help


def study_options(function: Function) -> Function:
    """What `plan` and `run` take: the study, and what overrides it."""
    return _decorate(
        function, [click.argument("study", required=False), *map(_make_option, flagged())]
    )


def setting_options(*names: str) -> Callable[[Function], Function]:
    """The options of a few settings, for a verb that takes no others."""
    return lambda function: _decorate(function, [_make_option(find_row(name)) for name in names])


def _decorate(function: Function, options: Iterable[Callable[[Function], Function]]) -> Function:
    for option in reversed(list(options)):
        function = option(function)
    return function


def setting_flags(options: dict[str, Any]) -> dict[str, Any]:
    """The settings among a verb's options, as the command line gave them; those that are not given are left out."""
    names = [row.short_name for row in settings() if row.flags]
    return {name: options[name] for name in names if options.get(name) not in (None, ())}


def description_flags(options: dict[str, Any]) -> dict[str, Any]:
    """What describes the study among a verb's options, by the names of the rows."""
    rows = [
        row
        for row in flagged()
        if not row.is_setting and not row.several and row.section is not None
    ]
    return {row.name: options[row.name] for row in rows}
