"""What the scheduler would refuse, or accept and never start: options, time limits and types of GPU. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from windlass.core.counted import counted
from windlass.core.errors import Problem
from windlass.core.meant import nearest_word
from windlass.core.units import render_limit, spell_duration
from windlass.plan.refuse_account import find_account_problems
from windlass.plan.refuse_nodes import find_node_problems, find_nodes_away
from windlass.plan.refuse_partition import best_partition, find_partition_problems
from windlass.plan.request_case import Case, count_gpus, list_gpus, value_of
from windlass.slurm.options import VALUES, find_options, option_name

# Options of sbatch that Windlass sets itself: with other values it could not find or follow its array of agents.
_OURS = ("array", "comment", "help", "parsable", "test-only", "usage", "version", "wait", "wrap")
_USUAL_CPUS, _USUAL_GPUS = 256, 8  # Few nodes anywhere have more cores or GPUs than this.
# What a job has beyond its trials: setup before the first, a notice after the last.
_ON_TOP_S = 300.0
# Options of sbatch for what Windlass works out itself, and the keys of the study file that set it.
_OWN_KEYS = {
    "time": "needs: {time: …}",
    "cpus-per-task": "needs: {cpus: …}",
    **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), "needs: {memory: …}"),
    **dict.fromkeys(
        ("gres", "gpus", "gpus-per-node", "gpus-per-task"), "needs: {gpus: …, gpu_type: …}"
    ),
    "nodes": "slurm: {nodes: …}",
}


def find_request_problems(case: Case) -> Iterator[Problem]:
    """Yield every reason why jobs of this request would be refused or would never start."""
    yield from _find_option_problems(case)
    yield from find_partition_problems(case)
    yield from _find_time_problems(case)
    yield from _find_gpu_type_problems(case)
    yield from find_node_problems(case)
    yield from find_account_problems(case)


def find_request_warnings(case: Case) -> Iterator[str]:
    """What is odd about a request and may be meant all the same, each with what to do about it."""
    yield from _warn_of_any_gpu_type(case)
    yield from _warn_of_grace(case)
    yield from _warn_of_unknown_sizes(case)
    for name in case.request.options:
        key = _OWN_KEYS.get(option_name(name))
        if key is not None:
            yield (
                f"--{name} goes to sbatch as it is: nothing checks it, and the plan does not know of it; "
                f"write `{key}` instead"
            )
    away = find_nodes_away(case)
    if away:
        names = ", ".join(node.name for node in away[:5])
        reason = next((f": {node.reason}" for node in away if node.reason), "")
        yield f"nodes that fit are out of service now ({names}{reason}), too few are left; jobs wait for them"


def _find_option_problems(case: Case) -> Iterator[Problem]:
    for name in case.request.options:
        found = find_options(name)
        if name in _OURS:
            yield case.problem(
                "options",
                f"Windlass sets --{name} itself",
                "",
                f"leave {name} out",
            )
        elif not found:
            close = nearest_word(name, VALUES)
            # A site's own plugins may add options; only what looks like a slip is refused.
            if close:
                yield case.problem(
                    "options", f"sbatch has no option --{name}", "", f"did you mean --{close}?"
                )


def _find_time_problems(case: Case) -> Iterator[Problem]:
    limits: list[tuple[float, str]] = []
    cluster = case.cluster
    longest_s = (
        cluster.longest_of(case.partitions) if case.partitions else cluster.longest_time_s(None)
    )
    if longest_s is not None:
        limits.append((longest_s, case.where))
    qos = next((qos for qos in case.cluster.qos if qos.name == case.qos), None)
    if qos is not None and qos.max_time_s is not None:
        limits.append((qos.max_time_s, f"QOS {qos.name}"))
    for limit_s, source in limits:
        if case.request.time_s > limit_s > 0:
            limit = render_limit(limit_s)
            parts = math.ceil(
                min(case.request.time_s, case.plan.settings["time_s"].value or math.inf) / limit_s
            )
            fits_s = limit_s - _ON_TOP_S if limit_s > 2 * _ON_TOP_S else limit_s
            other = "" if source.startswith("QOS") else best_partition(case)
            cures = [f"`--partition {other}`"] if other else []
            if not case.interactive:
                cures.append(
                    f"save checkpoints: with `checkpoint:` it becomes {parts} jobs of {limit}, one after another"
                )
            yield case.problem(
                "time_s",
                f"jobs of {render_limit(case.request.time_s)} never start: {source} allows {limit}",
                spell_duration(limit_s if case.interactive else fits_s),
                "; or ".join(cures),
            )


def _find_gpu_type_problems(case: Case) -> Iterator[Problem]:
    request, cluster = case.request, case.cluster
    if not request.gpus or not cluster.gpus:
        return
    chosen = cluster.gpu(request.gpu_type) if request.gpu_type else None
    if request.gpu_type and chosen is None:
        names = [gpu.name for gpu in cluster.gpus if gpu.name]
        yield case.problem(
            "gpu_type",
            f"{cluster.name} has no GPUs of type {request.gpu_type!r}; there are: {list_gpus(cluster.gpus)}"
            + case.according_to("gpus"),
            nearest_word(request.gpu_type, names) or (names[0] if names else ""),
            case.extend_profile(f"[gpu.{request.gpu_type}]") if names else "leave the type out",
        )
        return
    need_mb = value_of(case.plan, "gpu_memory_mb")
    enough = [gpu for gpu in cluster.gpus if gpu.memory_mb and gpu.memory_mb >= (need_mb or 0)]
    # Jobs that name no type get one of any type.
    most_mb = [gpu.memory_mb for gpu in (cluster.gpus if chosen is None else (chosen,))]
    if need_mb and all(size and need_mb > size for size in most_mb):
        holder = f"a {chosen.name}" if chosen is not None else f"no GPU of {cluster.name}"
        has = (
            f"has {chosen.memory_mb} MB"
            if chosen is not None
            else f"has more than {max(filter(None, most_mb))} MB"
        )
        yield case.problem(
            "gpu_memory_mb",
            f"a trial needs {need_mb} MB of GPU memory, {holder} {has}{case.according_to('gpus')}",
            "",
            f"types that have it: {list_gpus(enough)}"
            if enough
            else f"no type has it: {list_gpus(cluster.gpus)}",
        )


def _warn_of_unknown_sizes(case: Case) -> Iterator[str]:
    """Unusually large jobs for a cluster of which the profile does not tell how large its nodes are."""
    request, chosen = case.request, case.cluster.gpu(case.request.gpu_type)
    if case.nodes():
        return
    sizes = [counted(request.cpus, "core")] if request.cpus > _USUAL_CPUS else []
    if request.gpus > _USUAL_GPUS and not (chosen is not None and chosen.per_node):
        sizes.append(count_gpus(request))
    if sizes:
        yield (
            f"jobs ask for {' and '.join(sizes)} on a node; whether {case.cluster.name} has such nodes was not "
            "checked, because its profile does not say how large they are"
        )


def _warn_of_grace(case: Case) -> Iterator[str]:
    """A grace that was given is compared with what the cluster leaves; the default one just adapts to it."""
    grace, left_s = case.plan.settings["grace_s"], case.plan.end_grace_s
    if left_s is not None and left_s < grace.value and grace.source != "default":
        yield (
            f"`grace` is {render_limit(grace.value)}, but {case.cluster.name} kills a job "
            f"{case.cluster.kill_wait_s} s after it tells it to end (KillWait): at scancel and preemption a trial has "
            f"{left_s:g} s to stop"
        )


def _warn_of_any_gpu_type(case: Case) -> Iterator[str]:
    request, cluster = case.request, case.cluster
    if not request.gpus or request.gpu_type or not cluster.typed_gpus:
        return
    present = {name for node in case.nodes() for name in node.gpus} or {
        gpu.name for gpu in cluster.gpus
    }
    gpus = [gpu for gpu in cluster.gpus if gpu.name in present]
    if len(gpus) > 1:
        yield f"no GPU type is given: jobs may get any of {list_gpus(gpus)}; `--gpu-type {gpus[0].name}` stays with one"
