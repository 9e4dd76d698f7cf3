"""YAML text → plain values and where they stand. Duplicate keys are problems, floats keep their text."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from windlass.core.errors import InputError, Problem
from windlass.core.units import render_bytes
from windlass.model import Written, WrittenInt
from windlass.spec.limits import DEEPEST, FILE_HINT, MOST_DIGITS, MOST_REPEATED, MOST_YAML_BYTES
from windlass.spec.long_lists import TAG as LONG_TAG
from windlass.spec.long_lists import LongList, parse_plain, take_out

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
# A number in YAML 1.2 that the library takes for text.
_MISSED_FLOAT = re.compile(r"[-+]?\.[0-9]+[eE][0-9]+")
_RESOLVER: Any = YAML(typ="safe", pure=True).resolver
_SPECIAL_FLOATS = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


@dataclass
class Document:
    """A parsed file: its value, and where every part of it stands."""

    file: str
    text: str
    value: Any = None
    root: Node | None = None
    # Paths given on the command line instead of in the file, and the option they came with.
    overridden: dict[Path, str] = field(default_factory=dict)

    def problem(self, path: Path, message: str, hint: str = "", key: bool = False) -> Problem:
        """A problem with the value (or the key) at `path`, or with the nearest thing above that exists."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.overridden:
                return Problem(message, hint, self.overridden[path[:length]])
        line, column = _locate(self.root, path, key)
        return Problem(message, hint, self.file, line, column)


class Problems:
    """Collects everything wrong with one document."""

    def __init__(self, document: Document, found: list[Problem] | None = None) -> None:
        self.document = document
        self.found = found if found is not None else []

    def add(self, path: Path, message: str, hint: str = "", key: bool = False) -> None:
        problem = self.document.problem(path, message, hint, key)
        if problem not in self.found:
            self.found.append(problem)

    def raise_if_any(self) -> None:
        """Raise one InputError with all problems, in the order they stand in the file."""
        if self.found:
            raise InputError(sorted(self.found, key=lambda problem: (problem.line, problem.column)))


def _locate(node: Node | None, path: Path, key: bool) -> tuple[int, int]:
    mark = node.start_mark if node is not None else None
    for depth, step in enumerate(path):
        found = _child(node, step)
        if found is None:
            break
        key_node, node = found
        at_key = key and depth == len(path) - 1
        mark = key_node.start_mark if at_key and key_node is not None else node.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)


def _child(node: Node | None, step: str | int) -> tuple[Node | None, Node] | None:
    if isinstance(node, SequenceNode) and isinstance(step, int):
        for item in node.value:
            count = len(item.values) if isinstance(item, _LongNode) else 1
            if step < count:
                return None, item.child(step) if isinstance(item, _LongNode) else item
            step -= count
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == str(step):
                return key, value
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    found = _child(source, step)
                    if found is not None:
                        return found
    return None


def parse_document(text: str, file: str) -> tuple[Document, list[Problem]]:
    """The value of a YAML text and the problems found on the way.

    Raises InputError for a text that is not YAML, and for one that is larger or nested deeper than `limits` allow.
    """
    document = Document(file, text)
    shorter, long_lists = take_out(text)
    root = _compose(shorter, document)
    if long_lists and not _put_back(root, long_lists):
        root = _compose(text, document)  # what looked like a list was something else
    document.root = root
    builder = _Builder(document)
    if root is not None:
        document.value = builder.build(root)
    return document, builder.problems


