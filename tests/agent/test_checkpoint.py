"""Checkpoints: which one is whole, which one is the newest, and the words that tell a trial of it."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import pytest

from windlass.agent.child import Trial
from windlass.agent.config import AgentConfig
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.agent.keep.valid import find_damage, is_temporary
from windlass.core.errors import FolderError, InputError
from windlass.core.paths import StudyPaths
from windlass.core.planfile import decode_plan
from windlass.spec.load import load_study

PLAN: dict[str, Any] = {
    "version": 1, "name": "s", "slots": 1, "agents": 1, "cpus_per_slot": 1, "gpus": [], "gpus_per_slot": 0, "env": {},
    "seed_name": "seed", "timeout_s": None, "grace_s": 10.0, "retries": {}, "metric": None, "metrics": [],
    "on_nan": "warn", "outputs": [], "output_limit_bytes": 1000, "warm": {"mode": "off", "modules": []},
}  # fmt: skip


def make(tmp_path: Path, env: dict[str, str] | None = None, **said: Any) -> Checkpoints:
    places = {
        "workdir": str(tmp_path),
        "project_dir": str(tmp_path),
        "scratch_dir": str(tmp_path / "scratch"),
    }
    checkpoint = said if said else {"pattern": []}
    config = AgentConfig(decode_plan({**PLAN, **places, "checkpoint": checkpoint}))
    return Checkpoints(
        config, StudyPaths(str(tmp_path / "study")), env if env is not None else dict(os.environ)
    )


def trial(*stages: list[str], identity: str = "t1", **settings: Any) -> Trial:
    fields = {
        "id": identity,
        "stages": [["s", words] for words in stages or (["run"],)],
        "settings": settings,
    }
    return Trial(0, json.dumps(fields, separators=(",", ":")).encode())


def write(path: Path, data: bytes, age_s: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1e9 - age_s, 1e9 - age_s))
    return path


def archive(path: Path, age_s: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("weights/a", os.urandom(3000))
        file.writestr("weights/b", os.urandom(3000))
    os.utime(path, (1e9 - age_s, 1e9 - age_s))
    return path


def hdf5(version: int, size: int) -> bytes:
    """A superblock as the format's specification has it, and a body that makes the file `size` bytes long."""
    start = b"\x89HDF\r\n\x1a\n" + bytes([version])
    if version < 2:
        start += (
            bytes([0, 0, 0, 0, 8, 8, 0])
            + struct.pack("<HHI", 4, 16, 0)
            + (b"\1\0\0\0" if version else b"")
        )
    else:
        start += bytes([8, 8, 0])
    start += struct.pack("<QQQ", 0, 2**64 - 1, size)
    return start.ljust(size, b"\7")


