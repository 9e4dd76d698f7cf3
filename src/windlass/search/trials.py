"""Settings → trials: the id of each, and its commands filled in."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.core.ids import trial_id
from windlass.model import Stage, Study, Trial
from windlass.search.seeds import without_seeds
from windlass.search.settings import count_settings, iterate_settings
from windlass.search.template import Template, fill_text, placeholder_names


def canonical_command(stages: tuple[Stage, ...]) -> str:
    """One text for the commands before anything is filled in; a part of every trial's id.

    Never change what this gives for a study that exists: finished trials would run again.
    """
    parts = [[stage.name, list(stage.words), stage.shell, stage.args_format] for stage in stages]
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=False)


def iterate_trials(study: Study) -> Iterator[Trial]:
    """All trials of a study, in order, each once, one in memory at a time.

    The same study gives the same trials with the same ids, today and tomorrow. Raises InputError when a
    random search cannot find as many different settings as were asked for.
    """
    if study.tasks:
        yield from _iterate_tasks(study)
        return
    command = canonical_command(study.stages)
    template = Template(study.stages, study.name)
    for settings in iterate_settings(study.space):
        identity = trial_id(settings, command)
        yield Trial(identity, settings, template.fill(_for_command(settings, study), identity))


def _for_command(settings: Mapping[str, Any], study: Study) -> Mapping[str, Any]:
    """What placeholders and `{args}` stand for: the count of a repetition is not among it."""
    if not study.space.repeats:
        return settings
    return {name: value for name, value in settings.items() if name != study.space.seed_name}


def count_trials(study: Study) -> int:
    """Exactly how many trials `iterate_trials` gives."""
    if study.tasks:
        seeds = len(study.space.seeds) or 1
        return sum(
            seeds if study.space.repeats or _uses_seed(words, study) else 1 for words in study.tasks
        )
    return count_settings(study.space)


def has_several_settings(study: Study) -> bool:
    """Whether trials differ in more than their seed or the count of their repetition."""
    if study.tasks:
        return len(set(study.tasks)) > 1
    return any(
        True for _ in itertools.islice(iterate_settings(without_seeds(study.space)), 1, None)
    )


def _uses_seed(words: tuple[str, ...], study: Study) -> bool:
    name = study.space.seed_name
    return bool(study.space.seeds) and any(name in placeholder_names(word) for word in words)


def _iterate_tasks(study: Study) -> Iterator[Trial]:
    """One trial a line (and seed). A line that stands there again is told apart by `repeat`, its count."""
    times_met: dict[tuple[str, ...], int] = {}
    for words in study.tasks:
        times_met[words] = times_met.get(words, 0) + 1
        settings: dict[str, Any] = {"task": shlex.join(words)}
        command = canonical_command((Stage("main", words),))
        if study.space.repeats:
            before = len(study.space.seeds) * (times_met[words] - 1)
            for count in study.space.seeds:
                counted = {**settings, study.space.seed_name: before + count}
                yield Trial(trial_id(counted, command), counted, (("main", words),))
            continue
        if times_met[words] > 1:
            settings["repeat"] = times_met[words]
        if not _uses_seed(words, study):
            yield Trial(trial_id(settings, command), settings, (("main", words),))
            continue
        for seed in study.space.seeds:
            seeded = {**settings, study.space.seed_name: seed}
            only_seed = {study.space.seed_name: seed}
            filled = tuple(fill_text(word, only_seed, {}) for word in words)
            yield Trial(trial_id(seeded, command), seeded, (("main", filled),))
