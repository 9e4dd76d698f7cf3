"""trials.jsonl and its index: one line a trial, found by number without reading the rest. Python 3.9.

trials.jsonl   {"crc": "…", "n": 17, "id": "t…", "stages": [["main", ["python", "train.py", …]]], "settings": {…}},
               one line a trial; trials of a ladder have a "rung" as well, and
               "written" before "settings" has the text of those that JSON writes otherwise: {"lr": "1e-3"}.
               "crc" is the CRC-32 of all that follows it in the line, "n" the trial's number. Studies of earlier
               versions have lines without these two.
trials.idx     16 bytes a trial: where its line begins and a number made of its id, both little-endian
A trial's number is its position. Lines are only ever added. How many of them count stands in the claims register;
what a killed writer left beyond that is cut off before the next lines are added.

No line is used before it was compared with its entry of the index. Where the two disagree, trials.jsonl is read from
the beginning, and its whole lines tell the numbers. `windlass run` then writes both files anew.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from windlass.core.counted import counted
from windlass.core.damage import report_damage
from windlass.core.errors import FolderError
from windlass.core.ids import id_number, letters_of
from windlass.core.paths import StudyPaths
from windlass.core.trial_lines import LOST, NO_LINE, FoundLines, id_of, is_line_of, seal_line

_ENTRY = struct.Struct("<QQ")
ENTRY_BYTES = _ENTRY.size
_LONG_LINE_BYTES = 1 << 20  # Two lines of trials together are shorter.
_CHUNK = 2000  # lines in memory at a time
_NEAR = 200  # lines between two that are read together
_NOWHERE = (1 << 64) - 1
_REMEDY = "`windlass run` with the study file writes the lines of the study's trials anew"


def read_entries(paths: StudyPaths) -> bytes:
    """The index as it is, without a comparison with the lines; made of the lines where there is none.

    `entry_id` takes ids out of it. Nothing where there are no trials.
    """
    try:
        with open(paths.trials_index, "rb") as index:
            raw = index.read()
    except OSError:
        raw = b""
    return raw[: len(raw) // ENTRY_BYTES * ENTRY_BYTES] or _make_entries(paths)


def entry_id(entries: bytes, number: int) -> int:
    """`id_number` of a trial, from what `read_entries` returned; 0 where it is not known."""
    if not 0 <= number < len(entries) // ENTRY_BYTES:
        return 0
    return int(_ENTRY.unpack_from(entries, number * ENTRY_BYTES)[1])


def entry_pairs(entries: bytes, numbers: range) -> list[tuple[int | None, int]]:
    """Where the lines of trials begin that follow each other, None where it is not known, and `entry_id` of each."""
    part = entries[numbers.start * ENTRY_BYTES : numbers.stop * ENTRY_BYTES]
    return [
        (None if offset == _NOWHERE else offset, identifier)
        for offset, identifier in _ENTRY.iter_unpack(part)
    ]


def _make_entries(paths: StudyPaths) -> bytes:
    try:
        if not os.path.getsize(paths.trials):
            return b""
        file = TrialFile(paths)
    except (OSError, FolderError):
        return b""
    try:
        count = file.count_indexed()
        found = dict(file.id_numbers(count))
    finally:
        file.close()
    return b"".join(_ENTRY.pack(_NOWHERE, found.get(number, 0)) for number in range(count))


class TrialFile:
    """Reads trials by number. Holds two descriptors and no trials.

    Raises FolderError where trials.jsonl cannot be read at all. An index that is damaged or missing is rebuilt in
    memory, and a warning is printed.
    """

    def __init__(self, paths: StudyPaths) -> None:
        self._path, self._index_path = paths.trials, paths.trials_index
        # What trials.jsonl holds, once the index was found damaged.
        self._found: FoundLines | None = None
        try:
            self._lines = os.open(paths.trials, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._error(error) from error
        try:
            self._index = os.open(paths.trials_index, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._index = -1
            self._rebuild(f"cannot be read ({error.strerror})")

    def close(self) -> None:
        os.close(self._lines)
        if self._index >= 0:
            os.close(self._index)

    def read(self, number: int) -> dict[str, Any]:
        """The trial of that number. Raises FolderError where its line is damaged or missing."""
        trial: dict[str, Any] = json.loads(self.read_line(number))
        return trial

    def read_line(self, number: int) -> bytes:
        """The line of the trial of that number. Raises FolderError where it is damaged or missing."""
        ((_, line),) = self.iterate_lines(number, number + 1)
        return line

    def read_many(self, numbers: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The trials of these numbers, in ascending order. Raises FolderError for the first that is not there.

        Lines that are not far apart are read together: on shared storage it is calls that take time, not bytes.
        """
        span: list[int] = []
        for number in sorted(set(numbers)):
            if span and (number - span[-1] > _NEAR or number - span[0] >= _CHUNK):
                yield from self._read_span(span)
                span = []
            span.append(number)
        if span:
            yield from self._read_span(span)

    def _read_span(self, numbers: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in self._checked_lines(
            numbers[0], numbers[-1] + 1, wanted=frozenset(numbers)
        ):
            yield number, json.loads(self.read_line(number) if line is None else line)

    def iterate_lines(
        self, first: int, stop: int, chunk: int = _CHUNK
    ) -> Iterator[tuple[int, bytes]]:
        """Lines of trials `first` to `stop` - 1 with their numbers, a chunk in memory at a time.

        Every line is whole and is the one of its number. Raises FolderError for the first that is not there.
        """
        for number, line in self._checked_lines(first, stop, chunk):
            if line is None:
                raise FolderError(
                    f"{self._path}: the line of trial {number} is damaged or missing\n  hint: {_REMEDY}"
                )
            yield number, line

    def iterate(self, first: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Trials `first` to `stop` - 1 with their numbers. Those whose lines are damaged are left out and reported."""
        missing = 0
        for begin in range(first, stop, _CHUNK):
            found = list(self._checked_lines(begin, min(begin + _CHUNK, stop)))
            whole = [(number, line) for number, line in found if line is not None]
            missing += len(found) - len(whole)
            # All lines in one call of the parser, which is faster. Each of them is a JSON object, as its writer made.
            for place, trial in enumerate(
                json.loads(b"[%s]" % b",".join(line for _, line in whole))
            ):
                yield whole[place][0], trial
        if missing:
            self._report_missing(missing)

    def id_numbers(self, count: int) -> Iterator[tuple[int, int]]:
        """(number, id_number) of the first `count` trials, also of those whose lines are damaged where it is known."""
        missing = 0
        for number, line in self._checked_lines(0, count):
            missing += line is None
            identifier = self._id_of_missing(number) if line is None else id_of(line)
            if identifier:
                yield number, identifier
        if missing:
            self._report_missing(missing)

    def missing(self, count: int) -> list[int]:
        """Which of the first `count` trials have no line that can be used."""
        return [number for number, line in self._checked_lines(0, count) if line is None]

    def count_indexed(self) -> int:
        """How many trials there are by the index; by the lines themselves where the index is damaged."""
        if self._found is None:
            count, size = (
                os.fstat(self._index).st_size // _ENTRY.size,
                os.fstat(self._lines).st_size,
            )
            if not (count or size) or (
                count and self._indexed_lines(count - 1, count, [count - 1]) is not None
            ):
                return count
        return len(self._scan().offsets)

    def count_lines(self) -> int:
        """How many trials there are by the lines. The index may be of an earlier time, and know fewer."""
        count = self.count_indexed()
        if self._found is None and count and self._goes_on_behind(count - 1):
            return len(self._scan().offsets)
        return count

    def _goes_on_behind(self, number: int) -> bool:
        """Whether there is another whole line behind that of this trial, which the index has."""
        entry = self._pread(self._index, _ENTRY.size, number * _ENTRY.size)
        data = self._pread(self._lines, _LONG_LINE_BYTES, _ENTRY.unpack(entry)[0])
        return data.count(b"\n") > 1

    @property
    def is_index_damaged(self) -> bool:
        """Whether anything that was read so far disagreed with the index."""
        return self._found is not None

    def _report_missing(self, count: int) -> None:
        problem = f"the lines of {counted(count, 'trial')} are damaged or missing and left out"
        report_damage(self._path, problem, _REMEDY, "lines")

    def _id_of_missing(self, number: int) -> int:
        """The id of a trial whose line is damaged: from the index, or from what is left of the line; 0 if unknown."""
        salvaged = self._found.salvaged.get(number, 0) if self._found is not None else 0
        if salvaged or self._index < 0:
            return salvaged
        entry = self._pread(self._index, _ENTRY.size, number * _ENTRY.size)
        return int(_ENTRY.unpack(entry)[1]) if len(entry) == _ENTRY.size else 0

    def _checked_lines(
        self, first: int, stop: int, chunk: int = _CHUNK, wanted: Collection[int] | None = None
    ) -> Iterator[tuple[int, bytes | None]]:
        """Numbers with their lines, without the newline; None for those that are damaged or missing.

        Only those of `wanted`, where that is given: comparing a line with its checksum takes longer than reading it.
        """
        for begin in range(first, stop, chunk):
            chosen = range(begin, min(begin + chunk, stop))
            numbers = (
                chosen if wanted is None else [number for number in chosen if number in wanted]
            )
            lines = (
                self._indexed_lines(chosen.start, chosen.stop, numbers)
                if self._found is None
                else None
            )
            if lines is None:
                lines = self._found_lines(numbers)
            for number, line in zip(numbers, lines, strict=True):
                yield number, None if line is None or line.endswith(LOST) else line

    def _indexed_lines(
        self, first: int, stop: int, numbers: Iterable[int]
    ) -> list[bytes | None] | None:
        """The lines of `numbers`, all below `stop`, by the index; None where the index and these lines do not agree."""
        raw = self._pread(self._index, (stop - first + 1) * _ENTRY.size, first * _ENTRY.size)
        entries = list(_ENTRY.iter_unpack(raw[: len(raw) // _ENTRY.size * _ENTRY.size]))
        if len(entries) < stop - first:
            return None
        begin, size = entries[0][0], os.fstat(self._lines).st_size
        if len(entries) == stop - first:
            entries.append((size, 0))
        if not begin <= entries[-1][0] <= size:
            return None
        data = self._pread(self._lines, entries[-1][0] - begin, begin)
        lines: list[bytes | None] = []
        for number in numbers:
            offset, identifier = entries[number - first]
            end = entries[number - first + 1][0]
            if end == size:  # Behind the last line may be what a killed writer left.
                end = begin + data.find(b"\n", max(0, offset - begin)) + 1
            line = data[offset - begin : end - begin] if begin <= offset <= end else b""
            if not is_line_of(line, number, identifier):
                return None
            lines.append(line[:-1])
        return lines

    def _found_lines(self, numbers: Iterable[int]) -> list[bytes | None]:
        if self._found is None:
            self._rebuild("disagrees with trials.jsonl")
        found = self._scan()
        lines: list[bytes | None] = []
        for number in numbers:
            offset = found.offsets[number] if number < len(found.offsets) else NO_LINE
            if offset == NO_LINE:
                lines.append(None)
            else:
                lines.append(self._pread(self._lines, found.sizes[number] - 1, offset))
        return lines

    def _rebuild(self, problem: str) -> None:
        """Report a damaged index, unless it is trials.jsonl that is damaged."""
        found = self._scan()
        indexed = os.fstat(self._index).st_size // _ENTRY.size if self._index >= 0 else 0
        if self._is_of_others(found):
            problem = "its ids are not those of trials.jsonl: one of the two is of another study, or of another time"
            remedy = f"put back the one that belongs here from a backup; else {_REMEDY}"
            report_damage(self._index_path, problem, remedy, "others")
        elif not found.damaged and len(found.offsets) >= indexed and NO_LINE not in found.offsets:
            remedy = "nothing is lost: it was rebuilt from trials.jsonl, and `windlass run` writes it anew"
            report_damage(self._index_path, problem, remedy)

    def _is_of_others(self, found: FoundLines) -> bool:
        """Whether most lines are where the index has them, and have other ids than there."""
        if self._index < 0:
            return False
        raw = self._pread(self._index, len(found.offsets) * _ENTRY.size, 0)
        pairs = zip(
            _ENTRY.iter_unpack(raw[: len(raw) // _ENTRY.size * _ENTRY.size]),
            found.offsets,
            found.ids,
            strict=False,
        )
        differ = [identifier != own for (offset, identifier), at, own in pairs if offset == at]
        return bool(2 * sum(differ) > len(differ))

    def _scan(self) -> FoundLines:
        if self._found is None:
            self._found = FoundLines()
            numbers = self._indexed_numbers()
            try:
                with os.fdopen(os.dup(self._lines), "rb") as file:
                    file.seek(0)
                    for line in file:
                        self._found.add(line, numbers)
            except OSError as error:
                raise self._error(error) from error
        return self._found

    def _indexed_numbers(self) -> dict[int, int]:
        """Id → number as the index has it, for lines that do not say their number themselves.

        Nothing where lines do not follow each other in the index: then it is the index that is damaged.
        """
        if self._index < 0:
            return {}
        size = os.fstat(self._index).st_size
        raw = self._pread(self._index, size // _ENTRY.size * _ENTRY.size, 0)
        entries = list(_ENTRY.iter_unpack(raw))
        offsets = [offset for offset, _ in entries]
        if offsets != sorted(set(offsets)):
            return {}
        return {identifier: number for number, (_, identifier) in enumerate(entries)}

    def _pread(self, descriptor: int, count: int, offset: int, is_again: bool = False) -> bytes:
        """`count` bytes, fewer only where the file ends."""
        parts = []
        try:
            while count > 0:
                part = os.pread(descriptor, count, offset)
                if not part:
                    break
                parts.append(part)
                count -= len(part)
                offset += len(part)
        except OSError as error:
            if not is_again and error.errno != errno.EBADF:
                self._open_again()
                return b"".join([*parts, self._pread(descriptor, count, offset, True)])
            if descriptor == self._index:
                return b""  # An index that cannot be read is one that is missing.
            raise self._error(error) from error
        return b"".join(parts)

    def _open_again(self) -> None:
        """On some network file systems what was open when the server went away cannot be read ever after."""
        files = [(self._lines, self._path), (self._index, self._index_path)][
            : 1 + (self._index >= 0)
        ]
        try:
            for descriptor, path in files:
                opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                os.dup2(opened, descriptor, inheritable=False)
                os.close(opened)
        except OSError as error:
            if error.filename == self._path:
                raise self._error(error) from error

    def _error(self, error: OSError) -> FolderError:
        remedy = _REMEDY
        if error.errno != errno.ENOENT:
            remedy = (
                "make it readable, or remove it: `windlass run` with the study file writes it anew"
            )
        return FolderError(f"{self._path}: cannot be read ({error.strerror})\n  hint: {remedy}")


def append_trials(paths: StudyPaths, count: int, lines: Iterable[tuple[str, bytes]]) -> int:
    """Add `(id, line)` pairs behind the first `count` trials and return the new count.

    Whatever stands behind them, from a writer that was killed, is cut off first. The index must be whole:
    `repair_trials` sees to that.
    """
    with _open_for_update(paths.trials) as trials, _open_for_update(paths.trials_index) as index:
        end = 0
        if count:
            index.seek((count - 1) * _ENTRY.size)
            trials.seek(_ENTRY.unpack(index.read(_ENTRY.size))[0])
            trials.readline()
            end = trials.tell()
        index.truncate(count * _ENTRY.size)
        trials.truncate(end)
        trials.seek(end)
        index.seek(count * _ENTRY.size)
        for trial_id, line in lines:
            sealed = seal_line(count, line)
            trials.write(sealed)
            index.write(_ENTRY.pack(end, id_number(trial_id)))
            end += len(sealed)
            count += 1
        _sync(trials, index)
    return count


def repair_trials(paths: StudyPaths, count: int, restored: Mapping[int, bytes]) -> None:
    """Write both files anew: the first `count` trials with the lines that are whole, and with those of `restored`.

    `restored` maps numbers to lines as `append_trials` takes them. A trial whose line is neither whole nor restored
    keeps its number: its line says that it is lost.
    """
    file = TrialFile(paths)
    identifiers = dict(file.id_numbers(count))
    partial, partial_index = f"{paths.trials}.{os.getpid()}", f"{paths.trials_index}.{os.getpid()}"
    try:
        with open(partial, "wb") as trials, open(partial_index, "wb") as index:
            end = 0
            for number, line in file._checked_lines(0, count):
                identifier = identifiers.get(number, 0)
                if number in restored:
                    text = seal_line(number, restored[number])
                elif line is not None:
                    text = line + b"\n"
                else:
                    text = seal_line(number, b'{"id":"t%s"%s\n' % (letters_of(identifier), LOST))
                index.write(_ENTRY.pack(end, identifier))
                trials.write(text)
                end += len(text)
            _sync(trials, index)
        os.replace(partial, paths.trials)
        os.replace(partial_index, paths.trials_index)
    finally:
        file.close()
        for path in (partial, partial_index):
            if os.path.exists(path):
                os.unlink(path)


def _sync(*files: BinaryIO) -> None:
    for file in files:
        file.flush()
        os.fsync(file.fileno())


def _open_for_update(path: str) -> BinaryIO:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    return os.fdopen(descriptor, "r+b", buffering=1 << 20)
