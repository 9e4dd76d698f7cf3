"""windlass lint: what Slurm would ignore in a batch script of one's own, or break on."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import Any

import click

from windlass.cli.options import json_option
from windlass.core.errors import Problem, SchedulerError, input_error
from windlass.core.processes import ask
from windlass.lint.script import Findings, lint_script
from windlass.places.slurm.place import SlurmPlace
from windlass.plan.refuse_script import find_script_problems, find_script_remarks
from windlass.site.discover import fetch_cluster
from windlass.slurm.directives import parse_script

_MOST_BYTES = 16 << 20  # four times what Slurm takes by default


def read_findings(path: str, array: str | None = None, site: str | None = None) -> Findings:
    """Look at one script, as if it were submitted from here; its own shell and the cluster look too.

    `array` is the range on sbatch's command line. Without a scheduler, a named site's profile is what the script is
    checked against.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise input_error(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(text) > _MOST_BYTES:
        limit = f"{_MOST_BYTES >> 20} MB"
        raise input_error(
            f"{path}: this is more than {limit}, which sbatch does not take",
            "is it the right file?",
        )
    found = lint_script(text, path, os.getcwd(), os.environ, array)
    if found.shell and b"\r\n" not in text:
        found = replace(found, problems=(*found.problems, *_ask_shell(found.shell, path)))
    if not SlurmPlace.is_offered(site):
        return found
    try:
        cluster = fetch_cluster(site)
    except SchedulerError as error:
        return replace(
            found,
            remarks=(*found.remarks, Problem(f"the cluster was not asked: {error}", "", path)),
        )
    script = parse_script(text.decode("utf-8", "replace"))
    found = replace(
        found,
        problems=(*found.problems, *find_script_problems(script, path, cluster)),
        remarks=(*found.remarks, *find_script_remarks(script, path, cluster)),
    )
    return found if found.problems or not cluster.live else _ask_scheduler(path, found, array)


def _ask_shell(shell: str, path: str) -> list[Problem]:
    """Syntax errors, as the shell reports them that will read the script."""
    answer = ask([shell, "-n", os.path.abspath(path)])
    if answer.ok or answer.code is None:
        return []
    message = answer.errors.replace(f"{os.path.abspath(path)}:", "").strip()
    place = re.match(r"(?:line )?(\d+):\s*", message)
    first = message[place.end() if place else 0 :].partition("\n")[0]
    name = os.path.basename(shell)
    return [Problem(f"{name}: {first}", f"{name} -n {path}", path, int(place[1]) if place else 0)]


def _ask_scheduler(path: str, found: Findings, array: str | None) -> Findings:
    """What this cluster says to the script, without taking it. A cluster that does not answer is worth a remark."""
    answer = ask(["sbatch", "--test-only", *([f"--array={array}"] if array else []), path])
    if answer.ok:
        return found
    lines = [
        re.sub(r"^sbatch: (?:error: |fatal: )?", "", line) for line in answer.errors.splitlines()
    ]
    message = "; ".join(
        line.removeprefix("allocation failure: ") for line in lines if "Try " not in line
    )
    if answer.code is None or "controller" in message:
        return Findings(
            found.problems,
            (*found.remarks, Problem(f"the cluster was not asked: {message}", "", path)),
        )
    return Findings(
        (Problem(f"sbatch refuses it: {message}", f"sbatch --test-only {path}", path),),
        found.remarks,
    )


def _to_json(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.file,
        "line": problem.line,
        "message": problem.message,
        "hint": problem.hint,
    }


@click.command()
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@click.option(
    "--array",
    metavar="RANGE",
    help="The range of the array as given to sbatch, for example 0-24%5.",
)
@click.option(
    "--site",
    metavar="NAME",
    help="The profile of the cluster (default: the one that fits this machine); needs no Slurm.",
)
@json_option
def command(scripts: tuple[str, ...], array: str | None, site: str | None, as_json: bool) -> int:
    """Check batch scripts of your own for what Slurm ignores in silence, or breaks on later.

    Relative names of logs are looked for from this folder, as if `sbatch` were called here. The range of an array is
    held against the files that $SLURM_ARRAY_TASK_ID chooses. Options of sbatch: https://slurm.schedmd.com/sbatch.html.
    Exit code: 2 where something is wrong, 0 where there are only remarks.
    """
    findings = [read_findings(path, array, site) for path in scripts]
    problems = [problem for found in findings for problem in found.problems]
    remarks = [problem for found in findings for problem in found.remarks]
    if as_json:
        answer = {
            "problems": [_to_json(p) for p in problems],
            "remarks": [_to_json(r) for r in remarks],
        }
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return 2 if problems else 0
    for problem in problems:
        print(f"error: {problem.render()}")
    for problem in remarks:
        print(f"remark: {problem.render()}")
    if not problems and not remarks:
        print("nothing found")
    return 2 if problems else 0
