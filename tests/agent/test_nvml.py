"""The reader of NVML against a fake library, built here and loaded the way the real one is."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import HERE
from windlass.agent.gauge import nvml
from windlass.agent.gauge.gpu_meter import GpuMeter
from windlass.agent.gauge.nvml import Nvml, NvmlError

COMPILER = shutil.which("cc") or shutil.which("gcc")
MB = 1024 * 1024

pytestmark = pytest.mark.skipif(
    COMPILER is None, reason="no C compiler (cc, gcc) to build the fake NVML with"
)


def build(folder: Path, *flags: str) -> str:
    target = folder / f"libfake{'-'.join(flags)}.so"
    source = HERE / "fake_nvml.c"
    command = [
        str(COMPILER),
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        *flags,
        "-o",
        str(target),
        str(source),
    ]
    subprocess.run(command, check=True)
    return str(target)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake(library: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment in which NVML is the fake one; more variables make it fail."""
    for name in [name for name in os.environ if name.startswith("FAKE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WINDLASS_NVML", library)
    return monkeypatch


def test_two_gpus_and_two_slices(fake: pytest.MonkeyPatch) -> None:
    with Nvml() as reader:
        assert reader.driver_version() == "550.54.15"
        whole, sliced = reader.devices()
    assert (whole.number, whole.name, whole.is_sliced, whole.slices) == (
        0,
        "NVIDIA Fake",
        False,
        (),
    )
    assert whole.uuid == "GPU-10000000-aaaa-bbbb-cccc-0123456789ab"
    assert (whole.total_bytes, whole.used_bytes) == (81920 * MB, 3000 * MB)
    assert sliced.is_sliced and not sliced.is_slice
    assert [(part.number, part.total_bytes, part.used_bytes) for part in sliced.slices] == [
        (0, 10240 * MB, 1000 * MB),
        (1, 10240 * MB, 1500 * MB),
    ]
    assert all(part.is_slice and part.uuid.startswith("MIG-") for part in sliced.slices)


def test_it_is_closed(fake: pytest.MonkeyPatch, library: str) -> None:
    same = ctypes.CDLL(library)
    with Nvml():
        assert same.fakeInitialised() == 1
    assert same.fakeInitialised() == 0


def test_an_older_driver_counts_its_own_reserve(fake: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Nvml(build(tmp_path, "-DNO_MEMORY_V2")) as reader:
        assert reader.memory(reader.devices()[0]) == (81920 * MB, 3500 * MB)


def test_utilisation_of_a_gpu_and_none_of_a_slice(fake: pytest.MonkeyPatch) -> None:
    with Nvml() as reader:
        whole, sliced = reader.devices()
        assert reader.utilisation(whole) == (87, 23)
        assert reader.utilisation(sliced.slices[0]) is None
        assert reader.process_utilisation(sliced.slices[0], 0) is None


@pytest.mark.parametrize(
    "flags", [(), ("-DNO_V3",), ("-DNO_V3", "-DNO_V2"), ("-DNO_MPS",)], ids=str
)
def test_processes_by_each_version_of_the_call(
    fake: pytest.MonkeyPatch, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    fake.setenv("FAKE_PROCESSES", "0/4001/3000/70 0/4002/500/20 0/4003/-1/0 10/5001/900/0")
    with Nvml(build(tmp_path, *flags)) as reader:
        found = reader.processes(reader.devices()[0])
    assert found == {4001: 3000 * MB, 4002: 500 * MB, 4003: None}


def test_entries_wider_than_their_name_says(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_STRIDE", "32")
    fake.setenv("FAKE_PROCESSES", "0/4001/3000/70 0/4002/500/20 0/4003/-1/0")
    with Nvml() as reader:
        assert reader.processes(reader.devices()[0]) == {
            4001: 3000 * MB,
            4002: 500 * MB,
            4003: None,
        }


def test_more_processes_than_there_was_room_for(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_PROCESSES", " ".join(f"0/{pid}/1/0" for pid in range(1000, 1200)))
    with Nvml() as reader:
        assert sorted(reader.processes(reader.devices()[0])) == list(range(1000, 1200))


def test_processes_under_mps_count(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_PROCESSES", "0/4000/60/0 0/4001/10/0")
    fake.setenv("FAKE_CLIENTS", "0/4001/700/0 0/4002/800/0")
    with Nvml() as reader:
        found = reader.processes(reader.devices()[0])
    assert found == {4000: 60 * MB, 4001: 700 * MB, 4002: 800 * MB}


def test_processes_of_a_slice_are_its_own(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_PROCESSES", "10/5001/900/0 11/5002/800/0 0/4001/100/0")
    with Nvml() as reader:
        sliced = reader.devices()[1]
        assert reader.processes(sliced) == {5001: 900 * MB, 5002: 800 * MB}
        assert reader.processes(sliced.slices[1]) == {5002: 800 * MB}
        fake.setenv("FAKE_LIST", "3")  # a slice that cannot be asked: its GPU is
        assert reader.processes(sliced.slices[1]) == {5002: 800 * MB}


def test_percent_by_process(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE_PROCESSES", "0/4001/3000/70 0/4002/500/20 0/4003/500/4294967")
    with Nvml() as reader:
        device = reader.devices()[0]
        assert reader.process_utilisation(device, 5000) == ({4001: 70.0, 4002: 20.0}, 6000)
        fake.setenv("FAKE_PROCESSES", "")
        assert reader.process_utilisation(device, 5000) == ({}, 5000)


@pytest.mark.parametrize(
    "visible,wanted",
    [
        ("0", ["GPU-1"]),
        ("1", ["MIG-5c1ce000-0000-0000-0000-000000000000"]),
        ("GPU-1", ["GPU-1"]),
        ("GPU-2", ["MIG-5c1ce000-0000-0000-0000-000000000000"]),
        ("MIG-5c1ce000-0000-0000-0000-000000000001", ["MIG-5c1ce000-0000-0000-0000-000000000001"]),
        ("MIG-5c1ce000", []),  # of two
        ("1,0", ["MIG-5c1ce000-0000-0000-0000-000000000000", "GPU-1"]),
        ("0,-1,1", ["GPU-1"]),
        ("7", []),
        ("NoDevFiles", []),
        ("", []),
        (None, ["GPU-1", "MIG-5c1ce000-0000-0000-0000-000000000000"]),
    ],
)
def test_devices_are_found_as_cuda_finds_them(
    fake: pytest.MonkeyPatch, visible: str | None, wanted: list[str]
) -> None:
    with Nvml() as reader:
        found = [device.uuid for device in reader.find(visible)]
    assert len(found) == len(wanted)
    assert all(uuid.startswith(begin) for uuid, begin in zip(found, wanted, strict=True))


@pytest.mark.parametrize(
    "code,kind",
    [
        (4, nvml.NO_PERMISSION),
        (9, nvml.NO_DRIVER),
        (12, nvml.NO_LIBRARY),
        (15, nvml.DEVICE_LOST),
        (18, nvml.DRIVER_MISMATCH),
        (999, nvml.FAILED),
    ],
)
def test_why_it_cannot_be_initialised(fake: pytest.MonkeyPatch, code: int, kind: str) -> None:
    fake.setenv("FAKE_INIT", str(code))
    with pytest.raises(NvmlError, match=f"fake words for {code}") as caught:
        Nvml()
    assert (caught.value.kind, caught.value.code) == (kind, code)


def test_no_library(fake: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake.setenv("WINDLASS_NVML", str(tmp_path / "none.so"))
    with pytest.raises(NvmlError, match=r"none\.so") as caught:
        Nvml()
    assert caught.value.kind == nvml.NO_LIBRARY


def test_no_gpu_and_hidden_gpus(fake: pytest.MonkeyPatch) -> None:
    with Nvml() as reader:
        fake.setenv("FAKE_COUNT", "0")
        with pytest.raises(NvmlError) as caught:
            reader.devices()
        assert caught.value.kind == nvml.NO_DEVICE
        fake.setenv("FAKE_COUNT", "1")
        fake.setenv("FAKE_HIDDEN", "0")
        with pytest.raises(NvmlError) as caught:
            reader.devices()
        assert caught.value.kind == nvml.NO_PERMISSION
        fake.setenv("FAKE_COUNT", "2")
        assert [device.number for device in reader.devices()] == [0], (
            "numbers are of those that can be seen"
        )


def test_a_gpu_that_is_lost_is_an_error_of_its_own(fake: pytest.MonkeyPatch) -> None:
    with Nvml() as reader:
        device = reader.devices()[0]
        fake.setenv("FAKE_MEMORY", "15")
        with pytest.raises(NvmlError) as caught:
            reader.memory(device)
        assert caught.value.kind == nvml.DEVICE_LOST


def test_each_trial_gets_its_own_processes(fake: pytest.MonkeyPatch) -> None:
    with Nvml() as reader:
        meter = GpuMeter(reader)
        meter.watch("a", "0")
        meter.watch("b", "0")
        fake.setenv("FAKE_PROCESSES", "0/4001/3000/70 0/4002/500/10 0/4003/250/5 0/9999/100/1")
        use = meter.read({"a": {4001}, "b": {4002, 4003}})
    assert (use["a"].memory_mb, use["a"].memory_source) == (3000, "process")
    assert (use["b"].memory_mb, use["b"].memory_source) == (750, "process")
    assert (use["a"].percent, use["b"].percent, use["b"].percent_source) == (70, 15, "process")


def test_what_the_driver_keeps_back_is_shared_out_beyond_the_baseline(
    fake: pytest.MonkeyPatch,
) -> None:
    fake.setenv("FAKE_USED_MB", "400")
    with Nvml() as reader:
        meter = GpuMeter(reader)
        meter.watch("a", "0")
        fake.setenv("FAKE_USED_MB", "1400")
        meter.watch("b", "0")  # the baseline is that of the empty GPU
        fake.setenv("FAKE_USED_MB", "2400")
        fake.setenv("FAKE_PROCESSES", "0/4001/-1/0 0/4002/-1/0")
        use = meter.read({"a": {4001}, "b": {4002}})
        assert [(use[trial].memory_mb, use[trial].memory_source) for trial in "ab"] == [
            (1000, "device")
        ] * 2
        meter.forget("b")
        assert meter.read({"a": {4001}})["a"].memory_mb == 2000


@pytest.mark.parametrize(
    "numbers_are_ours,wanted", [(True, (0, "process")), (False, (1000, "device"))]
)
def test_process_numbers_of_a_container_are_not_trusted(
    fake: pytest.MonkeyPatch, numbers_are_ours: bool, wanted: tuple[float, str]
) -> None:
    fake.setenv("FAKE_USED_MB", "400")
    with Nvml() as reader:
        meter = GpuMeter(reader)
        meter._numbers_are_ours = numbers_are_ours
        meter.watch("a", "0")
        fake.setenv("FAKE_USED_MB", "1400")
        fake.setenv("FAKE_PROCESSES", "0/7777/1000/50")
        use = meter.read({"a": {4001}})["a"]
        assert (use.memory_mb, use.memory_source) == wanted
        assert (use.percent, use.percent_source) == (87, "device"), "who took the time is not known"
        fake.setenv("FAKE_PROCESSES", "0/4001/950/50")  # a number that is ours after all
        assert meter.read({"a": {4001}})["a"].memory_mb == 950


def test_a_slice_is_measured_as_a_device_of_its_own(fake: pytest.MonkeyPatch) -> None:
    with Nvml() as reader:
        meter = GpuMeter(reader)
        meter.watch("a", "MIG-5c1ce000-0000-0000-0000-000000000001")
        fake.setenv("FAKE_PROCESSES", "10/5001/900/0 11/5002/800/0")
        use = meter.read({"a": {5001, 5002}})["a"]
    assert (use.memory_mb, use.memory_source, use.percent) == (800, "process", None)


def test_a_gpu_that_is_lost_costs_figures_and_nothing_else(fake: pytest.MonkeyPatch) -> None:
    with Nvml() as reader:
        meter = GpuMeter(reader)
        meter.watch("a", "0")
        fake.setenv("FAKE_MEMORY", "15")
        assert meter.read({"a": {4001}})["a"] == (None, None, None, None)
        assert "fell off the bus" in meter.problem
