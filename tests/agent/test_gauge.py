"""What the agent takes down of each attempt while it is under way, and what that costs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from tests.measuring import Machine
from windlass.agent.child import Attempt, Trial
from windlass.agent.config import AgentConfig, Slot
from windlass.agent.gauge.gauge import AttemptGauge, Gauges
from windlass.agent.gauge.meter import Sample
from windlass.core.planfile import decode_plan


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real plan, as the agent reads it."""
    project = Project(tmp_path_factory.mktemp("project"))
    project.write("study.yaml", "command: 'true {x}'\nparameters: {x: [1]}\n")
    project.run("run", "--quiet")
    return json.loads((project.study_folder() / "plan.json").read_text())


@pytest.fixture
def config(plan: Any) -> Callable[..., AgentConfig]:
    return lambda **more: AgentConfig(decode_plan({**plan, **more}))


def make_attempt(number: int = 0, gpus: str | None = None, **settings: Any) -> Attempt:
    line = json.dumps(
        {"id": f"t{number}", "stages": [["main", ["true"]]], "settings": settings},
        separators=(",", ":"),
    )
    now = time.monotonic()
    return Attempt(Trial(number, line.encode()), number + 1, Slot(number, gpus), now, time.time())


def sample(when: float, memory_mb: float = 10.0, **more: Any) -> Sample:
    return Sample(when, memory_mb, "pss", 0.5, 1 << 20, 2 << 20, 0, 0, 1, 1, **more)


class TestProgress:
    @pytest.mark.parametrize(
        ("steps", "settings", "total"),
        [
            (2000, {}, 2000.0),
            ("{updates}", {"updates": 500}, 500.0),
            ("{updates}", {"updates": "1e3"}, 1000.0),
            ("{updates}", {}, None),
            ("{updates}", {"updates": True}, None),
            ("{updates}", {"updates": "many"}, None),
            ("{updates}", {"updates": "inf"}, None),
            (None, {}, None),
        ],
    )
    def test_steps_in_all_as_the_study_says_them(
        self,
        config: Callable[..., AgentConfig],
        steps: Any,
        settings: dict[str, Any],
        total: float | None,
    ) -> None:
        gauge = AttemptGauge(
            config(progress={"pattern": None, "steps": steps}), make_attempt(**settings)
        )
        assert gauge.total == total

    def test_output_and_messages(self, config: Callable[..., AgentConfig]) -> None:
        attempt = make_attempt()
        gauge = AttemptGauge(config(), attempt)
        gauge.read(b"step 10/200")
        assert (gauge.rate.step, gauge.total) == (10, 200)
        gauge.tell(attempt.started + 1, 20, 400)
        gauge.tell(attempt.started + 2, 40, None)
        assert (gauge.rate.step, gauge.total) == (40, 400)
        gauge.read(b"step 11/200")
        assert (gauge.rate.step, gauge.total) == (40, 400), (
            "what the program tells beats what it prints"
        )
        gauge.tell(attempt.started + 3, None, None)
        assert gauge.rate.step == 40

    def test_the_studys_word_for_the_steps_beats_the_output(
        self, config: Callable[..., AgentConfig]
    ) -> None:
        gauge = AttemptGauge(config(progress={"pattern": None, "steps": 1000}), make_attempt())
        gauge.read(b"step 10/200")
        assert gauge.total == 1000

    @pytest.mark.parametrize(("step", "of"), [(1e-300, 1.0), (1e-320, 1.0), (1e300, 1e308)])
    def test_steps_that_cannot_be_counted_with(
        self, config: Callable[..., AgentConfig], step: float, of: float
    ) -> None:
        """No rate and no time left come of them, rather than none that JSON could carry."""
        attempt = make_attempt()
        gauge = AttemptGauge(config(), attempt)
        for second in range(1, 20):
            gauge.tell(attempt.started + second**2, second * step, of)
        attempt.ended = attempt.started + 400
        assert json.dumps([gauge.to_json(attempt), gauge.live()], allow_nan=False)


