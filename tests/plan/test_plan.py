"""Plans are pure: slots from what a trial needs and a machine has, settings from four layers, folders, samples."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from windlass.bundle.folder import choose_sample
from windlass.bundle.zipapp import agent_sources, build_agent
from windlass.core.claims import ranges as rs
from windlass.core.errors import FolderError, InputError
from windlass.core.ids import id_number, id_number_stop
from windlass.core.paths import StudyPaths, find_project
from windlass.core.trialfile import TrialFile, append_trials
from windlass.model import Setting
from windlass.plan.evidence import Evidence
from windlass.plan.local import choose_host
from windlass.plan.settings import resolve_settings
from windlass.site.local import Gpu, Site, fetch_gpus

MACHINE = Site(cpus=8, memory_mb=16_000, gpus=(Gpu("0", 12_000), Gpu("1", 12_000)))


def settings(**needs: float) -> dict[str, Setting]:
    slots = needs.pop("slots", None)
    return resolve_settings({} if slots is None else {"slots": slots}, dict(needs), {}, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "needs,count",
    [
        ({}, 8),
        ({"cpus": 2}, 4),
        ({"cpus": 0.5}, 16),
        ({"memory_mb": 5_000}, 3),
        ({"cpus": 2, "memory_mb": 3_000}, 4),
        ({"gpus": 1}, 2),
        ({"gpus": 2}, 1),
        ({"gpus": 0.25, "cpus": 0.1}, 8),
        (
            {"gpus": 0.1, "gpu_memory_mb": 3_000, "cpus": 0.1},
            8,
        ),  # 12 GB, 3 a trial: 4 on each of the two
        ({"slots": 5, "gpus": 1}, 5),
    ],
)
def test_slots(needs: dict[str, float], count: int) -> None:
    assert choose_host(Evidence(settings(**needs)), MACHINE, 1000).slots.count == count


@pytest.mark.parametrize("where", ["command line", "site"])
def test_part_of_a_second_gpu_is_refused_wherever_it_is_asked_for(where: str) -> None:
    flags = {"gpus": 1.5} if where == "command line" else {}
    site = {"needs": {"gpus": 1.5}} if where == "site" else {}
    with pytest.raises(
        InputError, match=r"1\.5 is 1 and a part of another; write 2, or a fraction below 1"
    ):
        resolve_settings(flags, {}, site, "", {})


def test_slots_never_exceed_the_trials() -> None:
    assert choose_host(Evidence(settings()), MACHINE, 3).slots.count == 3


@pytest.mark.parametrize(
    "needs,word",
    [
        ({"memory_mb": 20_000}, "16000 MB"),
        ({"gpus": 3}, "2 GPUs"),
        ({"cpus": 9}, "8 cores"),
        ({"slots": 0}, "slots"),
    ],
)
def test_what_does_not_fit_is_refused(needs: dict[str, float], word: str) -> None:
    with pytest.raises(InputError, match=word):
        choose_host(Evidence(settings(**needs)), MACHINE, 10)


def test_no_gpu_here() -> None:
    with pytest.raises(InputError, match="shows none"):
        choose_host(Evidence(settings(gpus=1)), Site(cpus=2, memory_mb=1000), 10)


def test_all_problems_of_all_layers_at_once() -> None:
    with pytest.raises(InputError) as caught:
        resolve_settings(
            {"timeout": "soon", "memory": "7 apples"}, {}, {"grace": "x", "colour": 1}, "site.toml"
        )
    text = str(caught.value)
    for word in ("--timeout", "--memory", "grace", "colour", "site.toml"):
        assert word in text


def test_hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert fetch_gpus() == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,MIG-abc")
    assert [gpu.name for gpu in fetch_gpus()] == ["3", "MIG-abc"]


def test_samples_are_far_apart_and_always_the_same() -> None:
    chosen = list(rs.numbers(choose_sample([(5, 105)], 6)))
    assert len(chosen) == 6 and chosen[0] == 5 and chosen[-1] == 104
    assert chosen == list(rs.numbers(choose_sample([(5, 105)], 6)))
    assert rs.count(choose_sample([(0, 3)], 10)) == 3 and rs.count(choose_sample([(0, 1)], 2)) == 1


def test_the_nearest_mark_makes_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_project(str(deep)) == str(tmp_path), (
        "below the current folder, and no mark anywhere"
    )
    monkeypatch.chdir("/")
    (tmp_path / "a" / "pyproject.toml").touch()
    assert find_project(str(deep)) == str(tmp_path / "a")


def test_the_agent_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    assert build_agent() == build_agent()
    (tmp_path / "agent.pyz").write_bytes(build_agent())
    names = zipfile.ZipFile(tmp_path / "agent.pyz").namelist()
    assert {name for name, _ in agent_sources()} <= set(names) and "__main__.py" in names
    assert all(name.endswith(".py") for name in names), (
        "compiled code differs between installations of one version"
    )


def lines(*names: str) -> list[tuple[str, bytes]]:
    return [
        (f"t{name * 12}", f'{{"id":"t{name * 12}","stages":[],"settings":{{}}}}\n'.encode())
        for name in names
    ]


def test_what_a_killed_writer_left_is_cut_off(tmp_path: Path) -> None:
    paths = StudyPaths(str(tmp_path))
    assert append_trials(paths, 0, lines("b", "c")) == 2
    for path in (
        paths.trials,
        paths.trials_index,
    ):  # a writer died in the middle of its third trial
        with open(path, "ab") as file:
            file.write(b"torn")
    assert append_trials(paths, 2, lines("d")) == 3
    file = TrialFile(paths)
    assert [file.read(number)["id"][1] for number in range(3)] == ["b", "c", "d"]
    assert [number for number, _ in file.id_numbers(99)] == [0, 1, 2]
    with pytest.raises(FolderError, match="the line of trial 3"):
        file.read(3)
    file.close()


def test_ids_as_numbers_keep_their_order_and_beginnings() -> None:
    name = "tabc234567xyz"
    assert id_number(name) != id_number(name[:-1] + "a")
    for length in range(2, len(name) + 1):
        assert id_number(name[:length]) <= id_number(name) < id_number_stop(name[:length])
    assert os.path.isabs(StudyPaths(".").folder)


@pytest.mark.parametrize("word", ["safety", "cpus", "gpus", "slots"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_numbers_are_finite(word: str, value: str) -> None:
    with pytest.raises(InputError, match="is wanted"):
        resolve_settings({word: value}, {}, {}, "")
