"""A program's own configuration file: each trial gets a copy with its parameters set."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests.conftest import Project
from windlass.agent.node.companion import Companion
from windlass.bundle.folder import with_settings_key
from windlass.core.configcopy import render_config, render_inline
from windlass.core.errors import InputError
from windlass.core.planfile import decode_plan
from windlass.model import Study
from windlass.search.trials import iterate_trials
from windlass.spec.config_tree import parse_config
from windlass.spec.load import load_study

BASE = """\
# comments do not travel
shared: &shared {wd: 1e_4, flag: yes, "on": on}
optimizer:
  <<: *shared
  lr: 0.1  # the learning rate
  betas: [0.9, 0.99]
  name: adam
copy: *shared
seed: 0
text: |
  two
  lines
folder: ${HOME}/x
date: 2024-01-01
pair: !!python/tuple [1, 2]
nothing:
empty: {}
octal: 010
flat.name: 1
"""
# What PyYAML, the reader of most programs, takes for a number with a fraction.
PYYAML_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|nan)")


def load(folder: Path, study: str, config: str = BASE, name: str = "conf.yaml") -> Study:
    (folder / name).write_text(config)
    (folder / "study.yaml").write_text(study)
    return load_study(str(folder / "study.yaml"))


def copies(study: Study) -> list[str]:
    """The copy of each trial, as the agent writes it: from what went through two files of JSON."""
    assert study.config is not None
    config = json.loads(json.dumps(study.config.to_json()))
    return [
        render_config(config, json.loads(json.dumps(dict(trial.settings))))
        for trial in iterate_trials(study)
    ]


def read_yaml(text: str) -> Any:
    """As programs do, by the rules of YAML 1.1."""
    reader = YAML(typ="safe", pure=True)
    reader.version = (1, 1)
    return reader.load(text)


def refused(folder: Path, study: str, config: str = BASE, name: str = "conf.yaml") -> str:
    with pytest.raises(InputError) as caught:
        load(folder, study, config, name)
    return "\n".join(problem.render() for problem in caught.value.problems)


def test_only_what_is_set_differs(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        "config: conf.yaml\ncommand: train {config} {tag}\nseeds: 2\n"
        "parameters:\n  optimizer: {lr: [1, 1e-5], betas.1: [0.5]}\n  tag: [a]\n  flat.name: [2]\n",
    )
    assert [trial.stages[0][1] for trial in iterate_trials(study)] == [
        ("train", "{config}", "a")
    ] * 4
    base = BASE.replace("!!python/tuple ", "")
    wanted = read_yaml(base)
    wanted["optimizer"].update(lr=1.0, betas=[0.9, 0.5])
    wanted.update({"seed": 2, "flat.name": 2})
    second = copies(study)[1]
    assert "pair: !<tag:yaml.org,2002:python/tuple>" in second
    found = read_yaml(second.replace(" !<tag:yaml.org,2002:python/tuple>", ""))
    assert found == wanted and type(found["optimizer"]["lr"]) is float, (
        "an integer where the file has a fraction"
    )
    assert "lr: 1.0e-05\n" in copies(study)[3], "PyYAML reads 1e-05 as text"
    assert "wd: 1e_4\n" in second and "flag: yes\n" in second and "octal: 010\n" in second, (
        "as they were written"
    )


def test_a_json_file_stays_one(tmp_path: Path) -> None:
    base = '{"a": {"lr": 1e-4, "big": 12345678901234567890123}, "list": [], "t": "\\ud83d\\ude00", "n": null}'
    text = "config: {file: conf.json, new_keys: true}\ncommand: x {config}\nparameters:\n"
    text += "  a.lr: [0.5]\n  a.new.deep: {values: [null], when: {t: y}}\n  t: [y, n]\n  list: [[1, true]]\n"
    first, second = copies(load(tmp_path, text, base, "conf.json"))
    wanted = json.loads(base)
    wanted["a"].update(lr=0.5, new={"deep": None})
    assert json.loads(first) == {**wanted, "t": "y", "list": [1, True]}
    del wanted["a"]["new"]
    assert json.loads(second) == {**wanted, "t": "n", "list": [1, True]}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab\n: ", max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(values)
def test_any_value_is_read_back_with_its_type(value: Any) -> None:
    tree, _ = parse_config("a: 1\nb: {c: 2}\n", "x.yaml")
    config = {"tree": tree, "places": {"b.c": {"at": [1, 0]}}, "form": "yaml"}
    found = YAML(typ="safe", pure=True).load(render_config(config, {"b.c": value}))
    assert found == {"a": 1, "b": {"c": value}} and json.dumps(found["b"]["c"]) == json.dumps(value)
    tree, _ = parse_config('{"a": 1, "b": {"c": 2}}', "x.json")
    assert (
        json.loads(render_config({**config, "tree": tree, "form": "json"}, {"b.c": value}))["b"][
            "c"
        ]
        == value
    )
    if isinstance(value, float):
        assert PYYAML_FLOAT.fullmatch(render_inline(value, is_json=False))


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ("parameters: {optimizer.lrr: [1, 2]}", "study.yaml:3:14: conf.yaml has no key 'optimizer.lrr'\n  hint: did you mean optimizer.lr?"),
        ("parameters: {lr: [1, 2]}", "did you mean optimizer.lr? config: {file: conf.yaml, new_keys: true} adds it"),
        ("parameters: {optimizer: [adam, sgd]}", "optimizer holds several values in conf.yaml, and one would replace them all"),
        ("parameters: {config: [a]}", "{config} would be both this file and the parameter config"),
        ("parameters: {optimizer: [{lr: 1}], optimizer.lr: [2]}", "optimizer and optimizer.lr set the same part"),
        ("parameters: {seed: ['{config}']}", "holds {config}, which has a meaning of its own"),
        ("seed_name: sed\nseeds: 5", "conf.yaml has no key 'sed'\n  hint: seed_name: seed, if that is the seed"),
    ],
)  # fmt: skip
def test_what_is_not_in_the_file_is_refused_with_what_was_meant(
    tmp_path: Path, study: str, message: str
) -> None:
    assert message in refused(tmp_path, f"config: conf.yaml\ncommand: x {{config}}\n{study}\n")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("a: [1", "conf.yaml:1:"),
        ("- 1\n", "conf.yaml:1:1: a configuration file is a mapping of keys to values"),
        ("a: 1\nb: 2\na: 3\n", "conf.yaml:3:1: the key 'a' stands twice"),
        ("a: &a\n  b: *a\n", "conf.yaml:1:4: this value contains itself"),
        ("wandb: {api_key: 0123456789abcdef0123456789abcdef01234567}\n", "wandb.api_key in conf.yaml looks like a secret"),
        ("a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(f"b{n}: &b{n} [{','.join(['*' + ('a' if n == 0 else f'b{n - 1}')] * 9)}]\n" for n in range(5)), "more than 100000 values"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_copied_is_refused(tmp_path: Path, config: str, message: str) -> None:
    assert message in refused(tmp_path, "config: conf.yaml\ncommand: x {config}\n", config)


def test_the_key_and_the_placeholder_belong_together(tmp_path: Path) -> None:
    assert "no command uses {config}" in refused(tmp_path, "config: conf.yaml\ncommand: x\n")
    assert "hint: add config: conf.yaml" in refused(tmp_path, "command: x {config}\n")
    text = refused(tmp_path, "config: cnf.yaml\ncommand: x {config}\nparameters: {z: [1]}\n")
    assert (
        "study.yaml:1:9: cnf.yaml cannot be read: No such file" in text
        and "did you mean conf.yaml?" in text
    )
    assert "no key" not in text, "one problem, not one for each parameter"
    study = load(tmp_path, "command: x --config {config}\nparameters: {config: [a.yaml, b.yaml]}\n")
    assert study.config is None, "a parameter of this name is what it was"
    assert next(iterate_trials(study)).stages[0][1] == ("x", "--config", "a.yaml")


def test_agents_notice_another_file_and_old_plans_keep_their_key() -> None:
    def key(**more: Any) -> str:
        return str(with_settings_key(decode_plan({"env": {}, **more})).settings_key)

    assert key() == key(config=None)
    assert len({key(), key(config={"tree": "1"}), key(config={"tree": "2"})}) == 3


def test_other_nodes_of_a_job_get_the_file(tmp_path: Path) -> None:
    where = {"agent": "a1", "runtime": str(tmp_path / "run"), "boot": "another"}
    companion = Companion(where)
    companion.open()
    try:
        path = str(tmp_path / "run" / "config-0" / "conf.yaml")
        companion._do({"do": "file", "path": path, "text": "lr: 1\n"})
        assert Path(path).read_text() == "lr: 1\n"
    finally:
        companion.close()


def test_trials_read_their_own_copies_and_so_does_who_executes_one_by_hand(
    project: Project,
) -> None:
    project.write("conf 1.yaml", "opt: {lr: 0.1, name: adam}\nseed: 0\n")
    project.write(
        "study.yaml",
        "config: conf 1.yaml\nshell: true\ncommand: 'cat {config} && echo ${#WINDLASS_TRIAL}{opt.name}'\n"
        'parameters: {opt: {lr: [1e-5, 2], name: ["it\'s $HOME"]}}\nseeds: [7]\n',
    )
    project.run("run")
    wanted = 'opt:\n  lr: 1.0e-05\n  name: "it\'s $HOME"\nseed: 7\n'
    assert project.run("logs", "0").stdout.startswith(wanted)
    assert "lr: 2.0\n" in project.run("logs", "1").stdout
    folder = project.study_folder()
    assert not [
        name for _, _, names in os.walk(folder) for name in names if name.startswith("conf")
    ]
    lines = project.json("explain", "0", "--json")["by_hand"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(wanted), done.stderr
    assert "conf 1.yaml" in project.run("plan").stdout


def test_the_folder_of_the_node_is_filled_in(project: Project) -> None:
    """A program that reads a file gets ``${SLURM_TMPDIR}`` as text, and would look for a folder of that name."""
    project.write("data/x.txt", "five")
    project.write("conf.json", '{"data": "${SLURM_TMPDIR}/data", "lr": 1, "home": "${HOME}"}')
    project.write(
        "t.py",
        "import json, sys\nconf = json.load(open(sys.argv[1]))\n"
        "print(open(conf['data'] + '/x.txt').read(), conf['lr'], conf['home'])\n",
    )
    project.write(
        "study.yaml",
        "config: conf.json\ncommand: python t.py {config}\nparameters: {lr: [2]}\ndata: [data]\n",
    )
    project.run("run")
    assert project.run("logs", "0").stdout == "five 2 ${HOME}\n"
    lines = project.json("explain", "0", "--json")["by_hand"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "five 2 ${HOME}\n", done.stderr
