"""Progress is found in lines as programs print them, and rates and times left come out right."""

from __future__ import annotations

import pytest

from windlass.agent.report.progress import Progress, Rate, Sighting

ONE_LINE = {
    "tqdm": ("  37%|███▋      | 374/1000 [00:12<00:21, 29.6it/s]", (374, 1000)),
    "tqdm with a name": (
        "train:  37%|###7      | 374/1000 [00:12<00:21, 29.6it/s, loss=0.31]",
        (374, 1000),
    ),
    "tqdm redrawn": (
        "\r  1%|          | 10/1000 [00:00<00:30, 32it/s]\r  2%|▏         | 20/1000 [00:00<00:30, 32it/s]",
        (20, 1000),
    ),
    "tqdm scaled": ("  50%|█████     | 2.50k/5.00k [01:00<01:00, 41.7it/s]", (2500, 5000)),
    "tqdm coloured": (
        "\x1b[32m 10%|█         \x1b[0m| 100/1000 [00:05<00:45, 20.0it/s]",
        (100, 1000),
    ),
    "Hugging Face": (
        "{'loss': 1.2}\r  1%|          | 12/1200 [00:02<04:10,  4.74it/s]",
        (12, 1200),
    ),
    "step": ("step 120/2000 loss 0.42", (120, 2000)),
    "step of": ("Iteration 120 of 2000, reward -3.5", (120, 2000)),
    "global step": ("global_step=120/2000", (120, 2000)),
    "brackets": ("[120/2000] loss: 0.42", (120, 2000)),
    "MNIST": ("Train Epoch: 3 [1280/60000 (2%)]\tLoss: 0.3", (1280, 60000)),
    "ImageNet": ("Epoch: [3][ 120/2000]\tTime  0.121 ( 0.139)", (120, 2000)),
    "tutorial": ("Epoch [3/10], Step [120/200], Loss: 0.4", (2 * 200 + 120, 2000)),
    "epoch begins": ("Epoch 3/10", (2, 10)),
    "epoch is over": ("Epoch 3/10 - loss: 0.31 acc: 0.91", (3, 10)),
    "Keras 2": ("313/1563 [=====>........................] - ETA: 4s - loss: 1.2", (313, 1563)),
    "Keras 3": (
        "\x1b[1m 313/1563\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━━━━━━━\x1b[0m \x1b[1m4s\x1b[0m 3ms/step - loss: 1.2",
        (313, 1563),
    ),
    "Lightning": (
        "Epoch 0:  45%|████▌     | 450/1000 [00:10<00:12, 43.2it/s, v_num=0]",
        (450, 1000),
    ),
    "Lightning with rich": (
        "Epoch 0/9  ━━━━━━━━━━╸━━━━━━━━━ 450/1000 0:00:10 • 0:00:12 44.1it/s",
        (450, 10000),
    ),
    "epoch in the bar": (
        "Epoch 3/10:  45%|████▌     | 450/1000 [00:10<00:12, 43.2it/s]",
        (2450, 10000),
    ),
    "bar of epochs": ("Epochs:  30%|███       | 3/10 [00:30<01:10, 10.0s/it]", (3, 10)),
}


@pytest.mark.parametrize("line,wanted", ONE_LINE.values(), ids=ONE_LINE.keys())
def test_one_line(line: str, wanted: tuple[float, float]) -> None:
    assert Progress().read(line.encode()) == Sighting(*wanted)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loss 0.31",
        "see /home/me/data/3/10 for 4/5 of it",
        "saved to runs/12/40",
        "date 12/31 [info] started",
        "Validation DataLoader 0:  10%|█         | 5/50 [00:00<00:01, 40.0it/s]",
        "Downloading data:  10%|█         | 5/50 [00:00<00:01, 40.0MB/s]",
        "Map:  10%|█         | 500/5000 [00:00<00:01, 4000 examples/s]",
        "Epoch 0:   0%|          | 0/0 [00:00<?, ?it/s]",
        "\r\r\n",
    ],
)
def test_what_is_no_progress(line: str) -> None:
    assert Progress().read(line.encode()) is None


