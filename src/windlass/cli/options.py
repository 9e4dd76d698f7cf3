"""Options that several verbs share."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from windlass.collect.locate import locate_study, study_roots
from windlass.errors import input_error
from windlass.paths import TASK_ENDINGS, YAML_ENDINGS, StudyPaths
from windlass.trust import close_umask, is_shared

Function = TypeVar("Function", bound=Callable[..., Any])
_PROGRAMS = ("bash", "sh", "torchrun", "accelerate", "deepspeed", "srun", "mpirun", "Rscript", "julia")


class CommandWithWords(click.Command):
    """A verb whose command line may end with ``-- program arguments``, kept exactly as written."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["words"] = ()
        if "--" in args:
            cut = args.index("--")
            ctx.meta["words"] = tuple(args[cut + 1 :])
            args = args[:cut]
        try:
            return super().parse_args(ctx, spread_data(args))
        except click.UsageError as error:
            begin = _find_program(args)
            if begin is None or ctx.meta["words"]:
                raise
            before = ["python"] if args[begin].endswith(".py") else []
            line = shlex.join(["windlass", ctx.info_name or "run", *args[:begin], "--", *before, *args[begin:]])
            text = f"{error.format_message()}\n  hint: a command stands behind `--`: {line}"
            raise click.UsageError(text, ctx) from None

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM ARGUMENTS...]"]


def _find_program(args: list[str]) -> int | None:
    """The place of the first word that is a program rather than a study; None where there is none."""
    for place, word in enumerate(args):
        name = os.path.basename(word)
        if name.startswith("python") or name in _PROGRAMS or (word.endswith(".py") and os.path.isfile(word)):
            return place
    return None


def spread_data(args: list[str]) -> list[str]:
    """``--data a b`` as ``--data a --data b``: all words up to the next option are data, but not a study file at last.

    This is how the option works in the scripts that people come from; click takes one value an option.
    """
    spread: list[str] = []
    place = 0
    while place < len(args):
        word = args[place]
        place += 1
        spread.append(word)
        if word not in ("-d", "--data") or place == len(args):
            continue
        end = place + 1
        while end < len(args) and not args[end].startswith("-"):
            end += 1
        if end - place > 1 and args[end - 1].endswith((*YAML_ENDINGS, *TASK_ENDINGS)) and os.path.isfile(args[end - 1]):
            end -= 1
        spread += args[place : place + 1]
        spread += [part for path in args[place + 1 : end] for part in (word, path)]
        place = end
    return spread


