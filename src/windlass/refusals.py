"""What would fail is refused before anything starts: all problems at once, for a cluster and for this machine."""

from __future__ import annotations

import os

from windlass.bundle.environment import find_environment_hints, find_environment_problems
from windlass.bundle.programs import find_program_problems
from windlass.bundle.small_files import find_small_files
from windlass.errors import InputError
from windlass.model import Plan
from windlass.paths import StudyPaths
from windlass.plan.refuse import find_problems, find_warnings
from windlass.plan.refuse_request import Case, find_nodes_away
from windlass.plan.refuse_study import find_command_placeholders, find_secret_problems
from windlass.search import iterate_trials
from windlass.secrets import secret_variables
from windlass.site.cluster import Cluster
from windlass.site.here import fetch_here
from windlass.submission import try_request


def check_slurm_plan(plan: Plan, cluster: Cluster) -> list[str]:
    """Raise InputError with everything that would fail in the queue. Returns what is only worth a warning.

    Where the scheduler of that cluster cannot be asked from here, the plan is checked against the site's profile. Then
    folders, data and environments of this machine are left out, because jobs do not see this machine.
    """
    folders = (plan.folder, plan.study.workdir) if cluster.live else ()
    here = fetch_here(cluster, os.environ, folders)
    problems = find_problems(plan, cluster, here)
    unseen: list[str] = []
    if cluster.live:
        missing, unseen = find_program_problems(plan.study, iterate_trials(plan.study))
        problems += [*find_environment_problems(plan.study), *find_small_files(plan), *missing]
    if problems:
        raise InputError(problems)
    if not cluster.live:
        return [*plan.warnings, *find_warnings(plan, cluster, here)]
    assert plan.terms is not None
    away = find_nodes_away(Case(plan, plan.terms.request, cluster))
    try_request(plan.terms, StudyPaths(plan.folder), bool(away))
    return [*plan.warnings, *find_warnings(plan, cluster, here), *unseen, *find_environment_hints(plan.study)]


def check_local_plan(plan: Plan) -> list[str]:
    """Raise InputError with everything that would fail in every trial here. Returns what could not be looked at."""
    missing, unseen = find_program_problems(plan.study, iterate_trials(plan.study))
    secrets = find_secret_problems(plan, secret_variables(os.environ))
    problems = [*find_command_placeholders(plan), *secrets, *find_environment_problems(plan.study), *missing]
    if problems:
        raise InputError(problems)
    return unseen
