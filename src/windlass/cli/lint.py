"""windlass lint: what Slurm would ignore in a batch script of one's own, or break on."""

from __future__ import annotations

import json
import math
import os
import re
from typing import Any

import click

from windlass.cli.options import json_option
from windlass.errors import Problem, SchedulerError, input_error
from windlass.launch._shell import ask
from windlass.site.discover import fetch_cluster, slurm_answers
from windlass.slurm.directives import Script, parse_script
from windlass.slurm.lint import Findings, lint_script
from windlass.slurm.options import render_time
from windlass.slurm.records import parse_slurm_time_s


def read_findings(path: str) -> Findings:
    """Look at one script, as if it were submitted from here; its own shell looks too."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise input_error(f"{path}: {error.strerror}") from error
    found = lint_script(text, path, os.getcwd(), os.environ)
    if found.shell and b"\r\n" not in text:
        found = Findings((*found.problems, *_ask_shell(found.shell, path)), found.remarks, found.shell)
    if found.problems or not slurm_answers():
        return found
    try:
        late = _find_over_limit(parse_script(text.decode("utf-8", "replace")), path)
    except SchedulerError as error:
        return Findings((), (*found.remarks, Problem(f"the cluster was not asked: {error}", "", path)))
    return Findings(tuple(late), found.remarks) if late else _ask_scheduler(path, found)


def _ask_shell(shell: str, path: str) -> list[Problem]:
    """Syntax errors, in the words of the shell that will read the script."""
    answer = ask([shell, "-n", os.path.abspath(path)])
    if answer.ok or answer.code is None:
        return []
    said = answer.errors.replace(f"{os.path.abspath(path)}:", "").strip()
    place = re.match(r"(?:line )?(\d+):\s*", said)
    first = said[place.end() if place else 0 :].partition("\n")[0]
    name = os.path.basename(shell)
    return [Problem(f"{name}: {first}", f"{name} -n {path}", path, int(place[1]) if place else 0)]


def _find_over_limit(script: Script, path: str) -> list[Problem]:
    """A time above the partition's limit: most clusters take the job and never start it."""
    option = next((option for option in reversed(script.options) if option.name == "time"), None)
    if option is None:
        return []
    time_s = parse_slurm_time_s(option.value) or math.inf  # sbatch takes 0 for no limit
    cluster = fetch_cluster()
    names = (script.value("partition") or "").split(",")
    limits = {
        found.name: found.max_time_s for name in names if (found := cluster.partition(name.strip() or None)) is not None
    }
    longest_s = max((limit for limit in limits.values() if limit is not None), default=0.0)
    if not limits or None in limits.values() or time_s <= longest_s:
        return []
    longer = [p.name for p in cluster.partitions if p.up and (p.max_time_s is None or p.max_time_s >= time_s)]
    who = f"partition {', '.join(limits)}"
    message = f"--time={option.value}: such a job never starts: {who} allows {render_time(longest_s)}"
    hint = f"#SBATCH --time={render_time(longest_s)}" + (f", or #SBATCH --partition={longer[0]}" if longer else "")
    return [Problem(message, hint, path, option.line)]


def _ask_scheduler(path: str, found: Findings) -> Findings:
    """What this cluster says to the script, without taking it. A cluster that does not answer is worth a remark."""
    answer = ask(["sbatch", "--test-only", path])
    if answer.ok:
        return found
    lines = [re.sub(r"^sbatch: (?:error: |fatal: )?", "", line) for line in answer.errors.splitlines()]
    said = "; ".join(line.removeprefix("allocation failure: ") for line in lines if "Try " not in line)
    if answer.code is None or "controller" in said:
        return Findings(found.problems, (*found.remarks, Problem(f"the cluster was not asked: {said}", "", path)))
    return Findings((Problem(f"sbatch refuses it: {said}", f"sbatch --test-only {path}", path),), found.remarks)


def _to_json(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "line": problem.line, "message": problem.message, "hint": problem.hint}


@click.command()
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@json_option
def command(scripts: tuple[str, ...], as_json: bool) -> int:
    """Check batch scripts of your own for what Slurm ignores in silence, or breaks on later.

    Relative names of logs are looked for from this folder, as if `sbatch` were called here.
    Exit code: 2 where something is wrong, 0 where there are only remarks.
    """
    findings = [read_findings(path) for path in scripts]
    problems = [problem for found in findings for problem in found.problems]
    remarks = [problem for found in findings for problem in found.remarks]
    if as_json:
        answer = {"problems": [_to_json(p) for p in problems], "remarks": [_to_json(r) for r in remarks]}
        print(json.dumps(answer, indent=2, ensure_ascii=False))
        return 2 if problems else 0
    for problem in problems:
        print(f"error: {problem.render()}")
    for problem in remarks:
        print(f"remark: {problem.render()}")
    if not problems and not remarks:
        print("nothing found")
    return 2 if problems else 0
