"""Finds numbers by their names in what a program prints. Python 3.9, standard library.

The agent reads lines with it while trials run; ``windlass results --metric`` reads kept output with it afterwards.
Names are compared without regard to case and to the signs between their parts: ``val_loss`` is also ``Val loss`` and
``val/loss``. A part more is another name: ``val_loss``, ``train loss`` and ``best loss`` are never read as ``loss``.
"""

from __future__ import annotations

import math
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from windlass.agent.report.tables import Tables

_CONTROL = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x08+")
_NUMBER = rb"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
# What may stand between a name and its number: signs of assignment, arrows, the bars of a table, a few words, or
# nothing but space. A comma only after a quoted name, as in a printed tuple.
_BETWEEN = (
    rb"[\"'`*\]]*\s*(?:\(%\)\s*)?"
    rb"(?:(?P<sign>:=|={1,2}|:|->|=>|\xe2\x86\x92|\xe2\x89\x88|~|\||\xe2\x94[\x82\x83]|is\b|of\b|(?<=[\"']),)\s*|(?<=\s))"
)
_CAST = rb"(?:(?:\w+\.)?(?:tensor|array|devicearray|float\d*|int\d*|bfloat16)\(\s*)?"
# The first lookahead keeps a number from being cut: 0.12 is not read from 0.12.5, 3.2s, 10:30 or 1,2. The last one
# refuses `loss 1: 0.5` and `return 0.5 * x`, where a space alone does not make the number the name's value.
_TAIL = (
    _BETWEEN
    + rb"[\"']?"
    + _CAST
    + rb"(?P<open>\[\s*)?(?P<value>"
    + _NUMBER
    + rb")(?:\s*/\s*(?P<of>\d+))?"
    rb"(?!\w|[.,:/-]\d|\.\w|\s*/\s*\d)(?(open)\s*\])(?(sign)|(?!\s*[:=*+/^]))"
)
_LETTERS_AND_DIGITS = b"abcdefghijklmnopqrstuvwxyz0123456789"
_NO_BOUNDARY = _LETTERS_AND_DIGITS + b"@"  # before a name these make another one of it
_NAME_SIGNS = _LETTERS_AND_DIGITS + b"_@./-%#"
_PARTS = re.compile(rb"[\s_/.-]+")
_WORD = re.compile(rb"(?<![\w./%@-])[a-z][\w'@-]*\Z")
_MOST_WORDS = 4  # before a name
_WORDS_BYTES = 80
_CONTEXT_BYTES = 2000  # of a line before a name, in which words and labels are searched for
_SAME_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MOST_REMEMBERED = 500

# Words before a name that leave it what it is: `final loss: 0.1` is the loss.
_PLAIN = frozenset(
    b"a after and at average avg batch current debug done end ended epoch final finally finished got has info iter its "
    b"iteration mean metric metrics now our overall result results step the total warning with".split()
)
_TRAIN = rb"train|training"
_SETS = rb"val|valid|validation|eval|evaluation|test|testing|dev|holdout"
_SPELLING = {
    b"training": b"train",
    b"valid": b"val",
    b"validation": b"val",
    b"evaluation": b"eval",
    b"testing": b"test",
}
_BOUNDS = (
    rb"best|min|minimum|max|maximum|lowest|highest|prev|previous|old|initial|init|target|baseline"
)
# Words that make another name of what follows even where that is written `loss=0.1`, without a space.
_OTHER = frozenset(
    (_TRAIN + b"|" + _SETS + b"|" + _BOUNDS).split(b"|")
    + b"policy value actor critic entropy kl reconstruction generator discriminator aux auxiliary".split()
)
# A label is valid for what follows it in the line: `[val] loss=0.3`, `Test set: loss 0.3`, `"val": {"loss": 0.3}`, and
# `Validation: 100%|` of a progress bar, and `Train Epoch: 3 [640/60000]`. `test: 0.3` is no label but a value.
_LABEL = re.compile(
    rb"(?<![\w./-])(?P<set>"
    + _TRAIN
    + b"|"
    + _SETS
    + rb")[ _](?:epoch|step|iter|iteration|batch)\s*[:=#]?\s*\[?\d"
    rb"|(?<![\w./-])(?P<label>" + _TRAIN + b"|" + _SETS + b"|" + _BOUNDS + rb")"
    rb"(?:[ _](?:set|split|data|metrics|results|epoch|step|model|dataloader)(?: \d+)?)?"
    rb"[\"']?\s*(?:[:\])>|{]|-(?=\s))+\s*(?=\Z|[^\d\s.+-]|\d+%)"
)
_BRACES = re.compile(rb"[{}]")
_OWNER = b"'s"  # LightGBM: valid_0's auc: 0.9
_IS_BOUND = re.compile(_BOUNDS)
_IS_SET = re.compile(_SETS)
_IS_TRAINING = re.compile(_TRAIN)

