"""Reports of progress after a fixed number of steps, and after episodes, whose length varies."""

from __future__ import annotations

import pytest

from tests.conftest import Project
from windlass.agent.report.progress import Progress, Rate

EPISODES = [17, 80, 95, 240, 250, 391, 400, 410, 600, 777, 790, 1000]


def rate_of(steps: list[int], by_clock: bool = False) -> Rate:
    rate = Rate(began=0.0)
    for number, step in enumerate(steps):
        rate.add(float(number), float(step), by_clock)
    return rate


def test_a_fixed_period_is_even_and_episodes_are_not() -> None:
    assert rate_of(list(range(100, 2000, 100))).uneven_period() is None
    epochs = [epoch * 1563 + step for epoch in range(3) for step in (*range(100, 1563, 100), 1563)]
    assert rate_of(epochs).uneven_period() is None  # a remainder at the end of each
    assert rate_of(EPISODES).uneven_period() == (9, 210)
    assert rate_of(EPISODES[:6]).uneven_period() is None  # too few to tell
    assert rate_of(EPISODES, by_clock=True).uneven_period() is None


def test_bars_are_drawn_by_the_clock() -> None:
    progress = Progress()
    progress.read(b"train:  37%|xx | 374/1000 [00:12<00:21, 29.6it/s]")
    assert progress.is_bar
    progress.read(b"step 400/1000 loss 0.1")
    assert not progress.is_bar


@pytest.mark.parametrize("period", ["10", "random.randint(1, 60)"])
def test_measure_warns_of_it(project: Project, period: str) -> None:
    project.write(
        "train.py",
        "import random, time\nrandom.seed(3)\nstep = 0\n"
        f"while step < 400:\n    step += {period}\n    time.sleep(0.02)\n    print(f'step {{step}}/400', flush=True)\n",
    )
    project.write("study.yaml", "command: python3 train.py {x}\nparameters: {x: [1]}\n")
    text = project.run("measure", "--on", "local", "--no-curve", "--limit", "60s").stdout
    assert ("its progress is reported every" in text) == (period != "10")
