"""A real agent whose trials share a GPU: budgets, MPS and its faults, memory that runs out. With stand-ins for both."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests import HERE
from tests.agent.test_mps import put_standin
from tests.conftest import Project, processes_with, wait_for
from windlass.core.claims.register import Register, RegisterFile
from windlass.core.journal.read import JournalReader
from windlass.core.planfile import decode_plan

GB = 1024

HEAD = """
import os, signal, subprocess, sys, time
n, attempt = int(sys.argv[1]), int(os.environ["WINDLASS_ATTEMPT"])
def wait_for(*names):
    deadline = time.monotonic() + 60
    while not all(map(os.path.exists, names)):
        if time.monotonic() > deadline: sys.exit(f"waited for {names}")
        time.sleep(0.01)
def touch(name): open(name, "w").close()
if not os.environ.get("CUDA_VISIBLE_DEVICES"): sys.exit()  # the first, which only makes the folder
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("nvml") / "libfake.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(path), str(HERE / "fake_nvml.c")], check=True
    )
    return str(path)


class Bench:
    """A study whose trials share GPU 0, and its agent."""

    def __init__(self, project: Project, library: str) -> None:
        self.project = project
        self.env = {**project.env, "PATH": put_standin(project.folder), "WINDLASS_NVML": library}

    def prepare(self, program: str, parameters: dict[str, list[Any]], **plan: Any) -> None:
        """A folder with all trials up for taking, and a plan as `plan` has it."""
        words = " ".join(f"{{{name}}}" for name in parameters)
        self.project.write("trial.py", HEAD + program)
        self.project.write(
            "study.yaml",
            f"command: {sys.executable} trial.py {words}\nparameters: {json.dumps(parameters)}\nwarm: off\n",
        )
        self.project.run("run", "--sample", "1")
        self.folder = self.project.study_folder()
        shutil.rmtree(self.folder / "journal")
        (self.folder / "journal").mkdir()
        self.change_register(lambda register: setattr(register, "todo", register.current))
        path = self.folder / "plan.json"
        given = json.loads(path.read_text())
        given.update(plan)
        path.write_bytes(decode_plan(given).encode())

    def change_register(self, change: Callable[[Register], None]) -> None:
        def apply(register: Register) -> Register:
            change(register)
            return register

        RegisterFile(str(self.folder / "claims"), "test").update(apply)

    def start(self) -> subprocess.Popen[str]:
        words = [sys.executable, str(self.folder / "agent.pyz"), str(self.folder)]
        return subprocess.Popen(
            words, env=self.env, cwd=self.project.folder, stderr=subprocess.PIPE, text=True
        )

    def run(self, code: int = 0) -> None:
        agent = self.start()
        _, said = agent.communicate(timeout=180)
        assert agent.returncode == code, (said, self.events())

    def events(self) -> list[dict[str, Any]]:
        return [
            event
            for path in (self.folder / "journal").glob("*.jsonl")
            for event in JournalReader(str(path)).read()
        ]

    def causes(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for event in self.events():
            if event["e"] == "end":
                found.setdefault(event["i"], []).append(event["cause"])
        return found

    def notes(self) -> str:
        return "\n".join(event["text"] for event in self.events() if event["e"] == "note")

    def learned(self) -> dict[str, Any]:
        """What is known of memory and MPS; what became of the first trials is left out."""
        learned = RegisterFile(str(self.folder / "claims"), "test").read().learned
        return {name: value for name, value in learned.items() if name != "first"}

    def most(self, size_of: Mapping[int, int] | None = None) -> int:
        """The most that was under way at a time: trials, or what they need."""
        used, most = 0, 0
        for event in self.events():
            if event["e"] in ("start", "end"):
                size = 1 if size_of is None else size_of[event["i"]]
                used += size if event["e"] == "start" else -size
                most = max(most, used)
        return most

    def company(self, trial: int, number: int) -> set[int]:
        """The trials that were under way during a trial's attempt number so and so."""
        ends = {event["n"]: event for event in self.events() if event["e"] == "end"}
        mine = [end for end in ends.values() if end["i"] == trial][number]
        return {
            end["i"]
            for end in ends.values()
            if end["start"] < mine["t"] and mine["start"] < end["t"]
        } - {trial}


@pytest.fixture
def bench(project: Project, library: str) -> Iterator[Bench]:
    made = Bench(project, library)
    yield made
    assert not processes_with(f"WINDLASS_FOLDER={made.folder}"), "processes were left behind"


def gpu(slots: int, **pack: Any) -> dict[str, Any]:
    return {
        "slots": slots,
        "gpus": ["0"],
        "gpus_per_slot": 1 / slots,
        "pack": {"a_gpu": slots, **pack},
    }


FAULTS = """
mine = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
if not mine: sys.exit()
assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
server = int(subprocess.run(["nvidia-cuda-mps-control"], input="client", text=True, capture_output=True).stdout)
touch(f"up-{attempt}")
company = [f"up-{attempt // 3 * 3 + other}" for other in range(3)]
if n in (0, 3):
    wait_for(*company)
    os.kill(server, signal.SIGUSR1)
    while os.path.exists(f"/proc/{server}"): time.sleep(0.01)
    sys.exit("x.cu:9: block: [0,0,0], thread: [0,0,0] Assertion `i < n` failed.\\nCUDA error: device-side assert triggered")
while os.path.exists(f"/proc/{server}"): time.sleep(0.01)
sys.exit("RuntimeError: CUDA error: MPS client terminated")
"""


def test_neighbours_of_a_fault_begin_again_and_the_second_fault_ends_mps(bench: Bench) -> None:
    bench.prepare(FAULTS, {"n": [0, 1, 2, 3]}, **gpu(3, mps=True))
    bench.run(code=1)
    assert bench.causes() == {
        0: ["failed"],
        3: ["failed"],
        1: ["neighbour's fault", "neighbour's fault", "done"],
        2: ["neighbour's fault", "neighbour's fault", "done"],
    }
    assert bench.learned() == {"mps_faults": 2, "mps_off": True}
    assert "without MPS for the rest of the study" in bench.notes()
    assert bench.project.counts() == {"done": 2, "failed": 2}


def test_a_fault_of_the_last_one_under_way_does_not_end_the_agent(bench: Bench) -> None:
    """Its GPU is closed for a moment, and nothing is held: what is left of the study is taken all the same."""
    program = FAULTS.replace("wait_for(*company)", "wait_for('up-0', 'up-1')")
    program = program.replace("mine = ", "if n == 2: sys.exit()\nmine = ")
    program = program.replace(
        'sys.exit("RuntimeError: CUDA error: MPS client terminated")', "time.sleep(0.3)"
    )
    pack = gpu(2, mps=True, gpu_memory_mb=12 * GB, budget={"gpu_mb": GB, "memory_mb": None})
    bench.prepare(program, {"n": [0, 1, 2]}, **pack)
    bench.run(code=1)
    assert sorted(bench.causes()) == [0, 1, 2]
    assert bench.project.counts() == {"done": 2, "failed": 1}


def test_who_comes_after_two_faults_does_not_start_mps(bench: Bench) -> None:
    bench.prepare(
        "sys.exit(3 if os.environ.get('CUDA_MPS_PIPE_DIRECTORY') else 0)",
        {"n": [0, 1]},
        **gpu(2, mps=True),
    )
    bench.change_register(lambda register: register.learned.update(mps_off=True))
    bench.run()
    assert bench.causes() == {0: ["done"], 1: ["done"]}


def test_mps_that_cannot_start_is_noted_and_done_without(bench: Bench) -> None:
    bench.env["FAKE_MPS"] = "refuse"
    bench.prepare(
        "sys.exit(3 if os.environ.get('CUDA_MPS_PIPE_DIRECTORY') else 0)",
        {"n": [0, 1]},
        **gpu(2, mps=True),
    )
    bench.run()
    assert (
        bench.notes().count(
            "GPU 0 is shared without MPS: An instance of this daemon is already running"
        )
        == 1
    )


def test_a_killed_agent_leaves_no_daemon(bench: Bench) -> None:
    bench.prepare("touch('began'); time.sleep(600)", {"n": [0, 1]}, **gpu(2, mps=True))
    agent = bench.start()
    wait_for((bench.project.folder / "began").exists)
    assert processes_with("WINDLASS_MPS=")
    agent.kill()
    agent.wait()
    wait_for(lambda: not processes_with(f"WINDLASS_FOLDER={bench.folder}"))


def test_two_variants_on_a_gpu_of_12_gb(bench: Bench) -> None:
    """Requirement C6, on a real agent: what is under way at any moment never needs more than the GPU has."""
    sizes = {"small": 2 * GB, "large": 5 * GB}
    budgets = [
        {"variant": [name], "gpu_mb": size, "memory_mb": None} for name, size in sizes.items()
    ]
    pack = gpu(
        6, variants=["algo"], gpu_memory_mb=12 * GB, budgets=budgets, budget={"gpu_mb": 12 * GB}
    )
    bench.prepare("time.sleep(0.15)", {"n": list(range(6)), "algo": ["small", "large"]}, **pack)
    bench.run()
    assert len(bench.causes()) == 12
    lines = (bench.folder / "trials.jsonl").read_text().splitlines()
    size_of = {
        number: sizes[json.loads(line)["settings"]["algo"]] for number, line in enumerate(lines)
    }
    assert bench.most(size_of) == 12 * GB


GPU_MEMORY = """
if n == 0 and attempt < 4:
    others = [name for name in os.listdir() if name.startswith("on-")]
    if attempt == 0: wait_for("on-1", "on-2")
    if attempt == 0 or others:
        touch(f"out-{attempt}")
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
else:
    touch(f"on-{n}")
    wait_for("out-0" if n == 1 else "out-3")
    os.unlink(f"on-{n}")
"""


def test_gpu_memory_that_runs_out_in_company(bench: Bench) -> None:
    """Three, then two, then alone: without using up retries, and learned for the rest of the study."""
    bench.prepare(GPU_MEMORY, {"n": [0, 1, 2]}, **gpu(3, gpu_memory_mb=12 * GB))
    bench.run()
    assert bench.causes() == {
        0: ["gpu out of memory", "gpu out of memory", "done"],
        1: ["done"],
        2: ["done"],
    }
    assert bench.company(0, 0) == {1, 2}
    assert bench.company(0, 1) == {2}
    assert bench.company(0, 2) == set()
    assert bench.learned() == {"budgets": [{"variant": [], "gpu_mb": 9216}]}
    assert bench.project.counts() == {"done": 3}


TOGETHER = """
if attempt < 4:
    touch(f"on-{n}")
    wait_for(*(f"on-{other}" for other in range(4)))
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
time.sleep(0.2)
"""


def test_all_that_run_out_at_once_teach_one_lesson(bench: Bench) -> None:
    """Four that fall together show that a quarter is too little, not that each needs a whole GPU."""
    pack = gpu(4, gpu_memory_mb=12 * GB, budget={"gpu_mb": 3 * GB, "memory_mb": None})
    bench.prepare(TOGETHER, {"n": list(range(4))}, **pack)
    bench.run()
    assert bench.causes() == {number: ["gpu out of memory", "done"] for number in range(4)}
    assert bench.learned() == {"budgets": [{"variant": [], "gpu_mb": 1.5 * 3 * GB}]}


def test_gpu_memory_that_runs_out_for_one_alone(bench: Bench) -> None:
    bench.prepare("sys.exit('CUDA out of memory')", {"n": [0]}, **gpu(3, gpu_memory_mb=12 * GB))
    bench.run(code=1)
    assert bench.causes() == {0: ["gpu out of memory"]}
    assert "alone on its GPU of 12 GB" in next(
        event["note"] for event in bench.events() if event["e"] == "end"
    )
    assert bench.learned() == {}


def test_without_a_gpu_its_memory_is_no_matter_of_company(project: Project) -> None:
    project.write("trial.py", "import sys\nsys.exit('CUDA out of memory')")
    project.write(
        "study.yaml", f"command: {sys.executable} trial.py {{n}}\nparameters: {{n: [0, 1, 2, 3]}}\n"
    )
    project.run("run", "--gpus", "0", "--slots", "2", code=1)
    (path,) = (project.study_folder() / "journal").glob("*.jsonl")
    ends = [event for event in JournalReader(str(path)).read() if event["e"] == "end"]
    assert [(end["cause"], end.get("note")) for end in ends] == [("gpu out of memory", None)] * 4


def test_memory_that_runs_out_for_one_alone(bench: Bench) -> None:
    bench.prepare("bytearray(1 << 62)", {"n": [0]}, **gpu(2, job_memory_mb=1000))
    bench.run(code=1)
    assert bench.causes() == {0: ["host out of memory"]}
    assert "memory: 1500MB" in next(
        event["note"] for event in bench.events() if event["e"] == "end"
    )


def test_memory_asked_for_beyond_reason_is_no_matter_of_company(bench: Bench) -> None:
    program = "touch(f'on-{n}'); wait_for('on-0', 'on-1'); bytearray(1 << 62)"
    bench.prepare(program, {"n": [0, 1]}, **gpu(2, job_memory_mb=1000))
    bench.run(code=1)
    assert bench.causes() == {0: ["host out of memory"], 1: ["host out of memory"]}
    assert bench.learned() == {}


HOST_MEMORY = """
if n == 0 and attempt == 0:
    block = bytearray(120 << 20)
    wait_for("on-1")
    time.sleep(1.0)  # long enough to be measured
    touch("out")
    sys.exit("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 2.00 GiB for an array")
elif n == 1:
    touch("on-1")
    wait_for("out")
"""


def test_memory_that_runs_out_in_company_is_learned(bench: Bench) -> None:
    pack = gpu(2, job_memory_mb=1000, budget={"gpu_mb": None, "memory_mb": 100})
    bench.prepare(HOST_MEMORY, {"n": [0, 1]}, **pack)
    bench.run()
    assert bench.causes() == {0: ["host out of memory", "done"], 1: ["done"]}
    [budget] = bench.learned()["budgets"]
    assert budget["variant"] == [] and budget["memory_mb"] >= 150


def test_one_that_is_larger_than_the_gpu_runs_alone_and_is_noted(bench: Bench) -> None:
    pack = gpu(
        3,
        variants=["algo"],
        gpu_memory_mb=12 * GB,
        budgets=[{"variant": ["big"], "gpu_mb": 20 * GB}],
    )
    bench.prepare("time.sleep(0.1)", {"n": [0, 1], "algo": ["big"]}, **pack)
    bench.run()
    assert bench.most() == 1
    assert "algo=big need more memory than there is: they run alone" in bench.notes()


def test_after_jobs_that_ran_out_of_memory_fewer_begin_side_by_side(bench: Bench) -> None:
    bench.prepare("time.sleep(0.1)", {"n": [0, 1, 2, 3]}, **gpu(4, job_memory_mb=1000))
    bench.change_register(lambda register: register.learned.update(memory_kills=2))
    bench.run()
    assert bench.most() == 1, "250 MB × 1.5² leave no room for a second"


SCONTROL = """#!/bin/sh
echo "NodeName=n1 Arch=x86_64 Gres=gpu:fake:1,shard:fake:8 NodeAddr=n1 State=MIXED"
"""


def test_shards_are_a_device_of_their_own_size(bench: Bench) -> None:
    """Two of eight shards of the fake's 80 GB: one of 15 GB fits, a second does not; and MPS is not for shared GPUs."""
    program = bench.project.write("scontrol", SCONTROL)
    program.chmod(0o755)
    bench.env.update(SLURM_SHARDS_ON_NODE="2", SLURMD_NODENAME="n1")
    budget = {"gpu_mb": 15 * GB, "memory_mb": None}
    bench.prepare(
        "time.sleep(0.1)",
        {"n": [0, 1, 2]},
        **gpu(3, mps=True, gpu_memory_mb=80 * GB, budget=budget),
    )
    bench.run()
    assert bench.most() == 1
    assert "the job has shards of a GPU, which others share" in bench.notes()


def test_a_slice_is_a_device_of_its_own_size(bench: Bench) -> None:
    """The fake's slices have 10 GB each, whatever the plan took the GPU for."""
    budget = {"gpu_mb": 5 * GB, "memory_mb": None}
    plan = gpu(4, mps=True, gpu_memory_mb=80 * GB, budget=budget)
    plan["gpus"] = ["MIG-5c1ce000-0000-0000-0000-000000000000"]
    bench.prepare("time.sleep(0.3)", {"n": [0, 1, 2, 3]}, **plan)
    bench.run()
    assert bench.most() == 2
    assert "is a slice of a GPU" in bench.notes()