READING = 3  # changes whenever lines are read otherwise than before; answers that were remembered are then read anew
PLAIN = ""  # the source of a number that stands under its name alone
TRAINING = "train"  # the source of a number under a label such as `train:`
# The source of `test loss 0.3` for `loss`: it is no value, but `train: loss 0.1` is none then either.
OTHER_SET = "another set"
# The source where one number stands for the training data and another for other data.
UNDECIDED = "?"


class Reading(NamedTuple):
    """A number in a line. `source` is the label it stands under, such as ``val``; "" for none.

    A reading whose source is `UNDECIDED` or `OTHER_SET` has no value; it tells `MetricBook` that a number of the
    training data is not the one that was meant.
    """

    value: float
    source: str


class _Context(NamedTuple):
    """What stands before a number: the parts of its name, the words before it, the label of its part of the line."""

    own: List[bytes]
    words: List[bytes]
    label: bytes
    sign: bytes  # between name and number; b"" for space alone
    name_bytes: int  # of the name that stand before its last part


class PrintedMetrics:
    """Finds certain metrics in lines of output, in the usual forms or by patterns with one group."""

    def __init__(self, patterns: Sequence[Tuple[str, Optional[str]]]) -> None:
        self._own = [(name, re.compile(regex.encode())) for name, regex in patterns if regex]
        self._named = [_Named(name) for name, regex in patterns if not regex]

    def __bool__(self) -> bool:
        return bool(self._own or self._named)

    def read(self, line: bytes, tables: Optional[Tables] = None) -> Dict[str, Reading]:
        """The metrics that a line has. Of several numbers for one name the last counts, and a plain one the most.

        A number of the training data is never preferred to one of other data: such a line is `UNDECIDED`. `tables` has
        the tables that were printed before the line.
        """
        found: Dict[str, Reading] = {}
        lowered = line.lower()
        if tables is not None and self._named:
            row = tables.read(
                strip_control(lowered), any(named.last in lowered for named in self._named)
            )
            for named in self._named if row is not None else ():
                reading = named.find(row or b"")
                if reading is not None:
                    found[named.name] = reading
        for named in self._named:
            if named.last in lowered and named.name not in found:  # nearly all lines end here
                reading = named.find(strip_control(lowered))
                if reading is not None:
                    found[named.name] = reading
        for name, pattern in self._own:
            for match in pattern.finditer(line):
                value = _number(match.group(match.lastindex or 0))
                if value is not None:
                    found[name] = Reading(value, PLAIN)
        return found


