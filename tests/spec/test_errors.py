"""What a user sees when the study file is wrong: all problems at once, with place and remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from windlass.core.errors import InputError
from windlass.spec import Overrides, load_study, study_from_command

HEAD = "command: python train.py {args}\n"
NOTHING = Overrides()


def problems(
    tmp_path: Path, text: str | bytes, overrides: Overrides = NOTHING, name: str = "study.yaml"
) -> str:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load_study(str(path), overrides)
    return str(caught.value).replace(f"{tmp_path}{os.sep}", "")


def test_repetitions_that_contradict_the_study(tmp_path: Path) -> None:
    seeded = problems(tmp_path, "command: x {seed}\nseeds: 5\nrepeat: 3\n")
    assert (
        "study.yaml:3" in seeded
        and seeded.count("hint") == 1
        and "the study has seeds" in seeded
        and "seeds: 15" in seeded
    )
    assert "repeat is a parameter" in problems(
        tmp_path, HEAD + "parameters: {repeat: [1, 2]}\nrepeat: 2\n"
    )
    assert "a whole number from 1" in problems(tmp_path, HEAD, Overrides(repeat=0))
    assert "stands for no parameter" in problems(tmp_path, "command: x {repeat}\nrepeat: 2\n")
    tasks = problems(tmp_path, "x {seed}\n", Overrides(repeat=2, seeds="2"), name="tasks.txt")
    assert "either seeds or repetitions, not both" in tasks


BAD = """\
name: cartpole
comand: python old.py
command: python train.py --lr {lrr} --hidden {hidden} --seed {seed} | tee log
parameters:
  lr: [0.1, 0.01, 0.10]
  hidden: [32, 64]
  optimizer: [adam, sgd]
  momentum: {values: [0.9], when: {optimiser: sgd}}
seeds: five
timeout: 30 parsecs
needs:
  memory: 4
  gpu: 1
  time: 90
name: again
method: bayes
env:
  WANDB_API_KEY: abc
  TOKENIZERS_PARALLELISM: false
"""

BAD_RENDERED = """\
study.yaml:2:1: there is no key 'comand'
  hint: did you mean command?
study.yaml:3:10: | means something only to a shell, and no shell is involved
  hint: shell: true, or '|' in quotes to pass it to the program
study.yaml:3:10: {lrr} stands for no parameter
  hint: did you mean {lr}? {{lrr}} stands for a literal {lrr}
study.yaml:5:19: the value 0.10 of lr stands here twice
  hint: keep one of the two
study.yaml:7:3: no command uses the parameter optimizer
  hint: command: python train.py --lr {lrr} --hidden {hidden} --seed {seed} | tee log --optimizer {optimizer}, \
or {args} for all parameters
study.yaml:8:3: no command uses the parameter momentum
  hint: command: python train.py --lr {lrr} --hidden {hidden} --seed {seed} | tee log --momentum {momentum}, \
or {args} for all parameters
study.yaml:8:36: when of momentum names 'optimiser', which is no other parameter
  hint: did you mean optimizer?
study.yaml:9:8: seeds must be a number, a range or a list of whole numbers
  hint: seeds: 5, seeds: 1..5 or seeds: [1, 2, 3]
study.yaml:10:10: timeout: '30 parsecs' is not a duration; accepted are 90s, 30m, 2h, 1h30m, 1d, HH:MM:SS or \
D-HH:MM:SS
  hint: for example 30m
study.yaml:12:11: needs.memory: the number 4 has no unit; accepted are 512MB, 4GB, 1.5GiB or 10G
  hint: 4GB
study.yaml:13:3: needs has no key 'gpu'
  hint: did you mean gpus?
study.yaml:14:9: needs.time: the number 90 has no unit; accepted are 90s, 30m, 2h, 1h30m, 1d, HH:MM:SS or \
D-HH:MM:SS
  hint: 90m
study.yaml:15:1: the key 'name' stands here twice, first in line 1
  hint: keep one of the two
study.yaml:16:9: method bayes is not available
  hint: method: random, with trials: 50
