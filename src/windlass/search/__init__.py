"""Study → Trials: the settings of a study, one after the other, and the commands they stand for. Pure."""

from windlass.search.settings import count_settings, iterate_settings
from windlass.search.trials import canonical_command, count_trials, iterate_trials

__all__ = [
    "canonical_command",
    "count_settings",
    "count_trials",
    "iterate_settings",
    "iterate_trials",
]
