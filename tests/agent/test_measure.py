"""windlass measure from end to end on this machine, with real programs: what it finds, what it says, what it leaves."""

from __future__ import annotations

import json
import resource
import shlex
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.conftest import Project, processes_with, wait_for
from tests.measuring import Machine, put_mps
from windlass.agent.child import Trial
from windlass.agent.survey.alone import choose_other, leave_out_failing

# Steps as three kinds of program tell them.
STEPS = r"""
import sys, time
how, steps = sys.argv[1], 1000
for step in range(1, steps + 1):
    time.sleep(0.02)
    if how == "log":
        import windlass
        windlass.log(step=step, of=steps, loss=1 / step)
    elif how == "bar":
        share = step * 10 // steps
        print(f"\rtrain: {share * 10:3}%|{'#' * share:10}| {step}/{steps} [00:01<00:09, 50.0it/s]", end="", flush=True)
    elif how == "own":
        print(f"<{step}>", flush=True)
"""
MEMORY = r"""
import sys, time
kept = [bytearray(b"x") * (150 << 20)] if sys.argv[1] == "level" else []
for step in range(10_000):
    if sys.argv[1] == "grow":
        kept.append(bytearray(b"x") * (1 << 20))
    time.sleep(0.05)
    print(f"step {step + 1}/10000", flush=True)
"""


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def files_of(project: Project) -> list[Path]:
    return sorted((project.folder / ".windlass").rglob("*"))


def measured_files(project: Project) -> list[Path]:
    return [path for path in files_of(project) if path.name == "measured.json"]


def rounds_of(measured: dict[str, Any], mode: str = "plain") -> dict[int, dict[str, Any]]:
    return {one["k"]: one for one in measured["rounds"] if one["mode"] == mode}


def used_by_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class TestProgress:
    def test_by_log_and_by_a_bar(self, project: Project) -> None:
        project.write("steps.py", STEPS)
        project.write(
            "study.yaml",
            "command: python3 steps.py {how}\nparameters: {how: [log, bar]}\nvariants: [how]\n",
        )
        measured = project.json("measure", "--no-curve", "--trial-limit", "3s", "--json")
        assert sorted(probe["variant"] for probe in measured["probes"]) == [["bar"], ["log"]]
        for probe in measured["probes"]:
            assert probe["steps"] == 1000, probe["variant"]
            low, middle, high = probe["step_s"]
            assert 0.02 <= middle < 0.06 and low <= middle <= high
            assert probe["time_s"][1] == pytest.approx(probe["startup_s"] + 1000 * middle, rel=0.01)
            assert 0 < probe["first_step_s"] < probe["ran_s"] and not probe["ended"]
        assert measured["rounds"] == [] and measured["choice"] is None
        assert [path.name for path in measured_files(project)] == ["measured.json"]
        assert not list((project.folder / ".windlass").glob(".measuring*")), (
            "what was measured is gone"
        )

    def test_by_a_pattern_of_ones_own(self, project: Project) -> None:
        project.write("steps.py", STEPS)
        project.write(
            "study.yaml",
            "command: python3 steps.py own {steps}\nparameters: {steps: [1000]}\n"
            "progress: {pattern: '<(?P<step>\\d+)>', steps: '{steps}'}\n",
        )
        (probe,) = project.json("measure", "--trial-limit", "2s", "--json")["probes"]
        assert probe["steps"] == 1000 and probe["time_s"][1] > 20

    def test_without_any_whole_trials_are_measured(
        self, project: Project, machine: Machine
    ) -> None:
        machine.give(project, cores=2, gpu=None)
        project.write(
            "study.yaml", "command: sleep {s}\nparameters: {s: [0.3, 0.31, 0.32, 0.33]}\n"
        )
        measured = project.json("measure", "--json", "--plot", "curve.svg")
        assert ElementTree.parse(project.folder / "curve.svg").getroot().tag.endswith("svg")
        assert all(probe["ended"] and probe["step_s"] is None for probe in measured["probes"])
        assert [probe["time_s"][1] >= probe["settings"]["s"] for probe in measured["probes"]] == [
            True,
            True,
        ]
        rounds = rounds_of(measured)
        assert sorted(rounds) == [1, 2]
        for k, one in rounds.items():
            assert one["trials_per_h"] == pytest.approx(k * 3600 / one["trial_s"], rel=0.01)
            assert one["rate"] * 3600 == pytest.approx(one["trials_per_h"], rel=0.1), (
                "without steps it is of trials"
            )
        assert measured["choice"]["k"] == 2 and measured["choice"]["gain"] > 1.5

    def test_neither_progress_nor_an_end(self, project: Project) -> None:
        project.write("study.yaml", "command: sleep {s}\nparameters: {s: [1000, 2000]}\n")
        before_s = used_by_children_s()
        done = project.run("measure", "--trial-limit", "3s")
        assert used_by_children_s() - before_s < 4, (
            "while trials of 6 s are watched, the agent does not"
        )
        assert "how many share a device best cannot be found" in done.stdout
        assert "progress:" in done.stdout
        assert not processes_with(str(project.folder))


