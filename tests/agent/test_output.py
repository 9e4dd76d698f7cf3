"""What becomes of a trial's output on its way to the log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.agent.report.metrics import Curve, MetricBook
from windlass.agent.report.output import OutputLog, Stream
from windlass.collect.output import OutputReader, last_lines
from windlass.core.journal.pieces import is_whole_entry, render_piece
from windlass.core.journal.write import AppendFile, DiskFull
from windlass.core.paths import StudyPaths


class Log:
    """A log in a folder, and what is read back from it."""

    def __init__(self, folder: Path) -> None:
        self.paths = StudyPaths(str(folder))
        (folder / "output").mkdir(exist_ok=True)
        for path in (folder / "output").iterdir():
            path.unlink()
        self.log = OutputLog(self.paths.output_of("a"), self.paths.output_index_of("a"))

    def stream(self, number: int = 0, limit: int = 1 << 30) -> Stream:
        return Stream(self.log, number, number, 1, limit, None)

    def read(self, number: int = 0) -> bytes:
        self.log.flush(1e9, force=True)
        return b"".join(
            piece.data for piece in OutputReader(self.paths, "a").read({number: number})
        )


def screen(data: bytes) -> list[bytes]:
    """What remains visible line by line when every carriage return wipes the line, and CRLF is a line end."""
    return [re.sub(rb"\r+$", b"", line).split(b"\r")[-1] for line in data.split(b"\n")]


@given(st.lists(st.binary(max_size=12), max_size=8), st.booleans())
@example([b"epoch 1: ", b"loss 0.5\r"], False)
def test_any_cut_of_the_same_bytes_shows_the_same(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], crs: bool
) -> None:
    if crs:
        parts = [part.replace(b"a", b"\r").replace(b"b", b"\n") for part in parts]
    log = Log(tmp_path_factory.getbasetemp())
    stream = log.stream()
    for when, part in enumerate(parts):
        if part:
            stream.feed(part, float(when))
        log.log.flush(float(when))
    stream.finish(1e6)
    whole = b"".join(parts)
    got = log.read()
    log.log.close()
    if b"\r" not in whole:
        assert got == whole
    else:
        assert screen(got) == screen(whole)


def test_streams_of_several_trials_are_told_apart(tmp_path: Path) -> None:
    log = Log(tmp_path)
    streams = [log.stream(number) for number in range(3)]
    for turn in range(50):
        for number, stream in enumerate(streams):
            stream.feed(f"{number}:{turn}\n".encode(), turn)
        log.log.flush(float(turn))
    for number, stream in enumerate(streams):
        stream.finish(99.0)
        assert log.read(number) == b"".join(f"{number}:{turn}\n".encode() for turn in range(50))


def test_a_bar_of_an_hour_leaves_little(tmp_path: Path) -> None:
    log = Log(tmp_path)
    stream = log.stream()
    for second in range(3600):
        stream.feed(f"\r{second}/3600 [####]".encode(), float(second))
        log.log.flush(float(second))
    stream.finish(3600.0)
    assert len(log.read()) < 4000 and log.read().endswith(b"3599/3600 [####]")


def test_line_without_an_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    """After a carriage return it was read again from its beginning with every piece: 65 MB took minutes."""
    log = Log(tmp_path)
    stream = log.stream()
    for when in range(40):
        stream.feed((b"" if when else b"\r") + b"y" * 65536, float(when))
        assert len(stream._bar) <= 2 * 65536
    stream.finish(100.0)
    assert log.read().strip(b"\r") == b"y" * 65536 * 40


def test_last_lines(tmp_path: Path) -> None:
    log = Log(tmp_path)
    stream = log.stream()
    stream.feed(b"".join(b"%d\n" % n for n in range(1000)), 0.0)
    stream.finish(1.0)
    log.read()
    assert last_lines(OutputReader(log.paths, "a").read({0: 0}), 2) == b"998\n999\n"


def test_append_is_all_or_nothing(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full")
    file = AppendFile(str(full), exclusive=False)
    with pytest.raises(DiskFull):
        file.write(b"x" * 100)
    assert file.size == 0


def test_summary_of_a_metric() -> None:
    book = MetricBook()
    for value in (float("nan"), 3.0, 1.0, float("nan"), 2.0):
        book.add("loss", value)
    assert book.to_json() == {"loss": [2.0, 1.0, 3.0, 5]}


def test_curves_stay_small() -> None:
    curve = Curve()
    assert sum(curve.keep(point / 1000) for point in range(1_000_000)) < 6000
    slow = Curve()
    assert all(slow.keep(point * 60.0) for point in range(100))


def test_an_entry_of_no_stream_is_damaged_whatever_its_checksum(tmp_path: Path) -> None:
    """One byte of a checksum fits by chance; `windlass logs` must not look for a stream 0."""
    head = render_piece("a", 0, 1.0, 0, 0, 1, b"text\n")
    assert is_whole_entry("a", head)
    for stream in (0, 4, 255):
        assert not is_whole_entry("a", render_piece("a", 0, 1.0, 0, 0, stream, b"text\n"))