class TestRecord:
    def test_of_an_attempt_that_nobody_saw_there_is_none(
        self, config: Callable[..., AgentConfig]
    ) -> None:
        attempt = make_attempt()
        gauge = AttemptGauge(config(), attempt)
        assert gauge.to_json(attempt) == {} and gauge.live() == {}

    def test_only_what_is_known(self, config: Callable[..., AgentConfig]) -> None:
        attempt = make_attempt()
        gauge = AttemptGauge(config(), attempt)
        gauge.peaks.add(sample(attempt.started + 1, 300.0))
        gauge.peaks.add(sample(attempt.started + 2, 200.0))
        attempt.ended, attempt.cpu_s = attempt.started + 4, 2.0
        assert gauge.to_json(attempt) == {
            "k": 1,
            "cores": 0.5,
            "mem_mb": 300.0,
            "mem_src": "pss",
            "read_mb": 1.0,
            "written_mb": 2.0,
        }
        assert gauge.live() == {"mem": 200}

    def test_all_of_it(self, config: Callable[..., AgentConfig]) -> None:
        attempt = make_attempt()
        gauge = AttemptGauge(config(), attempt)
        gpu = {"gpu_memory_mb": 1039.0, "gpu_source": "process", "gpu_percent": 40.0}
        gauge.peaks.add(sample(attempt.started + 1, **gpu))
        for second in range(1, 11):
            gauge.tell(attempt.started + second, second * 10, 200)
        gauge.concurrency = 4
        attempt.ended = attempt.started + 10
        use = gauge.to_json(attempt)
        assert (use["k"], use["gpu_mb"], use["gpu_src"], use["gpu_pct"]) == (
            4,
            1039.0,
            "process",
            40.0,
        )
        assert (use["first_s"], use["rate"], use["steps"]) == (1.0, 10.0, 200)
        live = gauge.live()
        assert live["p"][:2] == [100, 200] and live["gpu"] == 1039 and live["pct"] == 40

    @pytest.mark.parametrize(
        ("kernel_mb", "peak_mb"),
        [
            (820.0, 810.0),
            (40.0, 30.0),
            (35.0, 30.0),
        ],  # a peak that nobody saw, none, and the agent's own image
    )
    def test_a_peak_between_two_looks(
        self,
        config: Callable[..., AgentConfig],
        monkeypatch: pytest.MonkeyPatch,
        kernel_mb: float,
        peak_mb: float,
    ) -> None:
        """The kernel knows the most that a process had; of what is shared it knows nothing, so only what is beyond."""
        own_kb = 1024 * (20.0 if kernel_mb > 35 else 35.0)
        monkeypatch.setattr(
            "resource.getrusage", lambda who: types.SimpleNamespace(ru_maxrss=own_kb)
        )
        attempt = make_attempt()
        gauge = AttemptGauge(config(), attempt)
        largest_mb = 40.0 if kernel_mb > 35 else 5.0
        gauge.peaks.add(sample(attempt.started + 1, 30.0, largest_mb=largest_mb))
        attempt.ended, attempt.rss_mb = attempt.started + 2, kernel_mb
        assert gauge.to_json(attempt)["mem_mb"] == peak_mb

    def test_what_frameworks_say_is_added_up_over_processes(
        self, config: Callable[..., AgentConfig]
    ) -> None:
        gauge = AttemptGauge(config(), make_attempt())
        assert gauge.framework_mb is None
        for said in (
            {"pid": 1, "reserved_mb": 70},
            {"pid": 2, "reserved_mb": 30},
            {"pid": 1, "reserved_mb": 100},
        ):
            gauge.take_report(said)
        for rubbish in (
            {},
            {"pid": 3},
            {"pid": "x", "reserved_mb": 1},
            {"pid": 3, "reserved_mb": None},
        ):
            gauge.take_report(rubbish)
        assert gauge.framework_mb == 130


@pytest.fixture
def start() -> Iterator[Callable[..., Attempt]]:
    """Start processes that wait, each an attempt of its own."""
    begun: list[subprocess.Popen[bytes]] = []

    def make(number: int, program: str = "", gpus: str | None = None) -> Attempt:
        words = [
            sys.executable,
            "-S",
            "-c",
            f"{program}\nprint(flush=True)\nimport time\ntime.sleep(600)",
        ]
        begun.append(subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE))
        begun[-1].stdout.readline()  # type: ignore[union-attr]
        attempt = make_attempt(number, gpus)
        attempt.pid = begun[-1].pid
        return attempt

    yield make
    for process in begun:
        process.kill()
        process.communicate()


