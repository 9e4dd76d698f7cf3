"""Which files of a project are its code: what git knows and does not ignore, or all but the usual litter."""

from __future__ import annotations

import fnmatch
import itertools
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from windlass.core.errors import InputError, Problem
from windlass.core.paths import StudyPaths
from windlass.core.processes import stream
from windlass.core.units import render_bytes
from windlass.secrets import find_secrets

CODE_LIMIT_BYTES = 100 << 20
CODE_LIMIT_FILES = 20_000
PACKED = ".windlass-data"  # folder of packed data
_LITTER_FOLDERS = (
    ".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".windlass", PACKED, "wandb", "mlruns",
    "lightning_logs", "hpc_outputs", "outputs", "checkpoints", ".tox", ".nox", ".eggs", "*.egg-info", ".*_cache",
    ".ipynb_checkpoints", ".idea", ".vscode",
)  # fmt: skip
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_LITTER_FILES = (
    "*.pyc",
    "*.pyo",
    ".DS_Store",
    "core",
    "core.[0-9]*",
    "*.out",
    "slurm-*.log",
    "*.swp",
)


# Files that usually hold passwords and keys. They are code only if git tracks them.
_CREDENTIALS = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pypirc", ".npmrc", ".pgpass", ".my.cnf", ".htpasswd",
    ".s3cfg", ".boto", ".git-credentials", ".dockercfg", ".Renviron", ".vault-token", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "kaggle.json", "credentials",
    "credentials.*", "client_secret*.json", "service[-_]account*.json", "secrets.json", "secrets.toml", "secrets.y*ml",
)  # fmt: skip
_NO_CREDENTIALS = ("*.example", "*.sample", "*.template", "*.dist", "*.py")
_CREDENTIAL_FOLDERS = (
    ".ssh",
    ".aws",
    ".gnupg",
    ".azure",
    ".gcloud",
    ".kube",
    ".docker",
    ".kaggle",
    ".huggingface",
)
# These may be certificates, or lists of tokens, which are no secret: what they begin with decides.
_MAYBE = (
    "*.pem", "*.key", "*.asc", "*token", "*token.txt", "*token.json", "*secret", "*secret.txt", "*secret.json",
    "*password", "*password.txt", "*api[-_]key", "*api[-_]key.txt", "*apikey.txt",
)  # fmt: skip


@dataclass(frozen=True)
class CodeFile:
    """One file or link; `name` is relative to the project."""

    name: str
    mode: int
    size: int


def list_code(
    project: str, excluded: Iterable[str] = (), most: int | None = None
) -> list[CodeFile]:
    """Files of the project by name. `excluded` are folders or files, absolute or relative to the project.

    With `most`, no more files than that are looked at; of a project with more, only those at its top are listed. Files
    with credentials that git does not track are left out; `list_credentials` names them.
    """
    return _list(project, excluded, most, credentials=False)


def list_credentials(project: str, excluded: Iterable[str] = ()) -> list[str]:
    """Names of files that would be code if they did not hold passwords or keys: git does not track them."""
    return [file.name for file in _list(project, excluded, None, credentials=True)]


def _list(
    project: str, excluded: Iterable[str], most: int | None, credentials: bool
) -> list[CodeFile]:
    """Files with credentials that git does not track, or all files but these."""
    names = list(itertools.islice(_names(project), most))
    if most is not None and len(names) >= most:
        names = [
            entry.name for entry in os.scandir(project) if not entry.is_dir(follow_symlinks=False)
        ]
    prefixes = (
        *(os.path.join(project, name) for name in excluded),
        *_study_folders(project, names),
    )
    found: dict[str, CodeFile] = {}
    for name in names:
        path = os.path.join(project, name)
        if any(path == prefix or path.startswith(prefix + os.sep) for prefix in prefixes):
            continue
        if PACKED in name.split(os.sep):
            continue
        if _holds_credentials(project, name) is not credentials:
            continue
        try:
            status = os.lstat(path)
        except OSError:
            continue  # known to git, but deleted
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            found[name] = CodeFile(name, status.st_mode, status.st_size)
    return [found[name] for name in sorted(found)]