class TestMemory:
    def test_one_that_grows_and_one_that_has_levelled_out(self, project: Project) -> None:
        project.write("memory.py", MEMORY)
        project.write(
            "study.yaml", "command: python3 memory.py {how}\nparameters: {how: [grow, level]}\n"
        )
        done = project.run("measure", "--no-curve", "--trial-limit", "5s")
        assert (
            "memory is still growing at" in done.stdout and "the peak is not reached" in done.stdout
        )
        (path,) = measured_files(project)
        probes = {
            probe["settings"]["how"]: probe for probe in json.loads(path.read_text())["probes"]
        }
        assert probes["level"]["growing_mb_per_min"] is None and probes["level"]["levelled"]
        assert 150 <= probes["level"]["memory_mb"] <= 165
        assert probes["level"]["says"] == []
        # 20 MB a second where the machine keeps up.
        assert 200 < probes["grow"]["growing_mb_per_min"] <= 1300 and not probes["grow"]["levelled"]
        assert len(probes["grow"]["says"]) == 1


class TestWhatGoesWrong:
    def test_a_trial_that_fails_at_once_is_shown_and_nothing_is_written(
        self, project: Project
    ) -> None:
        project.write(
            "bad.py",
            "import sys\nprint('reading', sys.argv[1])\nsys.exit('no such dataset: cifar')\n",
        )
        project.write("study.yaml", "command: python3 bad.py {x}\nparameters: {x: [1, 2]}\n")
        done = project.run("measure", code=1)
        assert "(x=2) ended with exit code 1" in done.stderr
        assert "    reading 2\n" in done.stderr and "    no such dataset: cifar\n" in done.stderr
        assert "Traceback" not in done.stderr and done.stdout == ""
        assert measured_files(project) == []

    def test_an_end_of_the_grid_that_diverges_is_replaced(self, project: Project) -> None:
        project.write("t.py", "import sys\nif sys.argv[1] == '8': sys.exit('loss exploded')\n")
        project.write(
            "study.yaml", "command: python3 t.py {lr} {h}\nparameters: {lr: [1, 2, 8], h: [1, 2]}\n"
        )
        done = project.run("measure")
        assert "lr=8 h=2 did not work (failed) and was not measured" in done.stdout
        (path,) = measured_files(project)
        measured = json.loads(path.read_text())
        assert (
            8 not in [probe["settings"]["lr"] for probe in measured["probes"]]
            and len(measured["probes"]) == 2
        )
        assert measured["rounds"] and not [one["note"] for one in measured["rounds"] if one["note"]]

    def test_what_takes_the_place_of_a_trial_that_failed(self) -> None:
        def trial(number: int, **settings: Any) -> Trial:
            line = json.dumps(
                {"id": f"t{number}", "stages": [], "settings": settings}, separators=(",", ":")
            )
            return Trial(number, line.encode())

        bad, good = trial(0, lr=8, h=2, mb=1), trial(1, lr=1, h=2, mb=1)
        spare = [trial(2, lr=8, h=1, mb=1), trial(3, lr=2, h=2, mb=2), trial(4, lr=2, h=2, mb=1)]
        assert choose_other(bad, spare, [good], [bad], ["mb"]) is spare[2], (
            "of the same variant, and not with lr=8"
        )
        assert choose_other(bad, spare[:1], [good], [bad], ["mb"]) is spare[0], "better than none"
        assert choose_other(bad, spare[1:2], [good], [bad], ["mb"]) is None
        assert leave_out_failing(spare, [good], [bad], ["mb"]) == spare[1:]
        assert (
            leave_out_failing(spare, [good], [], [])
            == spare
            == leave_out_failing(spare, [], [*spare], [])
        )

    def test_a_program_that_is_not_there(self, project: Project) -> None:
        project.write("study.yaml", "command: nosuchprogram {x}\nparameters: {x: [1, 2]}\n")
        assert "there is no program nosuchprogram in PATH" in project.run("measure", code=2).stderr

    def test_what_was_measured_before_stays_when_it_fails_now(self, project: Project) -> None:
        project.write("study.yaml", "command: sh work.sh {x}\nparameters: {x: [1]}\n")
        project.write("work.sh", "sleep 0.1\n")
        project.run("measure")
        (path,) = measured_files(project)
        before = path.read_text()
        project.write("work.sh", "kill -KILL $$\n")
        assert "killed" in project.run("measure", code=1).stderr
        assert path.read_text() == before

    def test_one_that_fails_only_in_company(self, project: Project, machine: Machine) -> None:
        machine.give(project, cores=4, gpu=None)
        project.write("alone.sh", "sleep 0.2; exec 9>>lock; flock -n 9 || exit 3; sleep 0.2\n")
        project.write("study.yaml", "command: sh alone.sh {x}\nparameters: {x: [1, 2, 3, 4, 5]}\n")
        measured = project.json("measure", "--json")
        rounds = rounds_of(measured)
        assert rounds[1]["note"] == "" and "ended early: failed" in rounds[2]["note"]
        assert sorted(rounds) == [1, 2] and measured["choice"]["k"] == 1

    def test_ctrl_c_ends_everything_and_writes_nothing(self, project: Project) -> None:
        project.write(
            "deaf.sh", "trap '' TERM INT\necho started > began\nwhile :; do sleep 0.1; done\n"
        )
        project.write(
            "study.yaml", "command: sh deaf.sh {x}\nparameters: {x: [1, 2]}\ncode: live\n"
        )
        measuring = project.start("measure")
        wait_for((project.folder / "began").exists)
        assert (
            "another measurement of this study is under way"
            in project.run("measure", code=2).stderr
        )
        measuring.send_signal(signal.SIGINT)
        _, errors = measuring.communicate(timeout=180)
        assert measuring.returncode == 130 and "Traceback" not in errors
        assert not processes_with(str(project.folder))
        assert measured_files(project) == []
        assert not list((project.folder / ".windlass").glob(".measuring*"))

    def test_one_that_does_not_listen_is_killed_when_enough_is_known(
        self, project: Project
    ) -> None:
        project.write(
            "deaf.py", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STEPS
        )
        project.write("study.yaml", "command: python3 deaf.py log {x}\nparameters: {x: [1]}\n")
        (probe,) = project.json("measure", "--trial-limit", "1s", "--json")["probes"]
        assert probe["cause"] == "" and not probe["ended"]
        assert not processes_with(str(project.folder))

    def test_too_little_time(self, project: Project) -> None:
        project.write("steps.py", STEPS)
        project.write("study.yaml", "command: python3 steps.py log {x}\nparameters: {x: [1, 2]}\n")
        done = project.run("measure", "--limit", "1s")
        assert "the time was up before it could be seen how many share a device best" in done.stdout
        assert len(measured_files(project)) == 1

    def test_what_there_was_no_time_for_is_named(self, project: Project) -> None:
        project.write("steps.py", STEPS)
        project.write(
            "study.yaml",
            "command: python3 steps.py log {mb} {x}\nparameters: {mb: [1, 2, 3, 4, 10], x: [1, 2]}\nvariants: mb\n",
        )
        done = project.run("measure", "--limit", "1s")
        assert "the time was up before mb=4, mb=3, mb=2 and 2 more could be measured" in done.stdout

    def test_gpu_memory_that_ran_out_is_no_measurement(self, project: Project) -> None:
        project.write(
            "out.py", "import sys\nsys.exit('torch.OutOfMemoryError: CUDA out of memory')\n"
        )
        project.write("study.yaml", "command: python3 out.py {x}\nparameters: {x: [1, 2]}\n")
        done = project.run("measure", code=1)
        assert "nothing could be measured: trial" in done.stderr
        assert "ended with exit code 1: gpu out of memory; it printed last:" in done.stderr
        assert done.stdout == "" and measured_files(project) == []

    def test_gpu_memory_that_ran_out_for_one_of_them(self, project: Project) -> None:
        project.write(
            "out.py", "import sys\nif sys.argv[1] == '2': sys.exit('CUDA out of memory')\n"
        )
        project.write(
            "study.yaml", "command: python3 out.py {x}\nparameters: {x: [1, 2]}\nvariants: x\n"
        )
        assert "x=2: it ended by itself: gpu out of memory" in project.run("measure").stdout
        assert "not measured: x=2, given what the largest one took" in project.run("plan").stderr

    @pytest.mark.parametrize("words", [("--limit", "soon"), ("--trial-limit", "-3")], ids=str)
    def test_a_limit_that_is_none(self, project: Project, words: tuple[str, str]) -> None:
        project.write("study.yaml", "command: sleep {x}\nparameters: {x: [1]}\n")
        assert "hint:" in project.run("measure", *words, code=2).stderr


