"""Makes a node ready for the trials of a study: code, data, environment. Python 3.9, standard library."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from typing import Callable, Dict, Iterator, Optional

from windlass.agent.config import AgentConfig
from windlass.agent.keep.trial_folder import TrialFolders
from windlass.agent.node.companions import Companions
from windlass.agent.node.environment import Entered, activate, find_folders
from windlass.agent.node.job import LocalScratch
from windlass.agent.node.stage import make_trial_folders, stage_code, stage_data
from windlass.agent.node.store import NodeStore
from windlass.core.errors import NotReady


class Ready:
    """A node on which trials may begin; `env` is what they are started with."""

    def __init__(self, store: NodeStore, entered: Entered, folders: Optional[TrialFolders]) -> None:
        self.store = store
        self.env = entered.env
        self.wrap = entered.wrap  # puts a command into the environment
        self.inside = entered.inside  # of an environment with programs of its own
        self.folders = folders  # where each trial has a working folder of its own
        self.times: Dict[str, float] = {}  # how long each step of stage-in took, in order
        self.companions: Optional[Companions] = None  # on the other nodes of the job

    def close(self) -> None:
        if self.companions is not None:
            self.companions.close()
        self.store.close()


def make_ready(
    config: AgentConfig,
    scratch: LocalScratch,
    say: Callable[[str], None],
    mention: Callable[[str], None],
    study: str,
    folders_at: str = "",
) -> Ready:
    """Raises NotReady, with nothing left behind, where the node cannot be made ready.

    `mention` takes the steps that went as they should, `say` what the user wants to know. `study` is the
    folder of the study, `folders_at` is where the first node of the job has the working folders of its trials.
    """
    store = NodeStore(store_root(config, scratch), say, mention)
    times: Dict[str, float] = {}
    try:
        with _timed("code", times, config.code is not None):
            stage_code(config, store, scratch.path, stays=bool(scratch.made))
        if config.data:
            with _timed("data", times):
                stage_data(config, store, scratch.path)
        with _timed("environment", times, config.environment is not None):
            folders_used = find_folders(config, study, store)
            entered = activate(config, dict(os.environ), store, say, scratch.path, folders_used)
        if not os.path.isdir(config.workdir):
            raise NotReady(f"there is no folder {config.workdir} on {os.uname().nodename}")
        folders = make_trial_folders(
            config, store, scratch.path, stays=bool(scratch.made), at=folders_at
        )
    except NotReady:
        store.close()
        raise
    ready = Ready(store, entered, folders)
    ready.times = times
    return ready


@contextmanager
def _timed(name: str, times: Dict[str, float], counts: bool = True) -> Iterator[None]:
    began = time.monotonic()
    yield
    if counts:
        times[name] = time.monotonic() - began


def store_root(config: AgentConfig, scratch: LocalScratch) -> str:
    """Where the cache is: beside the jobs' folders, so that it outlives them; inside this job's own if it must."""
    name = f"windlass-{os.getuid()}"
    if scratch.made:
        return os.path.join(os.path.dirname(scratch.made), name)
    if not scratch.path:
        return os.path.join(tempfile.gettempdir(), name)
    beside = os.path.dirname(os.path.realpath(scratch.path))
    same_disk = os.stat(beside).st_dev == os.stat(scratch.path).st_dev
    can_share = same_disk and beside != os.sep and os.access(beside, os.W_OK)
    return os.path.join(beside if can_share else scratch.path, name)
