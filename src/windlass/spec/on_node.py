"""`environment` and `checkpoint` of a study file → what they mean on the node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from windlass.model import Checkpoint, Environment, Stage
from windlass.search.template import CHECKPOINT_WORDS, placeholder_names
from windlass.spec.document import Path, Problems
from windlass.spec.schema import StudyKeys
from windlass.spec.words import UnclosedQuoteError, split_words

_KINDS: tuple[Literal["venv", "conda", "uv", "build"], ...] = ("venv", "conda", "uv", "build")


def build_environment(keys: StudyKeys, problems: Problems) -> Environment | None:
    said = keys.environment
    if said is None:
        return None
    named = [kind for kind in _KINDS if getattr(said, kind)]
    if len(named) > 1:
        text = f"{' and '.join(named)} exclude each other"
        problems.add(("environment", named[1]), text, "keep one of them", key=True)
    kind = named[0] if named else ""
    value = getattr(said, kind) if kind else ""
    return Environment(
        kind, value if isinstance(value, str) else "", said.place or "shared", said.modules or (), said.setup or ()
    )


def build_checkpoint(keys: StudyKeys, stages: Iterable[Stage], problems: Problems) -> Checkpoint | None:
    """Without the section: the usual, where a command speaks of checkpoints."""
    used = {name for stage in stages for word in stage.words for name in placeholder_names(word)} & CHECKPOINT_WORDS
    used -= set(keys.parameters) if isinstance(keys.parameters, dict) else set()
    said = keys.checkpoint
    if "resume" in used and (said is None or said.resume is None):
        problems.add(("command",), "{resume} stands for nothing", "checkpoint: {resume: --load {checkpoint}}")
    if said is None:
        return Checkpoint() if used else None
    return Checkpoint(
        dir=said.dir,
        pattern=said.pattern or (),
        resume=_split(said.resume, ("checkpoint", "resume"), problems),
        write=_split(said.write, ("checkpoint", "write"), problems),
        done=said.done,
        validate=_split(said.validate_, ("checkpoint", "validate"), problems),
        keep=2 if said.keep is None else said.keep,
    )


def _split(value: Any, path: Path, problems: Problems) -> tuple[str, ...]:
    if value is None or isinstance(value, list):
        return tuple(value or ())
    try:
        return tuple(word.text for word in split_words(value))
    except UnclosedQuoteError:
        problems.add(path, "a quote is not closed", "close it")
        return ()
