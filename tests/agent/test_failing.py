"""Failures say why, those that are alike stand together, and a study whose first trials all fail alike stops."""

from __future__ import annotations

import json
import math
import os
import select
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import Project
from windlass.agent.child import Trial
from windlass.agent.claim import TrialQueue
from windlass.agent.first import FirstTrials, setting_name
from windlass.agent.report.listen import Listener
from windlass.agent.report.output import OutputLog
from windlass.agent.report.pipes import Pipes
from windlass.collect.output import OutputReader
from windlass.core.claims.first import (
    find_stop,
    forget_first,
    has_one_setting,
    report_failures,
    report_going,
)
from windlass.core.journal.reason import (
    LONGEST,
    describe_failure,
    find_reason,
    from_traceback,
    reason_key,
)
from windlass.core.states import OUT_OF_MEMORY, Cause
from windlass.model import Parameter, Space, Stage, Study
from windlass.search.trials import has_several_settings

PLAIN = b"""step 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
RuntimeError: loss exploded
"""
CHAINED = b"""Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in f
my.module.Diverged: at step 12
  a second line of the message

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
"""
CHILD = (
    PLAIN
    + b"""Traceback (most recent call last):
  File "places.py", line 1, in <module>
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.
"""
)
RICH = "╭─── Traceback (most recent call last) ───╮\n│ train.py:3 in main │\n╰────╯\nValueError: \x1b[1mbad\x1b[0m\n".encode()
GROUP = b"""  + Exception Group Traceback (most recent call last):
  |   File "g.py", line 1, in <module>
  | ExceptionGroup: several (1 sub-exception)
  +-+---------------- 1 ----------------
    | ValueError: one of them
    +------------------------------------
"""
USAGE = b"usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --foo\n"


@pytest.mark.parametrize(
    "errors,printed,reason",
    [
        (PLAIN, b"", "RuntimeError: loss exploded"),
        (PLAIN + b"wandb: synced\n", b"", "RuntimeError: loss exploded"),
        (b"UserWarning: old\n", PLAIN, "RuntimeError: loss exploded"),
        (CHAINED, b"", "my.module.Diverged: at step 12"),
        (CHILD, b"", "RuntimeError: loss exploded"),
        (RICH, b"", "ValueError: bad"),
        (GROUP, b"", "ValueError: one of them"),
        (b'line 9, in g\n    x()\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\n', b"", "torch.cuda.OutOfMemoryError: CUDA out of memory."),
        (USAGE, b"", "train.py: error: unrecognized arguments: --foo"),
        (b"bash: line 1: nope: command not found\nbye\n", b"", "bash: line 1: nope: command not found"),
        (b"cannot go on\n", b"epoch 1\n", "cannot go on"),
        (b"", b"epoch 1\rep 2\rloss=0.5\n\n", "last line: loss=0.5"),
        (b"\x1b[31mred\x07 \xff\n", b"", "red  \N{REPLACEMENT CHARACTER}"),
        (b"x" * 1000, b"", "x" * (LONGEST - 1) + "…"),
        (b"", b" \n", ""),
    ],
)  # fmt: skip
def test_the_reason_is_found_in_what_was_printed_last(
    errors: bytes, printed: bytes, reason: str
) -> None:
    assert find_reason(errors, printed) == reason


def test_a_failure_is_described_in_one_line() -> None:
    assert describe_failure("failed", 1, None, "ValueError: x") == "ValueError: x"
    assert (
        describe_failure("failed", 4, None, "last line: loss=0.5")
        == "exit code 4, last line: loss=0.5"
    )
    assert describe_failure("failed", 4, None, "") == "exit code 4, without a message"
    assert (
        describe_failure("killed", 0, 11, "Segmentation fault")
        == "killed by signal 11, Segmentation fault"
    )
    assert (
        describe_failure("gpu out of memory", 1, None, "CUDA out of memory. Tried")
        == "gpu out of memory"
    )
    assert (
        describe_failure("diverged", 1, None, "", "loss became nan") == "diverged: loss became nan"
    )


