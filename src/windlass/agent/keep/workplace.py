"""Gives each trial a working folder of its own, and keeps what it leaves there. Python 3.9, standard library."""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Tuple

from windlass.agent.child import Attempt
from windlass.agent.config import AgentConfig
from windlass.agent.keep.finder import Finder
from windlass.agent.keep.outputs import OutputKeeper, Settled, Signatures
from windlass.agent.keep.trial_folder import TrialFolders
from windlass.agent.node.companions import Companions
from windlass.agent.node.stage import move_variables
from windlass.core.paths import StudyPaths
from windlass.core.states import Cause


class Workplace:
    """Where the trials of one agent work: from an attempt's first moment until its files are safe."""

    def __init__(
        self,
        config: AgentConfig,
        paths: StudyPaths,
        agent: str,
        env: Mapping[str, str],
        folders: TrialFolders,
        node: str = "",
    ) -> None:
        """`env` is what all trials of the agent are started with, `node` this one where it is not the agent's own."""
        # Where trials have processes on other nodes as well.
        self.others: Optional[Companions] = None
        self._config = config
        self._env = env
        self._folders = folders
        keeps = config.keep != "none"
        finder = Finder(config.outputs if keeps else [], env)
        self._keeper = OutputKeeper(finder, paths, agent, env.get("SLURM_TMPDIR", ""), keeps, node)
        self._moved: Dict[int, Dict[bytes, bytes]] = {}  # slot → variables that lead to its folder

    def enter(self, attempt: Attempt) -> None:
        """Have a folder ready for an attempt, and its variables lead there. Raises OSError."""
        slot = attempt.slot.number
        attempt.workdir = self._folders.enter(slot)
        self._keeper.describe(self._folders, slot)
        if slot not in self._moved:
            self._moved[slot] = move_variables(
                self._env, self._config, self._folders.project_of(slot)
            )
        attempt.variables = {
            **self._moved[slot],
            **attempt.variables,
            b"PWD": os.fsencode(attempt.workdir),
        }
        self._keeper.begin(attempt.attempt, attempt.trial, attempt.variables)
        if self.others is not None:
            self.others.begin(attempt)

    def start_again(self, attempt: Attempt) -> None:
        """The attempt's process was ended before it got anywhere: it finds its folder as at first. Raises OSError."""
        self._folders.clear(attempt.slot.number, discard=True)
        self.enter(attempt)

    def look(self, attempt: Attempt) -> Tuple[Signatures, List[str]]:
        """The outputs that an ended attempt leaves on this node, and patterns that none of them matches."""
        place = self._folders.place_of(attempt.slot.number)
        return self._keeper.look(attempt.attempt, attempt.trial, attempt.variables, place)

    def adapt(self, attempt: Attempt, twice: List[str], same: List[str]) -> None:
        """Keep outputs whose names other nodes have as well below the name of this node; the `same` ones once."""
        self._keeper.adapt(attempt.attempt, twice, same)

    def is_cleared(self, attempt: Attempt) -> bool:
        """Whether what the attempt wrote is safe, and its folder as it was before. False: ask again."""
        attempt.begin_out()
        settled = self.settle(attempt)
        if settled is None:
            return False
        missing = settled.missing
        if self.others is not None:
            elsewhere = self.others.verdict(attempt)
            missing = [
                pattern for pattern in missing if pattern in elsewhere.get("missing", missing)
            ]
            settled = settled._replace(
                note="; ".join(filter(None, (settled.note, elsewhere.get("note"))))
            )
            settled = settled._replace(is_lost=settled.is_lost or elsewhere.get("lost", False))
        if missing:
            attempt.remarks.append(
                f"outputs: nothing that this trial wrote matches {', '.join(missing)}"
            )
        if settled.note:
            attempt.remarks.insert(0, settled.note)
        if settled.is_lost:
            # A trial is done when there is something to show for it.
            attempt.cause = attempt.cause or Cause.STOPPED
        attempt.end_out()
        return True

    def settle(self, attempt: Attempt) -> Optional[Settled]:
        """The same for this node, with what became of the attempt's outputs. None: ask again."""
        slot = attempt.slot.number
        where = (attempt.attempt, attempt.trial, attempt.variables)
        if not self._keeper.safe(*where, lambda: self._folders.place_of(slot)):
            return None
        number = attempt.attempt
        if self.others is not None and not self.others.is_kept(
            number, self._keeper.signatures(number)
        ):
            return None
        settled = self._keeper.settle(attempt.attempt)
        if settled.is_unsafe:
            self._keeper.remember_unsafe(attempt.trial, self._folders.set_aside(slot))
        else:
            # What a trial left running may still write to its folder: the next trial gets another.
            self._folders.clear(slot, discard=attempt.left_processes)
        return settled

    @property
    def is_full(self) -> bool:
        """Whether something could not be kept for want of room."""
        return self._keeper.full

    def sync(self) -> None:
        """What was kept is on the disk when this returns, as far as that is possible."""
        self._keeper.sync()

    def close(self) -> List[str]:
        """Returns what is to be noted about the agent as a whole."""
        if self.others is not None:
            self.others.wait(self.others.ask("close"))
        self._keeper.close()
        shared = ", ".join(self._folders.find_shared_writes())
        if shared:
            shared = (
                f"{shared} changed while trials ran: all trials share it through a link; a folder that `outputs:` "
                "names is each trial's own"
            )
        return [*self._keeper.notes, *self._folders.notes, *([shared] if shared else [])]
