"""The command line: one verb a file, loaded when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from windlass import __version__
from windlass.cli.terminal import safe_streams
from windlass.core.damage import forget_reports
from windlass.core.errors import InputError, WindlassError, input_error
from windlass.core.meant import nearest_word
from windlass.core.paths import TASK_ENDINGS, YAML_ENDINGS
from windlass.patience import patient_calls

# Heading of --help → its verbs, with what they do. The module of a verb is imported only when the verb is used.
GROUPS = {
    "Every day": {
        "init": "Write a study file for a script by reading its --help, or copy an example.",
        "plan": "Show what `run` would do, without writing anything.",
        "run": "Run the trials of a study that are not done yet.",
        "status": "Show how far a study is.",
        "logs": "Show what a trial printed.",
        "results": "Show results: one row for each trial, or for each setting.",
        "retry": "Put trials back and run them again.",
        "cancel": "Stop trials, and take them off the list.",
    },
    "Begin": {
        "check": "Go through the checklist before a study goes to the cluster.",
        "measure": "Measure what one trial needs and how many share a GPU best.",
        "data": "Pack the data of a study ahead of time, or list what is packed.",
        "env": "Build, show or list the environment that trials get.",
    },
    "Look": {
        "explain": "Explain what happened to a trial or why it does not run; write a ticket for a support desk.",
        "watch": "Look inside a running job, once or at an interval.",
        "efficiency": "Compare what was asked for with what was used, and suggest what to ask for next time.",
        "outputs": "List or take out the files that were kept of trials.",
        "history": "Show what was submitted and what became of it.",
        "diff": "Show what has changed in the project since a study was submitted.",
    },
    "Change": {
        "throttle": "Set how many jobs of a study may run at a time.",
    },
    "Cluster": {
        "site": "Show what is known of the cluster, and where each fact came from.",
        "gpus": "Show GPUs in use and free, by type and by node.",
        "usage": "Show how much of disks and of computing time you use.",
        "shell": "Get an interactive job with the needs of a study.",
        "doctor": "Find out why a GPU, an import or a folder does not work.",
        "lint": "Check a batch script of your own for what Slurm ignores or breaks on.",
    },
    "Keep tidy": {
        "clean": "Remove what finished studies and dead jobs left behind.",
        "completion": "Let the shell complete verbs, options, studies, trials and parameters.",
    },
}
VERBS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}


class Verbs(click.Group):
    """Knows all verbs by name without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(
            f"windlass.cli.{cmd_name.replace('-', '_')}"
        ).command
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
        width = max(map(len, VERBS))
        for heading, verbs in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs.items()])


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
    "rehearse-interruption": ("check --interruption",),
    "benchmark": ("measure",),
    "info": ("status", "site"),
    "why": ("explain",),
    "ticket": ("explain --ticket",),
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
        near = nearest_word(name, [*VERBS, *_SYNONYMS])
        meant = _SYNONYMS.get(near, (near,)) if near else ()
    if meant:
        return "did you mean " + " or ".join(f"windlass {verb}" for verb in meant) + "?"
    return f"the verbs are {', '.join(VERBS)}; windlass --help says what they do"


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="windlass")
def windlass() -> None:
    """Hauls experiments from your machine to Slurm clusters, and the results back.

    A study file holds the command that works and the values to try. Without the name of a study, verbs take the one
    that was submitted last.

    Exit codes: 0 all trials done, 1 some trial did not end well, 2 bad input, 70 a bug in Windlass, 130 interrupted.
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
    """Print an error, one line for each of its problems, with hints."""
    problems = (
        [problem.render() for problem in error.problems]
        if isinstance(error, InputError)
        else [str(error)]
    )
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