def test_reasons_are_alike_where_only_numbers_and_names_of_files_differ() -> None:
    alike = [
        ("loss is 0.5 at step 12", "loss is -1.5e-3 at step 3"),
        ("<Net object at 0x7f00aa>", "<Net object at 0x7f11bb>"),
        ("cannot open '/tmp/tmpab_x1/data'", "cannot open '/tmp/tmpzz_y2/other'"),
        ("trial t4f3a9c1d77 failed", "trial t4f3a9c1d78 failed"),
    ]
    for one, other in alike:
        assert reason_key(one) == reason_key(other)
    assert reason_key("No module named 'numpy'") != reason_key("No module named 'torch'")
    assert (
        from_traceback("epoch 1\n" + PLAIN.decode()).startswith("Traceback")
        and from_traceback("a\nb") == "a\nb"
    )


# -- what agents report to each other


def test_failures_of_all_agents_count_together() -> None:
    known = report_failures({"mps_off": True}, "a", 1, "key", "no numpy")
    known = report_failures(known, "a", 2, "key", "no numpy")
    assert find_stop(known) is None and known["mps_off"]
    known = report_failures(known, "b", 1, "key", "no numpy")
    stop = find_stop(known)
    assert stop is not None and stop.failed == 3 and stop.reason == "no numpy"
    assert find_stop(report_going(known)) is None, "a trial that was under way is done after all"
    assert find_stop(forget_first(known, False)) is None and forget_first(known, False) == {
        "mps_off": True
    }
    going = forget_first(known, True)
    for count in range(1, 9):
        going = report_failures(going, "a", count, "key", "no numpy")
    assert find_stop(going) is None, "with --keep-going, or where some are done"
    other = report_failures(report_failures({}, "a", 2, "key", "x"), "b", 2, "another", "y")
    assert find_stop(report_failures(other, "a", 9, "key", "x")) is None, "they fail differently"
    for damaged in ({"first": 3}, {"first": {"failed": None}}, {}):
        assert find_stop(damaged) is None


class Agent:
    """The first trials of one agent, without the processes."""

    def __init__(self, slots: int, seed_name: str | None = None) -> None:
        self.learned: dict[str, Any] = {}
        self.first = FirstTrials("a", slots, self.learn, seed_name)

    def learn(self, change: Any) -> dict[str, Any]:
        self.learned = change(self.learned)
        return self.learned

    def begin(self, *numbers: int) -> None:
        for number in numbers:
            self.first.begun(number)

    def end(
        self,
        number: int,
        cause: Cause = Cause.FAILED,
        why: str = "x",
        book: bool = False,
        again: bool = False,
        **settings: Any,
    ) -> None:
        trial = SimpleNamespace(number=number, stages=[("main", [])], settings=settings)
        attempt: Any = SimpleNamespace(trial=trial, stage=0, why=why, book=book)
        self.first.ended(attempt, cause)
        if cause in (Cause.FAILED, Cause.TIME, *OUT_OF_MEMORY) and not again:
            self.first.failed(attempt, cause, 1, 0)

    @property
    def stopped(self) -> bool:
        return find_stop(self.learned) is not None


def test_one_a_slot_and_at_least_three() -> None:
    alone = Agent(1)
    for number in range(3):
        assert not alone.stopped
        alone.begin(number)
        alone.end(number)
    assert alone.stopped
    wide = Agent(4)
    wide.begin(0, 1, 2, 3)
    for number in (0, 1, 2):
        wide.end(number)
        wide.begin(number + 4)
        wide.end(number + 4)
    assert not wide.stopped, "the trial in the fourth slot may end well"
    wide.end(3)
    assert wide.stopped


