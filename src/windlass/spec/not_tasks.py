"""Tells files that are programs or data from files with one command a line, whose lines are executed."""

from __future__ import annotations

import os
import re
import shlex

from windlass.core.errors import Problem
from windlass.core.paths import TASK_ENDINGS

# What executes a program whose name ends so; "" where it is executed by itself.
_INTERPRETERS = {
    ".py": "python", ".pyw": "python", ".r": "Rscript", ".jl": "julia", ".js": "node", ".pl": "perl", ".rb": "ruby",
    ".lua": "lua", ".m": "octave", ".bash": "bash", ".zsh": "zsh", ".csh": "csh", ".sbatch": "bash", ".slurm": "bash",
}  # fmt: skip
# A line of a shell script that is no command of its own: it acts on the lines after it, or is a part of a statement.
_OF_A_SCRIPT = re.compile(
    r"(?:cd|export|source|\.|set|unset|module|ml|ulimit|umask|alias|declare|local|readonly|trap|shopt|exec|eval|return"
    r"|if|then|elif|else|fi|for|while|until|do|done|case|esac|function|\{|\}|conda\s+activate)(?:[\s;]|$)"
    r"|[A-Za-z_]\w*\+?=|[A-Za-z_]\w*\s*\(\)"
)


def find_program(path: str, text: str) -> Problem | None:
    """What is wrong with a file that is taken for a file of commands; None where it may be one.

    Only what cannot be meant is refused: a file whose name or first line says that it is a program or data, and a
    shell script with lines that only make sense together.
    """
    name, ending = os.path.basename(path), os.path.splitext(path)[1].lower()
    first = text.split("\n", 1)[0]
    if path.endswith(TASK_ENDINGS):
        return _find_shell_script(path, text) if ending == ".sh" else None
    interpreter = _INTERPRETERS.get(ending)
    if interpreter is None and first.startswith("#!"):
        interpreter = ""
    if interpreter is not None:
        own = path if os.sep in path else os.path.join(".", path)
        words = f"{interpreter} {shlex.quote(path)}" if interpreter else shlex.quote(own)
        return Problem(
            "this is a program; a file of commands has one command a line, and each line would be executed",
            f"windlass run -- {words} …, or let `windlass init {shlex.quote(path)}` write a study for it",
            path,
        )
    if ending:
        message = f"files that end in {ending} are neither studies (.yaml, .json) nor files of commands (.txt)"
        return Problem(
            message, f"rename {name} so that it ends in .txt, if each line is a command", path
        )
    return None


def _find_shell_script(path: str, text: str) -> Problem | None:
    """The first line of a shell script that is no command of its own."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("#SBATCH"):
            hint = f"windlass lint {shlex.quote(path)} looks at it, sbatch {shlex.quote(path)} submits it"
            return Problem(
                "this is a batch script of Slurm's, not a file with one command a line",
                hint,
                path,
                number,
            )
        if _OF_A_SCRIPT.match(stripped):
            return Problem(
                f"this is a shell script: `{stripped.split()[0]}` acts on other lines, and each is executed alone",
                f"windlass run -- bash {shlex.quote(path)}; in a file of commands, write such a line as bash -c '…'",
                path,
                number,
            )
    return None
