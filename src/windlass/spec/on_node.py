"""`environment` and `checkpoint` of a study file → what they mean on the node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.environments.base import load_kind, own_kind_names
from windlass.model import Checkpoint, Environment, Stage
from windlass.search.template import CHECKPOINT_WORDS, placeholder_names
from windlass.spec.document import Path, Problems
from windlass.spec.keys import Keys
from windlass.spec.words import UnclosedQuoteError, split_words


def build_environment(keys: Keys, problems: Problems) -> Environment | None:
    """The environment that the study asks for; None where it asks for none. Two kinds at once are a problem."""
    given = keys.environment
    if given is None:
        return None
    named = [kind for kind in own_kind_names() if getattr(given, kind, None)]
    if len(named) > 1:
        text = f"{' and '.join(named)} exclude each other"
        problems.add(("environment", named[1]), text, "keep one of them", key=True)
    kind = named[0] if named else ""
    value = getattr(given, kind) if kind else ""
    options = _options(given, kind, problems)
    return Environment(
        kind,
        value if isinstance(value, str) else "",
        given.place or "shared",
        given.modules or (),
        given.setup or (),
        options,
    )


def _options(given: Keys, kind: str, problems: Problems) -> dict[str, Any]:
    """The keys that belong to one kind beside its own name; a problem for those of another kind."""
    found: dict[str, Any] = {}
    for name in own_kind_names():
        for key in load_kind(name).keys[1:]:
            value = getattr(given, key.name)
            if value is None:
                continue
            if name != kind:
                text = f"`{key.name}` belongs to `{name}`"
                problems.add(
                    ("environment", key.name), text, f"{name}: …, or leave it out", key=True
                )
            found[key.name] = list(value) if isinstance(value, tuple) else value
    return found


def build_checkpoint(keys: Keys, stages: Iterable[Stage], problems: Problems) -> Checkpoint | None:
    """Without the section: the usual, where a command speaks of checkpoints."""
    used = {
        name for stage in stages for word in stage.words for name in placeholder_names(word)
    } & CHECKPOINT_WORDS
    used -= set(keys.parameters) if isinstance(keys.parameters, dict) else set()
    given = keys.checkpoint
    if "resume" in used and (given is None or given.resume is None):
        problems.add(
            ("command",), "{resume} stands for nothing", "checkpoint: {resume: --load {checkpoint}}"
        )
    if given is None:
        return Checkpoint() if used else None
    return Checkpoint(
        dir=given.dir,
        pattern=given.pattern or (),
        resume=_split(given.resume, ("checkpoint", "resume"), problems),
        write=_split(given.write, ("checkpoint", "write"), problems),
        done=given.done,
        validate=_split(given.validate, ("checkpoint", "validate"), problems),
        keep=2 if given.keep is None else given.keep,
    )


def _split(value: Any, path: Path, problems: Problems) -> tuple[str, ...]:
    if value is None or isinstance(value, list):
        return tuple(value or ())
    try:
        return tuple(word.text for word in split_words(value))
    except UnclosedQuoteError:
        problems.add(path, "a quote is not closed", "close it")
        return ()
