"""Text → words as a POSIX shell splits them, without running one; what only a shell knows is found."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from windlass.core.paths import NODE_VARIABLES, SHELLS

_VARIABLE = re.compile(r"\$\{?([^\W\d]\w*)")
_LISTED_VALUE = re.compile(r"[\w.+/-]+")
_LISTED_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
OPERATORS = frozenset(
    {"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>", "2>>", "2>&1", "&>", ">&2", "1>&2"}
)


@dataclass(frozen=True)
class Word:
    text: str
    quoted: bool  # any part of it stood in quotes or behind a backslash
    position: int  # of its first character
    on_new_line: bool = False  # a line break that no backslash takes away stands before it


class UnclosedQuoteError(ValueError):
    """A quote that is opened and never closed; `position` is where it opens."""

    def __init__(self, quote: str, position: int) -> None:
        self.quote = quote
        self.position = position
        super().__init__(f"the quote {quote} is opened and never closed")


def split_words(text: str, comments: bool = False) -> list[Word]:
    """The words of a command line; with `comments`, a word that begins with ``#`` ends it."""
    return _Splitter(text, comments).words()


class _Splitter:
    def __init__(self, text: str, comments: bool) -> None:
        self._text = text
        self._comments = comments
        self._position = 0

    def words(self) -> list[Word]:
        found: list[Word] = []
        while True:
            start = self._position
            broken = self._skip_space() and start > 0
            if not self._peek() or (self._comments and self._peek() == "#"):
                return found
            found.append(self._word(broken))

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _skip_space(self) -> bool:
        """Whether there was a line break in it."""
        broken = False
        while self._peek() and (self._peek() in " \t\r\n" or self._at_continuation()):
            broken = broken or self._peek() == "\n"
            self._position += 2 if self._at_continuation() else 1
        return broken

    def _at_continuation(self) -> bool:
        return self._text.startswith("\\\n", self._position)

    def _word(self, on_new_line: bool) -> Word:
        start, parts, quoted = self._position, [], False
        while (character := self._peek()) and character not in " \t\r\n":
            if character in "'\"":
                parts.append(self._quoted(character))
                quoted = True
            elif self._at_continuation():
                self._position += 2
            elif character == "\\":
                escaped = self._text[self._position + 1 : self._position + 2]
                if not escaped:
                    raise UnclosedQuoteError("\\", self._position)
                parts.append(escaped)
                self._position += 2
                quoted = True
            else:
                parts.append(character)
                self._position += 1
        return Word("".join(parts), quoted, start, on_new_line)

    def _quoted(self, quote: str) -> str:
        opened = self._position
        self._position += 1
        parts = []
        while (character := self._peek()) != quote:
            if not character:
                raise UnclosedQuoteError(quote, opened)
            following = self._text[self._position + 1 : self._position + 2]
            if quote == '"' and character == "\\" and following and following in '"\\$`\n':
                character = following if following != "\n" else ""
                self._position += 1
            parts.append(character)
            self._position += 1
        self._position += 1
        return "".join(parts)


def first_operator(words: list[Word]) -> str | None:
    """The first word that means something to a shell and nothing to a program."""
    for word in words:
        if not word.quoted and (word.text in OPERATORS or _is_glued(word.text)):
            return word.text
    return None


def _is_glued(text: str) -> bool:
    """``a;`` and ``>file`` are as much the shell's as ``a ;`` and ``> file``."""
    return (text.endswith(";") and len(text) > 1) or text.startswith((">", "2>", "&>"))


def mentions_variable(words: Sequence[str]) -> str | None:
    """The first ``$NAME``, ``${NAME}`` or ``~/…`` that a shell would replace and nothing else will.

    None for the words of a shell.
    """
    if words and os.path.basename(words[0]) in SHELLS:
        return None
    for word in words:
        if word.startswith("~/"):
            return word
        for match in _VARIABLE.finditer(word):
            if match[1] not in NODE_VARIABLES:
                return f"${match[1]}"
    return None


def looks_like_list(text: str, only_numbers: bool = False) -> bool:
    """Whether a text may be meant as several values: parts between commas, without quotes or brackets."""
    pattern = _LISTED_NUMBER if only_numbers else _LISTED_VALUE
    parts = text.strip().split(",")
    return len(parts) > 1 and all(pattern.fullmatch(part.strip()) for part in parts)
