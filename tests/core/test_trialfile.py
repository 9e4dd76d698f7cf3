"""trials.jsonl and trials.idx: whatever is damaged, no trial is ever taken for another."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from windlass.bundle.trialwriter import TrialWriter
from windlass.core import trialfile
from windlass.core.damage import forget_reports
from windlass.core.errors import FolderError
from windlass.core.ids import id_number, trial_id
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile
from windlass.model import Trial

COUNT = 12


def make_trial(number: int) -> Trial:
    settings = {"lr": number / 10, "seed": number % 3}
    words = ["python", "train.py", "--lr", str(number / 10)]
    return Trial(trial_id(settings, "python train.py"), settings, (("main", tuple(words)),))


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    forget_reports()
    paths = StudyPaths(str(tmp_path / "study"))
    Path(paths.folder).mkdir()
    assert TrialWriter(paths, 0).write(map(make_trial, range(COUNT))) == COUNT
    return paths


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    left = set(os.listdir("/proc/self/fd")) - before
    assert not [
        name for name in left if "/study/trials" in os.path.realpath(f"/proc/self/fd/{name}")
    ]


@contextmanager
def opened(paths: StudyPaths) -> Iterator[TrialFile]:
    file = TrialFile(paths)
    try:
        yield file
    finally:
        file.close()


def read_all(paths: StudyPaths, count: int = COUNT) -> dict[int, str]:
    with opened(paths) as file:
        for number, trial in file.iterate(0, count):
            assert trial["settings"] == make_trial(number).settings
        return {number: str(trial["id"]) for number, trial in file.iterate(0, count)}


ALL = {number: make_trial(number).id for number in range(COUNT)}


def test_index_that_names_another_line_is_rebuilt(
    paths: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    index = Path(paths.trials_index)
    whole = index.read_bytes()
    entries = [whole[at : at + 16] for at in range(0, len(whole), 16)]
    swapped = b"".join([entries[1], entries[0], *entries[2:]])
    moved = (
        struct.pack("<QQ", *[struct.unpack("<QQ", entries[1])[0], id_number(ALL[0])]) + whole[16:]
    )
    for damaged in (
        swapped,
        moved,
        b"",
        whole[:-16],
        whole[:-5],
        b"\0" * len(whole),
        b"\xff" * len(whole),
        None,
    ):
        forget_reports()
        index.unlink()
        if damaged is not None:
            index.write_bytes(damaged)
        assert read_all(paths) == ALL
        assert "trials.idx" in capsys.readouterr().err
        with opened(paths) as trials:
            assert trials.read(0)["id"] == ALL[0]
    writer = TrialWriter(paths, COUNT)
    assert writer.write(map(make_trial, range(COUNT))) == COUNT
    assert writer.known() == [(0, COUNT)]
    assert index.read_bytes() == whole


def test_torn_lines_are_reported_and_written_anew(
    paths: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(paths.trials)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 4])
    known = read_all(paths)
    assert 0 < len(known) < COUNT
    assert known.items() <= ALL.items()
    assert (
        f"the lines of {COUNT - len(known)} trials are damaged or missing"
        in capsys.readouterr().err
    )
    with (
        pytest.raises(FolderError, match=r"the line of trial \d+ .*\n.*windlass run"),
        opened(paths) as trials,
    ):
        list(trials.iterate_lines(0, COUNT))
    writer = TrialWriter(paths, COUNT)
    assert writer.write(map(make_trial, range(COUNT))) == COUNT
    assert f"{COUNT - len(known)} could be written anew" in capsys.readouterr().err
    assert file.read_bytes() == whole


def test_line_that_no_trial_of_the_study_has_keeps_its_number(paths: StudyPaths) -> None:
    file = Path(paths.trials)
    file.write_bytes(
        file.read_bytes().replace(b'"lr":0.3', b'"lr":0.8')
    )  # valid JSON, and another setting
    assert read_all(paths) == {number: name for number, name in ALL.items() if number != 3}
    others = [number for number in range(COUNT + 2) if number != 3]
    for _ in range(2):
        writer = TrialWriter(paths, COUNT)
        assert writer.write(map(make_trial, others)) == COUNT + 2
        left = {number: make_trial(number).id for number in others}
        assert read_all(paths, COUNT + 2) == left
    writer = TrialWriter(paths, COUNT + 2)
    writer.write(map(make_trial, range(COUNT + 2)))
    assert len(read_all(paths, COUNT + 2)) == COUNT + 2


def test_both_files_gone_or_the_register_behind(paths: StudyPaths) -> None:
    writer = TrialWriter(paths, 5)  # the register has lost its newest state
    assert writer.write(map(make_trial, reversed(range(COUNT)))) == COUNT
    assert read_all(paths) == ALL
    Path(paths.trials).unlink()
    with pytest.raises(FolderError, match=r"trials\.jsonl: cannot be read"):
        TrialFile(paths)
    assert TrialWriter(paths, COUNT).write(map(make_trial, range(COUNT))) == COUNT
    assert read_all(paths) == ALL
    for path in (paths.trials, paths.trials_index):
        Path(path).write_bytes(b"")
    writer = TrialWriter(paths, COUNT)
    assert (
        writer.write(map(make_trial, range(3))) == COUNT + 3
    )  # numbers that journals have are not given away
    assert writer.known() == []


def test_lines_of_earlier_versions_are_read(paths: StudyPaths) -> None:
    lines = Path(paths.trials).read_bytes().splitlines(keepends=True)
    old = [b"{" + line[line.index(b'"id"') :] for line in lines]
    offsets = [sum(map(len, old[:number])) for number in range(COUNT)]
    Path(paths.trials).write_bytes(b"".join(old))
    pairs = zip(offsets, ALL.values(), strict=True)
    index = b"".join(struct.pack("<QQ", offset, id_number(name)) for offset, name in pairs)
    for damaged in (index, index[16:32] + index[:16] + index[32:], b""):
        Path(paths.trials_index).write_bytes(damaged)
        assert read_all(paths) == ALL
    # Without an index, what follows a damaged line has no number that is sure.
    Path(paths.trials).write_bytes(b"".join([*old[:4], old[4][:-1], *old[5:]]))
    assert read_all(paths) == {number: ALL[number] for number in range(4)}
    Path(paths.trials_index).write_bytes(index)
    assert read_all(paths) == {number: name for number, name in ALL.items() if number not in (4, 5)}


def test_no_damage_makes_one_trial_another(paths: StudyPaths) -> None:
    chance = random.Random(12)
    files = [Path(paths.trials), Path(paths.trials_index)]
    whole = [file.read_bytes() for file in files]
    for _ in range(40):
        for file, data in zip(files, whole, strict=True):
            file.write_bytes(damage(chance, data) if chance.random() < 0.6 else data)
        assert read_all(paths).items() <= ALL.items()  # which also compares the settings
        count = TrialWriter(paths, COUNT).write(map(make_trial, range(COUNT)))
        with opened(paths) as trials:
            ids = sorted(trials.read(number)["id"] for number, _ in trials.iterate(0, count))
        assert set(ids) == set(ALL.values())


def damage(chance: random.Random, data: bytes) -> bytes:
    """Truncate, flip some bytes, cut a piece out, or write a piece twice."""
    place, end = sorted(chance.randrange(len(data)) for _ in range(2))
    kind = chance.randrange(4)
    if kind == 0:
        return data[:place]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    return data[:place] + data[end:] if kind == 2 else data[:end] + data[place:]


def test_many_trials_are_read_in_the_order_of_their_numbers(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for near in (0, 3, 200):  # one by one, in pieces, all together
        monkeypatch.setattr(trialfile, "_NEAR", near)
        file = TrialFile(paths)
        found = list(file.read_many([7, 1, 2, 11, 7]))
        assert [(number, trial["id"]) for number, trial in found] == [
            (n, ALL[n]) for n in (1, 2, 7, 11)
        ]
        assert list(file.read_many([])) == []
        file.close()
    forget_reports()
    lines = Path(paths.trials).read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b"train.py", b"tr_in.py")
    Path(paths.trials).write_bytes(b"".join(lines))
    file = TrialFile(paths)
    assert [number for number, _ in file.read_many([4, 6])] == [4, 6]
    assert (
        not file.is_index_damaged
    )  # Lines that nobody wants are not compared: that would take most of the time.
    with pytest.raises(FolderError, match="the line of trial 5 is damaged"):
        list(file.read_many([4, 5, 6]))
    file.close()
