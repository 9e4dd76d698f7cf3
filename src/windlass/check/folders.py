"""Item: what a study writes does not go to $HOME where a site does not want it there."""

from __future__ import annotations

from windlass.check.item import Item, failed, passed, skipped
from windlass.model import Plan
from windlass.site.here import Here, is_below, look_at_folder

NAME = "folders"


def check_folders(plan: Plan, here: Here | None) -> Item:
    """Home disks are small or slow at most sites: where there is a scratch, a study's folder belongs there."""
    if here is None:
        return skipped(NAME, "there is no cluster here", "windlass check --site NAME")
    folder = look_at_folder(plan.folder).real
    if not is_below(folder, (here.home,)):
        return passed(NAME, f"the study's folder is {plan.folder}")
    if not here.scratch:
        return passed(
            NAME,
            f"the study's folder is {plan.folder}; {here.cluster} has no scratch that is known of",
        )
    if is_below(folder, (here.scratch,)):
        return passed(NAME, f"the study's folder is {plan.folder}, on scratch")
    return failed(
        NAME,
        f"{plan.folder} is in $HOME, and {here.cluster} has {here.scratch}",
        f"export SCRATCH={here.scratch}",
    )
