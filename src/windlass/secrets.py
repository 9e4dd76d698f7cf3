"""Finds and hides what must not be written down: keys, tokens and passwords in commands and options. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# A "key" or a "token" may be many things; what these are called must also look like one.
_NAME = r"(?:^|_)(?:{})(?:$|_)"
_CLEAR_NAME = re.compile(
    _NAME.format("API_?KEY|ACCESS_?KEY|SECRET_?KEY|PRIVATE_?KEY|SECRET|PASSWORD|PASSWD"),
    re.IGNORECASE,
)
_VAGUE_NAME = re.compile(_NAME.format("KEY|TOKEN"), re.IGNORECASE)
# A value that stands for another one, or says that there is none.
_HARMLESS = re.compile(
    r"[$<{%*].*|(?:true|false|none|null|yes|no|on|off|x+|changeme|\.+|~?/.*|\.{1,2}/.*|[\d.]+)",
    re.IGNORECASE,
)
_TRIAL_ID = re.compile("t[a-z2-7]{12}")
_FORMS = (
    ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{20,}"),
    ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})"),
    ("a GitLab token", r"\bglpat-[\w-]{20,}"),
    ("a W&B key", r"\bwandb_v\d_[A-Za-z0-9_]{20,}"),
    ("an API key", r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}"),
    ("a Slack token", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    ("an AWS key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("a Google key", r"\bAIza[\w-]{35}"),
    ("a JSON web token", r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    (
        "a private key",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:.*?-----END [A-Z ]*PRIVATE KEY-----|.*)",
    ),
    ("a password in an address", r"(?<=://)[^\s/:@]+:(?P<value>[^\s/:@]+)(?=@)"),
    (
        "the key after `wandb login`",
        r"\bwandb\s+login\s+(?:--?[\w-]+(?:=\S+)?\s+)*(?P<value>[0-9a-f]{40})\b",
    ),
)
_NAMED = (
    # An option that carries a secret. A "token" may be a word of a text, so that it must look like a key.
    (r"--?(?P<name>[\w-]*(?:api|access|secret|private|wandb)[-_]?key|passw(?:or)?d)", 6),
    (r"--?(?P<name>(?:[\w-]+[-_])?(?:token|secret))", 16),
    (r"(?<![\w-])(?P<name>[A-Z][A-Z0-9_]*)(?==)", 6),
)
_VALUE = r"(?:=|\s+)(?P<quote>['\"]?)(?P<value>[^\s'\"]{%d,})(?P=quote)"
_FORM_PATTERNS = tuple((what, re.compile(form, re.DOTALL)) for what, form in _FORMS)
_NAMED_PATTERNS = tuple(
    re.compile(rf"(?<![\w-]){name}{_VALUE % least}", re.IGNORECASE if name.startswith("--") else 0)
    for name, least in _NAMED
)


class _Span(NamedTuple):
    start: int
    end: int
    what: str


def find_secrets(words: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """What in these words looks like a secret, described without giving it away. Empty: nothing does.

    The values of variables in `environ` that are named like secrets count wherever they stand.
    """
    text = "\n".join(words)
    return list(dict.fromkeys(_describe(text, span) for span in _outermost(_spans(text, environ))))


def mask(text: str, environ: Mapping[str, str]) -> str:
    """The text with every secret in it replaced by asterisks."""
    for span in reversed(_outermost(_spans(text, environ))):
        text = f"{text[: span.start]}***{text[span.end :]}"
    return text


def mask_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a table, or settings of a trial, with every secret in it replaced by asterisks.

    A value is judged by the name of its column, too, and hidden in all columns, such as the command.
    """
    texts = tuple(
        [
            (name, value)
            for name, value in row.items()
            if isinstance(value, str) and not _is_id(name, value)
        ]
    )
    masked = _mask_texts(texts)
    return {**row, **masked} if masked else dict(row)


@functools.lru_cache(maxsize=4096)
def _mask_texts(texts: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Those of a row's texts that are to be replaced. Many rows have the same texts, such as a state alone."""
    given = dict(texts)
    hidden = secret_variables(given)
    masked = {name: _mask_value(name, value) for name, value in given.items()}
    if hidden:
        masked = {name: mask(value, hidden) for name, value in masked.items()}
    return {name: value for name, value in masked.items() if value != given[name]}


def _is_id(name: str, value: str) -> bool:
    """Whether this is a trial's own id, which is different in each of perhaps a million rows."""
    return name == "id" and _TRIAL_ID.fullmatch(value) is not None


@functools.lru_cache(maxsize=4096)
def _mask_value(name: str, value: str) -> str:
    option = f"--{name}="
    return mask(option + value, {}).removeprefix(option)


def secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names say that their values are secret, and whose values could be."""
    return {
        name: value
        for name, value in environ.items()
        if len(value) >= 8 and not _HARMLESS.fullmatch(value) and _names_secret(name, value)
    }


def _spans(text: str, environ: Mapping[str, str]) -> Iterator[_Span]:
    for name, value in secret_variables(environ).items():
        for found in re.finditer(re.escape(value), text):
            yield _Span(*found.span(), f"the value of ${name}")
    for what, form in _FORM_PATTERNS:
        for found in form.finditer(text):
            yield _Span(*found.span("value" if "value" in form.groupindex else 0), what)
    for pattern in _NAMED_PATTERNS:
        for found in pattern.finditer(text):
            if _is_secret(found["name"], found["value"]):
                yield _Span(*found.span("value"), f"the value of {found['name']}")


def _is_secret(name: str, value: str) -> bool:
    if _HARMLESS.fullmatch(value):
        return False
    if name.isupper():
        return _names_secret(name, value)
    if re.search("token|secret$", name, re.IGNORECASE):
        return _looks_random(value)
    return not value.startswith("-")


def _names_secret(name: str, value: str) -> bool:
    if _CLEAR_NAME.search(name):
        return True
    return bool(_VAGUE_NAME.search(name)) and _looks_random(value)


def _looks_random(value: str) -> bool:
    return (
        len(value) >= 12
        and value.isascii()
        and bool(re.search(r"\d", value) and re.search(r"[A-Za-z]", value))
    )


def _outermost(spans: Iterable[_Span]) -> list[_Span]:
    """Spans in their order; those that overlap become one."""
    kept: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            kept[-1] = kept[-1]._replace(end=max(kept[-1].end, span.end))
        else:
            kept.append(span)
    return kept


def _describe(text: str, span: _Span) -> str:
    shown = "" if "$" in span.what else f" ({text[span.start : span.end][:3]}…)"
    return span.what + shown
