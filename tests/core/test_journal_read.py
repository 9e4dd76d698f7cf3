"""Journals are read whole line by whole line, whatever state their last bytes are in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.errors import WindlassError
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.journal.read import (
    JournalReader,
    JournalVersionError,
    journal_files,
    read_header,
    writer_of,
)
from windlass.core.journal.write import encode_event

HEADER = {"e": "agent", "t": 1.0, "v": JOURNAL_VERSION, "id": "a"}
EVENTS: list[dict[str, Any]] = [
    HEADER,
    {"e": "start", "t": 2.0, "i": 0, "n": 1, "s": 0},
    {"e": "note", "t": 2.5, "text": 'größer 🚀\n, "quoted" and {braces}'},
    {"e": "end", "t": 3.0, "i": 0, "n": 1, "cause": "done", "m": {"loss": ["nan", 0.1, "inf", 3]}},
]


def encode(events: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)


def read_all(reader: JournalReader, limit_bytes: int) -> list[dict[str, Any]]:
    events = []
    while batch := reader.read(limit_bytes):
        events += batch
    return events


def test_a_torn_last_line_waits_for_its_rest_at_every_byte(tmp_path: Path) -> None:
    path, content = tmp_path / "a.jsonl", encode(EVENTS)
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        reader = JournalReader(str(path))
        first = reader.read()
        whole = content[:cut].count(b"\n")
        assert first == EVENTS[:whole]
        assert reader.offset == len(encode(EVENTS[:whole]))
        path.write_bytes(content)
        assert first + reader.read() == EVENTS
        assert (reader.damaged, reader.restarted, reader.read()) == (0, False, [])


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 400)), limit=st.integers(1, 200))
def test_reads_of_any_size_give_the_same_events(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], limit: int
) -> None:
    path, content = tmp_path_factory.mktemp("journal") / "a.jsonl", encode(EVENTS)
    reader, events = JournalReader(str(path)), []
    for cut in [*sorted(cuts), len(content)]:
        path.write_bytes(content[:cut])
        events += read_all(reader, limit)
    assert events == EVENTS
    assert reader.offset == len(content)


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"e":"st{"e":"start","t":1}',
        b'{"e":"note","text":"x',
        b"[1, 2]",
        b"17",
        b"\0\0\0\0\0\0",
        b'{"e":"a"},{"e":"b"}',
        b'{"e":[1',
        b"[" * 200_000,
    ],
)
def test_a_damaged_line_is_counted_and_its_neighbours_are_read(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode(EVENTS[:2]) + line + b"\n" + encode(EVENTS[2:]))
    reader = JournalReader(str(path))
    assert reader.read() == EVENTS
    assert reader.damaged == 1


def test_two_halves_of_a_broken_line_do_not_pass_for_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode(EVENTS[:1]) + b'{"e":"note","text":[1\n2]}\n' + encode(EVENTS[1:]))
    reader = JournalReader(str(path))
    assert reader.read() == EVENTS
    assert reader.damaged == 2


def test_empty_lines_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode(EVENTS[:1]) + b"\n\n" + encode(EVENTS[1:]))
    reader = JournalReader(str(path))
    assert (reader.read(), reader.damaged) == (EVENTS, 0)


def test_bytes_that_are_no_text_do_not_lose_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode(EVENTS[:1]) + b'{"e":"note","t":2,"text":"\xff\xfe"}\n')
    reader = JournalReader(str(path))
    note = reader.read()[1]
    assert note["text"].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert reader.damaged == 0


def test_a_line_longer_than_the_limit_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    long = {"e": "note", "t": 2.0, "text": "x" * 10_000}
    path.write_bytes(encode([HEADER, long, HEADER]))
    assert read_all(JournalReader(str(path)), 10) == [HEADER, long, HEADER]


def test_a_missing_file_has_no_events_yet(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    reader = JournalReader(str(path))
    assert reader.read() == []
    assert read_header(str(path)) is None
    path.write_bytes(encode(EVENTS))
    assert reader.read() == EVENTS


def test_a_file_that_became_shorter_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode(EVENTS))
    reader = JournalReader(str(path))
    reader.read()
    path.write_bytes(encode(EVENTS[:2]))
    assert reader.read() == EVENTS[:2]
    assert reader.restarted


@pytest.mark.parametrize("version", [JOURNAL_VERSION + 1, "2.0"])
def test_a_newer_journal_says_to_upgrade(tmp_path: Path, version: Any) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode([{**HEADER, "v": version}, *EVENTS[1:]]))
    for read in (JournalReader(str(path)).read, lambda: read_header(str(path))):
        with pytest.raises(JournalVersionError) as caught:
            read()
        message = str(caught.value)
        assert str(path) in message and "install a newer Windlass" in message
        assert f"version {version}" in message and f"version {JOURNAL_VERSION}\n" in message
        assert isinstance(caught.value, WindlassError)


def test_the_header_is_the_first_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(encode(EVENTS))
    assert read_header(str(path)) == HEADER
    path.write_bytes(encode(EVENTS)[:10])
    assert read_header(str(path)) is None


def test_journals_of_a_folder_are_found_by_name(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s a "folder"'
    assert journal_files(str(folder)) == []
    folder.mkdir()
    for name in ("b.jsonl", "a.jsonl", "a.reserve", ".clock-1"):
        (folder / name).touch()
    assert [writer_of(path) for path in journal_files(str(folder))] == ["a", "b"]


def test_a_figure_that_is_no_number_is_written_as_not_known() -> None:
    event = {
        "e": "beat",
        "live": {"3": {"p": [1.0, float("inf"), float("nan")], "m": ("x", 2)}},
        "text": "NaN",
    }
    assert json.loads(encode_event(event), parse_constant=pytest.fail) == {
        "e": "beat",
        "live": {"3": {"p": [1.0, None, None], "m": ["x", 2]}},
        "text": "NaN",
    }
