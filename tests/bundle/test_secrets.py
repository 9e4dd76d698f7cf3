"""Secrets are found and hidden; what only looks a little like one is left alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.bundle.code import render_left_out
from windlass.bundle.folder import prepare_folder
from windlass.bundle.tree import list_code, list_credentials
from windlass.core.errors import InputError
from windlass.flow import Reporter, check_plan
from windlass.places.local import LocalPlace
from windlass.planning import make_plan
from windlass.search import iterate_trials
from windlass.secrets import find_secrets, mask, mask_row
from windlass.spec import Overrides, load_study

HEX = "0123456789abcdef0123456789abcdef01234567"
# Put together here, so that no scanner takes this file for a leak.
GITHUB = "ghp_" + "Ab1" * 12
HUGGING = "hf_" + "AbcdEfgh12" * 3
AWS = "AKIA" + "ABCDEFGH12345678"


@pytest.mark.parametrize(
    "words,secret,said",
    [
        (["python", "train.py", "--api-key=abc123def"], "abc123def", "api-key"),
        (["python", "train.py", "--api_key", "abc123def"], "abc123def", "api_key"),
        (["sh", "-c", f"wandb login --relogin {HEX} && python x.py"], HEX, "wandb login"),
        (["wandb", "login", HEX], HEX, "wandb login"),
        (["x", HUGGING], HUGGING, "Hugging Face"),
        ([f"--repo=https://me:{GITHUB}@github.com/x"], GITHUB, "GitHub"),
        (["--db", "postgres://me:hunter22@db/x"], "hunter22", "address"),
        (["git", "clone", GITHUB], GITHUB, "GitHub"),
        (["--id", AWS], AWS, "AWS"),
        (["sk-" + "a1B2" * 8], "a1B2", "API key"),
        (["WANDB_API_KEY=" + HEX], HEX, "WANDB_API_KEY"),
        (["export DB_PASSWORD='hunter22'"], "hunter22", "DB_PASSWORD"),
        (["--hf-token", "abcdefgh12345678zz"], "abcdefgh12345678zz", "hf-token"),
        (
            ["-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----"],
            "MII",
            "private key",
        ),
    ],
)
def test_found_and_hidden(words: list[str], secret: str, said: str) -> None:
    (found,) = find_secrets(words, {})
    assert said in found
    assert secret not in found
    assert secret not in mask(" ".join(words), {})


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "--lr", "0.1", "--tokenizer", "bert-base-uncased-2"],
        ["--max-tokens=100000000000000000"],
        ["--pad-token", "<pad>"],
        ["--token", "cls_average_of_all_layers"],
        ["--api-key", "$API_KEY"],
        ["--api-key", "{key}"],
        ["--api-key-file", "/home/me/.key"],
        ["--password", "/run/secrets/pw"],
        ["WANDB_API_KEY=$WANDB_API_KEY"],
        ["KEY_DIM=128"],
        ["KEY=train_loss", "MASK_TOKEN=something", "export SORT_KEY=accuracy"],
        ["--metric", "accuracy_top1"],
        ["--key", "lr"],
        ["--sha", HEX],
        ["git", "checkout", HEX],
        ["https://example.org:8080/x@y"],
        ["sk-learn-is-no-secret"],
    ],
)
def test_no_false_alarm(words: list[str]) -> None:
    assert (
        find_secrets(
            words, {"SORT_KEY": "accuracy", "EDITOR_KEY": "vi", "SSH_KEY": "/home/me/.ssh/id_rsa"}
        )
        == []
    )


def test_values_of_this_shell() -> None:
    environ = {
        "MY_SECRET": "correct horse",
        "PATH": "/usr/bin",
        "TOKENIZERS_PARALLELISM": "false",
        "A_KEY": "short",
    }
    assert find_secrets(["say", "correct horse", "short"], environ) == ["the value of $MY_SECRET"]
    assert (
        mask("say correct horse, twice: correct horse; /usr/bin", environ)
        == "say ***, twice: ***; /usr/bin"
    )


def test_one_secret_is_told_once() -> None:
    assert find_secrets(["--api-key", HUGGING], {"HF_TOKEN": HUGGING}) == ["the value of $HF_TOKEN"]


STUDIES = {
    "command": "command: python3 -c pass --api-key abc123def\n",
    "parameters": "command: echo {password}\nparameters:\n  password: [hunter22, correct-horse]\n",
    "env": "command: echo\nenv: {ADDRESS: 'postgres://me:hunter22@db/x'}\n",
    "setup": f"command: echo\nenvironment:\n  setup:\n    - export WANDB_API_KEY={HEX}\n",
    "checkpoint": f"command: echo\ncheckpoint: {{resume: [--token, {HUGGING}]}}\n",
}


@pytest.mark.parametrize("key", STUDIES)
def test_refused_wherever_the_trials_run(key: str, tmp_path: Path) -> None:
    """On this machine as on a cluster: the study's folder holds the commands in both cases."""
    file = tmp_path / "study.yaml"
    file.write_text(STUDIES[key])
    plan = make_plan(LocalPlace(), load_study(str(file), Overrides()), {})
    with pytest.raises(InputError) as caught:
        check_plan(LocalPlace(), plan, Reporter())
    for problem in caught.value.problems:
        text = problem.render()
        assert (
            text.startswith(f"{file}:")
            and problem.line
            and f" {key}: holds " in text
            and "export it" in text
        )
        assert not any(
            secret in text for secret in (HEX, HUGGING, "abc123def", "hunter22", "correct-horse")
        )


