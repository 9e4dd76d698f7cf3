"""Remembers that a study passed the checklist: its command and the commit it was checked at."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict

from windlass.check.code import read_commit
from windlass.core.files import write_whole
from windlass.core.paths import STUDIES
from windlass.model import Study


def check_key(study: Study) -> str:
    """The same for the same command at the same commit."""
    facts = [
        [asdict(stage) for stage in study.stages],
        [list(words) for words in study.tasks],
        read_commit(study),
    ]
    return hashlib.blake2b(
        json.dumps(facts).encode("utf-8", "surrogatepass"), digest_size=12
    ).hexdigest()


def write_record(study: Study) -> None:
    """Add the study, as it is now, to those that passed. A project that cannot be written to has no record."""
    folder = os.path.join(study.project_dir, STUDIES)
    path = os.path.join(folder, "check.json")
    known = {**_read(path), check_key(study): round(time.time())}
    try:
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(os.path.join(folder, ".gitignore")):
            with open(os.path.join(folder, ".gitignore"), "w", encoding="ascii") as file:
                file.write("*\n")
        write_whole(path, json.dumps(dict(sorted(known.items(), key=lambda item: item[1])[-100:])))
    except OSError:
        return


def passed_at(study: Study) -> float | None:
    """When this very command, at this commit, passed; None: it did not."""
    when = _read(os.path.join(study.project_dir, STUDIES, "check.json")).get(check_key(study))
    return None if when is None else float(when)


def _read(path: str) -> dict[str, int]:
    """The studies that passed, with the time of it; empty where nothing was recorded or the file is damaged."""
    try:
        with open(path, encoding="ascii") as file:
            facts = json.load(file)
        return facts if isinstance(facts, dict) else {}
    except (OSError, ValueError):
        return {}