class TestWhatItLeaves:
    def test_the_study_itself_is_not_touched(self, project: Project) -> None:
        project.write(
            "steps.py",
            "import sys, windlass\nwindlass.log(step=1, loss=float(sys.argv[1]))\nprint('hello')\n",
        )
        project.write("study.yaml", "command: python3 steps.py {x}\nparameters: {x: [1, 2, 3]}\n")
        project.run("run", "--sample", "1", "--quiet")
        kept = {path: path.read_bytes() for path in files_of(project) if path.is_file()}
        results = project.run("results", "--json").stdout
        project.run("measure", "--no-curve")
        after = {path: path.read_bytes() for path in files_of(project) if path.is_file()}
        (measured,) = measured_files(project)
        assert after.pop(measured) and measured.parent == project.study_folder()
        assert after == kept
        assert project.run("results", "--json").stdout == results
        assert project.counts() == {"done": 1, "waiting": 2}

    def test_before_the_study_was_ever_run(self, project: Project) -> None:
        project.write("study.yaml", "command: sleep 0.{x}\nparameters: {x: [1, 2]}\n")
        project.run("measure", "--no-curve")
        plan = project.json("plan", "--json")
        assert plan["settings"]["memory_mb"]["source"].startswith("measured (")
        project.run("run", "--quiet")
        assert project.counts() == {"done": 2}

    def test_a_single_trial_json_and_plot(self, project: Project) -> None:
        project.write("study.yaml", "command: sleep 0.{x}\nparameters: {x: [2]}\n")
        measured = project.json("measure", "--json")
        assert (
            len(measured["probes"]) == 1 and measured["rounds"] == [] and measured["choice"] is None
        )
        done = project.run("measure", "--plot", "curve.svg")
        assert "nothing to draw" in done.stderr and not (project.folder / "curve.svg").exists()


