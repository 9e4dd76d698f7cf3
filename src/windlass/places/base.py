"""The interface of a place: somewhere that the agents of a study can run, with all that depends on where that is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from windlass.collect.rehearsal import Allowed, Seen
from windlass.core.errors import Problem
from windlass.core.paths import StudyPaths
from windlass.model import Plan, Setting, Study, Submitted
from windlass.plan.evidence import Evidence
from windlass.site.here import Here

Say = Callable[[str], None]


class Agents(Protocol):
    """Agents that a place has started, and those of the same study that were there before."""

    @property
    def submitted(self) -> Submitted | None:
        """Their jobs; None where they are processes of this machine."""

    @property
    def poll_s(self) -> float:
        """How often it is worth a look at them."""

    @property
    def left_s(self) -> Callable[[], float | None] | None:
        """Estimates the time left. None where that is left to whoever sees trials end."""

    def wait(self, patience_s: float) -> int | None:
        """Wait for so long at most. None while any of them is there, else the exit code that is true of all.

        A negative code is the signal that has killed an agent: another one can go on in its place.
        """

    def look(self) -> tuple[bool, str]:
        """Whether they have ended for good, and, where they wait to be started, the reason as text."""

    def owns(self, header: Mapping[str, Any]) -> bool:
        """Whether the agent with this header in its journal is one of those that were started."""

    def explain_end(self) -> tuple[str, bool]:
        """How agents ended that have recorded nothing of it, as text, and whether they ran out of memory."""

    def interrupt(self, times: int, running: int) -> str:
        """React to the user's Ctrl-C, the `times`-th one. Returns the message to show."""

    def stop(self) -> str:
        """End the agents and their trials. Returns what went wrong, as text; "" where nothing did."""

    def complaints(self) -> str:
        """What the agents have printed on their error stream so far, as far as this machine can read it."""

    def close(self) -> None:
        """Release what was opened to follow them."""


@dataclass(frozen=True)
class Findings:
    """What is wrong with a plan: problems with which it would fail, and what is only worth a warning."""

    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preview:
    """What `run` would do now at a place that submits jobs."""

    submitted: Submitted | None = None  # None: there are no jobs, or the scheduler does not answer
    script: str = ""  # the batch script
    warnings: tuple[str, ...] = ()


class Place(ABC):
    """Somewhere that agents can run. A new place implements this in a file of this folder."""

    name: ClassVar[str]  # that of its file or sub-package
    # Agents run on other machines, and go on without the command that has started them.
    elsewhere: ClassVar[bool] = False

    # -- choosing it

    @classmethod
    @abstractmethod
    def is_offered(cls, site: str | None) -> bool:
        """Whether studies go there where the user names no place. Of several, the one `elsewhere` is taken."""

    @classmethod
    @abstractmethod
    def open(cls, site: str | None, insists: bool) -> Place:
        """The place, ready to plan for. `site` names a cluster; `insists`: also on a host that all users share.

        Raises InputError where this place is not available.
        """

    @classmethod
    @abstractmethod
    def can_continue(cls, paths: StudyPaths) -> bool:
        """Whether agents for a study that exists can be started there with what its folder has."""

    @classmethod
    def may_have_agents(cls, paths: StudyPaths) -> bool:
        """Whether agents may be there of which no journal tells yet."""
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the choice of this place."""
        return ()

    def explain_choice(self) -> str:
        """Why studies go there where the user has named no place; "" where that needs no explanation."""
        return ""

    def require(self) -> None:  # noqa: B027
        """Raise InputError where the place can be planned for, but agents cannot be started from here."""

    def fetch_here(self, *folders: str) -> Here | None:
        """What is known of this host and of these folders, where agents run on other machines; None elsewhere."""
        return None

    # -- planning

    @abstractmethod
    def resolve(self, flags: Mapping[str, Any], study: Study) -> Mapping[str, Setting]:
        """The settings of a study, from the command line, the study and this place's own defaults."""

    @abstractmethod
    def find_scratch(self) -> str | None:
        """The folder for large data at this place; None where there is none."""

    @abstractmethod
    def plan(
        self,
        study: Study,
        settings: Mapping[str, Setting],
        folder: str,
        evidence: Evidence,
        missing: int | None,
    ) -> Plan:
        """What a run would do. Changes nothing. The estimate is of the `missing` trials (None: all)."""

    @abstractmethod
    def find_problems(self, plan: Plan) -> Findings:
        """All that would fail there, found before anything starts."""

    def preview(self, plan: Plan) -> Preview:
        """What `run` would submit now."""
        return Preview()

    @abstractmethod
    def plan_measuring(self, plan: Plan, limit_s: float) -> tuple[Plan, float]:
        """The plan of a measurement, and the time that it gets there, of the `limit_s` that were asked for."""

    def has_free_gpus(self) -> bool:
        """Whether a trial finds a GPU there also where its study has asked for none."""
        return False

    @abstractmethod
    def small_needs(self, folder: str) -> dict[str, Any]:
        """Settings of a study with one short trial that looks at a GPU. `folder` exists on this machine alone."""

    @abstractmethod
    def allowed(self, plan: Plan, seen: Seen) -> Allowed:
        """What the trials of one agent may use in a rehearsal of which so much was seen."""

    # -- running

    def prepare(self, plan: Plan, say: Say) -> None:  # noqa: B027
        """Fetch what agents cannot fetch where they run."""

    @abstractmethod
    def start(
        self,
        paths: StudyPaths,
        most: int | None = None,
        slots: int | None = None,
        announce: Callable[[int], None] | None = None,
    ) -> Agents | None:
        """See to it that there are agents for what is to be done in a prepared folder.

        No more than `most` (None: as planned), each with so many `slots` (None: as planned). `announce` is called
        before any is started, with the number of those that are there already. Returns None where nothing is to be
        done and nobody to be followed.
        """