def test_a_study_goes_on_whose_trials_end_otherwise() -> None:
    for cause, why, book in (
        (Cause.DONE, "", False),
        (Cause.FAILED, "another reason", False),
        (Cause.DIVERGED, "", False),
        (Cause.TIME, "", True),  # it reported metrics until its time was up
        (Cause.FAILED, "x", True),  # or until it ended with an exit code
    ):
        agent = Agent(1)
        agent.begin(0, 1, 2, 3, 4)
        agent.end(0)
        agent.end(1, cause, why, book)
        for number in (2, 3, 4):
            agent.end(number)
        assert not agent.stopped and not agent.first.is_watching, cause
    hangs = Agent(1)
    for number in range(3):
        hangs.begin(number)
        hangs.end(number, Cause.STOPPED if number == 0 else Cause.TIME, "")
    assert not hangs.stopped, "one was interrupted, which says nothing"
    hangs.begin(3)
    hangs.end(3, Cause.TIME, "")
    assert hangs.stopped, "all hang, and none has reported anything"


def test_a_trial_that_ran_out_of_memory_does_not_count() -> None:
    agent = Agent(1)
    for number, cause in enumerate(
        [Cause.GPU_MEMORY] * 3 + [Cause.HOST_MEMORY] * 3 + [Cause.FAILED] * 2
    ):
        agent.begin(number)
        agent.end(number, cause)
    assert not agent.stopped and agent.first.is_watching, "smaller ones may work"
    agent.begin(8)
    agent.end(8)
    assert agent.stopped
    wide = Agent(4)
    wide.begin(0, 1, 2, 3)
    for number in (0, 1, 2):
        wide.end(number)
    wide.end(3, Cause.GPU_MEMORY)
    assert wide.stopped, "the last of the first has ended"


def test_one_setting_that_fails_does_not_stop_a_study_of_several() -> None:
    agent = Agent(1, "seed")
    for seed in range(5):
        agent.begin(seed)
        agent.end(seed, lr=10, seed=seed)
        assert not agent.stopped and has_one_setting(agent.learned)
    agent.begin(5)
    agent.end(5, lr=0.1, seed=0)
    assert agent.stopped and not has_one_setting(agent.learned)
    agents = report_failures({}, "a", 3, "key", "x", ["one"])
    assert find_stop(agents) is None
    stop = find_stop(report_failures(agents, "b", 1, "key", "x", ["another"]))
    assert stop is not None and stop.failed == 4, "settings of all agents count together"
    assert setting_name({"task": "a", "repeat": 2}, "seed") == setting_name({"task": "a"}, "seed")
    assert setting_name({"task": "a", "repeat": 2}, "repeat") == setting_name(
        {"task": "a", "repeat": 1}, "repeat"
    )
    assert setting_name({"task": "a", "seed": 1}, "seed") != setting_name(
        {"task": "b", "seed": 1}, "seed"
    )


def test_whether_a_study_has_several_settings() -> None:
    one, two = Parameter("lr", values=(0.1,)), Parameter("lr", values=(0.1, 0.2))
    for space, several in (
        (Space("grid", (one,), seeds=(0, 1, 2)), False),
        (Space("grid", (two,), seeds=(0, 1, 2)), True),
        (Space("grid", (two,), seeds=(0, 1), trials=1), False),
        (Space("list", rows=({"a": 1},), seeds=(0, 1)), False),
        (Space("list", rows=({"a": 1}, {"a": 2})), True),
        (Space("grid", seeds=(1, 2, 3), seed_name="repeat", repeats=True), False),
    ):
        assert (
            has_several_settings(Study("s", (Stage("main", ("true",)),), space, "/", "/"))
            is several
        ), space


def test_a_trial_that_is_tried_again_has_not_failed_yet() -> None:
    agent = Agent(1)
    for number in (0, 1, 2):
        agent.begin(number)
        agent.end(number, again=True)
        assert not agent.stopped
    for number in (0, 1, 2):
        agent.begin(number)
        agent.end(number)
    assert agent.stopped


