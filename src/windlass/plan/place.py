"""Where a setting was said, and how to say it otherwise. Pure."""

from __future__ import annotations

import re

from windlass.errors import Problem
from windlass.model import Plan

# Key of a setting → section and word in a study file. Its flag is the word.
_WORDS = {
    "time_s": ("needs", "time"),
    "cpus": ("needs", "cpus"),
    "memory_mb": ("needs", "memory"),
    "gpus": ("needs", "gpus"),
    "gpu_memory_mb": ("needs", "gpu_memory"),
    "gpu_type": ("needs", "gpu_type"),
    "most": ("pack", "most"),
    "mem_per_gpu_mb": ("slurm", "mem_per_gpu"),
    "folder": ("", "folder"),
    "env": ("", "env"),
    "outputs": ("", "outputs"),
    "command": ("", "command"),
    "parameters": ("", "parameters"),
    "environment": ("", "environment"),
    "setup": ("environment", "setup"),
    "checkpoint": ("", "checkpoint"),
}


def make_problem(plan: Plan, key: str, message: str, value: str = "", more: str = "") -> Problem:
    """A problem with a setting; `value` is what to write instead, `more` what else to do."""
    file, line = find_place(plan, key)
    hint = f"write {_write(plan, key, value)}" if value else ""
    return Problem(message, "; or ".join(part for part in (hint, more) if part), file, line)


def find_place(plan: Plan, key: str) -> tuple[str, int]:
    """File and line where a setting stands; ("", 0) where it does not come from the study's file."""
    setting = plan.settings.get(key)
    if not plan.study.source or (setting is not None and setting.source != "study"):
        return "", 0
    section, word = _WORDS.get(key, ("slurm", key))
    return plan.study.source, find_line(plan.study.source_text, section, word)


def find_line(text: str, section: str, word: str) -> int:
    """The line of ``section: {word: …}``, in either form of YAML; 0 where it is not clear."""
    key = re.compile(rf"""(?:^|[\s{{,])["']?{re.escape(word)}["']?\s*:""")
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
    section, word = _WORDS.get(key, ("slurm", key))
    setting = plan.settings.get(key)
    if setting is not None and setting.source == "study" and plan.study.source:
        return f"`{section}: {{{word}: {value}}}`" if section else f"`{word}: {value}`"
    flag = "most-per-gpu" if key == "most" else word.replace("_", "-")
    return f"`--{flag} {value}`"