class TestCurve:
    def study(
        self, project: Project, steps: int, width: float, width_mps: int = 1, more: str = ""
    ) -> None:
        """Alike but for their seed: one of them is looked at alone."""
        project.write(
            "study.yaml",
            f"command: python3 crowd.py {steps} 0.02 {width} {width_mps} 1000 {{seed}}\nseeds: 10\n{more}",
        )

    def test_long_trials_without_a_gpu(self, project: Project, machine: Machine) -> None:
        """Two at a time are as fast as one, and 4 bring what 2 do: a look in between, and 2 it is."""
        machine.give(project, cores=8, gpu=None)
        self.study(project, 5000, width=2)
        measured = project.json("measure", "--json")
        assert len(measured["probes"]) == 1
        rounds = rounds_of(measured)
        assert list(rounds) == [1, 2, 4, 3]
        for k in (2, 4, 3):
            assert rounds[k]["rate"] / rounds[1]["rate"] == pytest.approx(2, rel=0.1), k
            assert rounds[k]["trials_per_h"] / rounds[1]["trials_per_h"] == pytest.approx(
                2, rel=0.1
            ), k
        choice = measured["choice"]
        assert (choice["k"], measured["cores"], measured["device"]) == (2, 8, None)
        assert (choice["slowdown"], choice["gain"]) == (
            pytest.approx(1, abs=0.1),
            pytest.approx(2, rel=0.1),
        )

    def test_gpu_memory_says_how_many_fit_and_mps_is_tried(
        self, project: Project, machine: Machine
    ) -> None:
        machine.give(project, cores=8, total_mb=3500)
        put_mps(project)
        self.study(project, 5000, width=1, width_mps=8, more="needs: {gpus: 1}\n")
        measured = project.json("measure", "--json")
        device = {"name": "NVIDIA Fake", "memory_mb": 3500, "kind": "gpu", "type": ""}
        assert measured["device"] == device
        (probe,) = measured["probes"]
        assert (probe["gpu_mb"], probe["gpu_source"], probe["gpu_percent"]) == (1000, "process", 30)
        assert list(rounds_of(measured)) == [1, 2]
        with_mps = rounds_of(measured, "mps")
        assert list(with_mps) == [2, 3], "three of 1000 MB fit 3500 MB"
        assert with_mps[3]["gpu_mb"] == 3000
        assert (measured["choice"]["k"], measured["choice"]["mode"]) == (3, "mps")
        assert "3500 MB of GPU memory" in measured["choice"]["because"]
        assert measured["warnings"] == []
        assert not [
            pid
            for pid in processes_with("WINDLASS_MPS=")
            if str(project.folder) in environment(pid)
        ]

    def test_of_variants_the_smallest_is_put_side_by_side(
        self, project: Project, machine: Machine
    ) -> None:
        """Two of 2500 MB fit 5500 MB; how many small ones pay is another question."""
        machine.give(project, cores=4, total_mb=5500)
        command = "python3 crowd.py 5000 0.02 8 8 {mb} {seed}"
        project.write(
            "study.yaml",
            f"command: {command}\nparameters: {{mb: [500, 2500]}}\nseeds: 6\nvariants: [mb]\nneeds: {{gpus: 1}}\n",
        )
        measured = project.json("measure", "--json", "--mps", "off")
        assert [(probe["variant"], probe["gpu_mb"]) for probe in measured["probes"]] == [
            ([2500], 2500),
            ([500], 500),
        ]
        rounds = rounds_of(measured)
        assert list(rounds) == [1, 2, 4] and rounds[4]["gpu_mb"] == 4 * 500

    def test_one_that_somebody_ends_does_not_spoil_a_round(
        self, project: Project, machine: Machine
    ) -> None:
        machine.give(project, cores=2, gpu=None)
        program = (project.folder / "crowd.py").read_text()
        once = "import os, signal\nif os.environ['WINDLASS_ATTEMPT'] == '2': os.kill(os.getpid(), signal.SIGKILL)\n"
        project.write("crowd.py", once + program)
        self.study(project, 40, width=2)
        assert all(not one["note"] for one in project.json("measure", "--json")["rounds"])

    def test_mps_that_is_not_there_and_latency(self, project: Project, machine: Machine) -> None:
        machine.give(project, cores=2)
        self.study(project, 5000, width=1.5, more="needs: {gpus: 1}\n")
        measured = project.json("measure", "--json", "--prefer", "latency")
        assert measured["warnings"] == ["without MPS: nvidia-cuda-mps-control is not there"]
        assert [(one["mode"], one["k"]) for one in measured["rounds"]] == [
            ("plain", 1),
            ("plain", 2),
        ]
        assert rounds_of(measured)[2]["rate"] > 1.3 * rounds_of(measured)[1]["rate"]
        assert measured["choice"]["k"] == 1

    def test_a_slice_is_a_device_of_its_own_size(self, project: Project, machine: Machine) -> None:
        slice_name = "MIG-5c1ce000-0000-0000-0000-000000000000"
        machine.give(project, cores=2, gpu=slice_name)
        project.write(
            "crowd.py", (project.folder / "crowd.py").read_text().replace("30 0 %s", "30 10 %s")
        )
        put_mps(project)
        self.study(project, 50, width=2, more="needs: {gpus: 1}\n")
        measured = project.json("measure", "--json", "--most-per-gpu", "1")
        assert (measured["device"]["kind"], measured["device"]["memory_mb"]) == ("mig", 10240)
        assert measured["probes"][0]["gpu_mb"] == 1000
        assert measured["warnings"] == [f"without MPS: {slice_name} is a slice of a GPU"]


