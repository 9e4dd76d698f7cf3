"""Slurm's reasons for letting a job wait, in plain words with what can be done."""

from __future__ import annotations

import re

_REASONS: dict[str, str] = {
    "Priority": "others are before it in the queue",
    "Resources": "it is next; what it asks for is in use",
    "JustSubmitted": "was submitted a moment ago",
    "FollowsInChain": "follows the job before it, and goes on where that was",
    "JobArrayTaskLimit": "waits for the study's own throttle; `windlass throttle N` raises it",
    "Dependency": "waits for another job to end",
    "DependencyNeverSatisfied": "the job it waits for ended otherwise than asked; it will never start: cancel it",
    "BeginTime": "may not start before a set time; after a restart that is a minute or two",
    "JobHeldUser": "you held it; `scontrol release JOB` lets it go",
    "JobHeldAdmin": "an administrator held it; ask them",
    "JobHoldMaxRequeue": "was started again too often and is held; look at its log, then `scontrol release JOB`",
    "JobLaunchFailure": "could not be started on its node, often because its log could not be made",
    "PartitionTimeLimit": "asks for more time than the partition allows; it will never start: shorten `time`",
    "PartitionNodeLimit": "asks for more nodes than the partition allows, or they are down or reserved",
    "PartitionDown": "the partition is down; wait, or name another",
    "PartitionInactive": "the partition takes no jobs now; wait, or name another",
    "PartitionConfig": "the partition does not have what it asks for",
    "ReqNodeNotAvail": "nodes it needs are down, drained or reserved for maintenance",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": (
        "nodes it needs are down, drained or reserved"
    ),
    "NodeDown": "a node it needs is down",
    "Reservation": "waits for its reservation",
    "ReservationDeleted": "its reservation was removed; submit it anew",
    "Licenses": "waits for a licence",
    "Prolog": "its node is being made ready",
    "Cleaning": "is being cleaned up after its last start",
    "BadConstraints": "no node has the features it asks for; it will never start",
    "InvalidAccount": "its account is not valid; see `windlass site`",
    "InvalidQOS": "its QOS is not valid; see `windlass site`",
    "AccountNotAllowed": "its account may not use this partition",
    "QOSNotAllowed": "its QOS may not use this partition or account",
    "AccountingPolicy": "a limit of the accounting is reached",
    "QOSJobLimit": "its QOS has as many jobs as it may have",
    "QOSResourceLimit": "its QOS uses as much as it may use",
    "QOSTimeLimit": "its QOS has used up its time",
    "QOSUsageThreshold": "its QOS has used more than its share",
    "AssociationJobLimit": "your account has as many jobs as it may have",
    "AssociationResourceLimit": "your account uses as much as it may use",
    "AssociationTimeLimit": "your account has used up its time",
    "FedJobLock": "the clusters of the federation are agreeing on it",
    "MaxMemPerLimit": "asks for more memory than the partition allows; it will never start: lower `memory`",
    "BurstBufferResources": "waits for room in the burst buffer",
    "BurstBufferStageIn": "its data is being copied in",
    "BurstBufferOperation": "the burst buffer failed",
    "DeadLine": "its deadline is past",
    "NonZeroExitCode": "ended with an exit code other than 0",
    "TimeLimit": "reached its time limit",
    "OutOfMemory": "used more memory than it asked for",
    "RaisedSignal": "was ended by a signal",
    "NodeFail": "its node failed",
    "SystemFailure": "failed for a reason of Slurm's, the file system's or the network's",
    "StepFailure": "its command could not be started",
    "InactiveLimit": "was idle for too long",
    "launch_failed_requeued_held": "could not be started on its node and is held; `scontrol release JOB` tries again",
    "job_requeued_in_held_state": "was put back and is held; `scontrol release JOB` lets it go",
    "user_env_retrieval_failed_requeued_held": "your login shell was too slow; `scontrol release JOB` tries again",
}
_WHAT = {
    "gres": "GPUs",
    "cpu": "CPUs",
    "mem": "memory",
    "memory": "memory",
    "node": "nodes",
    "jobs": "running jobs",
    "job": "running jobs",
    "submitjobs": "jobs in the queue",
    "submitjob": "jobs in the queue",
    "wall": "time",
    "wallduration": "time",
    "billing": "billing units",
    "energy": "energy",
    "bb": "burst buffer",
    "license": "licences",
}
_LIMIT = re.compile(
    r"(QOS|Assoc)?(Grp|Max|Min)(Jobs?|SubmitJobs?|WallDuration|Wall|GRES|Cpu|CPU|Memory|Mem|Node|Billing|Energy|BB|License)"
    r"(?:Run)?(Minutes|Mins)?(?:Run)?(Minutes)?(Per(?:Job|User|Account|Node))?(Minutes)?(Limit|NotSatisfied)?\Z"
)


def explain_reason(reason: str) -> str:
    """The reason in plain words; one that is not known is given back as it is, and no reason as nothing."""
    text = reason.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    word = re.split(r"[,:]", text, maxsplit=1)[0].strip()
    whole = _REASONS.get(re.sub(r"[\s_]+", "_", text))
    if whole is not None:
        return whole
    known = _REASONS.get(word) or _explain_limit(word)
    if known is None:
        return "" if text == "None" else text
    rest = text[len(word) :].strip(",: ")
    nodes = re.sub(r"^(UnavailableNodes|Reserved for maintenance):?", "", rest).strip(" ,:")
    return f"{known} ({nodes})" if nodes else known


def will_never_start(reason: str) -> bool:
    """Whether a waiting job with this reason waits in vain."""
    return "never start" in explain_reason(reason)


def _explain_limit(word: str) -> str | None:
    """Words such as QOSMaxGRESPerUser and AssocGrpCPUMinutesLimit say who limits what for whom."""
    found = _LIMIT.match(word)
    if found is None:
        return None
    scope, kind, what, minutes, more_minutes, per, last_minutes, _ = found.groups()
    owner = "your account" if scope == "Assoc" else "its QOS"
    things = _WHAT[what.lower()]
    if minutes or more_minutes or last_minutes:
        things = f"minutes of {things}"
    if kind == "Min":
        return f"asks for fewer {things} than {owner} wants; it will never start"
    if per in ("PerJob", "PerNode"):
        each = "a job" if per == "PerJob" else "a node"
        return (
            f"asks for more {things} than {owner} allows {each}; it will never start: ask for less"
        )
    if per == "PerUser":
        return f"you have as many {things} as {owner} allows one user; it starts when some of yours end"
    if per == "PerAccount":
        return f"your account uses as many {things} as {owner} allows; it starts when some end"
    if kind == "Max":
        return f"you have as many {things} as {owner} allows; it starts when some of yours end"
    return f"everybody under {owner} together has reached the limit of {things}; it starts when some end"