def steps_of(lines: list[str], pattern: str | None = None) -> list[tuple[float, float | None]]:
    progress = Progress(pattern)
    return [tuple(seen) for line in lines if (seen := progress.read(line.encode())) is not None]


def test_keras_epochs_and_steps_are_put_together() -> None:
    lines = [
        "Epoch 1/3",
        "50/100 [==>..]",
        "100/100 [====]",
        "Epoch 2/3",
        "  1/100 [>....]",
        "100/100 [====]",
    ]
    assert steps_of(lines) == [(0, 3), (50, 300), (100, 300), (100, 300), (101, 300), (200, 300)]


def test_epochs_may_be_counted_from_nought() -> None:
    assert steps_of(["Epoch 0/3", "Epoch 1/3", "Epoch 2/3"]) == [(0, 3), (1, 3), (2, 3)]
    assert steps_of([f"Epoch {n}/3: loss=0.5" for n in (0, 1, 2)]) == [(1, 3), (2, 3), (3, 3)]


def test_counts_without_a_total() -> None:
    """As the simplest of programs print them. What tells more takes their place."""
    assert steps_of([f"epoch {n} loss=0.{n}" for n in (0, 1, 2)]) == [
        (1, None),
        (2, None),
        (3, None),
    ]
    lines = [
        line
        for n in (1, 2)
        for line in (f"Epoch {n}", f"Epoch {n}: train loss 0.5, val loss 1", f"epoch {n} done")
    ]
    assert steps_of(lines) == [(0, None), (1, None), (2, None)]
    assert steps_of([f"INFO step {n}: loss nan" for n in (100, 200)]) == [(100, None), (200, None)]
    lines = [f"epoch {epoch} iter {step} loss=1e-3" for epoch in (0, 1) for step in (50, 100)]
    assert steps_of([*lines, "epoch 1 loss=0.4"]) == [
        (50, None),
        (100, None),
        (150, None),
        (200, None),
    ]
    assert steps_of(["epoch 0 loss=0.5", "step 3/100", "epoch 1 loss=0.4"]) == [(1, None), (3, 100)]
    assert (
        steps_of(
            [
                "step 1.2 of the manual: x=3",
                "Validation: step 3 loss=0.1",
                "update 2 packages",
                "iterate 3=3",
            ]
        )
        == []
    )


def test_epochs_said_at_their_end() -> None:
    lines = [
        " 90%|█| 90/100 [00:09<00:01, 10it/s]",
        "Epoch 1/3: loss=0.5",
        "  1%| | 1/100 [00:00<00:09, 10it/s]",
        " 99%|█| 99/100 [00:09<00:00, 10it/s]",
        "Epoch 2/3: loss=0.4",
    ]
    assert steps_of(lines) == [(90, 100), (90, 300), (101, 300), (199, 300), (199, 300)]


def test_epochs_of_unknown_number_add_up_without_an_end() -> None:
    lines = [
        f"Epoch {epoch}:  50%|█    | {step}/100 [00:01<00:01, 9it/s]"
        for epoch in (0, 1)
        for step in (50, 100)
    ]
    assert steps_of(lines) == [(50, 100), (100, 100), (150, None), (200, None)]


def test_two_processes_print_not_quite_in_order() -> None:
    assert steps_of(["step 120/2000", "step 119/2000", "step 121/2000"]) == [
        (120, 2000),
        (121, 2000),
    ]


def test_validation_in_between_changes_nothing() -> None:
    lines = [
        "Epoch 1/2:  50%|█ | 50/100 [0<0, 1it/s]",
        "Validating:  50%|█ | 5/10 [0<0, 1it/s]",
        "Epoch 2/2:  10%|█ | 10/100 [0<0, 1it/s]",
    ]
    assert steps_of(lines) == [(50, 200), (110, 200)]