class TestLooks:
    def test_peak_company_and_a_trial_that_is_over_at_once(
        self, config: Callable[..., AgentConfig], start: Callable[..., Attempt]
    ) -> None:
        gauges = Gauges(config(), "agent-1")
        gauges.open()
        assert gauges.due() is None
        small, large, short = start(0), start(1, "kept = b'x' * (60 << 20)"), start(2)
        for attempt in (small, large, short):
            gauges.begin(attempt)
        gauges.end(short)
        due = gauges.due()
        assert due is not None and not gauges.look(due - 0.01), "not before it is time"
        assert gauges.look(due)
        assert short.gauge is None, "nothing is made for trials that are over in a moment"
        assert 60 <= large.gauge.peaks.memory.peak < 75
        assert large.gauge.peaks.memory.peak - small.gauge.peaks.memory.peak == pytest.approx(
            60, abs=3
        )
        assert (small.gauge.concurrency, large.gauge.concurrency) == (2, 2)
        gauges.end(small)
        assert gauges.look(gauges.due() or 0.0)
        assert (small.gauge.peaks.count, large.gauge.peaks.count) == (1, 2)
        gauges.end(large)
        assert gauges.due() is None and not gauges.look(due + 1000)

    def test_looking_costs_less_than_a_hundredth_of_a_core(
        self, config: Callable[..., AgentConfig], start: Callable[..., Attempt]
    ) -> None:
        """Ten minutes of the gauge's own clock: how soon it looks again follows from what a look has cost."""
        gauges = Gauges(config(), "agent-1")
        gauges.open()
        attempts = [start(number) for number in range(4)]
        for attempt in attempts:
            gauges.begin(attempt)
        began = now = time.monotonic()
        spent_s, looks = 0.0, 0
        while now < began + 600:
            now = gauges.due() or 0.0
            before_s = time.thread_time()
            assert gauges.look(now)
            spent_s += time.thread_time() - before_s
            looks += 1
        assert spent_s / (now - began) < 0.01
        assert looks > 20, "but it looks"

    def test_neighbours_are_those_on_the_same_gpu(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        project: Project,
        config: Callable[..., AgentConfig],
        start: Callable[..., Attempt],
    ) -> None:
        machine = Machine(tmp_path_factory.mktemp("machine"))
        with pytest.MonkeyPatch.context() as patch:
            machine.give(project, 2, count=2, sliced=-1)
            for name in ("WINDLASS_NVML", "FAKE_FOLDER", "FAKE_COUNT", "FAKE_SLICED"):
                patch.setenv(name, project.env[name])
            gauges = Gauges(config(gpus=["0", "1"]), "agent-1", every_s=0.05)
            gauges.open()
            assert gauges.nvml is not None, gauges.problem
            attempts = [start(number, gpus=gpu) for number, gpu in enumerate("001")]
            for attempt, mb in zip(attempts, (700, 300, 500), strict=True):
                gauges.begin(attempt)
                with open(
                    f"{project.env['FAKE_FOLDER']}/{attempt.pid}", "w", encoding="ascii"
                ) as file:
                    file.write(f"{mb} 20 {attempt.slot.gpus}")
            wait_for(lambda: gauges.look(time.monotonic()))
        assert [attempt.gauge.concurrency for attempt in attempts] == [2, 2, 1]
        assert [attempt.gauge.peaks.gpu_memory.peak for attempt in attempts] == [700, 300, 500]

    def test_without_the_driver_the_rest_is_measured(
        self,
        config: Callable[..., AgentConfig],
        start: Callable[..., Attempt],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("WINDLASS_NVML", "/nowhere/libnvml.so")
        gauges = Gauges(config(gpus=["0"]), "agent-1")
        gauges.open()
        assert gauges.nvml is None and gauges.problem
        attempt = start(0, gpus="0")
        gauges.begin(attempt)
        assert gauges.look(gauges.due() or 0.0)
        assert attempt.gauge.peaks.memory.peak > 1 and attempt.gauge.peaks.gpu_memory.count == 0


@pytest.mark.parametrize(
    "says",
    [
        "windlass.log(step=12, of=float('inf'), loss=1)",
        "windlass.log(step=12, loss=1); windlass.log(step=float('nan'), of=5)",
        "print('step 12/inf', flush=True)",
        f"print('step 12/{'9' * 400}', flush=True)",
    ],
    ids=["endless total", "step that is none", "printed", "too long a number"],
)
def test_a_step_that_is_no_number_is_ignored(project: Project, says: str) -> None:
    """Its agent goes on, and tells in every beat what can be told."""
    project.write("config/windlass/site.toml", 'lease = "15s"\n')  # a beat every second
    project.write(
        "trial.py",
        f"""
import glob, time, windlass
{says}
def beats():
    return [line for path in glob.glob(".windlass/*/journal/*.jsonl") for line in open(path) if '"e":"beat"' in line]
while not any('"p":[12.0,null,null]' in line for line in beats()):
    time.sleep(0.05)
""",
    )
    study = {"command": f"'{sys.executable}' trial.py {{n}}", "parameters": {"n": [1]}}
    own = {"progress": {"pattern": r"step (?P<step>\S+)/(?P<total>\S+)"}}
    project.write("study.yaml", json.dumps({**study, **own}))
    project.run("run")
    journal = next((project.study_folder() / "journal").glob("*.jsonl")).read_text()
    assert "NaN" not in journal and "Infinity" not in journal
