"""Placeholders that the agent fills in with a trial's values, as the command has them. Python 3.9, standard library."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, Mapping, Optional, Protocol

from windlass.core.paths import NODE_VARIABLES

# As in search/template.py: {{name}} is a literal {name}, and ${name} is no placeholder.
_PLACEHOLDER = re.compile(
    r"\{\{(?P<literal>[^\W\d][\w./-]*)\}\}|(?<!\$)\{(?P<name>[^\W\d][\w./-]*)\}"
)

# Nothing else that begins with a dollar sign is touched: other programs have templates of the same look.
_NAMES = "|".join(NODE_VARIABLES)
NODE_VARIABLE = re.compile(rf"\$(?:\{{(?P<braced>{_NAMES})\}}|(?P<plain>{_NAMES})(?!\w))")


class Filled(Protocol):
    """A trial, as far as its values go."""

    id: str
    settings: Dict[str, Any]
    written: Dict[str, str]


def has_placeholder(text: str) -> bool:
    return _PLACEHOLDER.search(text) is not None


def fill_variables(text: str, env: Mapping[str, str]) -> str:
    """A text with ``$SLURM_TMPDIR`` and its like replaced; one that is not set is left as it stands."""
    return NODE_VARIABLE.sub(
        lambda match: env.get(match["braced"] or match["plain"], match[0]), text
    )


def value_text(trial: Filled, name: str) -> str:
    """A setting as the trial's command has it: numbers as the user wrote them."""
    written = trial.written.get(name)
    return render_setting(trial.settings[name]) if written is None else written


def render_setting(value: Any) -> str:
    """The same text as `search.values.render_value` gives, of a value that was read back from JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)) or value is None:
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def fill_text(text: str, trial: Filled, study: str) -> Optional[str]:
    """A text with its placeholders filled in; None where it mentions a parameter that this trial does not have."""
    built_in: Dict[str, str] = {"trial_id": trial.id, "study": study}
    absent = False

    def fill(match: "re.Match[str]") -> str:
        nonlocal absent
        if match.group("literal") is not None:
            return "{" + match.group("literal") + "}"
        name = match.group("name")
        if name in trial.settings:
            return value_text(trial, name)
        absent = absent or name not in built_in
        return built_in.get(name, "")

    filled = _PLACEHOLDER.sub(fill, text)
    return None if absent else filled
