"""Where a setting was given, and how to give another value. Pure."""

from __future__ import annotations

import re

from windlass.core.errors import Problem
from windlass.model import Plan
from windlass.settings import find_row


def make_problem(plan: Plan, key: str, message: str, value: str = "", more: str = "") -> Problem:
    """A problem with a setting; `value` is what to write instead, `more` what else to do."""
    file, line = find_source_line(plan, key)
    hint = f"write {_write(plan, key, value)}" if value else ""
    return Problem(message, "; or ".join(part for part in (hint, more) if part), file, line)


def find_source_line(plan: Plan, key: str) -> tuple[str, int]:
    """File and line where a setting stands; ("", 0) where it does not come from the study's file."""
    setting = plan.settings.get(key)
    if not plan.study.source or (setting is not None and setting.source != "study"):
        return "", 0
    row = find_row(key)
    return plan.study.source, find_line(plan.study.source_text, row.section or "", row.name)


def find_line(text: str, section: str, name: str) -> int:
    """The line of ``section: {name: …}``, in either form of YAML; 0 where it is not clear."""
    key = re.compile(rf"""(?:^|[\s{{,])["']?{re.escape(name)}["']?\s*:""")
    inside = not section
    for number, line in enumerate(text.splitlines(), start=1):
        code = re.sub(r"(^|\s)#.*", "", line)
        if section and re.match(rf"{re.escape(section)}\s*:", code):
            inside = True
            code = code.partition(":")[2]
        elif section and re.match(r"\S", code):
            inside = False
        elif not section and re.match(r"\s", code):
            continue
        if inside and key.search(code):
            return number
    return 0


def _write(plan: Plan, key: str, value: str) -> str:
    row = find_row(key)
    setting = plan.settings.get(key)
    if setting is not None and setting.source == "study" and plan.study.source:
        return (
            f"`{row.section}: {{{row.name}: {value}}}`" if row.section else f"`{row.name}: {value}`"
        )
    return f"`{row.flag} {value}`"