def test_lines_of_a_task_file(tmp_path: Path) -> None:
    file = tmp_path / "tasks.txt"
    file.write_text("echo a\necho b --password=hunter22\n")
    plan = make_plan(LocalPlace(), load_study(str(file), Overrides()), {})
    with pytest.raises(InputError, match="holds the value of password"):
        check_plan(LocalPlace(), plan, Reporter())


def test_files_with_credentials_are_no_code(tmp_path: Path) -> None:
    """Unless git tracks them: then whoever has the repository has them anyway."""
    key = "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3Blb\n"
    secret = {
        ".env": "A=1",
        "sub/.env.local": "A=1",
        "k.pem": key,
        "id_rsa": key,
        ".aws/credentials": "x",
        "hf_token": HUGGING,
    }
    plain = {
        "ca.pem": "-----BEGIN CERTIFICATE-----",
        ".env.example": "A=",
        "mask_token.txt": "cls",
        "credentials.py": "",
        "id_rsa.pub": "ssh-rsa AAA",
    }
    for name, text in {**secret, **plain}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [file.name for file in list_code(str(tmp_path))] == sorted(plain)
    assert list_credentials(str(tmp_path)) == sorted(secret)
    assert "id_rsa" in render_left_out(list_credentials(str(tmp_path)))

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "k.pem", "sub"], cwd=tmp_path, check=True)
    assert {file.name for file in list_code(str(tmp_path))} == {*plain, "k.pem", "sub/.env.local"}
    (tmp_path / ".gitignore").write_text(".env\n")
    assert ".env" not in list_credentials(str(tmp_path)), "it would not have travelled anyway"


def test_plan_says_what_is_left_out(project: Project) -> None:
    project.write(".env", "A=1\n")
    project.write("key.pem", "-----BEGIN " + "RSA PRIVATE KEY-----\n")
    project.write("study.yaml", "command: cat .env\ncode: frozen\n")
    said = project.run("plan", "--on", "local").stdout
    (line,) = [line for line in said.splitlines() if line.startswith("left out")]
    assert "key.pem" in line and ".env" not in line, "the command names .env"
    project.run("run", "--on", "local")
    assert project.run("logs", "0").stdout == "A=1\n"


def test_a_study_of_an_earlier_version_is_shown_without_its_secrets(project: Project) -> None:
    """It was accepted then; commands, settings and tables hide what would be refused now."""
    row = {
        "password": "hunter22",
        "n": 3,
        "url": f"https://me:{GITHUB}@x",
        "lr": "0.1",
        "command": "echo hunter22",
    }
    masked = {
        "password": "***",
        "n": 3,
        "url": "https://me:***@x",
        "lr": "0.1",
        "command": "echo ***",
    }
    assert mask_row(row) == masked
    file = project.write(
        "study.yaml", "command: echo {passwd}\nparameters: {passwd: [hunter22x]}\n"
    )
    study = load_study(str(file), Overrides())
    prepare_folder(make_plan(LocalPlace(), study, {}), iterate_trials(study), list, "test")
    for words in (
        ["results"],
        ["results", "--json"],
        ["explain", "0"],
        ["explain", "0", "--json"],
        ["status"],
    ):
        assert "hunter22x" not in project.run(*words).stdout
