"""Every path of a study's folder, in one object. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import os
import pwd
import stat
from typing import Iterator, List, Optional

# In a project's root: where its studies' folders are, unless there is a scratch.
STUDIES = ".windlass"
ELSEWHERE = "elsewhere"  # in there: a list of other places that this project's studies were put
YAML_ENDINGS = (".yaml", ".yml", ".json")  # of study files
TASK_ENDINGS = (".txt", ".sh", ".tasks")  # of files with one command a line
FILE_NAMES = (
    "study.yaml",
    "study.yml",
    "sweep.yaml",
    "sweeper.yml",
    "experiment_configurations.txt",
    "experiment_configuration.txt",
)
# A study file may be in it; its commands are written for the folder above it.
SUBFOLDER = "hpc_files"
# Variables of a job that commands may name as a shell would, because only the node knows what they are.
NODE_VARIABLES = ("SLURM_TMPDIR", "path_to_local_node_storage")
SHELLS = ("sh", "bash", "zsh", "dash", "ksh")  # they replace variables themselves
_PROJECT_MARKS = (".git", "pyproject.toml", STUDIES)


def user_name() -> str:
    """The name of this user's account; in a container that has no account for him, what the environment says.

    Jobs may be without $USER, so the account comes first: the same user has the same name everywhere.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER") or os.environ.get("LOGNAME") or str(os.getuid())


def expand_node_path(path: str) -> str:
    """A path as a site writes it, with variables of the job; "" where one of them is not set."""
    if not os.environ.get("USER"):
        os.environ["USER"] = user_name()
    expanded = os.path.expandvars(path)
    return "" if "$" in expanded else expanded


def find_project(start: str) -> str:
    """The root of the project that `start` is in: the nearest folder at or above it that looks like one.

    A folder above `start` that is not one project's own (see `why_no_project`) never counts, whatever lies in it.
    Where no folder counts, the root is the current folder if `start` is below it, else `start` itself.
    """
    start = os.path.abspath(start)
    for folder in _marked_folders(start):
        if not why_no_project(folder):
            return folder
    here = os.path.abspath(os.curdir)
    is_below = os.path.commonpath([here, start]) == here
    return here if is_below and not why_no_project(here) else start


def passed_over(start: str) -> List[str]:
    """Folders at or above `start`, and below its project's root, that look like a project and are none."""
    found = []
    for folder in _marked_folders(os.path.abspath(start)):
        if not why_no_project(folder):
            break
        found.append(folder)
    return found


def _marked_folders(start: str) -> Iterator[str]:
    """The folders at or above `start` with a project's mark, the nearest first."""
    folder = start
    while True:
        marks = [mark for mark in _PROJECT_MARKS if os.path.exists(os.path.join(folder, mark))]
        # A checkout that a group shares is a project; a `.windlass` alone in a group's folder was left there.
        if marks and (marks != [STUDIES] or not _is_a_groups(folder)):
            yield folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return
        folder = parent


def why_no_project(folder: str) -> str:
    """Why a folder cannot be the root of a project, to follow its path in a sentence; "" where it can be.

    The home folder, ``/`` and folders such as /tmp hold much that has nothing to do with one project, and all of a
    project's files may be copied to a cluster.
    """
    real = os.path.realpath(folder)
    if real == os.sep:
        return "is the root of the file system"
    if real in _home_folders():
        return "is your home folder"
    try:
        mode = os.stat(real).st_mode
    except OSError:
        return ""
    return "can be written to by all users" if mode & stat.S_IWOTH else ""


def _is_a_groups(folder: str) -> bool:
    """Whether a folder is another user's and a group writes to it."""
    try:
        status = os.stat(folder)
    except OSError:
        return False
    return bool(status.st_mode & stat.S_IWGRP) and status.st_uid != os.getuid()


