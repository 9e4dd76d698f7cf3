"""Words of a study's commands that may be paths."""

from __future__ import annotations

import os
import shlex

from windlass.core.paths import NODE_VARIABLES, SHELLS
from windlass.model import Study

_MOST = 1000  # tasks or values that are looked at


def command_words(study: Study) -> list[str]:
    """All words of a study's commands and values that may be paths."""
    words: list[str] = []
    for stage in study.stages:
        for word in stage.words:
            words += split_text(word) if stage.shell else [word]
    words += [word for task in study.tasks[:_MOST] for word in task]
    for parameter in study.space.parameters:
        words += [value for value in parameter.values[:_MOST] if isinstance(value, str)]
    words += [word.partition("=")[2] for word in words if "=" in word]
    return [word for word in words if word and "\0" not in word and len(word) < 4096]


def command_paths(study: Study) -> list[tuple[str, str]]:
    """Words that may be paths: as they are written, and as the program gets them.

    Only a shell replaces variables and ``~``. Everywhere else they reach the program as they stand, and so do values
    of parameters, which are quoted where a shell reads them.
    """
    texts = [word for stage in study.stages if stage.shell for word in stage.words]
    for words in (
        *(stage.words for stage in study.stages if not stage.shell),
        *study.tasks[:_MOST],
    ):
        if words and os.path.basename(words[0]) in SHELLS:
            texts += words[1:]
    read_by_shell = [word for text in texts for word in split_text(text)]
    read_by_shell += [word.partition("=")[2] for word in read_by_shell if "=" in word]
    found = [(word, os.path.expandvars(os.path.expanduser(word))) for word in read_by_shell]
    return [*((word, word) for word in command_words(study)), *found]


def names_local_folder(study: Study) -> bool:
    """Whether trials are told of the node's own disk, so that there has to be one on any machine."""
    texts = [word for stage in study.stages for word in stage.words]
    texts += [*command_words(study), *study.env.values()]
    if study.config is not None:
        texts.append(str(study.config.tree))
    return any(name in text for text in texts for name in NODE_VARIABLES)


def split_text(text: str) -> list[str]:
    """The words of a command for the shell."""
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()
