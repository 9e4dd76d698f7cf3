"""Every path of a study's folder, in one object. The agent needs it: Python 3.9, standard library."""

from __future__ import annotations

import os
import pwd
from typing import List, Optional

STUDIES = ".windlass"  # in a project's root: where its studies' folders are, unless there is a scratch
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
SUBFOLDER = "hpc_files"  # a study file may be in it; its commands are written for the folder above it
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

    Where none does, it is the current folder if `start` is below that, else `start` itself.
    """
    start = os.path.abspath(start)
    folder = start
    while True:
        if any(os.path.exists(os.path.join(folder, mark)) for mark in _PROJECT_MARKS):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    here = os.path.abspath(os.curdir)
    return here if os.path.commonpath([here, start]) == here else start


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
        self.job_script = self._at("job.sh")
        self.claims = self._at("claims")
        self.journal = self._at("journal")
        self.output = self._at("output")
        self.outputs = self._at("outputs")
        self.checkpoints = self._at("checkpoints")
        # Beside the study, shared by all of its project: where the scheduler's own logs go.
        self.hpc_outputs = os.path.join(os.path.dirname(self.folder), "hpc_outputs")
        self.queue = os.path.join(self.hpc_outputs, "squeue.json")  # what the scheduler last said

    def _at(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    def folders(self) -> List[str]:
        """What is made with the study."""
        return [self.folder, self.claims, self.journal, self.output, self.checkpoints, self.hpc_outputs]

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

    def outputs_of(self, trial_id: str) -> str:
        return os.path.join(self.outputs, trial_id)


def find_study_file(folder: str) -> Optional[str]:
    """The study file of a folder, by its usual names, also in `hpc_files`; None if there is none."""
    for parent in (folder, os.path.join(folder, SUBFOLDER)):
        for name in FILE_NAMES:
            path = os.path.join(parent, name)
            if os.path.isfile(path):
                return path
    return None