def test_a_pattern_of_ones_own() -> None:
    pattern = r"frame=(?P<step>\d+)(?: of (?P<total>\d+))?"
    assert steps_of(["frame=10 of 90", "step 3/5", "frame=20"], pattern) == [(10, 90), (20, 90)]
    with pytest.raises(ValueError, match="step"):
        Progress(r"frame=(\d+)")


def test_messages_end_the_search_in_output() -> None:
    progress = Progress()
    assert progress.read(b"step 5/100") == Sighting(5, 100)
    assert progress.tell(7) == Sighting(7, 100)
    assert progress.read(b"step 90/100") is None
    assert progress.tell(8, 50) == Sighting(8, 50)
    assert (progress.step, progress.total) == (8, 50)


def test_startup_stands_apart_from_the_steady_rate() -> None:
    rate = Rate(began=1000.0)
    for step in range(1, 101):
        rate.add(1000.0 + 30.0 + step * 0.5, step)
    assert rate.first_step_s == 30.5
    assert rate.startup_s == pytest.approx(30.0)
    assert rate.per_s == pytest.approx(2.0)
    left = rate.remaining_s(200)
    assert left is not None
    assert left.low <= left.middle <= left.high
    assert left.middle == pytest.approx(50.0)


def test_startup_is_found_where_only_every_fiftieth_step_is_told() -> None:
    rate = Rate(began=0.0)
    for step in range(50, 1001, 50):
        rate.add(12.0 + step * 0.1, step)
    assert rate.first_step_s == 17.0
    assert rate.startup_s == pytest.approx(12.0)


def test_a_slow_first_step_does_not_count_as_the_rate() -> None:
    rate = Rate(began=0.0)
    rate.add(60.0, 1)
    for step in range(2, 21):
        rate.add(60.0 + (step - 1) * 0.1, step)
    assert rate.per_s == pytest.approx(10.0)
    assert rate.startup_s == pytest.approx(59.9)


def test_the_range_holds_what_comes_when_steps_vary() -> None:
    durations = [(0.8, 1.2, 1.0, 0.9, 1.1)[step % 5] for step in range(200)]
    rate, now = Rate(began=0.0), 0.0
    for step in range(60):
        now += durations[step]
        rate.add(now, step + 1)
    left = rate.remaining_s(200)
    truth = sum(durations[60:])
    assert left is not None
    assert left.low < truth < left.high
    assert left.middle == pytest.approx(truth, rel=0.1)
    assert left.high < truth * 1.5


def test_a_rate_that_changes_is_followed_and_widens_the_range() -> None:
    rate, now = Rate(began=0.0), 0.0
    for step in range(1, 101):
        now += 0.1 if step <= 50 else 0.3
        rate.add(now, step)
    left = rate.remaining_s(200)
    assert left is not None
    assert left.middle == pytest.approx(30.0, rel=0.05)
    assert left.high - left.low > 5.0


def test_time_since_the_last_step_is_time_passed() -> None:
    rate = Rate(began=0.0)
    for step in range(1, 11):
        rate.add(float(step), step)
    left = rate.remaining_s(20, now=13.0)
    assert left is not None
    assert left.middle == pytest.approx(7.0)
    assert rate.remaining_s(5) == (0.0, 0.0, 0.0)


def test_no_rate_from_nothing_or_one_step() -> None:
    rate = Rate(began=0.0)
    assert rate.remaining_s(10) is None and rate.per_s is None and rate.first_step_s is None
    rate.add(1.0, 0)
    assert rate.first_step_s is None, "step 0 is no step"
    rate.add(2.0, 1)
    rate.add(3.0, 1)
    assert rate.remaining_s(10) is None and rate.startup_s is None
    assert rate.first_step_s == 2.0


def test_a_long_trial_takes_no_more_room() -> None:
    rate = Rate(began=0.0)
    for step in range(1, 50_001):
        rate.add(step * 0.01, step)
    assert len(rate._points) <= 257
    assert rate.per_s == pytest.approx(100.0)
    left = rate.remaining_s(60_000)
    assert left is not None and left.middle == pytest.approx(100.0)