def take_one(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str | None:
    """A callback for options of which the last would win silently: several different values are an InputError."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        option = param.opts[0]
        given = " ".join(f"{option} {shlex.quote(value)}" for value in different)
        raise input_error(
            f"there can be only one {option}, and {len(different)} are given: {given}", "leave the others out"
        )
    return different[0] if different else None


def study_options(function: Function) -> Function:
    """What `plan` and `run` take: the study, and what overrides it."""
    options = [
        click.argument("study", required=False),
        click.option(
            "--param", "params", multiple=True, metavar="NAME=VALUES", help="A parameter, e.g. 'lr=[0.1,0.01]'."
        ),
        click.option("--seeds", metavar="N", help="Repeat with N seeds, or with those given: '1..5', '3,7'."),
        click.option("--repeat", type=int, metavar="N", help="Execute every setting N times, without a seed."),
        click.option("--trials", type=int, help="How many settings to draw with method random."),
        click.option("--method", help="grid, random or list."),
        click.option("--search-seed", type=int, help="Makes random settings reproducible."),
        click.option(
            "--metric",
            metavar="NAME[:GOAL]",
            multiple=True,
            callback=take_one,
            help="The metric to judge by, e.g. loss or return:maximize.",
        ),
        click.option("-e", "--name", "--exp-name", "name", help="The study's name; names its folder."),
        click.option("-C", "--configs", help="A study file, as an option."),
        click.option(
            "-d", "--data", multiple=True, metavar="PATHS", help="Data that trials read; one path or several."
        ),
        *setting_options(),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def setting_options() -> list[Callable[[Function], Function]]:
    """Settings that the study and the site may say too."""
    return [
        click.option("-j", "--slots", type=int, help="Trials at a time (default: one a core, or what `needs` allow)."),
        click.option("-c", "--cpus", "--cpu", "cpus", type=float, help="Cores one trial needs."),
        click.option("--memory", metavar="SIZE", help="Memory one trial needs, e.g. 4GB."),
        click.option("-g", "--gpus", type=float, help="GPUs one trial needs; 0.25 lets four share one."),
        click.option("--gpu-memory", metavar="SIZE", help="GPU memory one trial needs."),
        click.option("-t", "--time", metavar="TIME", help="Time one trial needs, e.g. 90m."),
        click.option("--timeout", metavar="TIME", help="End a trial that takes longer, e.g. 2h."),
        click.option("--grace", metavar="TIME", help="Time between TERM and KILL (default 10s)."),
        click.option("--retries", type=int, help="Further attempts after a failure."),
        click.option("--output-limit", metavar="SIZE", help="Output kept of one trial (default 2GB)."),
        click.option(
            "--small-files", metavar="N", help="Most files of a folder that the command names (default 1000), or allow."
        ),
        click.option("--folder", metavar="PATH", help="Where studies' folders are made."),
        click.option("--share", help="group: members of the folder's group may work in this study (default: nobody)."),
        *pack_options(),
        *slurm_options(),
    ]


def pack_options() -> list[Callable[[Function], Function]]:
    """How trials share a GPU."""
    return [
        click.option("--most-per-gpu", "most", type=int, help="Never more trials a GPU (default: as measured, or 1)."),
        click.option("--prefer", help="throughput (default), or latency: each trial at most 10 % slower than alone."),
        click.option(
            "--headroom", metavar="AMOUNT", help="GPU memory beyond the peak: next (whole GB, default), 20%, 1GB."
        ),
        click.option("--mps", help="NVIDIA MPS: auto (default: where it was measured to pay), on or off."),
        click.option("--safety", type=float, help="Ask for so many times the estimated time (default 1.3)."),
    ]


def slurm_options() -> list[Callable[[Function], Function]]:
    """Settings that only matter where agents are jobs."""
    return [
        click.option("-G", "--gpu-type", metavar="TYPE", help="Type of GPU, by the cluster's name for it."),
        click.option("-m", "--mem-per-gpu", metavar="SIZE", help="Memory of a job for each of its GPUs, e.g. 10G."),
        click.option("--gpus-per-job", type=int, help="GPUs of one job (default: 1, or what one trial needs)."),
        click.option("-n", "--nodes", "--num-nodes", "--num_nodes", "nodes", type=int, help="Nodes of one job."),
        click.option("-a", "--account", help="The account that pays."),
        click.option("-p", "--partition", help="Where jobs wait; several with commas."),
        click.option("--qos", help="Quality of service."),
        click.option("--agents", "--array-size", "agents", type=int, help="Agents that share the trials."),
        click.option("--max-jobs", type=int, help="Never more agents than this."),
        click.option("--throttle", "--max-parallel", "throttle", type=int, help="Agents at a time."),
        click.option("--mail-user", metavar="ADDRESS", help="Who is told by mail."),
        click.option("--mail-type", metavar="TYPES", help="What of (default: END,FAIL)."),
        click.option(
            "--sbatch",
            "options",
            multiple=True,
            metavar="OPTION",
            help="Any other option of sbatch, e.g. --nice=100; see https://slurm.schedmd.com/sbatch.html.",
        ),
    ]


SETTING_WORDS = (
    "slots", "cpus", "memory", "gpus", "gpu_memory", "time", "timeout", "grace", "retries", "output_limit", "folder",
    "small_files", "share",
    "gpu_type", "mem_per_gpu", "gpus_per_job", "nodes", "account", "partition", "qos", "agents", "max_jobs", "throttle",
    "mail_user", "mail_type", "options", "most", "prefer", "headroom", "mps", "safety",
)  # fmt: skip


def place_options(function: Function) -> Function:
    """Where trials are executed."""
    options = [
        click.option("--on", type=click.Choice(["slurm", "local"]), help="Where (default: Slurm where it answers)."),
        click.option("--site", metavar="NAME", help="The cluster's profile (default: found out)."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def folder_option(function: Function) -> Function:
    return click.option("--folder", metavar="PATH", help="Where studies' folders are.")(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with stable keys.")(function)


def yes_option(function: Function) -> Function:
    return click.option("-y", "--yes", is_flag=True, help="Ask nothing.")(function)


def find_study(name: str | None, folder: str | None) -> StudyPaths:
    start = os.path.dirname(os.path.abspath(name)) if name is not None and os.path.isfile(name) else os.getcwd()
    paths = locate_study(name, study_roots(folder, start, os.environ.get("SCRATCH")))
    close_umask(is_shared(paths.folder))
    return paths


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; without one, `--yes` must have been given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise input_error(question, "--yes answers this without a terminal")
    if not click.confirm(question, err=True):
        raise click.Abort
