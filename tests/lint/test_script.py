"""`windlass lint`: what it finds in batch scripts, on which line, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.lint.script import Findings, lint_script
from windlass.slurm.directives import parse_script, split_words

HEAD = "#!/bin/bash\n"
ASKS = "#SBATCH --time=0-03:00:00\n#SBATCH --mem=4G\n#SBATCH --cpus-per-task=2\n"


def lint(text: str | bytes, folder: Path | str = "/", **environ: str) -> Findings:
    return lint_script(
        text.encode() if isinstance(text, str) else text, "job.sh", str(folder), environ
    )


def one(line: str, folder: Path | str = "/") -> Findings:
    """A sound script with one more directive, on line 2."""
    kept = [ask for ask in ASKS.splitlines() if ask.split("=")[0] not in line]
    return lint(HEAD + line + "\n" + "\n".join(kept) + "\npython train.py\n", folder)


@pytest.mark.parametrize(
    "line,words",
    [
        ("# SBATCH --partition=gpu", "ignored: a blank"),
        ("  #SBATCH --partition=gpu", "ignored: a directive must begin in the first column"),
        ("#sbatch --partition=gpu", "ignored: #sbatch is a comment"),
        ("#SBATCH --partiton=gpu", "did you mean --partition?"),
        ("#SBATCH --job_name=x", "did you mean --job-name?"),
        ("#SBATCH --walltime=1:00:00", "did you mean --time?"),
        ("#SBATCH --frobnicate", "sbatch has no option --frobnicate"),
        ("#SBATCH --gpu=1", "--gpu can mean"),
        ("#SBATCH --qos", "--qos needs a value"),
        ("#SBATCH --requeue=1", "takes no value"),
        ("#SBATCH --qos = short", "#SBATCH --qos=short"),
        ("#SBATCH --qos= short", "#SBATCH --qos=short"),
        ("#SBATCH --qos =short", "#SBATCH --qos=short"),
        ("#SBATCH -q=short", "#SBATCH --qos=short"),
        ("#SBATCH -gres=gpu:1", "--gres=gpu:1"),
        ("#SBATCH -time=5", "two dashes: --time=5"),
        ("#SBATCH qos=short", "#SBATCH --qos=short"),
        ("#SBATCH --tmp=2 G", "'G' is no option"),
        ("#SBATCH --qos=short // fast", "a comment begins with #"),
        ("#SBATCH ––qos=short", "typographic"),
        ("#SBATCH\u00a0--qos=short", "no-break space"),
        ("#SBATCH: --qos=short", "colon"),
        ("#SBATCH --job-name=bob's", "never closed"),
        ("#SBATCH --job-name=a#b", "cuts '--job-name=a' short"),
        ("#SBATCH --job-name=$USER", "variables mean nothing"),
        ("#SBATCH --output=$HOME/x.out", "variables mean nothing"),
        ("#SBATCH --output=~/x.out", "~ means nothing"),
        ("#SBATCH --output=logs/x.out", "there is no folder /logs"),
        ("#SBATCH --output=/tmp/%j/x.out", "Slurm makes no folders"),
        ("#SBATCH --chdir=/no/such", "would run in /tmp"),
        ("#SBATCH --account=TO_FILL_ACCOUNT", "placeholder"),
        ("#SBATCH --account=<account>", "placeholder"),
        ("#SBATCH --mail-user=<your email>", "no option"),
        ("#SBATCH --time=24h", "no time that sbatch reads"),
        ("#SBATCH --mem=1.5G", "no size that sbatch reads"),
        ("#SBATCH --mem=2GiB", "no size that sbatch reads"),
        ("#SBATCH --array=abc", "no list of numbers"),
        ("#SBATCH --array=5-1", "5 is above 1"),
        ("#SBATCH --mail-type=DONE", "--mail-type=DONE"),
        ("#SBATCH --cpus-per-task=two", "whole number"),
        ("#SBATCH --comment=“x”", "typographic quotes"),
        ("#SBATCH --comment=ghp_" + "Ab1" * 12, "GitHub token"),
    ],
)
def test_wrong_directives(line: str, words: str) -> None:
    found = one(line)
    said = "\n".join(problem.render() for problem in found.problems)
    assert words in said
    assert all(problem.line == 2 for problem in found.problems)


@pytest.mark.parametrize(
    "line,words",
    [
        ("##SBATCH --partition=gpu", "is a comment"),
        ("#SBATCH --time=24", "24 minutes"),
        ("#SBATCH --time=1:30", "1 minutes and 30 seconds"),
        ("#SBATCH --time=0", "no limit"),
        ("#SBATCH --time=-1", "no limit"),
        ("#SBATCH --mem=10", "10 MB"),
        ("#SBATCH --mem=0", "all the memory"),
        ("#SBATCH --output=/tmp/x_%A_%a.out", "4294967294"),
        ("#SBATCH --output=/tmp/x_%j_%n.out", "%n tells nothing"),
        (
            "#SBATCH --array=0-9 --output=/tmp/x.out",
            "all tasks of the array write to this one file",
        ),
        ("#SBATCH --array=0-9 --mail-type=ALL", "flood"),
        ("#SBATCH --array=0-9%", "no limit"),
        ("#SBATCH --job-name=x_%j", "not in the job's name"),
        ("#SBATCH --qos=a --qos=b", "the last one counts"),
        ("#PBS -N name", "obeys #PBS"),
        ("#SBATCH hetjob", "2 parts"),
    ],
)
def test_remarks(line: str, words: str) -> None:
    found = one(line)
    assert found.problems == ()
    assert words in "\n".join(problem.render() for problem in found.remarks if problem.line == 2)


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --partition=a,b",
        "#SBATCH --part=a",
        "#SBATCH -p a -q b",
        "#SBATCH -pa",
        "#SBATCH --qos short   # the quick one",
        "#SBATCH --qos=short# the quick one",
        '#SBATCH --job-name="my job" --comment=\'it is "so"\'',
        "#SBATCH --time=1-0",
        "#SBATCH --time=1-",
        "#SBATCH --time=infinite",
        "#SBATCH --time=Unlimited",
        "#SBATCH --time=0-24:00",
        "#SBATCH --mem=2GB",
        "#SBATCH --mem=32000",
        "#SBATCH --mem-per-cpu=2g",
        "#SBATCH --array=0-99:3,200%5",
        "#SBATCH --array=0-9 --output=/tmp/x_%A_%a.out",
        "#SBATCH --exclusive",
        "#SBATCH --exclusive=user --nice",
        "#SBATCH -HO",
        "#SBATCH --output=/dev/null",
        "#SBATCH --output=/tmp/100%%_%5j.out",
        "#SBATCH --container-image=nvcr.io#nvidia/pytorch:24.01 ",
        "#SBATCH --gres=gpu:a100:1 --signal=B:USR1@60 --mail-type=end,fail,TIME_LIMIT_80",
        "#SBATCH --comment=$5",
        "#SBATCH",
        "#SBATCH\t--qos=short",
        "#SBATCH --qos=short \\",
        "# SBATCH directives follow",
        "# the usual",
        "",
    ],
)
def test_sound_directives(line: str) -> None:
    found = one(line)
    expected = ["# cuts"] if "#nvidia" in line else []
    assert [problem.message[: len("# cuts")] for problem in found.problems] == expected
    assert found.remarks == ()


def test_where_directives_end() -> None:
    text = (
        HEAD
        + "\n  # indented comment\n   \n"
        + ASKS
        + "set -e\n#SBATCH --qos=short\n##SBATCH --x\npython t.py\n"
    )
    found = lint(text)
    assert [(p.line, p.hint) for p in found.problems] == [(9, "move it above line 8")]
    assert [p.line for p in found.remarks] == [10]


def test_scripts_written_by_scripts_are_left_alone() -> None:
    text = (
        HEAD
        + ASKS
        + "cat > x <<-'END'\n#SBATCH --time=5\n# SBATCH x\nTO_FILL\n\tEND\ncat <<< word\n#SBATCH --qos=x\n"
    )
    assert [(p.line) for p in lint(text).problems if "ignored" in p.message] == [11]


@pytest.mark.parametrize(
    "text,words,line",
    [
        (b"", "empty", 1),
        (b"echo hi\n", "no #! line", 1),
        (b"\n#!/bin/bash\n", "without blanks before it", 1),
        (b"\xef\xbb\xbf#!/bin/bash\n", "BOM", 1),
        (b"#!/bin/bash\necho\necho\r\n", "CRLF", 3),
        (b"#!/bin/bash\n\0\n", "NUL", 2),
        (b"#!/no/such/zsh\n", "bad interpreter", 1),
        (b"#!bash\n", "absolute path", 1),
        (b"#!\n", "no interpreter", 1),
    ],
)
def test_what_is_wrong_with_the_file(text: bytes, words: str, line: int) -> None:
    assert any(words in problem.message and problem.line == line for problem in lint(text).problems)


def test_log_folders(tmp_path: Path) -> None:
    (tmp_path / "logs" / "me").mkdir(parents=True)
    for value in ("logs/%j.out", "x.out", "logs/%u/%j.out", f"{tmp_path}/logs/%x.out"):
        text = f"{HEAD}{ASKS}#SBATCH -o {value}\n"
        assert lint(text, tmp_path, USER="me").problems == (), value
    text = f"{HEAD}{ASKS}#SBATCH -o logs/%u/%j.out\n"
    assert "logs/you" in lint(text, tmp_path, USER="you").problems[0].message
    chdir = f"{HEAD}{ASKS}#SBATCH --chdir={tmp_path}/logs\n#SBATCH --error=me/%j.err\n"
    assert lint(chdir, "/", USER="me").problems == ()


@pytest.mark.parametrize(
    "body,found",
    [
        ("python train.py\ncp out /x\n", True),
        ("srun python train.py\necho done\n", True),
        ("python a.py &\npython b.py &\nwait\n", True),
        ("python train.py\ncode=$?\ncp out /x\nexit $code\n", False),
        ("set -e\npython train.py\ncp out /x\n", False),
        ("set -euo pipefail\npython train.py\ncp out /x\n", False),
        ("python train.py || exit 1\ncp out /x\n", False),
        ("cp data /x\npython train.py\n", False),
        ("echo hi\n", False),
        ("trap 'cp out /x' EXIT\npython train.py\necho ok\n", False),
    ],
)
def test_exit_codes_that_do_not_tell(body: str, found: bool) -> None:
    findings = lint(HEAD + ASKS + body)
    assert findings.problems == ()
    assert any("exit code" in problem.message for problem in findings.remarks) == found


def test_folders_that_depend_on_luck() -> None:
    found = lint(
        HEAD + ASKS + 'cd ../..\ncd "$(dirname "$0")"\ncd $SLURM_SUBMIT_DIR\npython t.py\n'
    )
    assert [problem.line for problem in found.remarks] == [5, 6]


def test_what_every_job_should_say() -> None:
    found = lint(HEAD + "python t.py\n")
    assert [problem.message.split(" asked")[0] for problem in found.remarks] == [
        "no time",
        "no memory",
        "no cores",
    ]
    assert lint(HEAD + ASKS + "python t.py\n") == Findings(shell="/bin/bash")


def test_secrets_and_placeholders_of_the_body() -> None:
    text = (
        HEAD
        + ASKS
        + "export WANDB_API_KEY=0123456789abcdef\npython t.py --u YOUR_NAME\n# YOUR_NAME\npython t.py swordfish1\n"
    )
    found = lint(text, SHELL_SECRET="swordfish1")
    assert [problem.line for problem in found.problems] == [5, 6, 8]
    assert "0123456789" not in str(found.problems) and "swordfish1" not in str(found.problems)


def test_words_of_a_directive() -> None:
    assert split_words(r" --a='x y' --b=it\'s --c=a\\b # no").found == [
        "--a=x y",
        "--b=it's",
        r"--c=a\b",
    ]
    assert split_words(r"a\ b").found == ["a", "b"]  # unlike in a shell
    assert split_words('"a\\"b #c"').found == ['a"b #c']


def test_the_last_one_counts() -> None:
    script = parse_script(HEAD + "#SBATCH -t 5\n#SBATCH --time=7 --requeue\n")
    assert (
        script.value("time") == "7"
        and script.value("requeue") == ""
        and script.value("mem") is None
    )


def test_the_verb(project: Project) -> None:
    project.write("good job.sh", HEAD + ASKS + "python t.py\n")
    project.write("odd.sh", HEAD + "#SBATCH --time=24\npython t.py\n")
    project.write("bad.sh", HEAD + ASKS + "# SBATCH --qos=x\nif then\n")
    assert project.run("lint", "good job.sh").stdout == "nothing found\n"
    assert "remark: odd.sh:2: --time=24 is 24 minutes" in project.run("lint", "odd.sh").stdout
    said = project.run("lint", "bad.sh", code=2)
    assert (
        "error: bad.sh:5: ignored" in said.stdout
        and "error: bad.sh:6: bash: syntax error" in said.stdout
    )
    answer = json.loads(project.run("lint", "bad.sh", "odd.sh", "--json", code=2).stdout)
    assert {problem["line"] for problem in answer["problems"]} == {5, 6}
    assert {remark["file"] for remark in answer["remarks"]} == {"odd.sh"}
    assert "No such file" in project.run("lint", "none.sh", code=2).stderr


def test_another_shell_reads_its_own(project: Project) -> None:
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not here")
    project.write("z.sh", f"#!{zsh}\n{ASKS}print -l ${{(k)options}}\n")
    project.run("lint", "z.sh")
    project.write("z.sh", f"#!{zsh}\n{ASKS}for x in; do\n")
    assert "zsh: parse error" in project.run("lint", "z.sh", code=2).stdout
