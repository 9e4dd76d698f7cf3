"""This machine as a place: one agent, which ends with the command that has started it."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from windlass.bundle.environment import find_environment_problems
from windlass.bundle.programs import find_program_problems
from windlass.collect.rehearsal import Allowed, Seen
from windlass.core.claims.client import client_name
from windlass.core.claims.register import RegisterFile
from windlass.core.counted import counted
from windlass.core.errors import InputError
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_file
from windlass.core.processes import start_detached
from windlass.core.trust import check_trust
from windlass.core.verified import agent_command, read_digest
from windlass.model import Plan, Setting, Study
from windlass.places.base import Findings, Place
from windlass.plan.evidence import Evidence
from windlass.plan.local import plan_local
from windlass.plan.refuse import find_local_problems
from windlass.plan.refuse_processes import find_process_problems
from windlass.plan.refuse_study import (
    command_words,
    find_command_placeholders,
    find_secret_problems,
)
from windlass.plan.settings import resolve_settings
from windlass.plan.shared_outputs import find_output_problems, find_output_warnings
from windlass.search import count_trials, iterate_trials
from windlass.secrets import secret_variables
from windlass.site.discover import fetch_cluster, slurm_answers
from windlass.site.here import fetch_here
from windlass.site.local import Site, fetch_local_site

_SPARE = 0.95  # of this machine's memory: the last of it is not ours to use


class LocalAgents:
    """The agent of this machine. A socket between us tells each when the other has died: it is closed then."""

    poll_s = 0.1
    left_s = None
    submitted = None

    def __init__(self, paths: StudyPaths, slots: int) -> None:
        self._socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        arguments = [
            paths.folder,
            "--slots",
            str(slots),
            "--launcher-fd",
            str(theirs.fileno()),
            "--linger",
        ]
        command = agent_command(sys.executable, paths.agent, read_digest(paths), arguments)
        try:
            self._process = start_detached(command, [theirs.fileno()], self._errors.fileno())
        finally:
            theirs.close()

    def wait(self, patience_s: float) -> int | None:
        if select.select([self._socket], [], [], patience_s)[0]:
            return self._process.wait()
        return None

    def look(self) -> tuple[bool, str]:
        return self._process.poll() is not None, ""

    def owns(self, header: Mapping[str, Any]) -> bool:
        return "job" not in header

    def explain_end(self) -> tuple[str, bool]:
        return f"the agent ended with code {self._process.poll()}", False

    def interrupt(self, times: int, running: int) -> str:
        """The first Ctrl-C lets running trials end, the second one stops them."""
        if times == 1:
            self._signal(signal.SIGINT)
            return f"finishing {counted(running, 'running trial')} and taking no more; Ctrl-C again stops at once"
        self.stop()
        return "stopping the running trials"

    def stop(self) -> str:
        """End the trials under way: politely the first time, at once the second."""
        self._signal(signal.SIGTERM)
        return ""

    def warn(self) -> None:
        """Notify the agent in the way that the end of a job's time does."""
        self._signal(signal.SIGUSR1)

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def complaints(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode("utf-8", "replace")

    def close(self) -> None:
        self._socket.close()
        self._process.wait()
        self._errors.close()


class LocalPlace(Place):
    """This machine."""

    name = "local"

    def __init__(self, site: Site | None = None, notes: tuple[str, ...] = ()) -> None:
        self._site = site
        self._notes = notes

    @cached_property
    def site(self) -> Site:
        return self._site or fetch_local_site()

    # -- choosing it

    @classmethod
    def is_offered(cls, site: str | None) -> bool:
        return True

    @classmethod
    def open(cls, site: str | None, insists: bool) -> LocalPlace:
        """Refused on a login host, unless the user insists. Where Slurm answers, any host may be one."""
        if insists or not slurm_answers():
            return cls()
        here = fetch_here(fetch_cluster(), os.environ)
        problems = find_local_problems(True, here)
        if here.is_login_host:
            raise InputError(
                [replace(problem, hint=f"{problem.hint}; `--here` insists") for problem in problems]
            )
        return cls(notes=tuple(problem.message for problem in problems))

    @classmethod
    def can_continue(cls, paths: StudyPaths) -> bool:
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes

    # -- planning

    def resolve(self, flags: Mapping[str, Any], study: Study) -> Mapping[str, Setting]:
        return resolve_settings(flags, study.given, self.site.defaults, self.site.source)

    def find_scratch(self) -> str | None:
        return os.environ.get("SCRATCH")

    def plan(
        self,
        study: Study,
        settings: Mapping[str, Setting],
        folder: str,
        evidence: Evidence,
        missing: int | None,
    ) -> Plan:
        """Raises InputError where trials side by side would overwrite each other's outputs."""
        plan = plan_local(
            study, count_trials(study), settings, self.site, folder, evidence, missing
        )
        problems = list(find_output_problems(plan))
        if problems:
            raise InputError(problems)
        return replace(plan, warnings=(*plan.warnings, *find_output_warnings(plan)))

    def find_problems(self, plan: Plan) -> Findings:
        """What would fail on this machine: placeholders, secrets in commands, the environment, missing programs."""
        missing, unseen = find_program_problems(plan.study, iterate_trials(plan.study))
        secrets = find_secret_problems(plan, secret_variables(os.environ))
        environment = find_environment_problems(plan.study)
        processes = find_process_problems(plan, command_words(plan))
        placeholders = find_command_placeholders(plan)
        return Findings(
            (*placeholders, *secrets, *processes, *environment, *missing), tuple(unseen)
        )

    def plan_measuring(self, plan: Plan, limit_s: float) -> tuple[Plan, float]:
        return plan, limit_s

    def has_free_gpus(self) -> bool:
        return bool(self.site.gpus)

    def small_needs(self, folder: str) -> dict[str, Any]:
        return {"slots": 1, "gpus": len(self.site.gpus) or None, "folder": folder}

    def allowed(self, plan: Plan, seen: Seen) -> Allowed:
        """What this machine has left for trials, as the rehearsal saw it. There is no limit of time."""
        most_mb = (seen.level or {}).get("most_mb")
        return Allowed(
            None if most_mb is None else most_mb * _SPARE, "that this machine has for it"
        )

    # -- running

    def start(
        self,
        paths: StudyPaths,
        most: int | None = None,
        slots: int | None = None,
        announce: Callable[[int], None] | None = None,
    ) -> LocalAgents | None:
        """One agent, also where all trials are held by others: it takes those that come back."""
        check_trust(paths)
        register = RegisterFile(paths.claims, client_name()).read()
        if not register.todo and not register.held:
            return None
        return LocalAgents(paths, slots or read_plan_file(paths.plan).slots)