study.yaml:18:18: env: WANDB_API_KEY looks like a secret and would be written to disk
  hint: remove it here and export WANDB_API_KEY in your shell; trials inherit it"""


def test_all_problems_of_a_bad_file_at_once(tmp_path: Path) -> None:
    assert problems(tmp_path, BAD) == BAD_RENDERED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "study.yaml: the file is empty"),
        ("# nothing\n", "study.yaml: the file is empty"),
        ("- a\n- b\n", "study.yaml:1:1: a study file is a mapping of keys to values"),
        (b"command: \xff\n", "study.yaml:1:10: this is not UTF-8 text: the byte 0xff"),
        ("parameters: {a: 1}\n", "study.yaml:1:1: there is no command"),
        ("command:\n", "study.yaml:1:1: command has no value"),
        (
            "command: a\nneeds: {gpus: 1.5}\n",
            "study.yaml:2:15: needs.gpus: a trial has whole GPUs, or a part of one GPU: 1.5 is 1 and a part of another\n"
            "  hint: gpus: 2 for GPUs of its own, gpus: 0.5 to share one",
        ),
        ("command: ''\n", "study.yaml:1:10: command: the command is empty"),
        (
            "command: 5\n",
            "study.yaml:1:10: command: the command must be text or a list of words, not a number",
        ),
        (
            "command: [a, {b: 1}]\n",
            "study.yaml:1:14: command: each word of a command must be text, not a mapping",
        ),
        ("command: python 'a\n", "study.yaml:1:10: the command ends inside a quote"),
        (
            "command: a {args}b\nparameters: {x: 1}\n",
            "{args} becomes several words and must stand alone",
        ),
        (
            "command: |\n  python a.py\n  python b.py\n",
            "study.yaml:1:10: the command has several lines",
        ),
        ("command: a {seed}\n", "hint: add seeds: 5."),
        (
            "command: a\nseeds: 5\n",
            "study.yaml:2:1: no command uses the seed\n  hint: command: a --seed {seed}",
        ),
        ("command: a\nstages: {t: b}\n", "study.yaml:1:1: command and stages exclude each other"),
        ("stages: {t: 5}\n", "study.yaml:1:13: stages: the stage t must be a command"),
        ("stages: {t: [a b, c d], t-2: e}\n", "two stages have the name t-2"),
        (
            "command: [a, b]\nshell: true\n",
            "study.yaml:1:10: with shell: true the command must be one string",
        ),
        (
            "command: a '{x}'\nshell: true\nparameters: {x: 1}\n",
            "hint: remove the quotes around {x}",
        ),
        (
            "command: a {x} {y}\nshell: true\nparameters: {x: [1, 2], y: {values: [1], when: {x: 1}}}\n",
            "{y} is not there in every trial",
        ),
        (
            "command: [a, '${porgram}', '${args}']\n",
            "there is no macro ${porgram}\n  hint: did you mean program?",
        ),
        (
            "program: a.py\ncommand: ['${TMP}', '${args}']\n",
            "hint: ${envvar:TMP} for the environment variable TMP",
        ),
    ],
)
def test_files_and_commands(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert expected in problems(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "parameters: {a: []}",
            "study.yaml:2:17: the parameter a has no values: the grid is empty",
        ),
        ("parameters: {a: }", "study.yaml:2:14: the parameter a has no value"),
        ("parameters: {a: {}}", "the parameter a has no values"),
        ("parameters: 5", "parameters must be a mapping of names to values, not a number"),
        ("parameters: {args: 1}", "args cannot be a parameter"),
        ("parameters: {'a b': 1}", "'a b' cannot be the name of a parameter"),
        (
            "parameters: {a: ['{envvar:HOME}']}",
            "holds {envvar:HOME}, which has a meaning of its own",
        ),
        (
            "slurm: {time: 1m}",
            "slurm has no key 'time'\n  hint: it belongs to another place: needs: {time: …}",
        ),
        (
            "needs: {outputs: [a]}",
            "hint: it belongs to another place: outputs: …, outside of any section",
        ),
        (
            "parameters: {a: {valeus: [1], min: 1}}",
            "has no key 'valeus'\n  hint: did you mean values?",
        ),
        (
            "parameters: {a: {distribution: loguniform, min: 1, max: 2}}",
            "hint: did you mean log_uniform?",
        ),
        ("parameters: {a: {mu: 1, sigma: 2}}", "a has mu and sigma, but no distribution"),
        ("parameters: {a: {min: 1}}", "a needs min and max"),
        (
            "parameters: {a: {min: 2, max: 1}}",
            "study.yaml:2:23: min of a must be less than max, not 2 and 1",
        ),
        ("parameters: {a: {min: x, max: 1}}", "min of a must be a number, not 'x'"),
        (
            "parameters: {a: {min: 0, max: 1.5}}",
            "a grid cannot list the values of a (uniform)\n  hint: method: random",
        ),
        (
            "parameters: {a: {values: [1, 2], probabilities: [0.5, 0.6]}}",
            "must be 2 numbers that add up to 1",
        ),
        (
            "parameters: {a: {values: [1, 2], probabilities: [0.5, 0.5]}}",
            "probabilities of a have no meaning in a grid",
        ),
        (
            "method: random\ntrials: 2\nparameters: {a: {distribution: log_uniform, min: 1, max: 1e4}}",
            "hint: distribution: log_uniform_values",
        ),
        (
            "method: random\ntrials: 2\nparameters: {a: {distribution: log_uniform_values, min: 0, max: 1}}",
            "min of a must be more than 0",
        ),
        ("parameters: {a: [1, 2], b: [1]}\nzip: [a, b]", "equally many values: a has 2, b has 1"),
        ("parameters: {a: [1, 2], b: [1, 2]}\nzip: [a, c]", "zip names 'c', which is no parameter"),
        (
            "parameters: {a: [1, 1], b: [1, 1]}\nzip: [a, b]",
            "the same values of a, b stand together twice",
        ),
        ("parameters: {a: {values: [1], when: {a: 1}}}", "which is no other parameter"),
        (
            "parameters: {a: [x, y], b: {values: [1], when: {a: z}}}",
            "names z, which a never is (it is x, y)",
        ),
        (
            "parameters: {a: {values: [1], when: {b: 1}}, b: {values: [1], when: {a: 1}}}",
            "these depend on each other in a circle: a → b → a",
        ),
        (
            "parameters: {a: [1, 2]}\nexclude: [{a: [1, 2]}]",
            "the grid is empty: the exclude rules remove every trial",
        ),
        (
            "parameters: {a: [1, 2]}\nexclude: [{b: 1}]",
            "study.yaml:3:12: exclude names 'b', which is no parameter",
        ),
        ("parameters: {a: [1, 2]}\nexclude: [{a: 3}]", "exclude names 3, which a never is"),
        (
            "parameters: {seed: [1, 2]}\nseeds: 5",
            "seed is a parameter, and the name of the seed too",
        ),
        ("parameters: {a.b: 1, a: {b: 2}}", "the parameter a.b stands here twice"),
        (
            "method: random\nparameters: {a: [1, 2]}",
            "needs to know how many settings to draw\n  hint: trials: 50",
        ),
        (
            "method: random\ntrials: 3\nparameters: {a: [1, 2]}",
            "only 2 different settings, and 3 trials are asked for",
        ),
        (
            "method: random\ntrials: 9\nparameters: {a: {distribution: q_uniform, min: 0, max: 2}}",
            "only 3 different settings could be drawn",
        ),
        ("method: list\nparameters: {a: 1}", "method list takes a list of mappings as parameters"),
        ("method: grid\nparameters: [{a: 1}]", "hint: method: list"),
        (
            "parameters: [{a: 1}, {a: 1.0e0}, {a: 1}]",
            "study.yaml:2:34: this row is the same as row 1",
        ),
    ],
)
def test_parameters(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(tmp_path, HEAD + text + "\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trials: 0", "trials: this must be 1 or more, not 0"),
        ("slots: two", "slots: this must be a whole number, not the text 'two'"),
        ("shell: 1", "shell: this must be true or false, not a number"),
        ("args: '--k'", "'--k' is not one of --k v, --k=v, k=v, fire"),
        ("seeds: [1, 2, 1]", "the seed 1 stands here twice"),
        ("seeds: 1..9999999", "these are more than 1,000,000 seeds"),
        ("seeds: []", "there is no seed in this"),
        ("metric: {goal: minimize}", "metric must be a name, or a mapping with name and goal"),
        (
            "metric: {name: a, goal: best}",
            "study.yaml:2:25: metric: the goal 'best' is neither minimize nor maximize",
        ),
        ("metrics: {loss: 'loss=[0-9]+'}", "the pattern of loss must have one group, it has 0"),
        ("metrics: {loss: '('}", "is not a regular expression"),
        ("on_nan: explode", "'explode' is not one of warn, stop"),
        ("timeout: 0", "a duration must be more than 0, not 0"),
        ("timeout: 1:30", "'1:30' can be read as minutes or as hours"),
        ("retries: {diverged: 1}", "'diverged' is no cause that is tried again"),
        ("retries: -1", "retries must be a whole number, 0 or more, not -1"),
        ("needs: 5", "needs must be a mapping with the keys cpus, memory"),
        ("needs: {memory: 4 sheep}", "'4 sheep' is not a size"),
        ("output_limit: 100", "the number 100 has no unit"),
        ("env: {A: [1]}", "the value of A must be text, not a list"),
        ("outputs: [../x]", "'../x' leaves the folder the trial is executed in"),
        ("outputs: ['{nope}/x']", "{nope} stands for no parameter"),
        ("warm: [not a module]", "warm must be auto, off or a list of modules"),
        ("workdir: nowhere", "there is no folder"),
        ("folder: $WINDLASS_NOT_SET/x", "names an environment variable that is not set"),
        ("tracker: true", "there is no key 'tracker'"),
        ("run_cap: 3\ntrials: 4", "run_cap and trials mean the same"),
    ],
)
def test_other_keys(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(tmp_path, HEAD + text + "\n")


def test_problems_of_the_command_line_name_the_option(tmp_path: Path) -> None:
    text = problems(
        tmp_path, HEAD, Overrides(params=("lr=[1", "x", "a=[1, 1]"), seeds="many", method="grdi")
    )
    assert "--param lr: not valid YAML" in text
    assert "--param: 'x' is no parameter\n  hint: --param 'lr=[0.1, 0.01]'" in text
    assert "--param a: the value 1 of a stands here twice" in text
    assert "--seeds: seeds must be a number" in text
    assert "--method: method: 'grdi' is not one of grid, random, list" in text
    rows = problems(tmp_path, HEAD + "parameters: [{a: 1}]\n", Overrides(params=("a=2",)))
    assert "a list of rows cannot be changed" in rows


def test_a_command_without_a_file() -> None:
    with pytest.raises(InputError, match="there is no command"):
        study_from_command([], Overrides())
    with pytest.raises(
        InputError,
        match=r"(?s)no command uses the parameter lr.*command: python train.py --lr \{lr\}",
    ):
        study_from_command(["python", "train.py"], Overrides(params=("lr=[0.1, 0.01]",)))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(HEAD)
    with pytest.raises(InputError, match=r"did you mean .*study\.yaml\?"):
        load_study(str(tmp_path / "studi.yaml"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="there is no study file in this folder"):
        load_study(str(tmp_path / "empty"))


def test_bad_task_files(tmp_path: Path) -> None:
    text = "python a.py | tee x\n--lr 3\npython it's\npython a.py \\ # note\n"
    assert problems(tmp_path, text, name="tasks.txt") == (
        "tasks.txt:1: | means something only to a shell, and no shell is involved\n"
        "  hint: write the line as bash -c '…'\n"
        "tasks.txt:2: the line begins with --lr, which is no command\n"
        "  hint: end the line before it with a backslash\n"
        "tasks.txt:3:10: the line ends inside a quote: ' is opened and never closed\n"
        "  hint: close it, or write \\' for the character itself\n"
        "tasks.txt:4:13: this backslash does not continue the line: something follows it\n"
        "  hint: end the line with the backslash"
    )
    assert "there is no command in this file" in problems(
        tmp_path, "# only this\n", name="tasks.txt"
    )
    overrides = Overrides(params=("a=1",), seeds="5")
    text = problems(tmp_path, "python a.py\n", overrides, name="tasks.txt")
    assert "--param: a file of commands has no parameters to search" in text
    assert "--seeds: no line uses the seed" in text


SHARING = """\
command: python train.py --algo {algo} --epochs {epochs}
parameters: {algo: [dqn, ppo], epochs: [10]}
variants: [alg, colour]
progress:
  pattern: 'epoch (\\d+)'
  steps: '{epoch}'
