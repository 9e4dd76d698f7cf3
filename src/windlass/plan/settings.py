"""The value of each setting: the command line beats the study, the study the site, the site the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.core.errors import InputError, Problem
from windlass.model import Setting
from windlass.settings import Row, settings
from windlass.spec.kinds import KINDS, default_value, parse_value


def resolve_settings(
    flags: Mapping[str, Any],
    given: Mapping[str, Any],
    site_given: Mapping[str, Any],
    site_file: str,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Setting]:
    """Every setting by its name in a plan, with the layer that gave it. Raises one InputError with every problem.

    `flags` and the values of the site are as they were written; those of the study have been checked. The variables
    that sbatch obeys are a layer of their own between study and site, so that a plan shows what will be.
    """
    of_site = {**site_given, **site_given.get("needs", {})}
    problems = _unknown_words(site_given, site_file)
    resolved: dict[str, Setting] = {}
    for row in settings():
        try:
            resolved[row.plan_key] = _resolve(row, flags, given, of_site, environ or {})
        except (ValueError, TypeError) as error:
            flagged = flags.get(row.short_name) is not None
            place = row.flag if flagged else row.short_name
            hint = KINDS[row.kind].hint
            problems.append(Problem(f"{place}: {error}", hint, "" if flagged else site_file))
    if problems:
        raise InputError(problems)
    if resolved["options"].source == "command line":
        resolved["options"] = Setting(
            {**given.get("options", {}), **resolved["options"].value}, "command line"
        )
    return resolved


def _resolve(
    row: Row,
    flags: Mapping[str, Any],
    given: Mapping[str, Any],
    site: Mapping[str, Any],
    environ: Mapping[str, str],
) -> Setting:
    if flags.get(row.short_name) is not None:
        return Setting(parse_value(row, flags[row.short_name]), "command line")
    if given.get(row.plan_key) is not None:
        return Setting(given[row.plan_key], "study")
    variable = next((name for name in row.variables if environ.get(name)), None)
    if variable is not None:
        return Setting(parse_value(row, environ[variable]), variable)
    if site.get(row.short_name) is not None:
        return Setting(parse_value(row, site[row.short_name]), "site")
    return Setting(default_value(row), "default")


def _unknown_words(site_given: Mapping[str, Any], site_file: str) -> list[Problem]:
    known = {row.short_name for row in settings()} | {"needs"}
    return [
        Problem(f"unknown setting {name!r}", f"known are: {', '.join(sorted(known))}", site_file)
        for name in site_given
        if name not in known
    ]
