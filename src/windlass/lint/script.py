"""What Slurm ignores in silence in a batch script, or breaks on later."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from windlass.core.counted import counted
from windlass.core.errors import Problem
from windlass.core.meant import nearest_word
from windlass.lint.arrays import lint_array
from windlass.lint.notes import Note, remark, wrong
from windlass.lint.values import lint_values
from windlass.secrets import find_secrets
from windlass.slurm.directives import Script, parse_script
from windlass.slurm.options import VALUES
from windlass.slurm.placeholders import find_placeholder

# Added by plugins that many sites have.
_PLUGINS = re.compile(r"container-.*|beeond.*|x11|no-container-.*|bbf?|ear.*")
_RENAMED = {
    "cores": "cpus-per-task", "cpus": "cpus-per-task", "gpu": "gpus", "gpu-type": "gpus", "memory": "mem",
    "name": "job-name", "log": "output", "queue": "partition", "share": "oversubscribe", "walltime": "time",
    "workdir": "chdir", "email": "mail-user",
}  # fmt: skip
_TIDYING = re.compile(
    r"(?:cp|mv|rm|rsync|echo|printf|date|mkdir|touch|tar|sleep|deactivate|module|sync|chmod|scp|wait)\b"
)
_SAVES_CODE = re.compile(
    r"\$\?|\$pipestatus|\bset\s+-\w*e|errexit|\|\|\s*(?:exit|\{)|\btrap\b|\bexit\s+[\"']?\$|--kill-on-bad-exit|-euo"
)
_WORKS = re.compile(
    r"\b(?:python[\d.]*|srun|mpirun|mpiexec|torchrun|Rscript|julia|matlab|parallel|singularity|apptainer|accelerate)\b"
)
_SHELLS = ("sh", "bash", "zsh", "dash", "ksh")


@dataclass(frozen=True)
class Findings:
    """What is wrong, and what is worth a look."""

    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    shell: str = ""  # that reads the script: its path, where it is one that can check it


def lint_script(
    text: bytes,
    file: str,
    folder: str,
    environ: Mapping[str, str] | None = None,
    array: str | None = None,
) -> Findings:
    """Everything found in a script that would be submitted from `folder`, by line; `array`: on the command line."""
    notes = list(_lint_bytes(text))
    script = parse_script(
        text.decode("utf-8", "replace").replace("\r\n", "\n").removeprefix("\ufeff")
    )
    notes += _lint_shebang(script)
    notes += _lint_ignored(script)
    notes += [wrong(mistake.line, mistake.message, mistake.hint) for mistake in script.mistakes]
    notes += _lint_options(script)
    notes += lint_values(script, folder, environ or {}, array)
    notes += lint_array(script, folder, environ or {}, array)
    notes += _lint_missing(script)
    notes += _lint_body(script)
    notes += _lint_words(script, environ or {})
    ordered = sorted(dict.fromkeys(notes), key=lambda note: note.line)
    made = [(note, Problem(note.message, note.hint, file, note.line)) for note in ordered]
    return Findings(
        tuple(problem for note, problem in made if note.wrong),
        tuple(problem for note, problem in made if not note.wrong),
        _shell(script),
    )


def _lint_bytes(text: bytes) -> Iterator[Note]:
    if not text.strip():
        yield wrong(1, "the script is empty: sbatch refuses it")
        return
    if text.startswith(b"\xef\xbb\xbf"):
        yield wrong(
            1,
            "an invisible mark (BOM) stands before #!: sbatch refuses the script",
            "sed -i '1s/^\\xEF\\xBB\\xBF//' FILE",
        )
    elif not text.startswith(b"#!"):
        late = re.match(rb"\s+#!", text)
        why = (
            "the first line must begin with #!, without blanks before it"
            if late
            else "there is no #! line"
        )
        yield wrong(1, f"{why}: sbatch refuses the script", "#!/bin/bash")
    if b"\r\n" in text:
        number = text[: text.index(b"\r\n")].count(b"\n") + 1
        count = text.count(b"\r\n")
        yield wrong(
            number,
            f"{counted(count, 'line ends', 'lines end')} as on Windows (CRLF): sbatch refuses the script",
            "sed -i 's/\\r$//' FILE",
        )
    if b"\0" in text:
        number = text[: text.index(b"\0")].count(b"\n") + 1
        yield wrong(number, "a NUL character: sbatch refuses the script", "is this a text file?")


def _interpreter(script: Script) -> list[str]:
    line = script.lines[0] if script.lines else ""
    return line[2:].split() if line.startswith("#!") else []


def _shell(script: Script) -> str:
    words = _interpreter(script)
    if words and os.path.basename(words[0]) == "env" and len(words) > 1:
        words = [shutil.which(words[1]) or words[1]]
    found = words[0] if words else ""
    return found if os.path.basename(found) in _SHELLS and os.access(found, os.X_OK) else ""


def _lint_shebang(script: Script) -> Iterator[Note]:
    words = _interpreter(script)
    if not words:
        if script.lines and script.lines[0].startswith("#!"):
            yield wrong(1, "#! names no interpreter", "#!/bin/bash")
    elif not os.path.isabs(words[0]):
        yield wrong(
            1,
            f"the interpreter {words[0]} is no absolute path: the job fails",
            f"#!/bin/{os.path.basename(words[0])}",
        )
    elif not os.path.exists(words[0]):
        found = shutil.which(os.path.basename(words[0]))
        hint = f"#!{found}" if found else "nodes may differ: ask one with `srun ls`"
        yield wrong(1, f"there is no {words[0]} here: the job fails with `bad interpreter`", hint)
    elif os.path.basename(words[0]) == "env" and not shutil.which(words[-1]):
        yield remark(
            1,
            f"there is no {words[-1]} on PATH here",
            "jobs take the PATH of the shell that submits",
        )


def _lint_ignored(script: Script) -> Iterator[Note]:
    """Lines that look like directives and are none."""
    first = script.first_command
    for number, line in enumerate(script.lines, 1):
        if number in script.quoted:
            continue
        found = re.match(r"(\s*)(#+)(\s*)(sbatch)\b[:\s]*(?=-)", line, re.IGNORECASE)
        if not found or (line.startswith("#SBATCH") and not (first and number > first)):
            continue
        indent, hashes, blank, word = found.groups()
        right = f"#SBATCH {line[found.end() :].strip()}"
        if len(hashes) > 1:
            yield remark(number, f"{hashes}SBATCH is a comment; this option is not given", right)
        elif first and number > first:
            yield wrong(
                number, f"ignored: a directive after the first command, which is on line {first}",
                f"move it above line {first}",
            )  # fmt: skip
        elif blank:
            yield wrong(number, "ignored: a blank between # and SBATCH makes this a comment", right)
        elif indent:
            yield wrong(number, "ignored: a directive must begin in the first column", right)
        elif word != "SBATCH":
            yield wrong(number, f"ignored: #{word} is a comment", right)


def _lint_options(script: Script) -> Iterator[Note]:
    seen: dict[tuple[int, str], tuple[int, str | None]] = {}
    for option in script.options:
        if option.name not in VALUES and not _PLUGINS.fullmatch(option.name):
            bare = option.name.replace("_", "-")
            close = bare if bare in VALUES else _RENAMED.get(bare) or nearest_word(bare, VALUES)
            hint = f"did you mean --{close}?" if close else "unless a plugin of your site adds it"
            yield wrong(
                option.line, f"sbatch has no option --{option.name} and refuses the script", hint
            )
        before = seen.get((option.part, option.name))
        if before is not None and before[1] != option.value:
            yield remark(
                option.line,
                f"--{option.name} was given on line {before[0]} already; the last one counts",
            )
        seen[option.part, option.name] = (option.line, option.value)
    for number, line in enumerate(script.lines, 1):
        other = re.match(r"#(PBS|BSUB)\s+-", line)
        if other and (not script.first_command or number < script.first_command):
            yield remark(
                number,
                f"sbatch obeys #{other[1]} lines too",
                "write them as #SBATCH, or as plain comments",
            )
    if script.parts > 1:
        number = next(
            n
            for n, line in enumerate(script.lines, 1)
            if re.match(r"#SBATCH\s+(het|pack)job", line)
        )
        yield remark(
            number, f"a heterogeneous job of {script.parts} parts: each has options of its own"
        )


def _lint_missing(script: Script) -> Iterator[Note]:
    """What every job should say; sbatch's command line may say it instead."""
    given = {option.name for option in script.options}
    if not any(line.startswith("#!") for line in script.lines[:1]) or "wrap" in given:
        return
    wanted = (
        ("time", {"time"}, "the partition's default or its limit is taken", "#SBATCH --time=0-03:00:00"),
        ("memory", {"mem", "mem-per-cpu", "mem-per-gpu", "exclusive"},
         "where the site has no default, the job takes a whole node's", "#SBATCH --mem=8000M"),
        ("cores", {"cpus-per-task", "cpus-per-gpu", "ntasks", "ntasks-per-node", "exclusive", "extra-node-info"},
         "the job gets one", "#SBATCH --cpus-per-task=4"),
    )  # fmt: skip
    for what, names, why, hint in wanted:
        if not names & given:
            yield remark(1, f"no {what} asked for: {why}", hint)