def environment(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


TORCH = """
__version__ = "2.9.0"
class version: cuda = {cuda}
class cuda:
    is_available = staticmethod(lambda: {devices} > 0)
    is_initialized = staticmethod(lambda: False)
    get_device_name = staticmethod(lambda number: "GPU")
    init = staticmethod(lambda: 1 / {devices})
    device_count = staticmethod(lambda: {devices})
"""
COMPUTES = """
class Tensor:
    def __mul__(self, other): return self
    def sum(self): return 16.0
ones = lambda count, device: Tensor()
"""


class TestAGpuThatNobodyTouches:
    @pytest.mark.parametrize(
        ("cuda", "devices", "likely"),
        [
            (None, 0, "torch 2.9.0 sees 0 devices: it is a CPU-only build"),
            ("'12.8'", 0, "torch 2.9.0 sees 0 devices: division by zero"),
            ("'12.8'", 1, "the framework sees the GPU: the program does not use it"),
        ],
        ids=["no CUDA", "no device", "not used"],
    )
    def test_is_said_with_the_likely_reason(
        self, project: Project, machine: Machine, cuda: str | None, devices: int, likely: str
    ) -> None:
        machine.give(project, cores=2)
        project.write("torch.py", TORCH.format(cuda=cuda, devices=devices) + COMPUTES)
        project.write("train.py", "import time, torch\ntime.sleep(1.5)\n")
        project.write(
            "study.yaml", "command: python3 train.py {x}\nparameters: {x: [1]}\nneeds: {gpus: 1}\n"
        )
        project.env["PYTHONPATH"] = str(project.folder)
        done = project.run("measure")
        assert "it was given a GPU and never touched it" in done.stdout
        assert f"likely because {likely}" in done.stdout

    def test_without_a_framework_there_is_no_guess(
        self, project: Project, machine: Machine
    ) -> None:
        machine.give(project, cores=2)
        project.write(
            "study.yaml", "command: sleep 1.{x}\nparameters: {x: [5]}\nneeds: {gpus: 1}\n"
        )
        (probe,) = project.json("measure", "--json")["probes"]
        assert probe["says"] == ["it was given a GPU and never touched it"] and probe["gpu_mb"] == 0

    def test_without_the_driver_there_are_no_figures(
        self, project: Project, machine: Machine
    ) -> None:
        machine.give(project, cores=2)
        project.env["WINDLASS_NVML"] = str(project.folder / "nothing.so")
        project.write(
            "study.yaml", "command: sleep 1.{x}\nparameters: {x: [5]}\nneeds: {gpus: 1}\n"
        )
        measured = project.json("measure", "--json")
        assert measured["warnings"][0].startswith("no figures of the GPU: ")
        assert measured["probes"][0]["says"] == [] and measured["device"] is None


def test_what_the_framework_says_stands_beside_the_drivers_figure(
    project: Project, machine: Machine
) -> None:
    machine.give(project, cores=2)
    torch = TORCH.format(cuda="'12.8'", devices=1).replace("lambda: False", "lambda: True")
    project.write(
        "torch.py", torch + "    max_memory_reserved = staticmethod(lambda device: 272 << 20)\n"
    )
    project.write("train.py", "import torch\n" + (project.folder / "crowd.py").read_text())
    project.env["PYTHONPATH"] = str(project.folder)
    project.write(
        "study.yaml",
        "command: python3 train.py 60 0.02 1 1 {mb}\nparameters: {mb: [1039]}\nneeds: {gpus: 1}\n",
    )
    (probe,) = project.json("measure", "--json")["probes"]
    assert (probe["gpu_mb"], probe["framework_mb"]) == (1039, 272)


RESUMES = r"""
import os, sys, time
import windlass
folder = os.environ["WINDLASS_CHECKPOINT_DIR"]
path = os.path.join(folder, "step.pt")
os.makedirs(folder, exist_ok=True)
begin = int(open(path).read()) if os.path.exists(path) else 0
with open(sys.argv[1], "a") as file:  # its working folder is its own
    file.write(f"{begin} ")
for step in range(begin, 20):
    time.sleep(0.02)
    with open(path, "w") as file:
        file.write(str(step + 1))
    windlass.log(step=step + 1, of=20)
"""


def test_what_goes_on_from_checkpoints_is_measured_from_its_beginning(
    project: Project, machine: Machine
) -> None:
    """Every round has the same trials: one that went on from its checkpoint would be done in no time."""
    machine.give(project, 2, gpu=None)
    project.write("resumes.py", RESUMES)
    began = project.folder.parent / "began"
    words = json.dumps(["python3", "resumes.py", str(began), "{seed}"])
    project.write("study.yaml", f"command: {words}\nseeds: 3\ncheckpoint: {{keep: 1}}\n")
    measured = project.json("measure", "--json")
    assert set(rounds_of(measured)) == {1, 2}
    assert set(began.read_text().split()) == {"0"}


def test_a_trial_that_showed_nothing_in_its_time_is_not_taken_at_its_word(project: Project) -> None:
    """It may still be about to begin: what it took so far is no peak, however level it was."""
    project.write("study.yaml", "command: sleep {s}\nparameters: {s: [300, 301]}\n")
    measured = project.json("measure", "--no-curve", "--trial-limit", "4s", "--json")
    for probe in measured["probes"]:
        assert not probe["levelled"] and not probe["ended"]
        assert "neither a step nor its end was seen in 4 s" in probe["says"][0]
    done = project.run("plan")
    assert "memory may not have reached the peak" in done.stderr and "GPU" not in done.stderr


def test_a_study_on_the_command_line_is_told_what_comes_next(project: Project) -> None:
    done = project.run("measure", "--no-curve", "--param", "s=[0.1,0.2]", "--", "sleep", "{s}")
    assert "next: the same arguments after `windlass plan`" in done.stdout
    assert (
        "measured (" in project.run("plan", "--param", "s=[0.1,0.2]", "--", "sleep", "{s}").stdout
    )


def test_what_comes_next_can_be_copied(project: Project) -> None:
    project.write("a study.yaml", "command: sleep 0.{s}\nparameters: {s: [1, 2]}\n")
    done = project.run(
        "measure", "a study.yaml", "--no-curve", "--folder", "my studies", "-e", "mine"
    )
    words = shlex.split(done.stdout.partition("next: ")[2].partition("   (")[0])
    assert words[0] == "windlass" and "measured (" in project.run(*words[1:]).stdout
    assert (project.folder / "my studies/mine/measured.json").exists()


def test_no_time_to_measure_is_refused(project: Project) -> None:
    project.write("study.yaml", "command: sleep {s}\nparameters: {s: [1]}\n")
    assert "nothing can be measured" in project.run("measure", "--limit", "0s", code=2).stderr


def test_where_the_plot_goes_is_looked_at_before_anything_is_measured(project: Project) -> None:
    project.write("study.yaml", "command: touch ran-{s}\nparameters: {s: [1]}\n")
    project.write("file", "")
    assert "this is a folder" in project.run("measure", "--plot", ".", code=2).stderr
    done = project.run("measure", "--plot", "none/x.svg", code=2)
    assert (
        f"there is no folder {project.folder / 'none'}" in done.stderr and "mkdir -p" in done.stderr
    )
    assert "there is no folder" in project.run("measure", "--plot", "file/x.svg", code=2).stderr
    assert (
        "leave one of them out"
        in project.run("measure", "--no-curve", "--plot", "x.svg", code=2).stderr
    )
    assert not list(project.folder.rglob("ran-1")) and not files_of(project)


def test_a_plot_that_cannot_be_written_costs_no_table(project: Project, machine: Machine) -> None:
    machine.give(project, cores=2, gpu=None)
    project.write("study.yaml", "command: sleep 0.1 {s}\nparameters: {s: [0, 0.01, 0.02, 0.03]}\n")
    (project.folder / "full.svg").symlink_to("/dev/full")
    done = project.run("measure", "--plot", "full.svg", code=2)
    assert "No space left" in done.stderr and "side by side" in done.stdout
