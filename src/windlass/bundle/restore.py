"""Rebuilds the register of a study whose claims are lost, from trials.jsonl and journals."""

from __future__ import annotations

import os

from windlass.core.claims.coroner import Coroner, Fate
from windlass.core.claims.register import Register, RegisterFile, RegisterLost
from windlass.core.counted import counted
from windlass.core.damage import report_damage
from windlass.core.errors import FolderError
from windlass.core.journal.read import journal_files, read_header, writer_of
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile


def restore_register(paths: StudyPaths, register_file: RegisterFile) -> None:
    """See to it that the register can be read. Nothing happens where it can.

    The new register has the trials of trials.jsonl under the numbers that they had, so that what journals say of them
    still holds. It cannot know who holds which trial: raises FolderError while an agent may be at work.
    """
    try:
        register_file.read()
        return
    except RegisterLost:
        pass
    agent = _find_living_agent(paths)
    if agent:
        raise FolderError(
            f"{paths.claims}: the register of trials cannot be read, and agent {agent} may still be executing some\n"
            "  hint: end it (`scancel` its job, or wait until it has been silent for five minutes), then run again"
        )
    count = 0
    if os.path.exists(paths.trials):
        file = TrialFile(paths)
        count = file.count_indexed()
        file.close()
    register_file.begin_anew(Register(count, [(0, count)] if count else [], [], {}, []))
    report_damage(
        paths.claims,
        f"the register of trials was lost and has been rebuilt for {counted(count, 'trial')}",
        "trials that were cancelled are up for execution again; `windlass cancel` takes them off the list",
        "rebuilt",
    )


def _find_living_agent(paths: StudyPaths) -> str:
    """An agent of the study that may be at work; "" where there is none."""
    coroner = Coroner(paths)
    for path in journal_files(paths.journal):
        header = read_header(path)
        if (
            header is not None
            and header.get("e") == "agent"
            and coroner.fate(writer_of(path), header) != Fate.DEAD
        ):
            return writer_of(path)
    return ""
