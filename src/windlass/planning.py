"""A study becomes a plan: with what its folder tells of earlier runs, of a measurement, and of what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.bundle.missing import Missing, find_missing
from windlass.collect.index import StudyIndex
from windlass.collect.usage import read_usage
from windlass.errors import InputError
from windlass.measure.digest import study_digest
from windlass.measure.start import measured_path
from windlass.measured import Measurement, parse_measurement
from windlass.model import Plan, Setting, Study
from windlass.paths import StudyPaths
from windlass.plan.evidence import Evidence, find_evidence
from windlass.plan.local import plan_local, study_folder
from windlass.plan.settings import resolve_settings
from windlass.plan.shared_outputs import find_output_problems, find_output_warnings
from windlass.plan.slurm import plan_slurm
from windlass.plan.submitter import with_submitter_defaults
from windlass.search import count_trials, iterate_trials
from windlass.site.cluster import Cluster
from windlass.site.here import fill_user
from windlass.site.local import Site
from windlass.states import State


def make_plan(study: Study, flags: Mapping[str, Any], site: Site, sample: int | None = None) -> Plan:
    """Everything that can be known before anything is touched. With `sample`, only so many trials are to be run."""
    settings = resolve_settings(flags, study.said, site.said, site.source)
    folder = study_folder(settings, study, os.environ.get("SCRATCH"))
    missing, evidence = read_missing(study, folder, sample), read_evidence(study, settings, folder)
    plan = plan_local(study, count_trials(study), settings, site, folder, evidence, missing.count)
    problems = list(find_output_problems(plan))
    if problems:
        raise InputError(problems)
    return replace(plan, warnings=(*plan.warnings, *find_output_warnings(plan)), examples=missing.examples)


def make_slurm_plan(study: Study, flags: Mapping[str, Any], cluster: Cluster, sample: int | None = None) -> Plan:
    """The same for a cluster. What cannot work there is found by `check_slurm_plan`."""
    settings = resolve_settings(flags, study.said, cluster.said, cluster.said_file, os.environ)
    settings = with_submitter_defaults(settings, study, cluster)
    scratch = os.environ.get("SCRATCH") or (fill_user(cluster.scratch, os.environ) if cluster.scratch else None)
    folder = study_folder(settings, study, scratch)
    missing, evidence = read_missing(study, folder, sample), read_evidence(study, settings, folder)
    plan = plan_slurm(study, count_trials(study), settings, cluster, folder, evidence, missing.count)
    return replace(plan, examples=missing.examples)


def read_missing(study: Study, folder: str, sample: int | None = None) -> Missing:
    """The trials that a run would execute: all that are not done, as the study's folder tells."""
    paths = StudyPaths(folder)
    total = count_trials(study)
    return find_missing(paths, lambda: iterate_trials(study), total, lambda: done_numbers(paths), sample)


def read_evidence(study: Study, settings: Mapping[str, Setting], folder: str) -> Evidence:
    """What one trial needs, from a measurement and from real trials in the study's folder, where there are any."""
    measured, damage = _read_measurement(folder)
    paths = StudyPaths(folder)
    usage = read_usage(paths, study.variants) if os.path.isdir(paths.journal) else None
    evidence = find_evidence(study, settings, measured, usage, study_digest(study))
    return replace(evidence, warnings=(*damage, *evidence.warnings))


def _read_measurement(folder: str) -> tuple[Measurement | None, list[str]]:
    path = measured_path(folder)
    try:
        with open(path, encoding="utf-8") as file:
            return parse_measurement(json.load(file)), []
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return None, [f"{path} cannot be read and is not used ({error}); `windlass measure` writes it anew"]


def done_numbers(paths: StudyPaths) -> list[int]:
    index = StudyIndex(paths)
    index.refresh()
    try:
        return list(index.numbers((State.DONE,)))
    finally:
        index.close()
