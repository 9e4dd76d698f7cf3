"""Metrics in what programs print, as the programs themselves print them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.agent.report.metrics import MetricBook, find_step
from windlass.agent.report.printed import OTHER_SET, PLAIN, UNDECIDED, PrintedMetrics, find_numbers
from windlass.agent.report.tables import Tables

NAN, INF = math.nan, math.inf
_BAR = "Epoch 1: 100%|██████████| 938/938 [00:10<00:00, 92.1it/s, v_num=0, train_loss=0.11, val_loss=0.22]"
_KERAS = "938/938 [======] - 2s 2ms/step - loss: 0.2912 - accuracy: 0.9152 - val_loss: 0.1398 - val_accuracy: 0.9583"
_KERAS_3 = "\x1b[1m5/5\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m0s\x1b[0m 57us/step - loss: 0.5 - accuracy: 0.25"
_TRAINER = "{'loss': 0.6931, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 1.0}"
_TRAINER_EVAL = "{'eval_loss': 0.31, 'eval_accuracy': 0.88, 'eval_runtime': 1.2, 'epoch': 1.0}"
_IMAGENET = "Epoch: [0][ 10/5005]\tTime 0.5 ( 0.9)\tLoss 6.9312e+00 (6.9e+00)\tAcc@1   0.78 (  0.34)\tAcc@5   1.56"
_MNIST_TEST = "Test set: Average loss: 0.0263, Accuracy: 9913/10000 (99%)"
_BOTH = "Epoch 1 train: loss=0.5 acc=0.7 val: loss=0.6 acc=0.8"
_TRAIN_AND_TEST = "epoch 1 | train accuracy 0.9 | test accuracy 0.5"
_LIGHTGBM = "[1]\ttraining's auc: 0.9\tvalid_0's auc: 0.75"
_DEEP = '{"train": {"opt": {"lr": 1}, "loss": 0.5}, "val":{"by": {"a": 1}, "loss": 0.6}, "best": 3}'
_LONG = (
    '{"train": {'
    + "".join(f'"x{n}": {n}, ' for n in range(100))
    + '"loss": 0.5}, "val": {"loss": 0.6}}'
)
_NESTED = '{"train": {"acc": 0.7, "loss": 0.5}, "val": {"acc": 0.8, "loss": 0.6}, "step": 4}'

# A line, the metric that is searched for, and its value; None where the line does not have it.
LINES = [
    # a program of one's own
    ("loss=0.12", "loss", 0.12),
    ("loss = 0.12", "loss", 0.12),
    ("loss: 0.12", "loss", 0.12),
    ("loss:0.12", "loss", 0.12),
    ("Loss: 0.12", "loss", 0.12),
    ("loss 0.12", "loss", 0.12),
    ("loss\t0.12", "loss", 0.12),
    ("'loss': 0.12", "loss", 0.12),
    ('"loss": 0.12', "loss", 0.12),
    ('"loss": "0.12"', "loss", 0.12),
    ("('loss', 0.12)", "loss", 0.12),
    ("loss -> 0.12", "loss", 0.12),
    ("loss → 0.12", "loss", 0.12),
    ("**loss**: 0.12", "loss", 0.12),
    ("The loss is 0.12.", "loss", 0.12),
    ("done with a loss of 0.12", "loss", 0.12),
    ("final loss=0.12", "loss", 0.12),
    ("Finished! loss=0.12, took 3.2s", "loss", 0.12),
    ("seed 3 lr 0.1 loss 0.12", "loss", 0.12),
    ("trial 3 loss=0.12", "loss", 0.12),
    ("worker finished loss=0.12", "loss", 0.12),
    ("2026-01-02 10:11:12,123 INFO train: loss=0.12", "loss", 0.12),
    ("INFO:root:loss=0.12", "loss", 0.12),
    ("[step 10] loss: 0.12 | lr: 1e-3", "loss", 0.12),
    ("step:10/1000 train_loss:5.85 train_time:3ms", "train_loss", 5.85),
    ("step:10/1000 train_loss:5.85 train_time:3ms", "loss", None),
    ("epoch 3, loss: 1e-3, acc 5", "loss", 1e-3),
    ('{"loss": -2.5, "step": 3}', "loss", -2.5),
    ("{'loss': .5}", "loss", 0.5),
    ("Loss = inf", "loss", INF),
    # numbers
    ("loss=1e-3", "loss", 1e-3),
    ("loss=1.5E+02", "loss", 150.0),
    ("loss=-.5", "loss", -0.5),
    ("loss=5.", "loss", 5.0),
    ("loss=nan", "loss", NAN),
    ("loss: -inf", "loss", -INF),
    ("loss: Infinity,", "loss", INF),
    ("loss: tensor(0.12, device='cuda:0', grad_fn=<NllLossBackward>)", "loss", 0.12),
    ("loss: np.float32(0.12)", "loss", 0.12),
    ("loss: [0.12]", "loss", 0.12),
    ("loss: [0.12, 0.3]", "loss", None),
    ("reward: 1,234.5", "reward", 1234.5),
    ("reward: 12_000", "reward", 12000.0),
    ("return 500", "return", 500.0),
    ("accuracy: 97.5%", "accuracy", 97.5),
    ("accuracy (%): 97.5", "accuracy", 97.5),
    ("accuracy: 45/50", "accuracy", 0.9),
    ("accuracy: 45 / 50", "accuracy", 0.9),
    ("accuracy 45 /50 (90%)", "accuracy", 0.9),
    ("accuracy: 45 / 50.5", "accuracy", None),
    ("loss: 0.3 / 0.4", "loss", None),
    ("loss: 0.3 / 10", "loss", None),
    ("loss: 0.3 / val 0.4", "loss", 0.3),
    ("loss=", "loss", None),
    ("loss=0,12", "loss", None),
    ("time=3.2s", "time", None),
    ("date: 2026-01-02", "date", None),
    ("clock: 10:30", "clock", None),
    ("version: 1.2.3", "version", None),
    ("    return 0.5 * x", "return", None),
    ("loss 1: 0.5", "loss", None),
    # other names
    ("val_loss=0.3", "loss", None),
    ("val-loss=0.3", "loss", None),
    ("val/loss=0.3", "loss", None),
    ("val.loss=0.3", "loss", None),
    ("val loss: 0.3", "loss", None),
    ("val loss=0.3", "loss", None),
    ("Validation loss: 0.3", "loss", None),
    ("policy loss: 0.3, value loss: 0.4", "loss", None),
    ("policy_loss=0.3 loss=0.7", "loss", 0.7),
    ("best loss: 0.1", "loss", None),
    ("best loss so far: 0.1", "loss", None),
    ("best loss so far: 0.1", "best loss so far", 0.1),
    ("Best epoch 3: loss 0.1", "loss", None),
    ("best_loss: inf, loss: 0.2", "loss", 0.2),
    ("loss_scale=1024", "loss", None),
    ("floss=1", "loss", None),
    ("python train.py --loss 0.3 --loss=0.4", "loss", None),
    ("loss='mse'", "loss", None),
    # the same name written otherwise
    ("Val loss: 0.3", "val_loss", 0.3),
    ("val: loss=0.3", "val_loss", 0.3),
    ("val/loss: 0.3", "val_loss", 0.3),
    ("train/loss: 0.3", "train/loss", 0.3),
    ("val_loss=0.3", "val/loss", 0.3),
    ("0.5 verlust=0.3 größe=2", "größe", 2.0),
    # frameworks
    (" 45%|####      | 450/1000 [00:01<00:02, 300it/s, loss=0.5]", "loss", 0.5),
    (_BAR, "train_loss", 0.11),
    (_BAR, "val_loss", 0.22),
    (_BAR, "loss", None),
    ("│         test_loss         │    0.3480129837989807     │", "test_loss", 0.3480129837989807),
    ("         test_acc            0.8798999786376953", "test_acc", 0.8798999786376953),
    ("|    ep_rew_mean          | 22.4        |", "ep_rew_mean", 22.4),
    (_KERAS, "loss", 0.2912),
    (_KERAS, "val_loss", 0.1398),
    (_KERAS, "accuracy", 0.9152),
    (_KERAS_3, "loss", 0.5),
    ("\x1b[32mloss\x1b[0m: \x1b[1m0.5\x1b[0m", "loss", 0.5),
    (_TRAINER, "loss", 0.6931),
    (_TRAINER, "learning_rate", 5e-05),
    (_TRAINER_EVAL, "eval_loss", 0.31),
    (_TRAINER_EVAL, "loss", None),
    ("  eval_accuracy           =     0.8848", "eval_accuracy", 0.8848),
    (_IMAGENET, "loss", 6.9312),
    (_IMAGENET, "acc@1", 0.78),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 1.102683", "loss", 1.102683),
    (_MNIST_TEST, "accuracy", 0.9913),
    ("[10]\ttrain-rmse:0.45\teval-rmse:0.46", "eval-rmse", 0.46),
    ("[10]\ttrain-rmse:0.45\teval-rmse:0.46", "rmse", None),
    ("[1]\tvalid_0's auc: 0.75\tvalid_0's binary_logloss: 0.6", "auc", 0.75),
    ("0:\tlearn: 0.69\ttest: 0.68\tbest: 0.68 (0)\ttotal: 58ms", "test", 0.68),
    ("    accuracy                           0.67         3", "accuracy", 0.67),
    ("Iteration 1, loss = 0.70356125", "loss", 0.70356125),
    (_BOTH, "loss", None),
    (_BOTH, "acc", None),
    (_BOTH, "val_acc", 0.8),
    (_BOTH, "train_acc", 0.7),
    (_NESTED, "loss", None),
    (_NESTED, "val/loss", 0.6),
    (_NESTED, "train/loss", 0.5),
    (_NESTED, "train_loss", 0.5),
    (_TRAIN_AND_TEST, "accuracy", None),
    (_TRAIN_AND_TEST, "train accuracy", 0.9),
    (_TRAIN_AND_TEST, "test_accuracy", 0.5),
    ("train: accuracy 0.9 | test accuracy 0.5", "accuracy", None),
    ("test accuracy 0.5 | [train] accuracy 0.9", "accuracy", None),
    ("accuracy 0.4 train: accuracy 0.9 val: accuracy 0.5", "accuracy", 0.4),
    (_DEEP, "loss", None),
    (_DEEP, "train/loss", 0.5),
    (_DEEP, "val/loss", 0.6),
    (_DEEP, "best", 3.0),
    (_LONG, "loss", None),
    (_LONG, "train/loss", 0.5),
    ("Training loss: 0.3", "loss", None),
    ("training loss=0.3", "loss", None),
    ("train: loss=0.3", "loss", 0.3),
    (_LIGHTGBM, "auc", None),
    (_LIGHTGBM, "training's auc", 0.9),
    ('{"val": {"loss": 0.6}, "loss": 0.5}', "loss", 0.5),
]


@pytest.mark.parametrize(("line", "name", "value"), LINES)
def test_a_metric_is_found_as_programs_print_it(line: str, name: str, value: float | None) -> None:
    found = PrintedMetrics([(name, None)]).read(line.encode()).get(name)
    is_found = found is not None and found.source not in (UNDECIDED, OTHER_SET)
    assert repr(found.value if found is not None and is_found else None) == repr(value)


def test_names_that_differ_in_a_digit_are_different_from_line_to_line() -> None:
    for names in ("top1_acc", "top5_acc"), ("top-1 acc", "top-5 acc"):
        printed = PrintedMetrics([(names[0], None)])
        assert printed.read(f"{names[0]}: 0.7".encode())[names[0]].value == 0.7
        assert not printed.read(f"{names[1]}: 0.9".encode())


def test_patterns_of_ones_own_and_several_names() -> None:
    printed = PrintedMetrics([("score", r"score -> (\S+) points"), ("loss", None), ("acc", None)])
    found = printed.read(b"loss: 0.5, score -> 12 points")
    assert {name: reading.value for name, reading in found.items()} == {"loss": 0.5, "score": 12.0}
    assert not PrintedMetrics([])


def feed(book: MetricBook, name: str, lines: list[str]) -> None:
    printed = PrintedMetrics([(name, None)])
    for line in lines:
        for found, reading in printed.read(line.encode()).items():
            if book.takes(found, reading.source):
                book.add(found, reading.value)


def test_one_metric_has_one_source() -> None:
    """A test set's loss is no value of the loss that training prints; where nothing else is printed it is taken."""
    book = MetricBook()
    feed(book, "loss", ["Loss: 2.0", _MNIST_TEST, "Loss: 1.0", _MNIST_TEST])
    feed(book, "accuracy", ["val: accuracy=0.5", "test: accuracy=0.9", "val: accuracy=0.6"])
    assert book.to_json() == {"loss": [1.0, 1.0, 2.0, 2], "accuracy": [0.6, 0.5, 0.6, 2]}
    feed(book, "accuracy", ["accuracy=0.7"])
    assert book.to_json()["accuracy"] == [0.7, 0.7, 0.7, 1]