class _Named:
    """One metric that is found by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._parts = _spelled(_parts(name.encode().lower()))
        self.last = self._parts[-1] if self._parts else name.encode().lower()
        self._has_digits = any(
            part.translate(_SAME_DIGITS) != part or b"0" in part for part in self._parts
        )
        self._pattern = re.compile(re.escape(self.last) + _TAIL)
        self._sources: Dict[Tuple[bytes, bytes], Optional[str]] = {}

    def find(self, line: bytes) -> Optional[Reading]:
        """The value of this metric in a line of small letters; None where it has none."""
        best: Optional[Tuple[int, Reading]] = None
        sources = set()
        at = line.find(self.last)
        while at >= 0:
            match = None
            if at == 0 or line[at - 1] not in _NO_BOUNDARY:
                match = self._pattern.match(line, at)
            if match is not None:
                source = self._source(line[max(0, at - _CONTEXT_BYTES) : at], match["sign"] or b"")
                value = None if source is None else _number(match["value"], match["of"])
                if source is not None and value is not None:
                    sources.add(source)
                if source is not None and source != OTHER_SET and value is not None:
                    rank = (0 if source else 2) + (1 if match["sign"] else 0)
                    if best is None or rank >= best[0]:
                        best = (rank, Reading(value, source))
            at = line.find(self.last, at + 1)
        if best is None:
            return Reading(math.nan, OTHER_SET) if sources else None
        if PLAIN not in sources and TRAINING in sources and len(sources) > 1:
            return Reading(math.nan, UNDECIDED)
        return best[1]

    def _source(self, before: bytes, sign: bytes) -> Optional[str]:
        """Where a number comes from, if it is this metric's; None if it is not.

        A program prints the same line again and again with other numbers, so the answer is remembered for what stands
        before the name, whatever the digits in it are, unless the name itself has digits: top1_acc is not top5_acc.
        """
        key = (before if self._has_digits else before.translate(_SAME_DIGITS), sign)
        if key not in self._sources:
            if len(self._sources) >= _MOST_REMEMBERED:
                self._sources.clear()
            self._sources[key] = self._find_source(_examine(before, self.last, sign))
        return self._sources[key]

    def _find_source(self, context: Optional[_Context]) -> Optional[str]:
        if context is None:
            return None
        parts = context.own
        if parts[1:] == self._parts and _IS_SET.fullmatch(parts[0]):
            # In `train: val_loss=1` the label is no label of data, but the name of a logger.
            return None if _IS_TRAINING.fullmatch(context.label) else OTHER_SET
        for word in (*reversed(context.words), b""):
            if context.label and _spelled([context.label, *parts]) == self._parts:
                return PLAIN
            if _spelled(parts) == self._parts and _is_plain(word, context.sign):
                return _source_of(word[: -len(_OWNER)] if word.endswith(_OWNER) else context.label)
            if _spelled(parts) == self._parts and _IS_SET.fullmatch(word):
                return OTHER_SET
            parts = [*_parts(word), *parts]
        return None


def _source_of(label: bytes) -> Optional[str]:
    """The source that a label stands for; None where it makes another name, such as ``best``, of what follows."""
    if _IS_BOUND.fullmatch(label):
        return None
    return TRAINING if _IS_TRAINING.fullmatch(label) else label.decode("utf-8", "replace")


def strip_control(line: bytes) -> bytes:
    """The line without colours and other escapes of terminals."""
    return _CONTROL.sub(b"", line) if b"\x1b" in line or b"\x08" in line else line


def _parts(name: bytes) -> List[bytes]:
    return [part for part in _PARTS.split(name) if part]


def _spelled(parts: List[bytes]) -> List[bytes]:
    """The parts of a name with its data in one spelling: `validation loss` is `val_loss`."""
    return [_SPELLING.get(parts[0], parts[0]), *parts[1:]] if len(parts) > 1 else parts


def _is_plain(word: bytes, sign: bytes) -> bool:
    """Whether a name is the same with and without the word before it."""
    return (
        not word
        or word in _PLAIN
        or word.endswith(_OWNER)
        or (sign in (b"=", b"==", b":=") and word not in _OTHER)
    )


def _examine(before: bytes, last: bytes, sign: bytes) -> Optional[_Context]:
    """What the text before the last part of a name says of it; None where it is an option of a command."""
    stem = before.rstrip(_NAME_SIGNS)
    if before.startswith(b"-", len(stem)):
        return None
    own = _parts(before[len(stem) :] + last)
    words = _words_before(stem) if stem.endswith((b" ", b"\t")) else []
    return _Context(own, words, _label(stem), sign, len(before) - len(stem))


def _words_before(text: bytes) -> List[bytes]:
    """The last words of a text, up to a number or a sign."""
    words: List[bytes] = []
    for token in reversed(text[-_WORDS_BYTES:].split()[-_MOST_WORDS:]):
        word = _WORD.search(token.rstrip(b"*"))
        if word is None:
            break
        words.insert(0, word[0])
        if word.start():
            break
    return words


def _label(before: bytes) -> bytes:
    """The label of the part of the line that ends here; b"" for none."""
    for match in reversed(list(_LABEL.finditer(before))):
        if _is_open(before[match.end() :]):
            label: bytes = match["set"] or match["label"]
            return label
    return b""


def _is_open(after: bytes) -> bool:
    """Whether what a label begins, ``"val": {"loss": 0.3}`` for example, goes on to the end of the text after it."""
    depth = -1 if after.lstrip().startswith(b"{") else 0
    for brace in _BRACES.findall(after):
        depth += 1 if brace == b"{" else -1
        if depth < 0:
            return False
    return True


def _number(text: bytes, of: Optional[bytes] = None) -> Optional[float]:
    """The number that a text is. With `of`, the share: ``9876/10000`` is 0.9876; ``0.3/10`` is none."""
    try:
        value = float(text.replace(b",", b""))
        if of is None:
            return value
        return value / float(of) if value.is_integer() else None
    except (ValueError, ZeroDivisionError):
        return None


_ANY = re.compile(rb"(?<![a-z0-9@%])(?P<name>[a-z][a-z0-9@%]*)" + _TAIL)
# Names that tell how far a program is, or where and when it runs, and little words before any number.
_NO_METRIC = frozenset(
    b"epoch epochs step steps iter iteration iterations it its batch batches eta elapsed remaining num total seed "
    b"version pid port line gpu gpus rank device cuda node world size workers worker thread threads trial run job "
    b"id args shape dim file in of at to for than from by with is was took about after before and or per x s ms "
    b"sec secs second seconds minutes h hours hour day days date year mb gb kb v global timestep timesteps set".split()
)


def find_numbers(line: bytes, tables: Optional[Tables] = None) -> Iterator[Tuple[str, float]]:
    """All numbers of a line that may be metrics, each with a name under which `PrintedMetrics` finds it."""
    line = strip_control(line)
    line = (tables.read(line, True) if tables is not None else None) or line
    lowered = line.lower()
    for match in _ANY.finditer(lowered):
        begin = match.start("name")
        found = _examine(
            lowered[max(0, begin - _CONTEXT_BYTES) : begin], match["name"], match["sign"] or b""
        )
        value = _number(match["value"], match["of"])
        if found is None or value is None or found.own[-1] in _NO_METRIC:
            continue
        is_whole = match["value"].lstrip(b"+-").isdigit()
        text = line[begin - found.name_bytes : match.end("name")].decode("utf-8", "replace")
        # `GPU 0` and `layer 3` are seldom metrics; `train: 45%|` is a progress bar, `train.py:12` a place in a file.
        if (is_whole and not found.sign) or lowered.startswith(b"%|", match.end()) or ".py" in text:
            continue
        words = found.words
        if words and words[-1].endswith(_OWNER):
            words = words[-1:]
        elif words and (_is_plain(words[-1], found.sign) or _NO_METRIC.issuperset(words)):
            words = []
        before = " ".join(word.decode("utf-8", "replace") for word in words) or found.label.decode(
            "ascii"
        )
        yield f"{before} {text.strip('./-')}".lstrip(), value