def _lint_body(script: Script) -> Iterator[Note]:
    if (
        not script.first_command
        or os.path.basename((_interpreter(script) or [""])[-1]) not in _SHELLS
    ):
        return
    body = [
        (number, line.strip())
        for number, line in enumerate(script.lines, 1)
        if number >= script.first_command
        and number not in script.quoted
        and line.strip()
        and not line.lstrip().startswith("#")
    ]
    for number, line in body:
        if re.search(r"\bcd\s+[\"']?\.\.", line):
            yield remark(
                number, "depends on the folder from where sbatch is called",
                "cd \"$SLURM_SUBMIT_DIR\", an absolute path, or #SBATCH --chdir",
            )  # fmt: skip
        if re.search(r"dirname\b[^|;]*(?:\$0|\$\{?BASH_SOURCE)", line):
            yield remark(
                number,
                "the job runs a copy of the script: this is Slurm's spool folder",
                'cd "$SLURM_SUBMIT_DIR"',
            )
    last_number, last = body[-1]
    works = [number for number, line in body[:-1] if _WORKS.search(line)]
    if works and _TIDYING.match(last) and not any(_SAVES_CODE.search(line) for _, line in body):
        told = f"the job's exit code is that of `{last.split()[0]}`"
        yield remark(
            last_number,
            f"{told}: Slurm says COMPLETED also when line {works[-1]} failed",
            "code=$? after the work, `exit $code` at the end; or set -e",
        )


def _lint_words(script: Script, environ: Mapping[str, str]) -> Iterator[Note]:
    """Placeholders and secrets, wherever they stand."""
    directives = {option.line for option in script.options}
    for number, line in enumerate(script.lines, 1):
        if line.lstrip().startswith("#") and number not in directives:
            continue
        if number not in directives:  # values of directives are looked at with more suspicion
            found = find_placeholder(line)
            if found:
                yield wrong(number, f"{found} is a placeholder that nobody replaced", "fill it in")
        for secret in find_secrets([line], environ):
            yield wrong(
                number, f"holds {secret}, which others can read (`scontrol write batch_script`, accounting)",
                "export it in your shell before sbatch; jobs inherit it",
            )  # fmt: skip