def test_a_trial_is_not_judged_by_its_training_data_where_other_data_are_printed() -> None:
    train = "Train Epoch: 1 [640/60000 (1%)]\tLoss: 1.1"
    for lines in (
        [train, _MNIST_TEST],
        [_MNIST_TEST, train],
        [_BOTH, "val: loss=0.3"],
        ["train: loss=1", _BOTH],
    ):
        book = MetricBook()
        feed(book, "loss", lines)
        assert book.to_json() == {}
        feed(book, "loss", ["loss=0.5", *lines])
        assert book.to_json() == {"loss": [0.5, 0.5, 0.5, 1]}
    resumed = MetricBook({"loss": [1.0, 1.0, 1.0, 1]})
    feed(resumed, "loss", [_BOTH])
    assert resumed.to_json() == {}
    for other in ("test loss: 0.2", "val_loss=0.2", "Validation loss 0.2"):
        for lines in ["train: loss=1.0", other], [other, "train: loss=1.0"]:
            book = MetricBook()
            feed(book, "loss", [*lines, *lines])
            assert book.to_json() == {}
        labelled = MetricBook()
        feed(labelled, "loss", [other, "val: loss=0.3", other])
        assert labelled.to_json() == {"loss": [0.3, 0.3, 0.3, 1]}
    logger = MetricBook()
    feed(logger, "loss", ["INFO train: loss=1.0 val_loss=0.2", "INFO train: val_loss=0.2"])
    assert logger.to_json() == {"loss": [1.0, 1.0, 1.0, 1]}
    alone = MetricBook()
    feed(alone, "loss", [train, "train: loss=1.0"])
    assert alone.to_json() == {"loss": [1.0, 1.0, 1.1, 2]}


