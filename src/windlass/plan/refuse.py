"""Everything wrong with a plan, found before anything is queued, all at once. Pure."""

from __future__ import annotations

from windlass.core.errors import Problem
from windlass.model import Plan
from windlass.plan.refuse_request import find_request_problems, find_request_warnings
from windlass.plan.refuse_study import find_study_problems, find_study_warnings
from windlass.plan.request_case import Case
from windlass.site.cluster import Cluster
from windlass.site.here import Here


def find_problems(plan: Plan, cluster: Cluster, here: Here) -> list[Problem]:
    """What would fail, or wait for ever. Empty: nothing that can be known."""
    problems = list(find_study_problems(plan, cluster, here))
    if plan.request is not None:
        problems += find_request_problems(Case(plan, plan.request, cluster))
    return list(dict.fromkeys(problems))


def find_warnings(plan: Plan, cluster: Cluster, here: Here) -> list[str]:
    """What may work and is likely not meant."""
    warnings = list(find_study_warnings(plan, here))
    if plan.request is not None:
        warnings += find_request_warnings(Case(plan, plan.request, cluster))
    if here.job:
        warnings.append(
            f"this is job {here.job}: submitting from inside a job works only where the site allows it"
        )
    return warnings


def find_local_problems(cluster_known: bool, here: Here) -> list[Problem]:
    """What speaks against running trials on this very host."""
    if not here.is_login_host and not (cluster_known and not here.job):
        return []
    if here.is_login_host:
        message = f"{here.host} is a login host, shared by all users: it is no place to compute"
    else:
        message = f"Slurm answers here, so that {here.host} may be a login host, which is no place to compute"
    return [Problem(message, "`--on slurm` puts the trials in jobs")]
