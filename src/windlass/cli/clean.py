"""windlass clean: remove what finished studies and dead jobs left behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

import click

from windlass.bundle.zipapp import build_agent
from windlass.cli.options import folder_option, json_option, yes_option
from windlass.cli.studies import find_study
from windlass.collect.leftovers import (
    Leftover,
    Wanted,
    find_shared_leftovers,
    find_study_leftovers,
    weigh,
)
from windlass.collect.locate import list_studies, study_roots
from windlass.core.errors import FolderError, InputError, Problem, input_error
from windlass.core.files import write_whole
from windlass.core.paths import StudyPaths, find_project
from windlass.core.trust import close_umask
from windlass.measure.start import find_left
from windlass.places.slurm.sweeper import SweepJob, render_sweep, send_sweep, waiting_jobs
from windlass.site.cluster import Cluster, Node
from windlass.site.discover import fetch_cluster
from windlass.slurm.records import parse_hostlist
from windlass.view.clean import render_leftovers, render_swept

_POLL_S = 10.0  # the scheduler is not asked more often


@click.command()
@click.argument("study", required=False)
@click.option(
    "--nodes",
    is_flag=False,
    flag_value="all",
    metavar="[NODES]",
    help="Clean the own disks of these nodes (default: of all).",
)
@click.option(
    "--checkpoints", is_flag=True, help="Remove also checkpoints of trials that are done."
)
@click.option("--data", is_flag=True, help="Remove also packed data that no study names any more.")
@click.option(
    "--environments",
    is_flag=True,
    help="Remove also built environments and wheels, which are made again when needed.",
)
@click.option(
    "--patience",
    type=float,
    default=120.0,
    show_default=True,
    help="With --nodes: how many seconds to wait for the jobs that clean.",
)
@folder_option
@yes_option
@json_option
def command(
    study: str | None,
    nodes: str | None,
    checkpoints: bool,
    data: bool,
    environments: bool,
    patience: float,
    folder: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Show what finished studies left behind that nobody needs; with --yes remove it.

    A study with agents at work or jobs in the queue is not touched. With --nodes, one tiny job a node removes the local
    folders of jobs that are gone, after it has copied out what is to be kept of them. No running job's is touched.
    """
    roots = study_roots(folder, os.getcwd(), os.environ.get("SCRATCH"))
    if nodes is not None:
        return _clean_nodes(nodes, roots, yes, patience, as_json)
    wanted = Wanted(checkpoints, data, environments)
    named = [find_study(study, folder).folder] if study else list_studies(roots)
    leftovers, spared = _find(named, roots, wanted, bool(study))
    if yes:
        for leftover in leftovers:
            _remove(leftover.path)
    if as_json:
        report = {
            "removed": yes,
            "leftovers": [asdict(leftover) for leftover in leftovers],
            "spared": spared,
        }
        print(json.dumps(report, indent=2))
    else:
        print(render_leftovers(leftovers, spared, yes))
    return 0


def _find(
    studies: Sequence[str], roots: Sequence[str], wanted: Wanted, one: bool
) -> tuple[list[Leftover], dict[str, str]]:
    leftovers: list[Leftover] = []
    spared: dict[str, str] = {}
    for folder in studies:
        found = find_study_leftovers(StudyPaths(folder), wanted)
        leftovers += found.leftovers
        if found.spared:
            spared[os.path.basename(folder)] = found.spared
    for root, study in (
        [os.path.split(folder) for folder in studies] if one else [(root, "") for root in roots]
    ):
        left, under_way = find_left(root, study)
        leftovers += [weigh(path, "left by a measurement") for path in left]
        spared |= {os.path.basename(folder): "a measurement is under way" for folder in under_way}
    if not one:
        project = find_project(os.getcwd())
        if spared:
            wanted = replace(wanted, environments=False)  # somebody may be using them
        for root in roots:
            if os.path.isdir(root):
                leftovers += find_shared_leftovers(root, [project], list_studies(roots), wanted)
    return list(dict.fromkeys(leftovers)), spared


def _remove(path: str) -> None:
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror}") from error


# -- nodes' own disks