def safetensors() -> bytes:
    header = json.dumps(
        {"a": {"dtype": "U8", "shape": [500], "data_offsets": [0, 500]}, "__metadata__": {}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + b"\1" * 500


def npz() -> bytes:
    numpy = pytest.importorskip("numpy")
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"windlass-test-{os.getpid()}.npz"
    numpy.savez(path, a=numpy.arange(1000))
    data = path.read_bytes()
    path.unlink()
    return data


WHOLE = {
    "a.h5": hdf5(0, 4000),
    "b.hdf5": hdf5(1, 4000),
    "c.h5": hdf5(2, 4000),
    "d.safetensors": safetensors(),
    "e.pkl": pickle.dumps({"weights": list(range(100))}),
}


class TestWhole:
    @pytest.mark.parametrize("name", WHOLE)
    def test_a_cut_is_seen_wherever_it_is(self, tmp_path: Path, name: str) -> None:
        data = WHOLE[name]
        assert find_damage(str(write(tmp_path / name, data))) == ""
        for length in (0, 1, 7, 40, len(data) // 2, len(data) - 1):
            assert find_damage(str(write(tmp_path / name, data[:length]))), (
                f"{length} of {len(data)} bytes"
            )

    @pytest.mark.parametrize("name", ["a.pt", "a.ckpt", "a.npz", "a.keras", "a.zip"])
    def test_archives(self, tmp_path: Path, name: str) -> None:
        data = archive(tmp_path / name).read_bytes()
        assert find_damage(str(tmp_path / name)) == ""
        for length in (0, 2, len(data) // 2, len(data) - 1):
            assert find_damage(str(write(tmp_path / name, data[:length]))), (
                f"{length} of {len(data)} bytes"
            )

    def test_numpy_s_own(self, tmp_path: Path) -> None:
        data = npz()
        assert find_damage(str(write(tmp_path / "a.npz", data))) == ""
        assert find_damage(str(write(tmp_path / "a.npz", data[:-30])))

    def test_an_old_pytorch_file_is_no_archive_and_fine(self, tmp_path: Path) -> None:
        assert find_damage(str(write(tmp_path / "a.pt", pickle.dumps(1) + b"raw storage"))) == ""

    def test_unknown_formats_by_their_size(self, tmp_path: Path) -> None:
        assert find_damage(str(write(tmp_path / "sim.state", b"x"))) == ""
        assert find_damage(str(write(tmp_path / "sim.state", b""))) == "is empty"

    def test_folders(self, tmp_path: Path) -> None:
        folder = tmp_path / "checkpoint-500"
        folder.mkdir()
        assert find_damage(str(folder)) == "is an empty folder"
        data = archive(folder / "model.pt").read_bytes()
        assert find_damage(str(folder)) == ""
        write(folder / "model.pt", data[:-5])
        assert "model.pt" in find_damage(str(folder))

    def test_names_of_what_is_being_written(self) -> None:
        assert all(
            map(
                is_temporary,
                ("a.pt.tmp", "a.pt~", "a.part", ".a.pt", "a.tmp-12.pt", "a.pt.partial"),
            )
        )
        assert not any(map(is_temporary, ("a.pt", "template.pt", "party.pt")))


class TestNewest:
    def test_by_time_and_never_a_damaged_one(self, tmp_path: Path) -> None:
        checkpoints, notes = make(tmp_path), []
        folder = tmp_path / "study" / "checkpoints" / "t1"
        assert checkpoints.newest(trial(), notes.append) == ""
        old = archive(folder / "z-1.pt", age_s=300)
        newer = archive(folder / "a-2.pt", age_s=200)
        cut = write(folder / "a-3.pt", newer.read_bytes()[:-50], age_s=100)
        write(folder / "a-4.pt.tmp", b"x")
        assert checkpoints.newest(trial(), notes.append) == str(newer)
        assert len(notes) == 1 and str(cut) in notes[0]
        newer.unlink()
        assert checkpoints.newest(trial(), notes.append) == str(old)

    def test_a_trial_never_sees_another_s(self, tmp_path: Path) -> None:
        archive(tmp_path / "study" / "checkpoints" / "t2" / "a.pt")
        assert make(tmp_path).newest(trial(), print) == ""
        shared = make(tmp_path, dir="ckpt/{lr}")
        folders = {
            shared.folder_of(trial(identity=name, lr=lr))
            for name, lr in (("t1", 1), ("t2", 1), ("t3", "../x"))
        }
        ends = {str(Path(folder).relative_to(tmp_path / "scratch" / "ckpt")) for folder in folders}
        assert {re.sub(r"/s-[0-9a-f]{8}/", "/STUDY/", end) for end in ends} == {
            "1/STUDY/t1",
            "1/STUDY/t2",
            ".._x/STUDY/t3",
        }

    def test_the_folder_s_variables_are_the_node_s(self, tmp_path: Path) -> None:
        checkpoints = make(
            tmp_path, {"PLACE": "/disk", "HOME": "/home/me"}, dir="${PLACE}/{trial_id}/c"
        )
        assert checkpoints.folder_of(trial()) == "/disk/t1/c"
        with pytest.raises(FolderError, match="NOWHERE"):
            make(tmp_path, {}, dir="$NOWHERE/c")

    def test_a_validator_has_the_last_word(self, tmp_path: Path) -> None:
        check = write(
            tmp_path / "check.py", b"import sys; sys.exit(open(sys.argv[1]).read() != 'good')"
        )
        checkpoints, notes = (
            make(tmp_path, validate=[sys.executable, str(check), "{checkpoint}"]),
            [],
        )
        folder = tmp_path / "study" / "checkpoints" / "t1"
        good = write(folder / "a.state", b"good", age_s=10)
        write(folder / "b.state", b"bad")
        assert checkpoints.newest(trial(), notes.append) == str(good)
        assert "exit code 1" in notes[0]
        nobody = make(tmp_path, validate=["/no/such/program"])
        assert nobody.newest(trial(), notes.append) == ""

    def test_only_the_newest_few_are_kept(self, tmp_path: Path) -> None:
        folder = tmp_path / "study" / "checkpoints" / "t1"
        for number in range(5):
            write(folder / f"{number}.state", b"x", age_s=-number)
        write(folder / "notes.txt", b"mine")
        make(tmp_path, keep=0).prune(trial())
        assert len(list(folder.glob("[!.]*"))) == 6
        make(tmp_path, keep=2).prune(trial())
        assert {path.name for path in folder.glob("[!.]*")} == {"3.state", "4.state", "notes.txt"}


class TestWords:
    SAID: ClassVar[dict[str, Any]] = {
        "resume": ["--load", "{checkpoint}"],
        "write": ["--save={checkpoint_dir}"],
    }

    def test_added_at_the_end(self, tmp_path: Path) -> None:
        checkpoints, one = make(tmp_path, **self.SAID), trial(["python", "t.py"])
        save = f"--save={checkpoints.folder_of(one)}"
        assert checkpoints.fill_in(one, 0, ["python", "t.py"], "") == ["python", "t.py", save]
        path = "/a b/it's {checkpoint}.pt"
        words = checkpoints.fill_in(one, 0, ["python", "t.py"], path)
        assert words == ["python", "t.py", save, "--load", path]

    def test_where_the_command_says(self, tmp_path: Path) -> None:
        checkpoints = make(tmp_path, **self.SAID)
        one = trial(["prepare"], ["python", "t.py", "{resume}", "--dir", "{checkpoint_dir}", "end"])
        folder = checkpoints.folder_of(one)
        first, second = (words for _, words in one.stages)
        assert checkpoints.fill_in(one, 0, first, "/c.pt") == ["prepare"]
        after = ["--dir", folder, "end", f"--save={folder}"]
        assert checkpoints.fill_in(one, 1, second, "/c.pt") == [
            "python",
            "t.py",
            "--load",
            "/c.pt",
            *after,
        ]
        assert checkpoints.fill_in(one, 1, second, "") == ["python", "t.py", *after]

    def test_an_option_without_a_checkpoint_is_left_out(self, tmp_path: Path) -> None:
        words = ["t", "--from", "{checkpoint}", "--from={checkpoint}", "-v"]
        checkpoints, one = make(tmp_path), trial(words)
        assert checkpoints.fill_in(one, 0, words, "") == ["t", "-v"]
        assert checkpoints.fill_in(one, 0, words, "/c") == ["t", "--from", "/c", "--from=/c", "-v"]

    def test_a_shell_reads_the_same_words(self, tmp_path: Path) -> None:
        checkpoints = make(tmp_path, resume=["--load", "{checkpoint}"])
        text = f"{shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))' a {{resume}} | cat"
        words, path = ["/bin/sh", "-c", text], """/a b/it's "$HOME" `x`.pt"""
        for checkpoint, expected in ((path, ["a", "--load", path]), ("", ["a"])):
            filled = checkpoints.fill_in(trial(words), 0, words, checkpoint)
            done = subprocess.run(filled, capture_output=True, text=True, check=True)
            assert json.loads(done.stdout) == expected


class TestProgress:
    def test_two_idle_turns_in_a_row(self, tmp_path: Path) -> None:
        folder = tmp_path / "study" / "checkpoints" / "t1"
        folder.mkdir(parents=True)

        def turn(step: float | None = None) -> int:
            return make(tmp_path).progress(trial(), step)  # each by another agent

        assert [turn(), turn()] == [1, 2]
        write(folder / "a.state", b"1")
        assert turn() == 0
        assert turn() == 1
        write(folder / "a.state", b"22", age_s=-5)
        assert turn() == 0
        assert [turn(5), turn(5), turn(6), turn(6), turn(3)] == [0, 1, 0, 1, 2]
        write(folder / "b.pt", b"PK cut", age_s=-9)
        assert turn() == 3, "a damaged checkpoint is no progress"


class TestWhose:
    """A folder of checkpoints knows whose it is, once a session of the trial has ended or gone on from one."""

    def exchange(self, tmp_path: Path) -> Path:
        root = tmp_path / "study" / "checkpoints"
        for old, new in (("t1", "t"), ("t2", "t1"), ("t", "t2")):
            (root / old).rename(root / new)
        return root

    @pytest.mark.parametrize("end", ["interrupted", "failed", "done", "agent killed"])
    def test_folders_that_were_exchanged(self, tmp_path: Path, end: str) -> None:
        trials = [trial(identity=name) for name in ("t1", "t2")]
        for one in trials:
            checkpoints = make(tmp_path, pattern=["*"])
            folder = Path(checkpoints.folder_of(one))
            folder.mkdir(parents=True)
            assert checkpoints.claim_folder(one) == "" and not os.listdir(folder), (
                "programs may expect an empty folder"
            )
            write(folder / "1.state", one.id.encode())
            if end == "interrupted":
                checkpoints.progress(one, 1)
            elif end == "failed":
                checkpoints.carry(one, False, 1.0, {})
            elif end == "done":
                checkpoints.prune(one)
            else:
                assert checkpoints.claim_folder(one) == "", "the next attempt goes on"
            assert checkpoints.claim_folder(one) == "" and checkpoints.newest(one, print) == str(
                folder / "1.state"
            )
            assert len(os.listdir(folder)) == 2, "one file more, whatever happens"
        root = self.exchange(tmp_path)
        text = make(tmp_path).claim_folder(trials[0])
        assert (
            f"{root / 't1'} had checkpoints of another trial, t2; they are not used, and are now in "
            in text
        )
        assert make(tmp_path).newest(trials[0], print) == ""
        (aside,) = root.glob("t1.of-t2-*")
        assert (aside / "1.state").read_bytes() == b"t2"

    def test_folders_of_earlier_versions(self, tmp_path: Path) -> None:
        folder = tmp_path / "study" / "checkpoints" / "t1"
        write(folder / "a.state", b"1")
        write(folder / ".windlass-turns.json", b'{"mark": null, "step": 7, "idle": 1}')
        checkpoints = make(tmp_path)
        assert checkpoints.claim_folder(trial()) == "" and checkpoints.newest(
            trial(), print
        ) == str(folder / "a.state")
        assert checkpoints.earlier(trial(), "a")["step"] == 7
        write(folder / ".windlass-turns.json", b"[]")
        assert checkpoints.claim_folder(trial()) == ""

    def test_times_of_another_trial_are_not_taken_over(self, tmp_path: Path) -> None:
        """Without `checkpoint:` in the study, sessions that follow each other have this file alone."""
        checkpoints = make(tmp_path)
        for name, spent_s in (("t1", 5.0), ("t2", 7.0)):
            checkpoints.carry(trial(identity=name), True, spent_s, {})
        assert checkpoints.earlier(trial(), "")["spent_s"] == 5.0
        self.exchange(tmp_path)
        assert "spent_s" not in checkpoints.earlier(trial(), "")


class TestStudyFile:
    def load(self, tmp_path: Path, text: str) -> Any:
        (tmp_path / "study.yaml").write_text(text)
        return load_study(str(tmp_path / "study.yaml"))

    def test_placeholders_alone_are_enough(self, tmp_path: Path) -> None:
        study = self.load(
            tmp_path, "command: t --dir {checkpoint_dir} --n {n}\nparameters: {n: [1]}\n"
        )
        assert study.checkpoint is not None
        assert self.load(tmp_path, "command: t --n {n}\nparameters: {n: [1]}\n").checkpoint is None

    def test_a_parameter_of_the_same_name_wins(self, tmp_path: Path) -> None:
        study = self.load(tmp_path, "command: t --resume {resume}\nparameters: {resume: ['yes']}\n")
        assert study.checkpoint is None

    def test_resume_without_words(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="resume"):
            self.load(tmp_path, "command: t {n} {resume}\nparameters: {n: [1]}\n")
