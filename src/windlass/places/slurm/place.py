"""A Slurm cluster as a place: agents are the tasks of job arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from windlass.bundle.environment import (
    find_environment_hints,
    find_environment_problems,
    prepare_environment,
)
from windlass.bundle.programs import find_program_problems
from windlass.bundle.since import find_changes_of_code
from windlass.bundle.small_files import find_small_files
from windlass.collect.rehearsal import Allowed, Seen
from windlass.collect.submissions import read_submissions
from windlass.core.claims import ranges as rs
from windlass.core.claims.client import client_name
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.counted import counted
from windlass.core.errors import SchedulerError, input_error
from windlass.core.lock import StudyLock
from windlass.core.paths import StudyPaths
from windlass.core.trust import check_trust
from windlass.model import Plan, Setting, Study, Terms
from windlass.places.base import Findings, Place, Preview, Say
from windlass.places.slurm.following import JobAgents
from windlass.places.slurm.measuring import plan_measuring_job
from windlass.places.slurm.submission import (
    agents_may_be_there,
    example_script,
    preview_agents,
    read_terms,
    submit_agents,
    try_request,
)
from windlass.plan.evidence import Evidence
from windlass.plan.refuse import find_problems, find_warnings
from windlass.plan.refuse_nodes import find_nodes_away
from windlass.plan.request_case import Case
from windlass.plan.settings import resolve_settings
from windlass.plan.slurm import plan_slurm
from windlass.plan.submitter import with_submitter_defaults
from windlass.search import count_trials, iterate_trials
from windlass.site.cluster import Cluster
from windlass.site.discover import fetch_cluster, slurm_answers
from windlass.site.here import Here, fetch_here, fill_user
from windlass.site.load import fetch_load
from windlass.slurm.options import option_name

_MEMORY_OPTIONS = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_NO_SLURM = "there is no Slurm here: sbatch is missing or not set up"


class SlurmPlace(Place):
    """A cluster. Where its scheduler cannot be asked from here, its profile stands for it, and nothing is submitted."""

    name = "slurm"
    elsewhere = True

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster

    @cached_property
    def cluster(self) -> Cluster:
        return self._cluster or fetch_load(fetch_cluster())

    # -- choosing it

    @classmethod
    def is_offered(cls, site: str | None) -> bool:
        return site is not None or slurm_answers()

    @classmethod
    def open(cls, site: str | None, insists: bool) -> SlurmPlace:
        """The cluster that is named, or the one of this machine. Raises InputError where there is no Slurm."""
        if site is None and not slurm_answers():
            raise input_error(
                _NO_SLURM,
                "--on local executes the trials on this machine; --site NAME plans for a cluster from its profile",
            )
        return cls(fetch_load(fetch_cluster(site)))

    @classmethod
    def can_continue(cls, paths: StudyPaths) -> bool:
        return read_terms(paths) is not None

    @classmethod
    def may_have_agents(cls, paths: StudyPaths) -> bool:
        """A job that waits has no journal. Without an answer of the scheduler, a job that was submitted is there."""
        return bool(read_submissions(paths)) and agents_may_be_there(paths)

    def explain_choice(self) -> str:
        if not self.cluster.live:
            return ""
        return f"{self.cluster.title}: Slurm answers, the trials go there (--on local: to this machine)"

    def require(self) -> None:
        """Raise InputError where the plan was made from a profile alone: nothing can be submitted from here."""
        if self.cluster.live:
            return
        name = self.cluster.name
        message = _NO_SLURM
        if slurm_answers():
            message = f"this machine submits to another cluster than {name}, so nothing is submitted from here"
        raise input_error(
            message,
            f"log in to {name} and run it there; `windlass plan --site {name}` checks it against the profile",
        )

    def fetch_here(self, *folders: str) -> Here | None:
        return fetch_here(self.cluster, os.environ, folders)

    # -- planning

    def resolve(self, flags: Mapping[str, Any], study: Study) -> Mapping[str, Setting]:
        """The settings by their precedence, with the defaults of job_submitter.sh where the study asks for those."""
        settings = resolve_settings(
            flags, study.given, self.cluster.defaults, self.cluster.defaults_file, os.environ
        )
        return with_submitter_defaults(settings, study, self.cluster)

    def find_scratch(self) -> str | None:
        """The folder for large files: $SCRATCH, else the one that the cluster's profile names."""
        named = os.environ.get("SCRATCH")
        if named or not self.cluster.scratch:
            return named
        return fill_user(self.cluster.scratch, os.environ)

    def plan(
        self,
        study: Study,
        settings: Mapping[str, Setting],
        folder: str,
        evidence: Evidence,
        missing: int | None,
    ) -> Plan:
        """The plan for jobs on this cluster. Nothing is asked or changed here."""
        return plan_slurm(
            study, count_trials(study), settings, self.cluster, folder, evidence, missing
        )

    def find_problems(self, plan: Plan) -> Findings:
        """All that would fail in the queue. Raises SchedulerError where the scheduler does not answer.

        Where the scheduler of that cluster cannot be asked from here, the plan is checked against the site's profile.
        Then folders, data and environments of this machine are left out, because jobs do not see this machine.
        """
        is_live = self.cluster.live
        folders = (plan.folder, plan.study.workdir) if is_live else ()
        here = fetch_here(self.cluster, os.environ, folders)
        problems = find_problems(plan, self.cluster, here)
        unseen: list[str] = []
        if is_live:
            missing, unseen = find_program_problems(plan.study, iterate_trials(plan.study))
            problems += [*find_environment_problems(plan.study), *find_small_files(plan), *missing]
        if is_live and not problems:
            terms = _terms_of(plan)
            away = find_nodes_away(Case(plan, terms.request, self.cluster))
            problems = try_request(terms, StudyPaths(plan.folder), bool(away))
        if problems:
            return Findings(tuple(problems))
        hints = find_environment_hints(plan.study) if is_live else []
        return Findings((), (*find_warnings(plan, self.cluster, here), *unseen, *hints))

    def preview(self, plan: Plan) -> Preview:
        """What `run` would submit now, its batch script, and warnings about agents that have older code.

        The queue is only read. Without an answer of the scheduler the script is that of the plan alone.
        """
        terms, paths = _terms_of(plan), StudyPaths(plan.folder)
        submitted = None
        changed: list[str] = []
        warnings: tuple[str, ...] = ()
        try:
            if self.cluster.live:
                changed = find_changes_of_code(plan)
                submitted = preview_agents(terms, paths, plan.agents_missing, bool(changed))
        except SchedulerError:
            pass
        if changed and submitted is not None and submitted.outdated:
            agents = counted(submitted.outdated, "agent at work has", "agents at work have")
            text = f"{agents} the code as it was before {', '.join(changed)} changed"
            warnings = (
                f"{text}: after `windlass run` they take no more trials, and others are submitted",
            )
        count = plan.agents_missing if submitted is None else submitted.agents
        script = example_script(replace(terms, agents=count), paths) if count else ""
        return Preview(submitted, script, warnings)

    def plan_measuring(self, plan: Plan, limit_s: float) -> tuple[Plan, float]:
        return plan_measuring_job(plan, self.cluster, limit_s)

    def small_needs(self, folder: str) -> dict[str, Any]:
        return {"slots": 1, "gpus": 1, "cpus": 2, "memory": "4GB", "time": "10m", "agents": 1}

    def allowed(self, plan: Plan, seen: Seen) -> Allowed:
        """What the request of a job allows. What the user's own options of sbatch change is not known here."""
        request = _terms_of(plan).request
        given = {option_name(name) for name in request.options}
        return Allowed(
            memory_mb=None if given & _MEMORY_OPTIONS else request.memory_mb,
            time_s=None if "time" in given else request.time_s,
            waves=plan.waves,
            checkpoint=plan.study.checkpoint is not None,
        )

    # -- running

    def prepare(self, plan: Plan, say: Say) -> None:
        prepare_environment(plan, self.cluster.internet, say)

    def start(
        self,
        paths: StudyPaths,
        most: int | None = None,
        slots: int | None = None,
        announce: Callable[[int], None] | None = None,
    ) -> JobAgents:
        """Submit the agents that are missing; those that wait or run already count. A job's slots are planned."""
        check_trust(paths)
        terms = read_terms(paths)
        assert terms is not None
        register_file = RegisterFile(paths.claims, client_name())
        with StudyLock(register_file, paths.folder):
            wanted = agents_wanted(terms, register_file.read())
            if most is not None:
                wanted = min(most, wanted)
            return JobAgents(paths, submit_agents(terms, paths, wanted, announce))


def agents_wanted(terms: Terms, register: Register) -> int:
    """As many as planned, but no more than have something to do; none where nothing is up for taking."""
    if not register.todo:
        return 0
    open_trials = rs.count(register.todo) + rs.count(register.held_ranges())
    return min(terms.agents, -(-open_trials // terms.slots))


def _terms_of(plan: Plan) -> Terms:
    assert plan.terms is not None
    return plan.terms