def test_retries_come_first_until_a_trial_is_done() -> None:
    queue = TrialQueue(None)  # type: ignore[arg-type]
    line = b'{"id":"t","stages":[["main",["true"]]],"settings":{}}'
    queue._ready.extend(Trial(number, line) for number in (1, 2))
    queue.push_again(Trial(0, line))
    watching = True
    queue.retries_first = lambda: watching
    assert [trial.number for trial in queue.window(3)] == [0, 1, 2]
    watching = False
    popped = [queue.pop() for _ in range(4)]
    assert [trial.number if trial else None for trial in popped] == [1, 2, 0, None]


# -- what is kept of the output


def test_last_words_are_kept_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    poller = select.epoll()
    log = OutputLog(str(tmp_path / "a.log"), str(tmp_path / "a.idx"))
    config: Any = SimpleNamespace(metrics=[], watch_nan=False, launch="plain")
    gauge: Any = SimpleNamespace(of=lambda attempt: SimpleNamespace(read=lambda line: None))
    pipes = Pipes(poller, log, Listener(config, None, gauge, None), 1 << 20)  # type: ignore[arg-type]
    attempt: Any = SimpleNamespace(stage=0, streams={}, trial=SimpleNamespace(number=7), attempt=0)
    out, err = pipes.open(attempt)
    out_read, err_read = attempt.ends
    pipes.expect(attempt)
    pipes.watch(math.inf)
    came = [
        (err, err_read, b"a warning\n"),
        (out, out_read, b"epoch 1\n"),
        (err, err_read, b"Traceback\n"),
    ]
    for end, read, text in came:
        os.write(end, text)
        pipes.read(read)
    os.close(out)
    os.close(err)
    pipes.drain(attempt)
    for stream in attempt.streams.values():
        stream.finish(time.time())
    log.flush(time.time(), force=True)
    assert (tmp_path / "a.log").read_bytes() == b"".join(text for _, _, text in came)
    paths: Any = SimpleNamespace(
        output_of=lambda _: str(tmp_path / "a.log"),
        output_index_of=lambda _: str(tmp_path / "a.idx"),
    )
    assert [piece.stream for piece in OutputReader(paths, "a").read({0: 7})] == [2, 1, 2]


# -- as a user sees it

TRIAL = r"""
if [ "$1" = 8 ] && [ ! -e mended ]; then
  echo "loss is growing"; echo "warning: large" >&2; echo "last line of stdout"
  printf 'Traceback (most recent call last):\n  File "train.py", line 3\nRuntimeError: loss exploded at 0x%s\n' "$2" >&2
  exit 1
fi
echo well
"""


def study(project: Project, lr: list[int], seeds: int) -> None:
    project.write("trial.sh", TRIAL)
    keys = {
        "command": "sh trial.sh {lr} {seed}",
        "parameters": {"lr": lr},
        "seeds": seeds,
        "slots": 1,
    }
    project.write("study.yaml", json.dumps(keys))


