"""Whether the user may submit these jobs: account, QOS, and the number of jobs in the queue. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from windlass.core.counted import counted
from windlass.core.errors import Problem
from windlass.core.meant import nearest_word
from windlass.plan.refuse_partition import best_partition, is_among, may_use
from windlass.plan.request_case import Case, value_of


def find_account_problems(case: Case) -> Iterator[Problem]:
    """Yield what speaks against the account, the QOS and the number of agents of the request."""
    yield from _find_account_problems(case)
    yield from _find_qos_problems(case)
    yield from _find_agent_problems(case)


def _as_written(accounts: tuple[str, ...]) -> tuple[str, ...]:
    """Accounts as users write them: def-prof where the scheduler has def-prof_cpu and def-prof_gpu."""
    pairs = {
        name.removesuffix("_cpu")
        for name in accounts
        if name.removesuffix("_cpu") + "_gpu" in accounts
    }
    bare = (
        next((pair for pair in pairs if name in (f"{pair}_cpu", f"{pair}_gpu")), name)
        for name in accounts
    )
    return tuple(dict.fromkeys(bare))


def _find_account_problems(case: Case) -> Iterator[Problem]:
    cluster, account = case.cluster, case.account
    accounts = _as_written(cluster.accounts)
    mine = ", ".join(accounts)
    if account is None:
        if cluster.account_rule == "required" and not cluster.default_account:
            which = f"yours: {mine}" if mine else "`sshare -U` lists yours"
            value = accounts[0] if accounts else "def-PROFESSOR"
            yield case.problem("account", f"{cluster.name} wants an account ({which})", value)
        return
    if accounts and not is_among(account, cluster.accounts):
        yield case.problem(
            "account",
            f"you have no account {account!r} here; yours: {mine}",
            nearest_word(account, accounts) or cluster.default_account or accounts[0],
        )
    elif case.partitions and not any(may_use(partition, account) for partition in case.partitions):
        allowed = case.partitions[0].allow_accounts
        usable = next((name for name in accounts if is_among(name, allowed)), "")
        other = "" if usable else best_partition(case)
        taken = f"; it takes those of: {', '.join(allowed)}" if allowed else ""
        message = f"{case.where} does not take jobs of account {account}{taken}"
        yield case.problem("account", message, usable, f"`--partition {other}`" if other else "")


def _find_qos_problems(case: Case) -> Iterator[Problem]:
    names = [qos.name for qos in case.cluster.qos]
    if case.qos is None or not names:
        return
    qos = next((qos for qos in case.cluster.qos if qos.name == case.qos), None)
    if qos is None:
        yield case.problem(
            "qos",
            f"you may not use QOS {case.qos!r}; yours: {', '.join(names)}",
            nearest_word(case.qos, names) or names[0],
        )
        return
    gpus = case.request.gpus * case.request.nodes
    if qos.max_gpus_per_job is not None and gpus > qos.max_gpus_per_job:
        yield case.problem("gpus", f"jobs ask for {counted(gpus, 'GPU')}, QOS {qos.name} allows {qos.max_gpus_per_job}",
                           str(qos.max_gpus_per_job))  # fmt: skip
    allowed = [
        partition
        for partition in case.partitions
        if not partition.allow_qos or qos.name in partition.allow_qos
    ]
    if case.partitions and not allowed:
        yield case.problem(
            "qos", f"{case.where} does not take QOS {qos.name}; it takes: {', '.join(case.partitions[0].allow_qos)}",
            case.partitions[0].allow_qos[0],
        )  # fmt: skip


def _find_agent_problems(case: Case) -> Iterator[Problem]:
    plan = case.plan
    if plan.agents > plan.trial_count > 0 and value_of(plan, "agents"):
        yield case.problem(
            "agents",
            f"{plan.agents:,} agents for {counted(plan.trial_count, 'trial')}: some would have nothing to do",
            str(math.ceil(plan.trial_count / max(1, plan.slots))),
        )
    limits = [
        case.cluster.max_submit,
        *(qos.max_submit for qos in case.cluster.qos if qos.name == case.qos),
    ]
    most = min((limit for limit in limits if limit is not None), default=None)
    if most is not None and plan.agents > most:
        yield case.problem(
            "agents",
            f"{counted(plan.agents, 'agent')}, and you may have {counted(most, 'job')} in the queue",
            str(most),
        )
