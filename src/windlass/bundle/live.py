"""Which files of a project that is not frozen are copied into the working folders of its trials."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from windlass.bundle.code import excluded_paths
from windlass.bundle.tree import list_code
from windlass.model import Plan

# A copy is made for each slot, so the limits are below those of frozen code. What is beyond them is linked.
LIVE_LIMIT_BYTES = 50_000_000
LIVE_LIMIT_FILES = 5_000
# In a folder that is no project, such as a home, only the files at its top are copied.
_MOST_LOOKED_AT = 100_000


def list_live(plan: Plan) -> dict[str, Any] | None:
    """What plan.json says of live code; None where trials are executed in the project itself or the code is frozen."""
    if plan.frozen or not plan.own_folders:
        return None
    return list_live_files(os.path.abspath(plan.study.project_dir), excluded_paths(plan))


def list_live_files(project: str, excluded: Iterable[str]) -> dict[str, Any]:
    """The project's code as it is now; folders and files that are too large for a copy a slot are left out."""
    files = {file.name: file.size for file in list_code(project, excluded, _MOST_LOOKED_AT)}
    for top in _too_large(files):
        files = {name: size for name, size in files.items() if name.split(os.sep)[0] != top}
        print(
            f"note: {top} is too large to be copied for each trial: trials reach the one in {project} through a link",
            file=sys.stderr,
        )
    return {"files": list(files)}


def _too_large(files: dict[str, int]) -> list[str]:
    """The largest of the project's folders and files, as many as have to go for the rest to be within the limits."""
    total, count = sum(files.values()), len(files)
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, size in files.items():
        sizes[name.split(os.sep)[0]] += size
        counts[name.split(os.sep)[0]] += 1
    dropped = []
    while total > LIVE_LIMIT_BYTES or count > LIVE_LIMIT_FILES:
        shares = sizes if total > LIVE_LIMIT_BYTES else counts
        top = shares.most_common(1)[0][0]
        dropped.append(top)
        total -= sizes.pop(top)
        count -= counts.pop(top)
    return dropped