def test_values_of_windlass_log_win_over_printed_ones() -> None:
    book = MetricBook()
    feed(book, "loss", ["loss=9"])
    book.add_logged("loss", 0.5)
    feed(book, "loss", ["loss=8"])
    assert book.to_json() == {"loss": [0.5, 0.5, 0.5, 1]}
    assert not book.takes("loss", PLAIN)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("epoch 3 train_loss 0.5 lr=1e-3", ["train_loss", "lr"]),
        ("best loss so far: 0.1", ["best loss so far"]),
        (_KERAS, ["loss", "accuracy", "val_loss", "val_accuracy"]),
        (_MNIST_TEST, ["test loss", "test Accuracy"]),
        (_TRAIN_AND_TEST, ["train accuracy", "test accuracy"]),
        ('{"train":{"accuracy":0.9},"test":{"accuracy":0.5}}', ["train accuracy", "test accuracy"]),
        (_LIGHTGBM, ["training's auc", "valid_0's auc"]),
        ("GPU 0, layer 3, 10 epochs, seed: 5, took 3.5 seconds", []),
        ("Validation: 100%|███| 3/3 [00:00<00:00, 9it/s, loss=9]", ["validation loss"]),
        ("/home/user/train.py:785: Warning", []),
    ],
)
def test_what_a_line_has_is_listed_by_names_that_are_found(line: str, names: list[str]) -> None:
    found = list(find_numbers(line.encode()))
    assert [name for name, _ in found] == names
    for name, value in found:
        reading = PrintedMetrics([(name, None)]).read(line.encode())[name]
        assert (reading.value, reading.source) == (value, PLAIN)