def _study_folders(project: str, names: Iterable[str]) -> Iterator[str]:
    """Folders of studies, wherever they were made, and the schedulers' logs beside them."""
    for name in names:
        if os.path.basename(name) == "plan.json":
            folder = os.path.dirname(os.path.join(project, name))
            if os.path.exists(StudyPaths(folder).agent):
                yield from (folder, StudyPaths(folder).hpc_outputs)


def _names(root: str) -> Iterator[str]:
    listed = _ask_git(root)
    if not listed:
        yield from _walk(root)
        return
    for name in listed:
        path = os.path.join(root, name)
        if os.path.isdir(path) and not os.path.islink(path):
            # A submodule, or a repository inside this one. (One that was not fetched has nothing in it.)
            for inner in _names(path) if os.path.lexists(os.path.join(path, ".git")) else ():
                yield os.path.join(name, inner)
        else:
            yield name


def _ask_git(root: str) -> list[str]:
    """Tracked and untracked files, without the ignored; empty where git does not know this folder."""
    pieces: list[bytes] = []
    words = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not stream(words, pieces.append).ok:
        return []
    return [os.fsdecode(name).rstrip("/") for name in b"".join(pieces).split(b"\0") if name]


def _holds_credentials(project: str, name: str) -> bool:
    """Whether a file is one with passwords or keys, by its name or its beginning, and not tracked by git."""
    last = os.path.basename(name)
    is_known = _matches(last, _CREDENTIALS) and not _matches(last, _NO_CREDENTIALS)
    is_known = is_known or any(part in _CREDENTIAL_FOLDERS for part in name.split(os.sep)[:-1])
    path = os.path.join(project, name)
    if not is_known and _matches(last, _MAYBE):
        is_known = _begins_with_secret(path)
    return is_known and not is_tracked(os.path.dirname(path), last)


def _begins_with_secret(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return bool(find_secrets([file.read(4096)], {}))
    except OSError:
        return False  # Whoever packs it says what is wrong with it.


def is_tracked(project: str, folder: str) -> bool:
    """Whether git knows this file, or files in this folder, of the project."""
    pieces: list[bytes] = []
    words = [
        "git",
        "--literal-pathspecs",
        "-C",
        project,
        "ls-files",
        "-z",
        "--cached",
        "--",
        folder,
    ]
    stream(words, pieces.append)
    return any(pieces)


def _walk(root: str) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(
            name for name in folders if name not in links and not _is_litter(folder, name)
        )
        for name in [*files, *links]:
            if not _matches(name, _LITTER_FILES):
                yield name if inside == "." else os.path.join(inside, name)


def _is_litter(folder: str, name: str) -> bool:
    marks = (os.path.join(folder, name, mark) for mark in _ENVIRONMENT_MARKS)
    return _matches(name, _LITTER_FOLDERS) or any(os.path.exists(mark) for mark in marks)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def check_limits(project: str, files: Sequence[CodeFile]) -> None:
    """Raise InputError, with what is big, for a project that is too large to be copied to every node."""
    total = sum(file.size for file in files)
    if total <= CODE_LIMIT_BYTES and len(files) <= CODE_LIMIT_FILES:
        return
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for file in files:
        top = file.name.split(os.sep)[0] + (os.sep if os.sep in file.name else "")
        sizes[top] += file.size
        counts[top] += 1
    if total > CODE_LIMIT_BYTES:
        what = f"{render_bytes(total)}, the limit is {render_bytes(CODE_LIMIT_BYTES)}"
        big = [f"{name} {render_bytes(size)}" for name, size in sizes.most_common(5)]
        largest = sorted(files, key=lambda file: -file.size)[:3]
        big += [f"{file.name} {render_bytes(file.size)}" for file in largest if os.sep in file.name]
    else:
        what = f"{len(files):,} files, the limit is {CODE_LIMIT_FILES:,}"
        big = [f"{name} {count:,} files" for name, count in counts.most_common(5)]
    hint = (
        "name what is no code in .gitignore, what trials read under `data:`; or `code: live` lets trials run in the "
        "project itself"
    )
    raise InputError(
        [
            Problem(
                f"the code of {project} is too large to be frozen: {what}\n  {', '.join(big)}", hint
            )
        ]
    )
