"""Everything wrong with a plan, found before anything is queued, all at once. Pure."""

from __future__ import annotations

from dataclasses import replace

from windlass.errors import Problem
from windlass.model import Plan, Request
from windlass.plan.refuse_request import Case, find_request_problems, find_request_warnings, takes
from windlass.plan.refuse_study import find_request_placeholders, find_study_problems, find_study_warnings
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
        warnings.append(f"this is job {here.job}: submitting from inside a job works only where the site allows it")
    return warnings


def make_interactive(plan: Plan, cluster: Cluster) -> Plan:
    """The same plan for one interactive job: in the site's partition for these, and no longer than the site wants.

    A partition or a time from the command line is left as it is. Where the site's partition would not take the job,
    it goes where batch jobs go.
    """
    assert plan.terms is not None
    request = _with_interactive_time(plan, plan.terms.request, cluster)
    chosen = cluster.partition(cluster.shell_partition) if cluster.shell_partition else None
    if chosen is not None and plan.settings["partition"].source != "command line":
        moved = _with_interactive_time(plan, replace(request, partition=chosen.name), cluster)
        if takes(Case(plan, moved, cluster, interactive=True), chosen):
            request = moved
    return replace(plan, agents=1, terms=replace(plan.terms, request=request))


def _with_interactive_time(plan: Plan, request: Request, cluster: Cluster) -> Request:
    asked = plan.settings["time_s"]
    if asked.value is not None and asked.source == "command line":
        return replace(request, time_s=int(asked.value))
    longest_s = cluster.longest_of(Case(plan, request, cluster).partitions) or request.time_s
    return replace(request, time_s=int(min(request.time_s, cluster.shell_time_s, longest_s)))


def find_interactive_problems(plan: Plan, cluster: Cluster) -> list[Problem]:
    """What salloc would refuse, or wait for without end."""
    assert plan.request is not None
    problems = find_request_problems(Case(plan, plan.request, cluster, interactive=True))
    return list(dict.fromkeys([*find_request_placeholders(plan), *problems]))


def find_local_problems(cluster_known: bool, here: Here) -> list[Problem]:
    """What speaks against running trials on this very host."""
    if not here.is_login_host and not (cluster_known and not here.job):
        return []
    if here.is_login_host:
        message = f"{here.host} is a login host, shared by all users: it is no place to compute"
    else:
        message = f"Slurm answers here, so that {here.host} may be a login host, which is no place to compute"
    return [Problem(message, "`--on slurm` puts the trials in jobs")]
