"""Secrets are found and hidden; what only looks a little like one is left alone."""

from __future__ import annotations

import pytest

from windlass.secrets import find_secrets, mask

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
        (["-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----"], "MII", "private key"),
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
    assert find_secrets(words, {"SORT_KEY": "accuracy", "EDITOR_KEY": "vi", "SSH_KEY": "/home/me/.ssh/id_rsa"}) == []


def test_values_of_this_shell() -> None:
    environ = {"MY_SECRET": "correct horse", "PATH": "/usr/bin", "TOKENIZERS_PARALLELISM": "false", "A_KEY": "short"}
    assert find_secrets(["say", "correct horse", "short"], environ) == ["the value of $MY_SECRET"]
    assert mask("say correct horse, twice: correct horse; /usr/bin", environ) == "say ***, twice: ***; /usr/bin"


def test_one_secret_is_told_once() -> None:
    assert find_secrets(["--api-key", HUGGING], {"HF_TOKEN": HUGGING}) == ["the value of $HF_TOKEN"]