def _clean_nodes(
    nodes_given: str, roots: Sequence[str], yes: bool, patience_s: float, as_json: bool
) -> int:
    cluster = fetch_cluster()
    root = next((root for root in roots if os.path.isdir(root)), roots[-1])
    hpc_outputs = os.path.join(root, "hpc_outputs")
    jobs = [_job(node, cluster, hpc_outputs) for node in _choose_nodes(nodes_given, cluster)]
    if not yes:
        if as_json:
            print(
                json.dumps(
                    {
                        "nodes": [job.node for job in jobs],
                        "script": render_sweep(jobs[0]),
                        "submitted": False,
                    }
                )
            )
        else:
            names = ", ".join(job.node for job in jobs)
            print(
                f"one job of 5 minutes on each of {len(jobs)} nodes: {names}\n\n{render_sweep(jobs[0])}"
            )
            print("--yes submits them")
        return 0
    close_umask()
    os.makedirs(hpc_outputs, exist_ok=True)
    write_whole(jobs[0].program, build_agent())
    sent = {job: send_sweep(job) for job in jobs}
    numbers = [number for number, _ in sent.values() if number is not None]
    refused = {job.node: text for job, (number, text) in sent.items() if number is None}
    left = _wait(numbers, patience_s)
    late = [job.node for job, (number, _) in sent.items() if number in left]
    lines = [
        line
        for job, (number, _) in sent.items()
        if number is not None
        for line in _report(job, number in left)
    ]
    if as_json:
        print(
            json.dumps(
                {"submitted": True, "folders": lines, "refused": refused, "waiting": late}, indent=2
            )
        )
    else:
        print(render_swept(lines, refused, late))
    return 1 if refused or late else 0


def _choose_nodes(nodes_given: str, cluster: Cluster) -> list[Node]:
    """Usable nodes only: a job for a node that is down would wait for ever."""
    if nodes_given == "all":
        chosen = [node for node in cluster.nodes if node.usable]
        if not chosen:
            raise input_error(
                "the scheduler names no node that takes jobs", "`windlass site` shows what it says"
            )
        return chosen
    known = {node.name: node for node in cluster.nodes}
    problems = []
    for name in parse_hostlist(nodes_given):
        if name not in known:
            problems.append(Problem(f"there is no node {name!r}", "`windlass site` lists them"))
        elif not known[name].usable:
            problems.append(
                Problem(
                    f"{name} takes no jobs now: {', '.join(known[name].states)}", "leave it out"
                )
            )
    if problems:
        raise InputError(problems)
    return [known[name] for name in parse_hostlist(nodes_given)]


def _job(node: Node, cluster: Cluster, hpc_outputs: str) -> SweepJob:
    up = [
        partition
        for partition in cluster.partitions
        if partition.up and partition.name in node.partitions
    ]
    default = next((partition for partition in up if partition.is_default), up[0] if up else None)
    return SweepJob(
        node=node.name,
        partition=default.name if default is not None and cluster.name_partition else None,
        account=cluster.default_account if cluster.account_rule != "never" else None,
        program=os.path.join(hpc_outputs, ".sweep.pyz"),
        digest=hashlib.sha256(build_agent()).hexdigest(),
        roots=tuple(dict.fromkeys(filter(None, [cluster.local_scratch, "/tmp"]))),
        queue_file=os.path.join(hpc_outputs, "squeue.json"),
        report=os.path.join(hpc_outputs, f"clean_{node.name}.out"),
    )


def _wait(numbers: Sequence[int], patience_s: float) -> set[int]:
    """Wait for the jobs; returns those that are not over when patience is."""
    left = set(numbers)
    deadline = time.monotonic() + patience_s
    pause_s = 1.0
    while left and time.monotonic() < deadline:
        time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(_POLL_S, 2 * pause_s)
        still = waiting_jobs(numbers)
        left = left if still is None else still
    return left


def _report(job: SweepJob, is_late: bool) -> list[dict[str, object]]:
    """What the job wrote; the file goes with it."""
    try:
        with open(job.report, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    if not is_late:
        os.unlink(job.report)
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            found.append({"node": job.node, "what": "message", "why": line, "path": "", "bytes": 0})
    return [one for one in found if one.get("what") != "end"]
