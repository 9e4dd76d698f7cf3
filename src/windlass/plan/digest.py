"""Tells whether a measurement is of the study as it stands."""

from __future__ import annotations

import hashlib
import json

from windlass.model import Study
from windlass.search.trials import canonical_command


def study_digest(study: Study) -> str:
    """Of the commands and the environment: other values of the same parameters are still the same program."""
    given = [
        canonical_command(study.stages),
        sorted(study.env.items()),
        [list(words) for words in study.tasks[:1]],
    ]
    text = json.dumps(given, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