def test_a_study_that_only_fails_stops_and_goes_on_when_it_is_mended(project: Project) -> None:
    study(project, [8], 5)
    ended = project.run("run", code=1).stderr.splitlines()
    assert project.counts() == {"failed": 3, "waiting": 2}
    assert (
        "stopped, 2 trials wait: the first 3 trials all failed the same way: RuntimeError: loss exploded"
        in ended[-2]
    )
    assert "`windlass run` goes on" in ended[-1] and "`windlass run --keep-going`" in ended[-1]
    shown = project.run("status").stdout.splitlines()
    assert shown[0].startswith(ended[-2]) and shown[0].endswith(ended[-1].strip())
    assert "  3 × RuntimeError: loss exploded at 0x1 (numbers differ)" in shown
    printed = project.run("logs", "--failed").stdout
    assert printed.startswith(
        "== 3 trials failed (exit code 1): 0 1 2 (alike; this is of trial 0)\nloss is growing\n"
    )
    assert printed.count("Traceback") == 1 and printed.endswith(
        "RuntimeError: loss exploded at 0x1\n"
    )
    problem = project.json("status", "--json")["problem"]
    assert "loss exploded" in problem["reason"] and "windlass run" in problem["remedy"]

    project.run("retry", code=1)
    assert project.counts() == {"failed": 3, "waiting": 2}, "it is as bad as before"
    project.run("run", "--keep-going", code=1)
    assert project.counts() == {"failed": 5}
    study(project, [8, 1], 5)
    project.run("run", code=1)
    assert project.counts() == {"failed": 5, "done": 5}, (
        "one setting alone does not stop a study of several"
    )
    shown = project.run("status").stdout.splitlines()
    assert shown[0].startswith("it-s") and "stopped" not in shown[0]
    assert "  5 × RuntimeError: loss exploded at 0x1 (numbers differ; all with lr=8)" in shown
    (group,) = project.json("status", "--json")["failures"]
    assert (
        group["count"] == 5
        and group["settings"] == {"lr": 8}
        and group["trials"] == [0, 1, 2, 3, 4]
    )

    (project.folder / "mended").touch()
    project.run("run")
    assert project.counts() == {"done": 10}


# -- whatever a program logs

LOGS = """
import decimal, fractions, pathlib, sys, windlass

class Rude:
    def __float__(self): raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")

class Element:
    def __float__(self): return 0.25

windlass.log(phase="train", loss=0.5, step=1)
windlass.log({"loss": Element(), 7: True}, step=2)
windlass.log(loss=None, huge=10**400, tensor=Rude(), items=[1, 2], z=1j, raw=b"x", nothing=None)
windlass.log(None)
windlass.log(0.5)
windlass.log([("a", 1)])
windlass.log(step="three", of=object(), exact=decimal.Decimal("0.1"), part=fractions.Fraction(1, 4))
windlass.log(phase="eval", path=pathlib.Path("a/b"), written="1e-3", long="é" * 9999, **{"n" * 9999: 1})
windlass.log({f"m{i}": "x" * 900 for i in range(20)})
for _ in range(3):
    windlass.log(loss=None)
try:
    import numpy
except ImportError:
    pass
else:
    windlass.log(scalar=numpy.float32(0.5), array=numpy.zeros(3), whole=numpy.int64(3), said=numpy.str_("yes"))
sys.exit(3 if sys.argv[1] == "1" else 0)
"""


def test_nothing_that_a_program_logs_is_an_error_inside_it(project: Project) -> None:
    """What does nothing outside a trial does no harm inside; text is kept, and what cannot be kept is noted once."""
    project.write("train.py", LOGS)
    project.run(
        "run",
        "--param",
        "n=[0,1]",
        "--metric",
        "loss",
        "--",
        sys.executable,
        "train.py",
        "{n}",
        code=1,
    )
    done, failed = project.json("results", "--json")
    assert done["state"] == "done" and failed["exit_code"] == 3, (
        "only the exit code that the program chose"
    )
    assert done["phase"] == "eval" and done["path"] == "a/b" and done["written"] == 0.001
    assert (done["loss"], done["loss.max"], done["7"], done["exact"], done["part"]) == (
        0.25,
        0.5,
        1.0,
        0.1,
        0.25,
    )
    assert set("é") == set(done["long"]) and done["m0"] == done["m19"] == "x" * 900
    assert not {"huge", "tensor", "items", "z", "raw", "nothing", "step", "array"} & set(done)
    notes = project.json("status", "--json")["notes"]
    assert (
        len([note for note in notes if "left out loss: it is None, not a number or text" in note])
        == 1
    )
    assert any("huge: it is an integer that is too large" in note for note in notes)
    by_text = project.json("results", "--by", "n", "--metric", "phase", "--json")
    assert [row["mean"] for row in by_text] == [None, None], "text has no mean"
    table = project.run("results", "--wide").stdout
    assert "phase" in table and "eval" in table
    assert "left out loss" in project.run("explain", "0").stdout
