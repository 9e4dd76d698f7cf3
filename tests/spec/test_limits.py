"""Input that is absurdly large, deep or mistyped ends with an error that names its place; large lists are read fast."""

from __future__ import annotations

import itertools
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windlass.cli.lint import read_findings
from windlass.cli.request import data_paths
from windlass.collect.jobs import parse_job
from windlass.core.errors import InputError
from windlass.core.units import parse_duration_s, parse_size_bytes, parse_slurm_time_s
from windlass.lint import arrays as lint_arrays
from windlass.lint.script import lint_script
from windlass.model import Distribution, Parameter, Space, Study, Written
from windlass.plan.settings import resolve_settings
from windlass.search import count_settings, count_trials, iterate_settings, iterate_trials
from windlass.spec import Overrides, load_study
from windlass.spec import document as document_module
from windlass.spec.document import parse_document
from windlass.spec.long_lists import take_out

HEAD = "command: python train.py {args}\n"
NOTHING = Overrides()


def load(tmp_path: Path, text: str, overrides: Overrides = NOTHING) -> Study:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return load_study(str(path), overrides)


def problems_of(tmp_path: Path, text: str, overrides: Overrides = NOTHING) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text, overrides)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_tags_that_lie_and_numbers_that_are_too_long(tmp_path: Path) -> None:
    text = problems_of(
        tmp_path, HEAD + "parameters:\n  a: !!int foo\n  b: !!float foo\n  c: [!!bool foo, true]\n"
    )
    assert "study.yaml:3:6: 'foo' is not a number" in text
    assert "study.yaml:4:6: 'foo' is not a number" in text
    assert "study.yaml:5:7: 'foo' is neither true nor false" in text
    text = problems_of(
        tmp_path, f"{HEAD}parameters: {{a: [{'9' * 4500}, -0x{'f' * 4000}, {'1' * 301}]}}\n"
    )
    assert text.count("more than 300 digits") == 3
    assert "twice" not in text
    study = load(tmp_path, f"{HEAD}parameters: {{a: [{'1' * 300}]}}\n")
    assert next(iterate_trials(study)).settings == {"a": int("1" * 300)}


@pytest.mark.parametrize("depth", [51, 400, 5000])
def test_nesting_has_a_limit(tmp_path: Path, depth: int) -> None:
    text = problems_of(tmp_path, f"{HEAD}parameters: {{a: {'[' * depth}1{']' * depth}}}\n")
    assert "nested more than 50 deep" in text
    load(tmp_path, f"{HEAD}parameters: {{a: {'[' * 40}1{']' * 40}}}\n")


def test_aliases_do_not_multiply(tmp_path: Path) -> None:
    lines = ["x0: &x0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 10)]
    text = problems_of(tmp_path, HEAD + "\n".join(lines) + "\nparameters: {a: *x9}\n")
    assert "study.yaml:" in text
    assert "aliases stand for more than 1,000,000 values" in text


def test_a_file_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.spec.read_text.MOST_FILE_BYTES", 1 << 20)
    with pytest.raises(InputError, match="/dev/zero: this is too large for a study"):
        load_study("/dev/zero")


def test_a_text_that_is_too_large_for_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "MOST_YAML_BYTES", 10_000)
    rows = "".join(f"- {{a: {number}}}\n" for number in range(1000))
    assert "parameters: {file: settings.csv}" in problems_of(
        tmp_path, HEAD + "parameters:\n" + rows
    )


def test_ranges_and_trials_without_end(tmp_path: Path) -> None:
    wide = HEAD + "parameters: {a: {min: 0, max: 99999999999999999999}}\n"
    assert "study.yaml:2:14: a grid cannot list the 10^20 or more values of a" in problems_of(
        tmp_path, wide
    )
    study = load(tmp_path, wide + "method: random\ntrials: 3\n")
    assert len({trial.id for trial in iterate_trials(study)}) == 3
    stepped = HEAD + "parameters: {a: {distribution: q_uniform, min: 0, max: 1e18, q: 1e-3}}\n"
    assert "a grid cannot list" in problems_of(tmp_path, stepped)
    load(tmp_path, stepped + "method: random\ntrials: 3\n")
    many = Overrides(trials=10**20)
    assert "--trials: 10^20 or more trials" in problems_of(
        tmp_path, wide + "method: random\n", many
    )
    assert "study.yaml:3:9: 10^20 or more trials" in problems_of(
        tmp_path, HEAD + f"parameters: {{a: [1]}}\ntrials: {10**20}\n"
    )
    grid = "parameters:\n" + "".join(f"  p{n}: {{min: 1, max: 1000}}\n" for n in range(3))
    assert "these are 1,000,000,000 trials; a study may have 10,000,000" in problems_of(
        tmp_path, HEAD + grid
    )


