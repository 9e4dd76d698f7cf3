"""Item: data travel as archives, not as many small files on a shared folder."""

from __future__ import annotations

import os

from windlass.bundle.data import find_items, look_at_item
from windlass.bundle.small_files import find_small_files
from windlass.check.item import Item, failed, passed
from windlass.core.errors import InputError
from windlass.model import Plan

NAME = "data"


def check_data(plan: Plan) -> Item:
    """The item on data: fails where data are missing, not packed, or lie as many small files on a shared folder."""
    study, scratch = plan.study, os.path.dirname(plan.folder)
    try:
        places = find_items(study.data, scratch, study.project_dir, study.source, plan.folder)
        rows = [look_at_item(item, path, scratch) for item, path in places]
    except InputError as error:
        return failed(
            NAME, "; ".join(problem.message for problem in error.problems), error.problems[0].hint
        )
    except OSError as error:
        return failed(NAME, f"{error.filename}: {error.strerror}", "mend it")
    unpacked = [row["as"] for row in rows if row["archive"] is None]
    if unpacked:
        return failed(
            NAME, f"not packed, or changed since: {', '.join(unpacked)}", "windlass data pack"
        )
    many = find_small_files(plan)
    if many:
        return failed(NAME, many[0].message, many[0].hint)
    if not rows:
        return passed(NAME, "the study names none, and the command names no folder of many files")
    return passed(NAME, f"packed: {', '.join(str(row['as']) for row in rows)}")
