"""A trial that ends without an error and computes NaN does not work: `check` and `run --sample` find it."""

from __future__ import annotations

import io
import json
import math
import os
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project
from windlass.agent.keep.nan_files import describe, find_files, find_tensors
from windlass.agent.keep.tensors import look_through
from windlass.agent.report.nan_lines import find_not_finite

NAN, INF = math.nan, math.inf
PRINTS = """
import sys
lr, x = float(sys.argv[1]), 1.0
for step in range(12):
    x = x - lr * 4 * x**3 if abs(x) < 1e90 else float("nan")
    print(f"step {step} loss={x}")
"""


def npy(values: list[float], kind: str = "<f4") -> bytes:
    code = {"f2": "e", "f4": "f", "f8": "d", "i8": "q"}[kind[1:]]
    header = repr({"descr": kind, "fortran_order": False, "shape": (len(values),)}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    data = struct.pack(f"{kind[0]}{len(values)}{code}", *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npz(**arrays: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in arrays.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def safetensors(**tensors: tuple[str, bytes]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (kind, raw) in tensors.items():
        width = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8}[kind]
        header[name] = {
            "dtype": kind,
            "shape": [len(raw) // width],
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def bad_tensors(path: Path, data: bytes) -> dict[str, tuple[int, int]]:
    path.write_bytes(data)
    seen = look_through(str(path))
    assert seen["skipped"] == ""
    return {tensor["tensor"]: (tensor["nan"], tensor["inf"]) for tensor in seen["bad"]}


class TestFormats:
    """Read without any framework. The files are laid out by hand: neither numpy nor safetensors is needed here."""

    def test_npy(self, tmp_path: Path) -> None:
        assert bad_tensors(tmp_path / "a.npy", npy([1.0, NAN, 2.0, INF])) == {"array": (1, 1)}
        assert bad_tensors(tmp_path / "b.npy", npy([1.0, 3e38, 3e38])) == {}, (
            "a large sum is no infinity"
        )
        assert bad_tensors(tmp_path / "c.npy", npy([1e308, 1e308, 1e308], "<f8")) == {}
        assert bad_tensors(tmp_path / "d.npy", npy([NAN], ">f8")) == {"array": (1, 0)}
        assert bad_tensors(tmp_path / "e.npy", npy([-INF, 1.0], "<f2")) == {"array": (0, 1)}

    def test_several_arrays_in_one_file(self, tmp_path: Path) -> None:
        data = npy([1.0]) + npy([7, 8], "<i8") + npy([NAN])
        assert bad_tensors(tmp_path / "model.eqx", data) == {"array 3": (1, 0)}

    def test_npz(self, tmp_path: Path) -> None:
        many = npy([0.5] * 3_000_001 + [NAN])  # more than one piece, and no multiple of one
        data = npz(w=many, n=npy([1, 2], "<i8"), b=npy([1.0]))
        assert bad_tensors(tmp_path / "a.npz", data) == {"w": (1, 0)}

    def test_safetensors(self, tmp_path: Path) -> None:
        data = safetensors(
            good=("F32", struct.pack("<2f", 1.0, 2.0)),
            f32=("F32", struct.pack("<2f", NAN, 2.0)),
            f16=("F16", struct.pack("<2e", 1.0, NAN)),
            bf16=("BF16", struct.pack("<3H", 0x3F80, 0x7FC0, 0x7F80)),  # 1, NaN, infinity
            e4m3=("F8_E4M3", bytes([0x38, 0x7F, 0x7E])),  # 1, NaN, 448
            e5m2=("F8_E5M2", bytes([0x3C, 0x7E, 0x7C])),  # 1, NaN, infinity
            whole=("I64", struct.pack("<q", -1)),
        )
        expected = {"f32": (1, 0), "f16": (1, 0), "bf16": (1, 1), "e4m3": (1, 0), "e5m2": (1, 1)}
        assert bad_tensors(tmp_path / "a.safetensors", data) == expected

    def test_kinds_of_numbers_that_are_not_known(self, tmp_path: Path) -> None:
        """The file is named as one that was not read, and what else is in it is looked through all the same."""
        wide = npy([1.0, NAN], "<f8").replace(b"'<f8'", b"'<f16'", 1)
        (tmp_path / "a.npy").write_bytes(wide)
        (tmp_path / "b.npz").write_bytes(npz(wide=wide, w=npy([NAN])))
        kind = safetensors(scale=("I64", b"12345678"), w=("F32", struct.pack("<f", NAN)))
        (tmp_path / "c.safetensors").write_bytes(kind.replace(b'"I64"', b'"F4X"'))
        alone, *both = [
            look_through(str(tmp_path / name)) for name in ("a.npy", "b.npz", "c.safetensors")
        ]
        assert "<f16" in alone["skipped"] and "no NaN" not in describe([alone], ["a.npy"])[0][1]
        assert "<f16" in both[0]["skipped"] and "F4X" in both[1]["skipped"]
        assert [seen["bad"][0]["tensor"] for seen in both] == ["w", "w"]

    @pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.safetensors", "a.pt", "a.h5", "a.pkl"])
    def test_what_cannot_be_read_is_skipped_with_the_reason(
        self, tmp_path: Path, name: str
    ) -> None:
        (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00\x10")
        assert look_through(str(tmp_path / name))["skipped"]

    def test_infinity_in_a_file_is_no_fault(self, tmp_path: Path) -> None:
        """Masks of attention hold it, and bounds that nothing has reached yet."""
        (tmp_path / "mask.npy").write_bytes(npy([-INF, 0.0]))
        (verdict, text), *more = describe([look_through(str(tmp_path / "mask.npy"))], ["mask.npy"])
        assert verdict == "note" and "no NaN in 1 file with 1 tensor" in text and not more

    def test_only_files_that_were_written_since(self, tmp_path: Path) -> None:
        for name in ("a.pt", ".git/b.pt", "c.txt", "d.pt.tmp", "deep/e.npz"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"x")
        begun = (tmp_path / "a.pt").stat().st_mtime
        assert sorted(Path(path).name for path in find_files([str(tmp_path)], begun, {})) == [
            "a.pt",
            "e.npz",
        ]
        assert find_files([str(tmp_path)], begun + 60, {}) == []
        before = find_tensors([str(tmp_path)])
        (tmp_path / "f.npy").write_bytes(b"x")
        assert [Path(path).name for path in find_files([str(tmp_path)], begun, before)] == ["f.npy"]


NOT_FINITE = {
    "loss nan": ("loss", NAN),
    "epoch 3: train/loss=nan acc=0.1": ("train/loss", NAN),
    '{"val_loss": NaN}': ("val_loss", NAN),
    "loss: tensor(nan, grad_fn=<MeanBackward0>)": ("loss", NAN),
    "|    value_loss        | nan      |": ("value_loss", NAN),
    "loss inf": ("loss", INF),
    "best loss: nan": ("loss", NAN),
}
FINITE = (
    "best loss: inf", "best_loss=inf", "grad_norm: inf", "error: information", "INFO loss=0.3", "missing=nan",
    "error in nan.py", "lossless nan", "loss 0.1 nanoseconds 3", "dropped 3 nan rows",
)  # fmt: skip


@pytest.mark.parametrize("line", [*NOT_FINITE, *FINITE])
def test_lines_that_report_nan(line: str) -> None:
    found = find_not_finite(line.encode())
    assert (found is None) == (line in FINITE)
    if found is not None:
        name, value = NOT_FINITE[line]
        assert found[0] == name and (
            found[1] == value or (math.isnan(found[1]) and math.isnan(value))
        )


STUDY = "command: python3 train.py {lr}\nparameters:\n  lr: [0.01, 0.02, 10]\n"


def trial_item(project: Project, code: int = 1) -> dict[str, Any]:
    said = project.json("check", "--json", "--on", "local", code=code)
    return next(item for item in said["items"] if item["name"] == "trial")


@pytest.mark.parametrize("named", ["", "metrics: [loss]\n"])
def test_check_fails_with_the_step_and_the_line(project: Project, named: str) -> None:
    project.write("train.py", PRINTS)
    project.write("study.yaml", STUDY.replace("[0.01, 0.02, 10]", "[10]") + named)
    item = trial_item(project)
    assert item["verdict"] == "fail" and "loss became nan at step 5" in item["why"]
    if not named:
        assert "'step 5 loss=nan'" in item["why"]
    project.write(
        "study.yaml", STUDY.replace("[0.01, 0.02, 10]", "[10]") + named + "on_nan: ignore\n"
    )
    assert trial_item(project)["verdict"] == "pass"


def test_a_sample_names_the_setting_that_diverges(project: Project) -> None:
    project.write("train.py", PRINTS)
    project.write("study.yaml", STUDY)
    ended = project.run("run", "--on", "local", "--sample", "3", code=1)
    assert "trial 2 (lr=10): loss became nan at step 5" in ended.stderr
    assert [row["cause"] for row in project.json("results", "--json")] == [
        "done",
        "done",
        "diverged",
    ]
    assert project.run("run", "--on", "local").returncode == 0, (
        "a whole study goes on as `on_nan: warn` says"
    )
    assert [row["cause"] for row in project.json("results", "--json")] == ["done", "done", "done"]


@pytest.mark.parametrize("more", ["", "outputs: [model.npy]\n"])
def test_a_file_counts_for_the_trial_that_wrote_it(project: Project, more: str) -> None:
    """Trials that save their model where they stand, in one folder or each in its own; the last one saves nothing."""
    data = {"bad": npy([NAN]).hex(), "good": npy([1.0]).hex()}
    project.write(
        "train.py",
        f"import sys\ndata = {data}\nif sys.argv[1] in data:\n"
        "    open('model.npy', 'wb').write(bytes.fromhex(data[sys.argv[1]]))\n",
    )
    project.write(
        "study.yaml",
        "command: python3 train.py {k}\nparameters: {k: [good, bad, none]}\nslots: 3\n" + more,
    )
    project.run("run", "--on", "local", "--sample", "3", code=1)
    causes = [row["cause"] for row in project.json("results", "--json")]
    assert causes == ["done", "diverged", "done"]


@pytest.mark.parametrize("more", ["", "outputs: ['results/*.json']\n"])
def test_the_reason_is_shown_and_young_files_of_others_are_not_blamed(
    project: Project, more: str
) -> None:
    """The file of a hand-made run is younger than a file server's clock may be wrong. One trial writes its own."""
    project.write(
        "train.py",
        "import sys, shutil\nif sys.argv[1] == 'b': shutil.copyfile('data.bin', 'own.npy')\n",
    )
    for name in ("by-hand.npy", "data.bin"):
        (project.folder / name).write_bytes(npy([NAN]))
    by_hand = project.folder / "by-hand.npy"
    os.utime(by_hand, (time.time() + 60, time.time() + 60))  # however slow this machine is
    project.write(
        "study.yaml", "command: python3 train.py {k}\nparameters: {k: [a, b]}\nslots: 1\n" + more
    )
    ended = project.run("run", "--on", "local", "--sample", "2", code=1)
    assert [row["cause"] for row in project.json("results", "--json")] == ["done", "diverged"]
    assert "trial 1 (k=b): own.npy holds NaN: array (1 of 1 numbers)" in ended.stderr
    assert "by-hand.npy" not in ended.stderr
    explained = project.run("explain", "1").stdout
    assert "own.npy holds NaN" in explained and (
        "wrote matches results/*.json" in explained
    ) == bool(more)


def test_checkpoints_of_a_sample_are_looked_through(project: Project) -> None:
    """Nothing is printed, and the exit code is 0: only the file tells. Also where the time was up."""
    project.write("good.npy", npy([1.0]).hex())
    project.write("bad.npy", npy([1.0, NAN]).hex())
    writes = (
        "import sys, os, time\nname = sys.argv[1] + '.npy'\nplace = os.environ['checkpoint_dir']\n"
    )
    writes += "os.makedirs(place, exist_ok=True)\ndata = bytes.fromhex(open(name).read())\n"
    writes += "open(os.path.join(place, 'step-1.npy'), 'wb').write(data)\n"
    project.write("train.py", writes)
    study = "command: python3 train.py {kind}\nparameters: {kind: [good, bad]}\n"
    project.write("study.yaml", study)
    ended = project.run("run", "--on", "local", "--sample", "2", code=1)
    assert "trial 1 (kind=bad): step-1.npy holds NaN: array (1 of 2 numbers)" in ended.stderr
    good, bad = project.json("results", "--json")
    assert (good["cause"], bad["cause"]) == ("done", "diverged")
    assert "no NaN in 1 file with 1 tensor" in project.run("explain", "0").stdout
    project.write("train.py", writes + "time.sleep(1000)\n")
    project.write("study.yaml", study.replace("[good, bad]", "[bad]"))
    said = project.json("check", "--json", "--on", "local", "--limit", "1", code=1)
    item = next(item for item in said["items"] if item["name"] == "trial")
    assert item["verdict"] == "fail" and "holds NaN" in item["why"]