def why_no_study(folder: str) -> str:
    """Why a study cannot be in a folder that is its project's root; "" where it can.

    A folder of the user's own that is open to all is accepted here: some file systems show every folder like that.
    """
    why = why_no_project(folder)
    try:
        status = os.stat(folder)
    except OSError:
        return why
    is_open = bool(status.st_mode & stat.S_IWOTH)
    is_own = status.st_uid == os.getuid() and not status.st_mode & stat.S_ISVTX
    return "" if is_open and is_own and "users" in why else why


def _home_folders() -> List[str]:
    """The home folder as the environment has it, and as the account has it."""
    homes = [os.environ.get("HOME", "")]
    try:
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass  # a container without an account for this user
    return [os.path.realpath(home) for home in homes if home]


class StudyPaths:
    """Where things are inside one study's folder. Makes and reads nothing."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder)
        self.study_file = self._at("study.yaml")
        self.plan = self._at("plan.json")
        self.trials = self._at("trials.jsonl")
        self.trials_index = self._at("trials.idx")
        self.agent = self._at("agent.pyz")
        self.warm = self._at("warm.json")
        # What `windlass measure` found, for whoever plans this study.
        self.measured = self._at("measured.json")
        self.job_script = self._at("job.sh")
        self.claims = self._at("claims")
        self.journal = self._at("journal")
        self.output = self._at("output")
        self.outputs = self._at("outputs")
        self.checkpoints = self._at("checkpoints")
        # Beside the study, shared by all of its project: where the scheduler's own logs go.
        self.hpc_outputs = os.path.join(os.path.dirname(self.folder), "hpc_outputs")
        # The last answer of the scheduler.
        self.queue = os.path.join(self.hpc_outputs, "squeue.json")

    def _at(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def folders(self) -> List[str]:
        """What is made with the study."""
        return [
            self.folder,
            self.claims,
            self.journal,
            self.output,
            self.checkpoints,
            self.hpc_outputs,
        ]

    def former_agent(self, digest: str) -> str:
        """Where an agent with this SHA-256 is kept once another one is agent.pyz; core/verified.py looks there."""
        return self._at(f"agent-{digest[:12]}.pyz")

    def journal_of(self, writer: str) -> str:
        return os.path.join(self.journal, writer + ".jsonl")

    def output_of(self, agent: str) -> str:
        return os.path.join(self.output, agent + ".log")

    def output_index_of(self, agent: str) -> str:
        return os.path.join(self.output, agent + ".idx")

    def metrics_of(self, agent: str) -> str:
        return os.path.join(self.output, agent + ".metrics.jsonl")

    def reserve_of(self, agent: str) -> str:
        """A little room kept so that the last records can be written on a full disk."""
        return os.path.join(self.journal, agent + ".reserve")


def find_study_file(folder: str) -> Optional[str]:
    """The study file of a folder, by its usual names, also in `hpc_files`; None if there is none."""
    for parent in (folder, os.path.join(folder, SUBFOLDER)):
        for name in FILE_NAMES:
            path = os.path.join(parent, name)
            if os.path.isfile(path):
                return path
    return None


def make_own_folder(path: str) -> str:
    """A folder that only we may enter, in a folder that others can write to. Raises OSError.

    Returns `path`. Where somebody else has made a file or folder of that name, or could have written to it, returns
    another one of ours beside it, whose name begins with that of `path`: one that an earlier call has made, or a new
    one. Nobody else can make a folder that belongs to us, and symbolic links are not followed.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    above, name = os.path.split(path)
    beside = sorted(other for other in os.listdir(above) if other.startswith(name + "-"))
    for candidate in (name, *beside):
        own = os.path.join(above, candidate)
        found = os.lstat(own)
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if is_ours and not found.st_mode & 0o022:
            if stat.S_IMODE(found.st_mode) & 0o077:
                os.chmod(own, 0o700)
            return own
    import tempfile  # slow to import, and seldom needed

    return tempfile.mkdtemp(prefix=name + "-", dir=above)