def _compose(text: str, document: Document) -> Node | None:
    if len(text) > MOST_YAML_BYTES:
        message = f"this is too large for a study file: {render_bytes(len(text))} besides long lists of plain values"
        raise InputError([Problem(message, FILE_HINT, document.file)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of anchors that are used twice, which YAML allows
            root: Node | None = YAML(typ="safe", pure=True).compose(text)
        return root
    except MarkedYAMLError as error:
        raise InputError([_syntax_problem(error, document)]) from None
    except YAMLError as error:
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position) + 1
        message = "this is not a text file: it has a control character"
        raise InputError([Problem(message, "remove it", document.file, line)]) from None
    except RecursionError:
        raise InputError([_too_deep(document.file)]) from None
    except (ValueError, OverflowError, LookupError) as error:
        # The library fails in its own ways on a few odd escapes and directives.
        raise InputError([Problem(f"not valid YAML: {error}", "", document.file)]) from None


def _too_deep(file: str, line: int = 0, column: int = 0) -> Problem:
    message = f"lists or mappings are nested more than {DEEPEST} deep"
    return Problem(message, "put the text in single quotes: '[[…]]'", file, line, column)


class _LongNode(ScalarNode):
    """Stands for the values of a long list that was taken out of the text."""

    def __init__(self, node: ScalarNode, long_list: LongList) -> None:
        super().__init__(_TAG + "str", node.value, node.start_mark, node.end_mark)
        self.values = long_list.values
        self._is_block = long_list.is_block

    def child(self, number: int) -> Node:
        """A node that tells where one of the values stands: its line where each has one, or where the list begins."""
        mark = self.start_mark
        line = mark.line + (number if self._is_block else 0)
        return ScalarNode(self.tag, "", StringMark(mark.name, 0, line, mark.column, "", 0), None)


def _put_back(root: Node | None, long_lists: list[LongList]) -> bool:
    """Replace the items that stand for long lists. Returns whether all of them were found in lists."""
    missing = set(range(len(long_lists)))
    pending = [root]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen or isinstance(node, ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            pending += [part for pair in node.value for part in pair]
            continue
        for place, item in enumerate(node.value):
            if isinstance(item, ScalarNode) and item.tag == LONG_TAG and item.value.isdecimal():
                number = int(item.value)
                if number not in missing:
                    return False
                missing.discard(number)
                node.value[place] = _LongNode(item, long_lists[number])
            else:
                pending.append(item)
    return not missing


def _syntax_problem(error: MarkedYAMLError, document: Document) -> Problem:
    mark = error.problem_mark or error.context_mark
    if error.context == "while scanning a simple key":
        mark = error.context_mark  # the line that is wrong; the other is where it was noticed
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message = str(error.problem or error.context or "not valid YAML")
    lines = document.text.splitlines()
    written = lines[line - 1] if line <= len(lines) else ""
    hint = ""
    if "\\t" in message:
        message, hint = "a tab stands where YAML wants spaces", "indent with spaces"
    elif "cannot start any token" in message or "mapping values are not allowed" in message:
        hint = "put the text in single quotes: 'text'"
    elif "another document" in message:
        message, hint = (
            "a study file holds one document, here begins a second",
            "remove the line ---",
        )
    elif re.match(r"\s*-\d", written):
        hint = "a list item needs a space after its dash: - " + written.strip()[1:]
    elif error.context:
        message = f"{message} ({error.context})"
    return Problem(f"not valid YAML: {message}", hint, document.file, line, column)


class _Builder:
    """Nodes → values."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._built: dict[int, Any] = {}
        self._size = 0  # values so far, those that aliases stand for included
        self._sizes: dict[int, int] = {}  # values of a node, with all below it
        self._repeated = 0  # values that aliases stand for
        self._open: set[int] = set()
        self.problems: list[Problem] = []

    def _problem(self, node: Node, message: str, hint: str = "") -> None:
        mark = node.start_mark
        self.problems.append(
            Problem(message, hint, self._document.file, mark.line + 1, mark.column + 1)
        )

    def build(self, node: Node) -> Any:
        """The value of a node. Raises InputError where it is nested too deep, or its aliases stand for too much."""
        identity = id(node)
        if identity in self._built:
            self._size += self._sizes[identity]
            self._repeated += self._sizes[identity]
            if self._repeated > MOST_REPEATED:
                message = f"aliases stand for more than {MOST_REPEATED:,} values here"
                line, column = node.start_mark.line + 1, node.start_mark.column + 1
                raise InputError(
                    [Problem(message, "write the values out", self._document.file, line, column)]
                )
            return self._built[identity]
        if identity in self._open:
            self._problem(node, "this value contains itself")
            return None
        mark = node.start_mark
        if len(self._open) >= DEEPEST:
            raise InputError([_too_deep(self._document.file, mark.line + 1, mark.column + 1)])
        self._open.add(identity)
        before = self._size
        if isinstance(node, MappingNode):
            value: Any = self._build_mapping(node)
        elif isinstance(node, SequenceNode):
            value = self._build_sequence(node)
        else:
            value = self._build_scalar(node)
        self._size += 1
        self._open.discard(identity)
        self._built[identity] = value
        self._sizes[identity] = self._size - before
        return value

    def _build_sequence(self, node: SequenceNode) -> list[Any]:
        values: list[Any] = []
        for item in node.value:
            if isinstance(item, _LongNode):
                values += item.values
                self._size += len(item.values)
            else:
                values.append(self.build(item))
        return values

    def _build_mapping(self, node: MappingNode) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                self._merge(value_node, merged)
                continue
            key = self._key(key_node)
            if key is None:
                continue
            if key in own:
                message = f"the key {key!r} stands here twice, first in line {lines[key]}"
                self._problem(key_node, message, "keep one of the two")
                continue
            lines[key] = key_node.start_mark.line + 1
            own[key] = self.build(value_node)
        return {**merged, **own}

    def _merge(self, node: Node, merged: dict[str, Any]) -> None:
        for source in node.value if isinstance(node, SequenceNode) else [node]:
            value = self.build(source)
            if not isinstance(value, dict):
                self._problem(source, "<< takes a mapping, or a list of mappings")
                continue
            for key, item in value.items():
                merged.setdefault(key, item)

    def _key(self, node: Node) -> str | None:
        """Keys are text; a number stands for the text it was written as."""
        if isinstance(node, ScalarNode) and node.value and node.tag != _TAG + "null":
            return self._join_surrogates(node, str(node.value)) or None
        self._problem(node, "a key must be a word", "put it in single quotes: 'word'")
        return None

    def _build_scalar(self, node: Node) -> Any:
        text, tag = str(node.value), str(node.tag).removeprefix(_TAG)
        if tag == "null":
            return None
        if tag == "bool" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if tag in {"int", "float"}:
            return self._build_number(node, text, tag)
        if tag == "bool":
            self._problem(node, f"{text!r} is neither true nor false", "remove the tag")
            return text
        if tag == "str" and getattr(node, "style", None) is None and _MISSED_FLOAT.fullmatch(text):
            return _parse_float(text)
        if tag in {"str", "timestamp", "value"}:
            return self._join_surrogates(node, text)
        self._problem(node, f"the tag {tag} has no meaning in a study file", "remove the tag")
        return None

    def _build_number(self, node: Node, text: str, tag: str) -> int | Written | str:
        """A tag may call anything a number, and a number may be too long to compute with: then its text is used."""
        try:
            number = _parse_int(text) if tag == "int" else _parse_float(text)
        except ValueError:
            if len(text) <= MOST_DIGITS:
                self._problem(node, f"{text!r} is not a number", f"remove the tag !!{tag}")
                return text
            number = 10**MOST_DIGITS  # Python reads no more digits than that
        if isinstance(number, int) and abs(number) >= 10**MOST_DIGITS:
            message = f"this whole number has more than {MOST_DIGITS} digits"
            self._problem(node, message, "put it in quotes to pass it on as text")
            return text
        return _with_text(number, text) if isinstance(number, int) else number

    def _join_surrogates(self, node: Node, text: str) -> str:
        r"""JSON writes one character as two escapes, ``"\ud83d\ude00"``; YAML reads them as two halves."""
        if text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text):
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._problem(node, "this text holds half a character", "write the character itself")
            return ""


def parse_scalar(text: str) -> Any:
    """The value that a text without line breaks has where it stands alone in YAML; a text that YAML cannot read."""
    value = parse_plain(text)
    if value is not None:
        return value
    tag = str(_RESOLVER.resolve(ScalarNode, text, (True, False))).removeprefix(_TAG)
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    try:
        if tag == "int" and abs(_parse_int(text)) < 10**MOST_DIGITS:
            return _with_text(_parse_int(text), text)
        if tag == "float" or _MISSED_FLOAT.fullmatch(text):
            return _parse_float(text)
    except ValueError:
        pass  # Python reads no whole number of so many digits
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def _parse_int(text: str) -> int:
    digits = text.replace("_", "").lower()
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)
    return sign * int(digits if base == 10 else digits[2:], base)


def _with_text(number: int, text: str) -> int:
    """The number, with its text where Python would write it otherwise: 007, +5, 1_000, 0x10."""
    return number if str(number) == text else WrittenInt(number, text)


def _parse_float(text: str) -> Written:
    """The number with its text; YAML's own words for infinities become those that programs know."""
    text = _SPECIAL_FLOATS.get(text.lower(), text)
    return Written(float(text.replace("_", "")), text)
