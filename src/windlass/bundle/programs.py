"""Which programs and scripts a study would start, and which of them are not there: found before anything is queued.

Nothing is refused that the environment of the study may bring on the node: a module that is loaded there, lines under
`setup`, an environment that is yet to be built. What could not be looked at is named instead.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from windlass.bundle.environment import environment_folder, load_study_modules
from windlass.core.errors import Problem
from windlass.core.meant import did_you_mean
from windlass.environments.modules import has_module_command
from windlass.model import Study, Trial
from windlass.plan.source_line import find_line

_MOST_TRIALS = 1000  # commands that are looked at
_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)?)?t?d?")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_PASS_ON = ("env", "nohup", "time", "nice", "exec")  # start the program that is named after them
# Start a program that is named somewhere after options of their own.
_LAUNCHERS = (
    "srun", "mpirun", "mpiexec", "torchrun", "accelerate", "deepspeed", "stdbuf", "timeout", "taskset", "numactl",
    "xvfb-run", "uv", "poetry", "pipenv",
)  # fmt: skip
_ENDINGS = {
    "Rscript": (".r",),
    "julia": (".jl",),
    "perl": (".pl",),
    "node": (".js", ".mjs"),
    "ruby": (".rb",),
}
_BUILT_IN = frozenset(
    """
    . : [ { ( ! alias bg break case cd command continue declare do echo eval exec exit export false fg for function
    getopts hash if jobs kill let local module ml conda mamba micromamba printf pwd read readonly return select set
    shift shopt source test then time times trap true type typeset ulimit umask unalias unset until wait while
    """.split()  # noqa: SIM905 - a list of words reads better without a quote around each
)
_UNKNOWN_WORD = re.compile(r"[$`*?~{}\0]")  # a shell, the agent or a job replaces these


@dataclass(frozen=True)
class SearchPath:
    """Where trials look for programs. `unknown` says why that is not known before a job begins; "" where it is."""

    path: str
    unknown: str = ""


def find_search_path(study: Study, environ: Mapping[str, str]) -> SearchPath:
    """The PATH that trials of a study have, as far as it can be told here."""
    env, asked = dict(environ), study.environment
    unknown = ""
    if asked is not None:
        if asked.modules:
            env = load_study_modules(study, env)
            unknown = (
                ""
                if has_module_command(env)
                else f"the modules {', '.join(asked.modules)} are loaded on the node"
            )
        folder = environment_folder(study, env)
        if folder:
            env["PATH"] = os.path.join(folder, "bin") + os.pathsep + env.get("PATH", os.defpath)
        elif asked.kind:
            unknown = f"the environment ({asked.kind}) is not there yet"
        if asked.setup:
            unknown = "the lines under `setup` are executed on the node"
    own = study.env.get("PATH")
    if own is not None:
        env["PATH"], unknown = own, "`env` sets PATH" if _UNKNOWN_WORD.search(own) else unknown
    export = str((study.given.get("options") or {}).get("export", "ALL")).upper()
    if export.split(",")[0] not in ("ALL", ""):
        unknown = "--export keeps this shell's PATH from jobs"
    return SearchPath(env.get("PATH", os.defpath), unknown)


def find_program_problems(
    study: Study, trials: Iterable[Trial], environ: Mapping[str, str] | None = None
) -> tuple[list[Problem], list[str]]:
    """Programs and scripts that are missing, and those that could not be looked for, in words."""
    search = find_search_path(study, os.environ if environ is None else environ)
    problems: dict[Problem, None] = {}
    unseen: dict[str, None] = {}
    looked: set[tuple[str, ...]] = set()
    for trial, _ in zip(trials, range(_MOST_TRIALS), strict=False):
        earlier = ""
        for stage, words in trial.stages:
            for kind, name in _named(list(words), study.workdir):
                if (kind, name) in looked or (kind == "script" and name in earlier):
                    continue  # an earlier stage speaks of this script: it may write it
                looked.add((kind, name))
                problem = _missing(study, stage, kind, name, search)
                if (
                    problem is not None
                    and kind == "program"
                    and search.unknown
                    and os.sep not in name
                ):
                    unseen[
                        f"whether there is a program {name} could not be looked at: {search.unknown}"
                    ] = None
                elif problem is not None:
                    problems[problem] = None
            earlier += " ".join(words) + "\n"
    return list(problems), list(unseen)


# -- what a command names


def _named(words: list[str], workdir: str) -> Iterator[tuple[str, str]]:
    """("program", …) and ("script", …) that a command surely starts."""
    if words[:2] == ["/bin/sh", "-c"] and len(words) == 3:
        words = _first_command(words[2])
    words = _inner(words)
    if not words or _UNKNOWN_WORD.search(words[0]):
        return
    program = os.path.basename(words[0])
    yield "program", words[0]
    if program in _LAUNCHERS:
        yield from _launched(words)
        return
    script = _script(program, words[1:])
    if script and not _UNKNOWN_WORD.search(script):
        yield "script", script


def _first_command(text: str) -> list[str]:
    """The words of the first command in a line for a shell; none where they are the shell's own."""
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError:
        return []
    words: list[str] = []
    for token in tokens:
        if token[0] in "();<>|&":
            break
        words.append(token)
    return [] if words and words[0] in _BUILT_IN else words


def _inner(words: Sequence[str]) -> list[str]:
    """The command without assignments and programs that only start another one."""
    rest = list(words)
    while rest:
        if re.fullmatch(r"[A-Za-z_]\w*=.*", rest[0], re.DOTALL):
            rest = rest[1:]
        elif os.path.basename(rest[0]) in _PASS_ON and len(rest) > 1:
            if rest[1].startswith("-"):
                return []  # with options of its own it is not clear where the program stands
            rest = rest[1:]
        else:
            break
    return rest


def _launched(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The script behind a launcher, where one can be told from the launcher's own options."""
    for place, word in enumerate(words[1:], 1):
        if _PYTHON.fullmatch(os.path.basename(word)):
            script = _script(os.path.basename(word), words[place + 1 :])
            if script and not _UNKNOWN_WORD.search(script):
                yield "script", script
            return
        if (
            word.endswith(".py")
            and not words[place - 1].startswith("-")
            and not _UNKNOWN_WORD.search(word)
        ):
            yield "script", word
            return


def _script(program: str, arguments: Sequence[str]) -> str:
    """The file that an interpreter is given; "" for none, or where that is not clear."""
    if program in _ENDINGS:
        for before, word in zip(("", *arguments), arguments, strict=False):
            if word.lower().endswith(_ENDINGS[program]) and not before.startswith("-"):
                return word
        return ""
    if program in _SHELLS:
        return _first_file(arguments, ("-o", "-O", "+o", "+O"), re.compile(r"-|--|-\w*[cs]\w*"))
    if _PYTHON.fullmatch(program):
        return _first_file(
            arguments, ("-W", "-X", "--check-hash-based-pycs"), re.compile(r"-|-[cm].*", re.DOTALL)
        )
    return ""


def _first_file(
    arguments: Sequence[str], with_value: tuple[str, ...], instead: re.Pattern[str]
) -> str:
    """The first argument that is no option; "" where an option says that the program comes from elsewhere."""
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if instead.fullmatch(word):
            return ""
        if not word.startswith(("-", "+")):
            return word
        place += 2 if word in with_value else 1
    return ""


# -- whether it is there


def _missing(study: Study, stage: str, kind: str, name: str, search: SearchPath) -> Problem | None:
    if kind == "script" or os.sep in name:
        path = os.path.join(study.workdir, name)
        if not os.path.exists(path):
            return _problem(study, stage, name, f"there is no file {path}", _similar_file(path))
        if kind == "program" and (os.path.isdir(path) or not os.access(path, os.X_OK)):
            what = "is a folder" if os.path.isdir(path) else "may not be executed"
            return _problem(study, stage, name, f"{path} {what}", f"chmod +x {shlex.quote(name)}")
        return None
    if shutil.which(name, path=search.path) is not None:
        return None
    if os.path.isfile(os.path.join(study.workdir, name)):
        return _problem(
            study,
            stage,
            name,
            f"there is no program {name} in PATH",
            f"write ./{name} for the file here",
        )
    return _problem(
        study,
        stage,
        name,
        f"there is no program {name} in PATH",
        _similar_program(name, search.path),
    )


def _problem(study: Study, stage: str, name: str, message: str, hint: str) -> Problem:
    text = study.source_text
    line = find_line(text, "stages", re.sub(r"-\d+$", "", stage)) or find_line(text, "", "command")
    if study.tasks or not line:
        line = next((number for number, row in enumerate(text.splitlines(), 1) if name in row), 0)
    where = f"{stage}: " if len(study.stages) > 1 else ""
    return Problem(where + message, hint, study.source, line if study.source else 0)


def _similar_program(name: str, path: str) -> str:
    names: set[str] = set()
    for folder in path.split(os.pathsep):
        try:
            names.update(os.listdir(folder))
        except OSError:
            continue
    meant = did_you_mean(name, sorted(names), 0.75)
    return meant or "install it, or name what brings it: environment: {modules: […]}"


def _similar_file(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        meant = did_you_mean(name, os.listdir(folder or "."))
    except OSError:
        meant = ""
    return meant or "paths are relative to the study's folder, or to its `workdir`"
