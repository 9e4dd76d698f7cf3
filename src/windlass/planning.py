"""A study becomes a plan: with what its folder tells of earlier runs, of a measurement, and of what is missing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.bundle.missing import Missing, find_missing
from windlass.collect.index import read_done
from windlass.collect.usage import read_usage
from windlass.core.paths import StudyPaths
from windlass.measured import Measurement, parse_measurement
from windlass.model import Plan, Setting, Study
from windlass.places.base import Place
from windlass.plan.digest import study_digest
from windlass.plan.evidence import Evidence, find_evidence
from windlass.plan.local import study_folder
from windlass.search import count_trials, iterate_trials


def make_plan(
    place: Place, study: Study, flags: Mapping[str, Any], sample: int | None = None
) -> Plan:
    """Everything that can be known before anything is touched. With `sample`, only so many trials are to be run.

    What cannot work there is found by `place.find_problems`.
    """
    settings = place.resolve(flags, study)
    folder = study_folder(settings, study, place.find_scratch())
    missing, evidence = read_missing(study, folder, sample), read_evidence(study, settings, folder)
    plan = place.plan(study, settings, folder, evidence, missing.count)
    return replace(plan, examples=missing.examples)


def read_missing(study: Study, folder: str, sample: int | None = None) -> Missing:
    """The trials that a run would execute: all that are not done, as the study's folder tells."""
    paths = StudyPaths(folder)
    total = count_trials(study)
    return find_missing(
        paths, lambda: iterate_trials(study), total, lambda: read_done(paths), sample
    )


def read_evidence(study: Study, settings: Mapping[str, Setting], folder: str) -> Evidence:
    """What one trial needs, from a measurement and from real trials in the study's folder, where there are any."""
    measured, damage = _read_measurement(folder)
    paths = StudyPaths(folder)
    usage = read_usage(paths, study.variants) if os.path.isdir(paths.journal) else None
    evidence = find_evidence(study, settings, measured, usage, study_digest(study))
    return replace(evidence, warnings=(*damage, *evidence.warnings))


def _read_measurement(folder: str) -> tuple[Measurement | None, list[str]]:
    """The last measurement of a study, and warnings. A file that cannot be read is not used, with a warning."""
    path = StudyPaths(folder).measured
    try:
        with open(path, encoding="utf-8") as file:
            return parse_measurement(json.load(file)), []
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return None, [
            f"{path} cannot be read and is not used ({error}); `windlass measure` writes it anew"
        ]
