"""Words that a template meant to be replaced: TO_FILL_ACCOUNT, <account>, def-someuser. Pure."""

from __future__ import annotations

import re

_NOUNS = r"(?:account|allocation|e-?mail|group|name|netid|partition|password|path|pi|project|queue|user|username)"
_CLEAR = re.compile(
    rf"""(?<![A-Za-z0-9])(?:
        TO_?FILL\w* | FILL_?(?:ME|IN)\b\w* | CHANGE_?(?:ME|THIS)\b | REPLACE_?ME\b | YOUR_[A-Z][A-Z_]*
        | (?:def|rrg|rpp|ctb)-(?:x{{2,}} | some(?:user|prof|pi|group|one) | your\w* | [A-Z]{{3,}}\w*)(?![a-z0-9])
    )
    | <(?:your|my|the)?[ _-]?(?:[a-z]+[ _-])?{_NOUNS}(?:[ _-][a-z]+)?>""",
    re.VERBOSE,
)
_WHOLE = re.compile(r"<[^<>]*>|X{3,}|x{4,}|your[-_]?\w+|TODO|FIXME|\.\.\.", re.IGNORECASE)


def find_placeholder(text: str, *, whole: bool = False) -> str | None:
    """The first word that nobody replaced. `whole`: the text is one value, where also less clear ones count."""
    found = _CLEAR.search(text)
    if found:
        return found[0]
    return text if whole and _WHOLE.fullmatch(text.strip()) else None