pack:
  most: 0
  prefer: speed
  headroom: 20
  mps: maybe
  safety: 0.5
  least: 1
"""

SHARING_RENDERED = """\
study.yaml:3:12: variants: 'alg' is no parameter of this study
  hint: did you mean algo?
study.yaml:3:17: variants: 'colour' is no parameter of this study
  hint: its parameters are algo, epochs
study.yaml:5:12: progress: the pattern has no group `step`, so that nobody knows which number to read
  hint: progress: 'step (?P<step>\\d+)/(?P<total>\\d+)'
study.yaml:8:9: pack.most: this must be 1 or more, not 0
study.yaml:9:11: pack.prefer: 'speed' is not one of throughput, latency
  hint: use throughput
study.yaml:10:13: pack.headroom: this must be next (the next whole GB), 20% or 1GB, not a number
  hint: headroom: 1GB
study.yaml:11:8: pack.mps: 'maybe' is not one of auto, on, off
study.yaml:12:11: pack.safety: this must be 1 or more, not 0.5: jobs would end before their trials
  hint: safety: 1.3
study.yaml:13:3: pack has no key 'least'
  hint: the keys are most, prefer, headroom, mps, safety"""


def test_sharing_and_progress(tmp_path: Path) -> None:
    assert problems(tmp_path, SHARING) == SHARING_RENDERED


@pytest.mark.parametrize(
    "value,word",
    [
        ("'step ('", "not a regular expression"),
        ("3", "not a number"),
        ("[a]", "not a list"),
        ("{steps: 0}", "more than 0"),
        ("{steps: true}", "more than 0"),
        ("{steps: many}", "neither a number"),
        ("{steps: '{a}{b}'}", "neither a number"),
        ("{steps: '{epoch}'}", "'epoch' is no parameter of this study"),
        ("{step: 3}", "progress has no key 'step'"),
    ],
)
def test_progress_that_tells_nothing(tmp_path: Path, value: str, word: str) -> None:
    text = problems(tmp_path, f"{HEAD}parameters: {{epochs: [1, 2]}}\nprogress: {value}\n")
    assert word in text and "study.yaml:3:" in text and "hint: " in text
