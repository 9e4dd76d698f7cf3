"""The command line: one verb a file, loaded when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from windlass import __version__
from windlass.cli.terminal import safe_streams
from windlass.damage import forget_reports
from windlass.errors import InputError, WindlassError, input_error
from windlass.paths import TASK_ENDINGS, YAML_ENDINGS
from windlass.patience import patient_calls

# Verb → what it does. The module of the same name is imported only when the verb is used.
VERBS = {
    "init": "Write a study for a script by reading its --help, or copy an example.",
    "plan": "Show what `run` would do. Writes nothing.",
    "measure": "Measure what one trial needs and how many share a GPU best.",
    "run": "Run what is missing of a study.",
    "status": "Show how far a study is.",
    "logs": "Show what a trial printed.",
    "results": "Show results: one row a trial, or one a setting.",
    "efficiency": "Show what was asked for, what was used, and what to ask for next time.",
    "watch": "Look inside a running job once, or every half a minute.",
    "outputs": "List or take out the files that were kept of trials.",
    "retry": "Put trials back and run them again.",
    "cancel": "Take trials off the list and stop them.",
    "throttle": "Say how many of a study's jobs may run at a time.",
    "explain": "Say what happened to a trial, or why it does not run.",
    "diff": "Show what has changed in the project since a study was submitted.",
    "history": "Show what was submitted and what became of it.",
    "ticket": "Write down all that a support desk asks about a trial or a job.",
    "data": "Pack a study's data ahead of time, and see what is packed.",
    "env": "Make, show or list the environment that trials get.",
    "shell": "Get an interactive job with a study's needs.",
    "site": "Show what is known of the cluster, and where each fact came from.",
    "usage": "Show how much of disks and of computing time is used.",
    "gpus": "Show GPUs in use and free, by type and by node.",
    "doctor": "Say what the GPU and the frameworks see, which imports are missing, and whether a folder is fit.",
    "check": "Go through the checklist before a study goes to the cluster.",
    "clean": "Remove what finished studies and dead jobs left behind.",
    "rehearse-interruption": "Interrupt a trial here on purpose, and see whether it goes on where it was.",
    "completion": "Let the shell complete verbs, options, studies, trials and parameters.",
    "lint": "Check a batch script of your own for what Slurm ignores or breaks on.",
}


class Verbs(click.Group):
    """Knows all verbs by name without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"windlass.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but a verb that is not there is answered with the one that was probably meant."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            raise input_error(f"there is no verb {name!r}", _meant(name))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


# What other tools call it.
_SYNONYMS = {
    "ls": ("status", "history"),
    "list": ("status", "history"),
    "show": ("status", "results"),
    "ps": ("status", "watch"),
    "queue": ("status",),
    "squeue": ("status",),
    "top": ("watch",),
    "start": ("run",),
    "submit": ("run",),
    "sbatch": ("run",),
    "launch": ("run",),
    "exec": ("run",),
    "sweep": ("run",),
    "resume": ("run", "retry"),
    "continue": ("run",),
    "restart": ("retry",),
    "rerun": ("retry",),
    "stop": ("cancel",),
    "kill": ("cancel",),
    "abort": ("cancel",),
    "scancel": ("cancel",),
    "rm": ("clean", "cancel"),
    "remove": ("clean",),
    "delete": ("clean",),
    "prune": ("clean",),
    "log": ("logs",),
    "cat": ("logs",),
    "tail": ("logs",),
    "output": ("logs", "outputs"),
    "download": ("outputs",),
    "export": ("results",),
    "report": ("results",),
    "table": ("results",),
    "best": ("results",),
    "new": ("init",),
    "create": ("init",),
    "example": ("init",),
    "examples": ("init",),
    "dry-run": ("plan",),
    "preview": ("plan",),
    "estimate": ("plan", "measure"),
    "validate": ("check", "plan"),
    "test": ("check",),
    "profile": ("measure",),
    "benchmark": ("measure",),
    "info": ("status", "site"),
    "why": ("explain",),
    "describe": ("explain",),
    "salloc": ("shell",),
    "srun": ("shell", "run"),
    "sacct": ("history", "efficiency"),
    "seff": ("efficiency",),
    "sinfo": ("site",),
    "nvidia-smi": ("gpus",),
    "quota": ("usage",),
    "help": ("--help",),
}


def _meant(name: str) -> str:
    """What was probably meant by a verb that is not there; all verbs where nothing is near."""
    if name.endswith((*YAML_ENDINGS, *TASK_ENDINGS)):
        return f"windlass plan {name} shows what it would do, windlass run {name} does it"
    if os.path.isfile(name):
        return f"windlass init {name} drafts a study for a script"
    meant = _SYNONYMS.get(name.lower())
    if meant is None:
        import difflib  # only to tell what went wrong

        near = difflib.get_close_matches(name.lower(), [*VERBS, *_SYNONYMS], 1, 0.6)
        meant = () if not near else _SYNONYMS.get(near[0], (near[0],))
    if meant:
        return "did you mean " + " or ".join(f"windlass {verb}" for verb in meant) + "?"
    return f"the verbs are {', '.join(VERBS)}; windlass --help says what they do"


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="windlass")
def windlass() -> None:
    """Hauls experiments from your machine to Slurm clusters, and the results back.

    One study file holds the command that works and the values to try. Without a study's name, verbs mean the newest.

    Exit codes: 0 all trials done, 1 some trial did not end well, 2 bad input, 70 a bug in Windlass, 130 interrupted.

    Options of Slurm's own: https://slurm.schedmd.com/sbatch.html, or `man sbatch`.
    """


@safe_streams()
@patient_calls()
def main(arguments: list[str] | None = None) -> None:
    """Entry point. Errors of ours are shown without a traceback; any other is a bug, and a report is written."""
    forget_reports()
    try:
        code: Any = windlass.main(arguments, prog_name="windlass", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except WindlassError as error:
        _show(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has enough of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        # By name, as verbs are: a command that works does not pay for it.
        bug = importlib.import_module("windlass.cli.bug")
        sys.exit(bug.report_error(error, sys.argv[1:] if arguments is None else arguments))


def _show(error: WindlassError) -> None:
    problems = [problem.render() for problem in error.problems] if isinstance(error, InputError) else [str(error)]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
