"""Whether a partition exists, is up, and takes jobs of this size, length and account. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.core.errors import Problem
from windlass.core.meant import nearest_word
from windlass.plan.refuse_nodes import fits
from windlass.plan.request_case import Case
from windlass.site.cluster import Partition


def find_partition_problems(case: Case) -> Iterator[Problem]:
    """Partitions that do not exist or are down. Nothing is known of them where no cluster answers."""
    known = [partition.name for partition in case.cluster.partitions]
    if not known:
        return
    for name in case.partition_names:
        partition = case.cluster.partition(name)
        if partition is None:
            yield case.problem(
                "partition",
                f"there is no partition {name!r}; there are: {', '.join(known)}{case.according_to('partitions')}",
                nearest_word(name, known) or best_partition(case) or known[0],
                case.extend_profile(f"[partition.{name}]"),
            )
        elif not partition.up:
            yield case.problem(
                "partition",
                f"partition {name} is down: jobs would wait there for ever",
                best_partition(case),
            )


def best_partition(case: Case) -> str:
    """A partition that would take this request, or nothing."""
    return next(
        (partition.name for partition in case.cluster.partitions if takes(case, partition)), ""
    )


def takes(case: Case, partition: Partition) -> bool:
    """Whether jobs of this kind could start in that partition, as far as is known."""
    limit_s = case.cluster.longest_of([partition])
    return (
        partition.up
        and (limit_s is None or case.request.time_s <= limit_s)
        and may_use(partition, case.account or case.cluster.default_account)
        and (
            not case.cluster.nodes
            or any(
                fits(case, node) for node in case.cluster.nodes if partition.name in node.partitions
            )
        )
    )


def may_use(partition: Partition, account: str | None) -> bool:
    if account is None:
        return True
    return account not in partition.deny_accounts and (
        not partition.allow_accounts or is_among(account, partition.allow_accounts)
    )


def is_among(account: str, accounts: Iterable[str]) -> bool:
    """Slurm does not tell case apart, and some sites add _cpu or _gpu to what users write."""
    wanted = account.lower()
    return any(name.lower() in (wanted, f"{wanted}_cpu", f"{wanted}_gpu") for name in accounts)