@pytest.mark.parametrize(
    "numbers",
    [
        "distribution: log_normal, mu: 1000",
        "distribution: uniform, min: -1.7e308, max: 1.7e308",
        "distribution: q_normal, q: 1e-308",
        "distribution: inv_log_uniform_values, min: 5e-324, max: 1.0",
    ],
)
def test_distributions_that_overflow(tmp_path: Path, numbers: str) -> None:
    text = problems_of(
        tmp_path, f"{HEAD}parameters: {{a: {{{numbers}}}}}\nmethod: random\ntrials: 3\n"
    )
    assert "study.yaml:2:14" in text
    assert "too large or too small to compute with" in text


def test_durations_and_sizes_have_limits() -> None:
    for parse in (parse_duration_s, parse_slurm_time_s, parse_size_bytes):
        for text in (
            f"{'9' * 400}h",
            f"{'9' * 5000}:00:00",
            "9" * 5000,
            f"{'9' * 400}GB",
            "²",
            "१२h",
            "1\u00b2:00",
        ):
            with pytest.raises(ValueError, match=r"is not|longer than 100 years|more than 1024 PB"):
                parse(text)


# -- long lists


def slowly(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(document_module, "take_out", lambda text: (text, []))
        return parse_document(text, "study.yaml")[0].value


def written(value: Any) -> Any:
    if isinstance(value, list):
        return [written(item) for item in value]
    if isinstance(value, dict):
        return {key: written(item) for key, item in value.items()}
    return (type(value).__name__, getattr(value, "text", value))


SCALARS = [
    "1",
    "-3",
    "+4",
    "0",
    "0.5",
    "1e-3",
    "-1.",
    "2E5",
    "word",
    "a/b-c.d",
    "'quoted, 1'",
    '"double"',
    "007",
]
SCALARS += [
    "true",
    "null",
    "yes",
    ".5",
    ".5e3",
    "0x1F",
    "1_000",
    "12:30",
    "2020-01-01",
    "~",
    "-",
    "a b",
    "é",
]


@pytest.mark.parametrize("seed", range(4))
def test_long_lists_are_read_as_the_library_reads_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.spec.long_lists._LONG", 5)
    random_ = random.Random(seed)
    for _ in range(60):
        items = random_.choices(
            SCALARS[: random_.choice([10, 13, len(SCALARS)])], k=random_.randrange(1, 20)
        )
        ending = random_.choice(["", "  # comment", "\n    folded", "\n- [1, 2]", ","])
        comma = random_.choice([", ", ",", ",\n   "])
        flow = f"a: [{comma.join(items)}{ending if ending == ',' else ''}]\n"
        block = (
            "b:\n"
            + "\n".join(f"- {item}" for item in items)
            + (ending if ending != "," else "")
            + "\nc: 1\n"
        )
        literal = "d: |\n" + "\n".join(f"  - {item}" for item in items) + "\n"
        text = random_.choice([flow, block, literal, flow + block, block + literal])
        try:
            expected = slowly(text, monkeypatch)
        except InputError:
            continue
        assert written(parse_document(text, "study.yaml")[0].value) == written(expected), text


def test_a_list_of_a_million_values(tmp_path: Path) -> None:
    """It does not pass through the YAML library: counted in nodes, not in time."""
    text = HEAD + "parameters:\n  a: [" + ", ".join(map(str, range(1_000_000))) + "]\n"
    shorter, found = take_out(text)
    assert len(shorter) < 200
    assert len(found) == 1
    study = load(tmp_path, text)
    assert count_trials(study) == 1_000_000
    block = (
        HEAD
        + "parameters:\n  a:\n"
        + "".join(f"  - {number}\n" for number in [*range(1000), 7])
        + "seeds: x\n"
    )
    text = problems_of(tmp_path, block)
    assert "study.yaml:1004:5: the value 7 of a stands here twice" in text, "places survive"
    assert "study.yaml:1005:8: seeds" in text


# -- exclude


def test_settings_are_counted_without_being_listed() -> None:
    rules: tuple[dict[str, Any], ...] = ({"a": (1,), "g": (2,)}, {"b": (3, 4)})
    parameters = tuple(Parameter(name, tuple(range(10))) for name in "abcdefghijkl")
    assert count_settings(Space(parameters=parameters, exclude=rules)) == 8 * 99 * 10**9
    wide = Parameter("w", distribution=Distribution("int_uniform", {"min": 0, "max": 10**30}))
    assert count_settings(Space(parameters=(*parameters, wide))) == 10**12 * (10**30 + 1)


@pytest.mark.parametrize("seed", range(5))
def test_counting_and_listing_agree_with_trying_every_setting(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(60):
        names = "abcd"[: random_.randrange(1, 5)]
        parameters = []
        for place, name in enumerate(names):
            when = {names[place - 1]: (0, 1)} if place and random_.random() < 0.4 else {}
            parameters.append(Parameter(name, tuple(range(random_.randrange(1, 4))), when=when))
        pool = [*names, "seed", "nothing"]
        rules = tuple(
            {
                name: (random_.randrange(3),)
                for name in random_.sample(pool, random_.randrange(1, 3))
            }
            for _ in range(3)
        )
        space = Space(
            parameters=tuple(parameters), exclude=rules, seeds=random_.choice([(), (1, 2)])
        )
        every = [dict(settings) for settings in iterate_settings(replace(space, exclude=()))]
        expected = [
            settings
            for settings in every
            if not any(
                all(settings.get(name) in values for name, values in rule.items()) for rule in rules
            )
        ]
        assert [dict(settings) for settings in iterate_settings(space)] == expected
        assert count_settings(space) == len(expected)


# -- settings from a file

FILE = HEAD + "parameters: {file: settings.NAME}\n"
CSV = "lr, layers,name,use\n1e-3,2,'007',true\n0.5,,plain text,null\n,3,\"a, b\",\n"


def test_settings_from_csv_json_and_jsonl_are_the_same_trials(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"lr": 1e-3, "layers": 2, "name": "007", "use": True},
        {"lr": 0.5, "name": "plain text", "use": None},
        {"layers": 3, "name": "a, b"},
    ]
    (tmp_path / "settings.csv").write_text(CSV)
    (tmp_path / "settings.tsv").write_text("lr\tname\n1e-3\ta b\n")
    (tmp_path / "settings.json").write_text(json.dumps(rows, indent=1).replace("0.001", "1e-3"))
    (tmp_path / "settings.jsonl").write_text(
        "\n\n".join(json.dumps(row) for row in rows).replace("0.001", "1e-3")
    )
    ids = set()
    for name in ("csv", "json", "jsonl"):
        trials = list(iterate_trials(load(tmp_path, FILE.replace("NAME", name))))
        assert [dict(trial.settings) for trial in trials] == rows, name
        assert isinstance(trials[0].settings["lr"], Written)
        assert trials[0].stages[0][1][2:4] == ("--lr", "1e-3")
        ids.add(tuple(trial.id for trial in trials))
    listed = load(tmp_path, HEAD + f"parameters: {json.dumps(rows)}\n")
    ids.add(tuple(trial.id for trial in iterate_trials(listed)))
    assert len(ids) == 1, "an id tells nothing of where settings were written"
    assert count_trials(load(tmp_path, FILE.replace("NAME", "tsv"))) == 1


def test_settings_of_a_file_are_combined_with_other_parameters(tmp_path: Path) -> None:
    (tmp_path / "settings.csv").write_text("lr,size\n0.1,1\n0.2,2\n")
    text = (
        HEAD
        + "parameters: {file: settings.csv, opt: [adam, sgd]}\nseeds: 1..5\nexclude: [{lr: 0.1, opt: sgd}]\n"
    )
    study = load(tmp_path, text)
    found = [dict(trial.settings) for trial in iterate_trials(study)]
    expected = [
        {"lr": lr, "size": size, "opt": opt, "seed": seed}
        for (lr, size), opt, seed in itertools.product(
            [(0.1, 1), (0.2, 2)], ["adam", "sgd"], range(1, 6)
        )
        if (lr, opt) != (0.1, "sgd")
    ]
    assert found == expected
    assert count_trials(study) == 15
    one = load(
        tmp_path, HEAD + "parameters: {file: settings.csv}\n", Overrides(params=("opt=[a, b, c]",))
    )
    assert count_trials(one) == 6
    text = problems_of(tmp_path, HEAD + "parameters: {file: settings.csv, lr: [1]}\nmethod: grid\n")
    assert "study.yaml:2:34: lr is a column of the file with settings, and a parameter too" in text
    assert "method grid does not go with settings from a file" in text
    named = load(tmp_path, "command: python x.py {file}\nparameters: {file: settings.csv}\n")
    assert [dict(trial.settings) for trial in iterate_trials(named)] == [{"file": "settings.csv"}]


@pytest.mark.parametrize(
    "name,text,expected",
    [
        ("csv", "lr,lr\n1,2\n", ":1: the column lr stands here twice"),
        ("csv", "lr,\n1,2\n", ":1: column 2 has no name"),
        ("csv", "lr,a b\n1,2\n", ":2: 'a b' cannot be the name of a parameter"),
        ("csv", "lr,x\n1,2\n1\n", ":3: this row has 1 cells, and the header has 2"),
        ("csv", 'lr,x\n1,"2\n\n', "this is not valid CSV"),
        ("csv", "lr,x\n1,'a\n1,'a\n", ":3: these settings stand in line 2 already"),
        ("csv", "lr\n", "there are no settings in this file"),
        ("csv", "", "there are no settings in this file"),
        ("json", '[{"a": 1},\n {"a": 2} {"a": 3}]', ":2: this is not valid JSON"),
        ("json", '[{"a": 1},\n {"a": 1}]', ":2: these settings stand in line 1 already"),
        ("json", '{"a": 1}', ":1: this must be a list of mappings"),
        ("json", '[{"a": 1},\n 5]', ":2: each row must be a mapping"),
        ("json", f'[\n{{"a": {"[" * 5000}', ":2: this is not valid JSON"),
        (
            "jsonl",
            '{"a": 1}\n{"a": 1, "a": 2}\n',
            ":2: this is not valid JSON: the key 'a' stands twice",
        ),
        (
            "jsonl",
            f'{{"a": 1}}\n{{"a": {"9" * 5000}}}\n',
            ":2: this is not valid JSON: a whole number has more than",
        ),
        (
            "jsonl",
            f'{{"a": {"[" * 60}{"]" * 60}}}\n',
            ":1: lists or mappings are nested more than 50 deep",
        ),
        ("jsonl", '{"a": "\\ud800"}\n', ":1: a text holds half a character"),
        ("jsonl", '{"a": 1}\n{"a": ["\\ud800"]}\n', ":2: a text holds half a character"),
        ("jsonl", '{"\\ud800": 1}\n', ":1: a text holds half a character"),
        (
            "jsonl",
            '{"a": [1]}\n{"a": 1}\n{"a": true}\n{"a": [1]}\n',
            ":4: these settings stand in line 1 already",
        ),
    ],
)
def test_what_is_wrong_with_a_file_of_settings_has_its_line(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    (tmp_path / f"settings.{name}").write_text(text)
    found = problems_of(tmp_path, FILE.replace("NAME", name))
    assert expected in found
    assert f"settings.{name}:" in found


def test_a_file_of_settings_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "settings.csv").write_text("lr\n1\n")
    text = problems_of(tmp_path, FILE.replace("NAME", "tsv"))
    assert "settings.tsv: there is no such file" in text
    assert (
        f"did you mean {os.path.join(str(tmp_path), 'settings.csv')}?".replace(f"{tmp_path}/", "")
        in text
    )


# -- found by tests/fuzzing.py


@pytest.mark.parametrize(
    "text,expected",
    [
        (
            "metrics: {loss: '(\\u2014)'}\n",
            "study.yaml:2:17: metrics: the pattern of loss is not a regular expression",
        ),
        (
            "progress: '\\N{EM DASH}(?P<step>.)'\n",
            "study.yaml:2:11: progress: this is not a regular expression",
        ),
        (
            "metrics: {loss: '(x){99999999999}'}\n",
            "the pattern of loss is not a regular expression",
        ),
        ('"\\ud800": 1\n', "study.yaml:2:1: this text holds half a character"),
        (
            "metric: {name: loss, goal: {a: 1}}\n",
            "study.yaml:2:28: metric: the goal {'a': 1} is neither",
        ),
        ("parameters: {a: {distribution: {a: 1}}}\n", "study.yaml:2:32: there is no distribution"),
        (f"seeds: '{'9' * 5000}'\n", "seeds must be a number, a range or a list"),
        ("timeout: 1e300\n", "this duration is longer than 100 years"),
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, text: str, expected: str) -> None:
    """Agents search bytes, where patterns know no \\u2014; the study is refused before one of them fails."""
    assert expected in problems_of(tmp_path, HEAD + text)


def test_options_of_the_wrong_kind(tmp_path: Path) -> None:
    assert lint_arrays.parse_tasks("9" * 5000) == []
    assert list(_notes(f"#!/bin/bash\n#SBATCH --array={'9' * 5000}\n#SBATCH --time={'9' * 5000}\n"))
    assert parse_job("9" * 5000) is None
    for value in (10**400, -(10**400)):  # more than a float can hold
        with pytest.raises(InputError, match="--most-per-gpu: a whole number is wanted"):
            resolve_settings({"most": value}, {}, {}, "", {})
    with pytest.raises(InputError, match="/dev/zero: this is more than 16 MB"):
        read_findings("/dev/zero")
    with pytest.raises(InputError, match="embedded null byte"):
        read_findings("job\0.sh")
    with pytest.raises(InputError, match=r"--data 'a: this cannot be split into paths"):
        data_paths(["'a"])


def _notes(text: str) -> tuple[Any, ...]:
    return lint_script(text.encode(), "job.sh", "/", {}, None).problems
