"""Study files, task files and command lines that are right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from windlass.model import Metric, MetricPattern, ProgressSpec, Study, Warm, Written
from windlass.search import count_trials, iterate_trials
from windlass.search.template import (
    AGENT_WORDS,
    ARGS_WORDS,
    BUILT_IN,
    CHECKPOINT_WORDS,
    ENVVAR_PREFIX,
)
from windlass.settings import ROWS, rows_of
from windlass.spec import (
    Overrides,
    find_study_file,
    load_study,
    render_study_reference,
    study_from_command,
)

HEAD = "command: python train.py {args}\n"
NOTHING = Overrides()


def load(
    tmp_path: Path, text: str | bytes, overrides: Overrides = NOTHING, name: str = "study.yaml"
) -> Study:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_study(str(path), overrides)


def commands(study: Study) -> list[tuple[str, ...]]:
    trials = list(iterate_trials(study))
    assert count_trials(study) == len(trials)
    return [words for trial in trials for _, words in trial.stages]


FULL = """\
name: My Study!
command: python train.py --lr {lr} --seed {seed}
parameters:
  lr: [1e-3, 0.010]
seeds: 1..5
metric: {name: return, goal: max}
metrics: {loss: 'loss=(\\S+)', acc: null}
on_nan: stop
timeout: 1h30m
retries: {gpu_out_of_memory: 2, killed: 1}
needs: {cpus: 2, memory: 1.5GiB, gpus: 0.5, gpu_memory: 10G, time: 1-12:00:00}
slots: 3
grace: 5
env: {LR: '{lr}', N: 3, FLAG: true}
outputs: ['out/{trial_id}/*']
warm: [torch, numpy.linalg]
folder: results/here
output_limit: 10MB
"""


def test_every_key(tmp_path: Path) -> None:
    study = load(tmp_path, FULL)
    assert study.name == "My-Study"
    assert study.metric == Metric("return", "maximize")
    assert study.metrics == (MetricPattern("loss", r"loss=(\S+)"), MetricPattern("acc"))
    assert (study.on_nan, study.warm) == ("stop", Warm("list", ("torch", "numpy.linalg")))
    assert study.env == {"LR": "{lr}", "N": "3", "FLAG": "true"}
    assert study.outputs == ("out/{trial_id}/*",)
    assert study.given == {
        "timeout_s": 5400.0,
        "retries": {"gpu out of memory": 2, "killed": 1},
        "cpus": 2.0,
        "memory_mb": 1536,
        "gpus": 0.5,
        "gpu_memory_mb": 10240,
        "time_s": 129600.0,
        "slots": 3,
        "grace_s": 5.0,
        "output_limit_bytes": 10 * 1024**2,
        "folder": str(tmp_path / "results/here"),
    }
    assert study.source == str(tmp_path / "study.yaml")
    assert study.source_text == FULL
    assert commands(study)[0] == ("python", "train.py", "--lr", "1e-3", "--seed", "1")
    assert commands(study)[-1] == ("python", "train.py", "--lr", "0.010", "--seed", "5")
    assert study.warnings == ()


def test_only_what_is_said_is_said(tmp_path: Path) -> None:
    study = load(tmp_path, "command: python train.py\n")
    assert study.given == {}
    assert study.metric is None
    assert commands(study) == [("python", "train.py")]
    assert load(tmp_path, HEAD + "retries: 2\nmetric: loss\n").given == {"retries": {"any": 2}}


def test_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    study = load(tmp_path, b"\xef\xbb\xbfcommand: echo {args}\r\nparameters:\r\n  a: [x]\r\n")
    assert commands(study) == [("echo", "--a", "x")]


def test_command_as_a_list_is_taken_word_by_word(tmp_path: Path) -> None:
    study = load(
        tmp_path, "command: [printf, '%s | $HOME', \"it's\", 1e-3, '{x}']\nparameters: {x: 'a b'}\n"
    )
    assert commands(study) == [("printf", "%s | $HOME", "it's", "1e-3", "a b")]


def test_a_command_over_several_lines(tmp_path: Path) -> None:
    text = "command: |\n  python train.py \\\n    --name 'a\n  b' {args}\nparameters: {x: 1}\n"
    assert commands(load(tmp_path, text)) == [("python", "train.py", "--name", "a\nb", "--x", "1")]
    folded = "command: >\n  python train.py\n  {args}\nparameters: {x: 1}\n"
    assert commands(load(tmp_path, folded)) == [("python", "train.py", "--x", "1")]


def test_shell_commands_are_one_string_with_quoted_values(tmp_path: Path) -> None:
    study = load(
        tmp_path, 'command: echo ${HOME} {x} {args} | cat\nshell: true\nparameters: {x: "a\'b"}\n'
    )
    assert commands(study) == [
        (
            "/bin/sh",
            "-c",
            """echo ${HOME} 'a'"'"'b' --x 'a'"'"'b' | cat""",
        )
    ]
    assert study.stages[0].shell


def test_stages_in_order(tmp_path: Path) -> None:
    text = "stages:\n  setup: [make x, [make, y]]\n  train: python t.py {args}\n  predict: [p, '{a}']\n"
    text += "parameters: {a: 1}\n"
    trial = next(iterate_trials(load(tmp_path, text)))
    assert trial.stages == (
        ("setup", ("make", "x")),
        ("setup-2", ("make", "y")),
        ("train", ("python", "t.py", "--a", "1")),
        ("predict", ("p", "1")),
    )


def test_parameters_nested_zipped_conditional_and_excluded(tmp_path: Path) -> None:
    text = HEAD + (
        "parameters:\n"
        "  model: {name: [resnet, resnet, vit], size: [18, 50, 16]}\n"
        "  optimizer: [adam, sgd]\n"
        "  sgd: {when: {optimizer: sgd}, momentum: [0, 0.9]}\n"
        "zip: [model.name, model.size]\n"
        "exclude: [{model.name: vit, optimizer: sgd}]\n"
    )
    found = [dict(trial.settings) for trial in iterate_trials(load(tmp_path, text))]
    assert len(found) == 2 * 3 + 1
    assert found[1] == {
        "model.name": "resnet",
        "model.size": 18,
        "optimizer": "sgd",
        "sgd.momentum": 0,
    }
    assert found[-1] == {"model.name": "vit", "model.size": 16, "optimizer": "adam"}


def test_a_parameter_used_only_in_the_environment_is_used(tmp_path: Path) -> None:
    study = load(
        tmp_path, "command: python train.py\nparameters: {lr: [1, 2]}\nenv: {LR: 'x{lr}'}\n"
    )
    assert count_trials(study) == 2


def test_rows(tmp_path: Path) -> None:
    study = load(tmp_path, HEAD + "parameters: [{a: 1}, {a: 2, b: x}]\nargs: k=v\n")
    assert commands(study) == [("python", "train.py", "a=1"), ("python", "train.py", "a=2", "b=x")]


def test_seed_forms(tmp_path: Path) -> None:
    forms = {"3": (1, 2, 3), "'0..2'": (0, 1, 2), "[7, 9]": (7, 9), "4..4": (4,)}
    for text, seeds in forms.items():
        study = load(tmp_path, HEAD + f"seeds: {text}\nseed_name: s\n")
        assert study.space.seeds == seeds
        assert any("little about chance" in warning for warning in study.warnings)
    assert commands(load(tmp_path, HEAD + "seeds: 5\nseed_name: rng\n"))[4][2:] == ("--rng", "5")


def test_warnings(tmp_path: Path) -> None:
    study = load(
        tmp_path, "command: python $HOME/a.py {args}\nparameters: {a: [1, 2]}\ntrials: 1\n"
    )
    assert study.warnings == (
        "$HOME in the command is passed on as it stands; shell: true would replace it",
        "the grid is cut off after 1 setting (trials)",
    )


# -- W&B

SWEEP = """\
program: train.py
method: grid
project: demo
description: a sweep
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {values: [0.1, 1e-2]}
  epochs: {value: 3}
  layers: {min: 1, max: 2}
  optimizer:
    parameters:
      beta: {values: [0.9]}
