"""windlass env: what trials are executed with; made ahead of time, shown, or written down."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from windlass.bundle.environment import (
    build_now,
    environment_folder,
    find_built,
    find_environment_problems,
    render_environment,
)
from windlass.cli.options import json_option, place_options
from windlass.cli.request import Asked, read_request
from windlass.cli.study_options import CommandWithProgram, study_options
from windlass.core.errors import InputError, Problem, input_error
from windlass.environments.shared.probe import PythonFailed, find_python, probe_python, read_record


@click.command(cls=CommandWithProgram)
@click.argument("action", type=click.Choice(["build", "show", "freeze"]))
@study_options
@place_options
@click.option("--here", is_flag=True, help="Build even on a login host.")
@json_option
@click.pass_context
def command(ctx: click.Context, /, action: str, as_json: bool, **options: Any) -> None:
    """Make a study's environment ahead of time (build), show it (show), or list its packages (freeze).

    Without `build`, the first agent makes what is missing. `freeze` prints a requirements.txt of what is installed, to
    make the same environment elsewhere.
    """
    insist = options["here"]
    asked = read_request(ctx.meta["arguments"], {**options, "here": True})
    if asked.study.environment is None:
        raise input_error(
            "the study names no environment: trials get what is on PATH",
            "environment: {venv: .venv} in the study",
        )
    problems = find_environment_problems(asked.study)
    if problems and action != "show":
        raise InputError(problems)
    if action == "build":
        _build(asked, insist, as_json)
    elif action == "freeze":
        _freeze(asked, as_json)
    else:
        _show(asked, problems, as_json)


def _build(asked: Asked, insist: bool, as_json: bool) -> None:
    """Build the environment now, instead of in the first job, and print its folder.

    Raises InputError on a login host, unless only wheels are unpacked or `insist` is given.
    """
    rendered = render_environment(asked.plan)
    assert rendered is not None
    wheels = rendered["build"] is not None and rendered["build"].get("wheels_only", False)
    if not wheels and not insist:
        here = asked.place.fetch_here()
        if here is not None and here.is_login_host:
            raise input_error(
                f"{here.host} is a login host, no place to build on",
                "`windlass run` builds in a job; `--here` insists",
            )
    folder = build_now(asked.plan, lambda text: print(text, file=sys.stderr))
    if as_json:
        print(json.dumps({"folder": folder or None}, indent=2))
    else:
        print(folder or "nothing is to be built")


def _show(asked: Asked, problems: list[Problem], as_json: bool) -> None:
    """Print what is known of the environment: one line for each fact, or JSON."""
    facts = _facts(asked, problems)
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for name, value in facts.items():
        if name == "problems":
            for problem in value:
                print(f"problem: {problem}")
        elif name == "packages":
            print(f"packages: {len(value)} (`windlass env freeze` lists them)")
        elif value not in (None, [], ""):
            print(f"{name}: {', '.join(value) if isinstance(value, list) else value}")


def _facts(asked: Asked, problems: list[Problem]) -> dict[str, Any]:
    """The facts about the environment, with stable keys: what the study asks for, what is wrong, and what is there."""
    environment = asked.study.environment
    assert environment is not None
    facts: dict[str, Any] = {"kind": environment.kind or "none", "value": environment.value}
    facts |= {
        "place": environment.place,
        "modules": list(environment.modules),
        "setup": list(environment.setup),
    }
    facts["problems"] = [problem.render() for problem in problems]
    if environment.kind == "build" and not problems:
        folder, built = find_built(asked.plan)
        facts |= {"folder": folder, "built": "yes" if built else "no"}
    python = None if problems else _python(asked)
    if python is not None:
        facts |= {
            "python": python["python"],
            "prefix": python["prefix"],
            "packages": python["packages"],
        }
    record = read_record(os.path.join(asked.plan.folder, "environment.json"))
    if record is not None:
        facts["recorded"] = (
            f"Python {record['python']}, {len(record['packages'])} packages, on {record['host']}"
        )
    return facts


def _freeze(asked: Asked, as_json: bool) -> None:
    """Print the installed packages as `pip freeze` does. Raises InputError where the environment is not built yet."""
    python = _python(asked)
    if python is None:
        raise input_error("the environment is not built yet", "windlass env build")
    packages = dict(sorted(python["packages"].items(), key=lambda item: str(item[0]).lower()))
    if as_json:
        print(json.dumps(packages, indent=2))
    else:
        print("".join(f"{name}=={version}\n" for name, version in packages.items()), end="")


def find_interpreter(asked: Asked) -> str | None:
    """The Python of the study's environment, or else that on PATH; None where there is none yet."""
    environment = asked.study.environment
    if environment is None or not environment.kind:
        return find_python(os.environ)
    folder = environment_folder(asked.study, os.environ) or find_built(asked.plan)[0]
    python = os.path.join(folder, "bin", "python")
    return python if os.path.exists(python) else None


def _python(asked: Asked) -> dict[str, Any] | None:
    """What the environment's Python says of itself; None where there is none yet."""
    python = find_interpreter(asked)
    if python is None:
        return None
    try:
        return probe_python(python, os.environ, packages=True)
    except PythonFailed as error:
        raise input_error(f"{python} does not run: {error}") from None