@given(st.binary(max_size=200))
def test_no_line_is_an_error(line: bytes) -> None:
    PrintedMetrics([("loss", None), ("a/b c", None), ("___", None)]).read(line + b"loss=" + line)
    list(find_numbers(line))


def test_steps_are_read_beside_metrics() -> None:
    assert find_step(b"step 12 loss=1") == 12
    assert find_step(b'{"global_step": 7, "loss": 1}') == 7
    assert find_step(b" 45%|###  | 450/1000 [00:01<00:02, loss=1]") == 450


SB3 = """\
-----------------------------------------
| rollout/                |             |
|    ep_len_mean          | 23.4        |
|    ep_rew_mean          | 21.3        |
| time/                   |             |
|    fps                  | 1,034       |
|    total_timesteps      | 4096        |
| train/                  |             |
|    approx_kl            | 0.008763235 |
|    loss                 | -6.1e-02    |
-----------------------------------------
| plain | 3 |
"""
ROWS = "epoch     loss   acc\n--------------------\n    0     0.9    50.5%\n    1     0.7    60\n"
FASTAI = "epoch     train_loss  valid_loss  accuracy  time    \n0         0.5         0.4         0.81      00:03     \n"


@pytest.mark.parametrize(
    ("text", "metric", "values"),
    [
        (SB3, "rollout/ep_rew_mean", [21.3]),
        (SB3, "ep_rew_mean", [21.3]),
        (SB3, "train/loss", [-0.061]),
        (SB3, "time/fps", [1034]),
        (SB3, "rollout/loss", []),
        (SB3, "time/loss", []),
        (SB3, "train/plain", []),
        (ROWS, "loss", [0.9, 0.7]),
        (ROWS, "acc", [50.5, 60]),
        (ROWS, "val_loss", []),
        (
            ROWS + "saving best loss\n2 0.5 70\n",
            "loss",
            [0.9, 0.7, 0.5],
        ),  # a sentence between rows that are numbered
        (
            ROWS + "1 2\n2 0.5 70\n0 3 3\n",
            "loss",
            [0.9, 0.7, 0.5],
        ),  # another number of cells, and a count that falls
        (FASTAI, "valid_loss", [0.4]),
        (FASTAI, "accuracy", [0.81]),
        ("step\tloss\n10\t0.5\n", "loss", [0.5]),
        ("step,loss,acc\n10,0.5,0.9\n", "acc", [0.9]),
        (
            "| Epoch | Train loss | Val loss |\n|---|---|---|\n| 1 | 0.5 | 0.6 |\n",
            "val_loss",
            [0.6],
        ),
        ("epoch  train loss  val loss\n1  0.5  0.6\n", "val loss", [0.6]),
        (
            "loss acc\n0.5 0.9\nnothing\n1 2\n",
            "loss",
            [0.5],
        ),  # without a counter the first other line ends it
        ("the loss\n3 apples\n3 4\n", "loss", []),
        ("loss loss\n1 2\n", "loss", []),  # two columns of one name
        ("epoch loss acc\n1 0.5\n", "loss", []),  # a cell is missing
        ("epoch loss acc\n1 0.5 high\n", "loss", []),
    ],
)
def test_tables(text: str, metric: str, values: list[float]) -> None:
    printed, tables = PrintedMetrics([(metric, None)]), Tables()
    found = [printed.read(line.encode(), tables).get(metric) for line in text.splitlines()]
    assert [
        reading.value for reading in found if reading is not None and reading.source == PLAIN
    ] == values


def test_tables_are_listed() -> None:
    tables = Tables()
    listed = [name for line in SB3.splitlines() for name, _ in find_numbers(line.encode(), tables)]
    assert "rollout/ep_rew_mean" in listed and "train/loss" in listed
    tables = Tables()
    assert [
        name for line in ROWS.splitlines() for name, _ in find_numbers(line.encode(), tables)
    ] == [
        "loss",
        "acc",
    ] * 2


@pytest.mark.parametrize(
    ("line", "metric", "value"),
    [
        ("Validation: loss 0.3", "val_loss", 0.3),
        ("Validation: loss=0.3", "validation_loss", 0.3),
        ("validation loss: 0.3", "val_loss", 0.3),
        ("val_loss: 0.3", "validation_loss", 0.3),
        ("Evaluation: loss 0.3", "eval/loss", 0.3),
        ("Training: loss 0.3", "val_loss", None),
        ("test loss: 0.3", "val_loss", None),
        ("Validation: loss 0.3", "loss", 0.3),
    ],
)
def test_spellings_of_data(line: str, metric: str, value: float | None) -> None:
    found = PrintedMetrics([(metric, None)]).read(line.encode()).get(metric)
    assert (None if found is None else found.value) == value