early_terminate: {type: hyperband, min_iter: 3}
launch: {job: "entity/project/job:v1", queue: q}
"""


def test_a_sweep_file_unchanged(tmp_path: Path) -> None:
    study = load(tmp_path, SWEEP, name="sweep.yaml")
    assert study.metric == Metric("val_loss", "minimize")
    assert study.warnings == (
        "early_terminate has no effect here",
        "launch has no effect here",
    )
    assert len(commands(study)) == 4
    assert commands(study)[2] == (
        "/usr/bin/env",
        "python",
        "train.py",
        "--lr=1e-2",
        "--epochs=3",
        "--layers=1",
        "--optimizer.beta=0.9",
    )


def test_a_random_sweep_with_its_own_command(tmp_path: Path) -> None:
    text = (
        "program: train.py\nmethod: random\nrun_cap: 4\n"
        "parameters:\n  lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}\n  on: {values: [true, false]}\n"
        "command:\n  - ${env}\n  - python3\n  - ${program}\n  - --out=${envvar:SCRATCH}/x\n"
        "  - ${args_no_boolean_flags}\n  - ${args_json_file}\n"
    )
    found = commands(load(tmp_path, text, name="sweep.yaml"))
    assert len(found) == 4
    for words in found:
        assert words[:4] == ("/usr/bin/env", "python3", "train.py", "--out={envvar:SCRATCH}/x")
        assert words[4].startswith("--lr=")
        assert words[-1] == "{args_json_file}"
        assert words[5:-1] in {(), ("--on",)}


@pytest.mark.parametrize(
    "numbers",
    [
        "distribution: constant, value: 5",
        "distribution: categorical, values: [1, 2]",
        "distribution: categorical_w_probabilities, values: [1, 2], probabilities: [0.5, 0.5]",
        "values: [1, 2], probabilities: [0.1, 0.9]",
        "distribution: int_uniform, min: 1, max: 9",
        "distribution: uniform, min: 1, max: 9",
        "distribution: q_uniform, min: 1, max: 9, q: 0.5",
        "distribution: log_uniform, min: -9, max: -1",
        "distribution: log_uniform_values, min: 1e-9, max: 1",
        "distribution: q_log_uniform, min: 0, max: 5",
        "distribution: q_log_uniform_values, min: 1, max: 100, q: 2",
        "distribution: inv_log_uniform, min: 1, max: 5",
        "distribution: inv_log_uniform_values, min: 1e-3, max: 1",
        "distribution: normal",
        "distribution: q_normal, mu: 5, sigma: 2",
        "distribution: log_normal, mu: 0.1, sigma: 0.2",
        "distribution: q_log_normal, q: 0.1",
        "distribution: beta, a: 2, b: 3",
        "distribution: q_beta, a: 2, b: 3, q: 0.1",
    ],
)
def test_all_distributions_of_wandb(tmp_path: Path, numbers: str) -> None:
    text = f"program: t.py\nmethod: random\nrun_cap: 1\nparameters: {{p: {{{numbers}}}}}\n"
    (words,) = commands(load(tmp_path, text))
    assert float(words[3].removeprefix("--p=")) is not None


# -- task files

TASKS = (
    "# experiment_configurations.txt\n"
    "python main.py \\\n"
    "  --train \\\n"
    "  # the sizes\n"
    "  --layers 64,64 --name 'a b' # why\n"
    "\n"
    "python main.py --seed {seed}\n"
    "python main.py --note a#b"
)


@pytest.mark.parametrize(
    "name", ["experiment_configurations.txt", "experiment_configuration.txt", "tasks.txt", "todo"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_task_files(tmp_path: Path, name: str, newline: str) -> None:
    study = load(tmp_path, TASKS.replace("\n", newline), name=name)
    assert study.tasks == (
        ("python", "main.py", "--train", "--layers", "64,64", "--name", "a b"),
        ("python", "main.py", "--seed", "{seed}"),
        ("python", "main.py", "--note", "a#b"),
    )
    assert study.name == (tmp_path.name if name.startswith("exp") else name.removesuffix(".txt"))
    assert commands(study) == list(study.tasks)


def test_task_files_with_seeds(tmp_path: Path) -> None:
    study = load(
        tmp_path, TASKS, Overrides(seeds="2", metric="acc:max", name="mine"), name="tasks.txt"
    )
    assert [words[-1] for words in commands(study)] == ["a b", "1", "2", "a#b"]
    assert (study.metric, study.name) == (Metric("acc", "maximize"), "mine")


def test_the_same_command_several_times(tmp_path: Path) -> None:
    """A repetition is a trial of its own, and its count is in no command."""
    study = load(tmp_path, HEAD + "parameters: {lr: [1, 2]}\n", Overrides(repeat=3))
    assert commands(study) == [("python", "train.py", "--lr", f"{lr}") for lr in (1, 1, 1, 2, 2, 2)]
    assert [trial.settings for trial in iterate_trials(study)][2:4] == [
        {"lr": 1, "repeat": 3},
        {"lr": 2, "repeat": 1},
    ]
    assert len({trial.id for trial in iterate_trials(study)}) == 6
    assert study.warnings == ()
    more = study_from_command(["./measure"], Overrides(repeat=30))
    fewer = study_from_command(["./measure"], Overrides(repeat=20))
    assert [trial.id for trial in iterate_trials(more)][:20] == [
        trial.id for trial in iterate_trials(fewer)
    ]
    assert commands(load(tmp_path, "command: ./measure\nrepeat: 2\n")) == [("./measure",)] * 2
    tasks = load(tmp_path, "a\nb\na\n", Overrides(repeat=2), name="tasks.txt")
    assert [(*trial.settings.values(),) for trial in iterate_trials(tasks)] == [
        ("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("a", 4)]  # fmt: skip
    assert commands(tasks) == [("a",)] * 2 + [("b",)] * 2 + [("a",)] * 2


# -- the command line


def test_a_command_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["python", "src/my train.py", "--lr", "{lr}", "--seed", "{seed}", "|"]
    study = study_from_command(
        words, Overrides(params=("lr=[0.1, 1e-2]",), seeds="5", metric="loss")
    )
    assert study.name == "my-train"
    assert study.workdir == str(tmp_path)
    assert study.source == ""
    assert len(commands(study)) == 10
    assert commands(study)[-1] == ("python", "src/my train.py", "--lr", "1e-2", "--seed", "5", "|")


def test_the_command_line_beats_the_file(tmp_path: Path) -> None:
    text = (
        HEAD
        + "parameters: {a: [1, 2], m: {lr: [1, 2]}}\nseeds: 5\nname: x\nmetric: {name: acc, goal: max}\n"
    )
    overrides = Overrides(
        params=("m.lr=[3, 4, 5]", "new=y=z"), seeds="7..8", name="other", metric="acc"
    )
    study = load(tmp_path, text, overrides)
    assert [parameter.name for parameter in study.space.parameters] == ["a", "m.lr", "new"]
    assert study.space.parameters[1].values == (3, 4, 5)
    assert study.space.parameters[2].values == ("y=z",)
    assert (study.space.seeds, study.name) == ((7, 8), "other")
    assert study.metric == Metric("acc", "maximize")
    random = load(tmp_path, text, Overrides(method="random", trials=3, search_seed=9))
    assert (random.space.method, random.space.trials, random.space.search_seed) == ("random", 3, 9)
    assert count_trials(random) == 15


def test_a_parameter_of_the_command_line_may_be_any_form() -> None:
    study = study_from_command(
        ["x", "{args}"],
        Overrides(params=("a={min: 1, max: 3}", "b=", "c=null", "d=text"), method="grid"),
    )
    assert commands(study)[0] == ("x", "--a", "1", "--b", "", "--c", "None", "--d", "text")


# -- sharing and progress


def test_how_trials_share_a_gpu(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        HEAD + "parameters: {algo: [dqn, ppo], epochs: 10}\nseeds: 4\nvariants: [algo, seed]\n"
        "pack: {most: 8, prefer: latency, headroom: 0.5GB, mps: on, safety: 1.5}\n",
    )
    assert study.variants == ("algo", "seed")
    pack = {"most": 8, "prefer": "latency", "headroom": "512MB", "mps": "on", "safety": 1.5}
    assert {key: study.given[key] for key in pack} == pack
    assert load(tmp_path, HEAD + "parameters: {algo: [1]}\nvariants: algo\n").variants == ("algo",)
    plain = load(tmp_path, HEAD)
    assert (plain.variants, plain.progress) == ((), None) and not set(pack) & set(plain.given)


@pytest.mark.parametrize(
    "text,expected",
    [
        (
            r"progress: 'step (?P<step>\d+)/(?P<total>\d+)'",
            ProgressSpec(r"step (?P<step>\d+)/(?P<total>\d+)"),
        ),
        (
            r"progress: {pattern: 'e(?P<step>\d+)', steps: 2000}",
            ProgressSpec(r"e(?P<step>\d+)", 2000),
        ),
        ("progress: {steps: '{epochs}'}", ProgressSpec(None, "{epochs}")),
    ],
)
def test_progress(tmp_path: Path, text: str, expected: ProgressSpec) -> None:
    assert load(tmp_path, f"{HEAD}parameters: {{epochs: [10, 20]}}\n{text}\n").progress == expected


# -- places


def test_names_and_places(tmp_path: Path) -> None:
    project = tmp_path / "it's a project"
    inner = project / "inner"
    inner.mkdir(parents=True)
    (project / "pyproject.toml").touch()
    study = load(inner, HEAD)
    assert (study.name, study.workdir, study.project_dir) == ("inner", str(inner), str(project))
    assert load(inner, HEAD, name="cart pole.yaml").name == "cart-pole"
    assert load(inner, HEAD + "workdir: ..\n").workdir == str(project)


def test_finding_the_file(tmp_path: Path) -> None:
    assert find_study_file(str(tmp_path)) is None
    folder = tmp_path / "hpc_files"
    folder.mkdir()
    (folder / "experiment_configurations.txt").write_text("python main.py\n")
    study = load_study(str(tmp_path))
    assert (study.workdir, study.name) == (str(tmp_path), tmp_path.name)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    (tmp_path / "study.yml").write_text(HEAD)
    assert find_study_file(str(tmp_path)) == os.path.join(str(tmp_path), "study.yml")


# -- properties


@given(
    st.lists(
        st.text(st.characters(exclude_categories=("Cs", "Cc"))), min_size=1, max_size=4, unique=True
    )
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_text_survives_the_file(tmp_path: Path, values: list[str]) -> None:
    quoted = ["'" + value.replace("'", "''") + "'" for value in values if "{envvar:" not in value]
    study = load(tmp_path, f"command: [p, '{{x}}']\nparameters:\n  x: [{', '.join(quoted)}]\n")
    assert [words[1] for words in commands(study)] == values


# -- the reference


def test_the_reference_has_every_key_with_an_example_that_parses() -> None:
    page = render_study_reference()
    for row in ROWS:
        if row.section is not None:
            assert f"### `{row.name}`\n\n{row.help}" in page
            assert list(YAML(typ="safe").load(f"{row.name}: {row.example}")) == [row.name]


def test_the_reference_has_every_placeholder() -> None:
    table = render_study_reference().partition("## Placeholders")[2].partition("\n## ")[0]
    names = {
        *BUILT_IN,
        *ARGS_WORDS,
        *AGENT_WORDS,
        *CHECKPOINT_WORDS,
        "seed",
        f"{ENVVAR_PREFIX}NAME",
    }
    assert sorted(name for name in names if f"| `{{{name}}}` |" not in table) == []


def test_the_reference_examples_are_accepted(tmp_path: Path) -> None:
    study = load(tmp_path, f"{HEAD}parameters:{rows_of('')['parameters'].example}\n")
    assert study.space.parameters[1].values == (Written(1e-3, "1e-3"), Written(1e-4, "1e-4"))
    assert count_trials(study) == 6
