"""`windlass lint`: an array's range against its files, and what the cluster does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.lint.arrays import parse_tasks, render_tasks
from windlass.lint.script import Findings, lint_script

HEAD = "#!/bin/bash\n#SBATCH --time=0-03:00:00\n#SBATCH --mem=4G\n#SBATCH --cpus-per-task=2\n"
TASK = "$SLURM_ARRAY_TASK_ID"


def lint(folder: Path, body: str, array: str | None = None) -> Findings:
    return lint_script((HEAD + body).encode(), "job.sh", str(folder), {"HOME": str(folder)}, array)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Twenty files, and one of twenty lines."""
    (tmp_path / "script/far").mkdir(parents=True)
    for number in range(20):
        (tmp_path / f"script/far/tasks_{number}.txt").touch()
    (tmp_path / "lines.txt").write_text("x\n" * 20)
    return tmp_path


@pytest.mark.parametrize(
    "body",
    [
        "cd ../..\nparallel -j 4 --joblog log/t_$SLURM_ARRAY_TASK_ID.log -u < 'script/far/tasks_'\"$SLURM_ARRAY_TASK_ID\"'.txt'\n",
        'parallel -j 4 < "tasks_${SLURM_ARRAY_TASK_ID}.txt"\n',
        'i=$SLURM_ARRAY_TASK_ID\nfile=tasks_$i.txt\nbash "$file"\n',
        f"cd $SLURM_SUBMIT_DIR\nparallel \\\n  -j 4 < tasks_{TASK}.txt\n",
    ],
)  # fmt: skip
def test_a_range_that_is_one_too_long(tasks: Path, body: str) -> None:
    """The very script of a guide that submits twenty files as 0-20."""
    found = lint(tasks / "script/far", body, "0-20")
    (problem,) = found.problems
    assert "there is no tasks_20.txt for task 20; there are 20 such files" in problem.message
    assert problem.hint == "--array=0-19" and problem.line > 4
    assert not lint(tasks / "script/far", body, "0-19%5").problems
    (left_out,) = lint(tasks / "script/far", body, "0-9%5").remarks[-1:]
    assert (
        "leaves out tasks_10.txt and 9 more files" in left_out.message
        and left_out.hint == "--array=0-19%5"
    )


def test_a_range_in_the_script_itself(tasks: Path) -> None:
    directive = "#SBATCH --array=1-20\n"
    found = lint(tasks / "script/far", f"{directive}bash tasks_{TASK}.txt\n")
    assert [problem.hint for problem in found.problems] == ["--array=0-19"]


@pytest.mark.parametrize(
    "body",
    [
        'sed -n "${SLURM_ARRAY_TASK_ID}p" lines.txt | bash\n',
        'x=$(sed "${SLURM_ARRAY_TASK_ID}q;d" lines.txt)\n',
        f'awk "NR=={TASK}" lines.txt\n',
    ],
)
def test_a_line_for_each_task(tasks: Path, body: str) -> None:
    for array in ("0-19", "1-21", "0"):
        (problem,) = lint(tasks, body, array).problems
        assert "lines.txt has lines 1 to 20" in problem.message and problem.hint == "--array=1-20"
    assert not lint(tasks, body, "1-20%4").problems


@pytest.mark.parametrize(
    "body",
    [
        f"python train.py --seed {TASK}\n",
        f"python train.py --out result_{TASK}.json > log_{TASK}.txt\n",
        f"python train.py --data $DATA/part_{TASK}.npz\n",  # nobody knows where this is
        f"cd $(mktemp -d)\nbash tasks_{TASK}.txt\n",
        "cat <<END\nbash < tasks_$SLURM_ARRAY_TASK_ID.txt\nEND\n",
        "# parallel < tasks_$SLURM_ARRAY_TASK_ID.txt\necho\n",
    ],
)
def test_what_says_nothing_of_files(tmp_path: Path, body: str) -> None:
    for number in range(3):
        (tmp_path / f"result_{number}.json").touch()
    found = lint(tmp_path, body, "0-9")
    assert found.problems == () and not [
        remark for remark in found.remarks if "--array" in remark.message
    ]


def test_a_range_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    text = "#SBATCH --output=logs/%A_%a.out\n#SBATCH --mail-type=ALL\npython train.py\n"
    assert not [
        remark
        for remark in lint(tmp_path, text, "0-20").remarks
        if "without --array" in remark.message
    ]
    assert [
        remark
        for remark in lint(tmp_path, text, "0-20").remarks
        if "for an array is a flood" in remark.message
    ]
    assert [
        remark for remark in lint(tmp_path, text).remarks if "without --array" in remark.message
    ]
    for wrong, words in (
        ("abc", "is no list of numbers"),
        ("5-1", "5 is above 1"),
        ("", "is no list of numbers"),
    ):
        (problem,) = lint(tmp_path, text, wrong).problems
        assert words in problem.message


def test_ranges() -> None:
    assert parse_tasks("0-4,7,10-14:2%3") == [0, 1, 2, 3, 4, 7, 10, 12, 14]
    assert parse_tasks("x") == [] and parse_tasks("4-2") == []
    assert render_tasks([0, 1, 2, 5], "0-9%3") == "0-2,5%3"


def test_what_the_cluster_does_not_have(project: Project) -> None:
    project.env["SLURM_CONF"] = str(project.folder / "none.conf")
    gpus = "#SBATCH --gres=gpu:h100:1\n#SBATCH --account=def-prof\n"
    project.write("job.sh", HEAD + gpus + "python train.py\n")
    assert project.run("lint", "job.sh").stdout == "nothing found\n"  # nobody can be asked
    said = project.run("lint", "--site", "beluga", "job.sh", code=2).stdout
    assert "job.sh:5: --gres=gpu:h100:1: beluga has no GPUs of type 'h100'; there are: v100" in said
    assert "#SBATCH --gres=gpu:v100:1" in said
    project.write(
        "job.sh", HEAD.replace("0-03", "9-03") + "#SBATCH --gpus=v100:2\npython train.py\n"
    )
    said = project.run("lint", "--site", "beluga", "job.sh", code=2).stdout
    assert "job.sh:2: --time=9-03:00:00: such a job never starts: beluga allows 7-00:00:00" in said
    assert "remark: job.sh:1: no account asked for: beluga wants one" in said and "type" not in said
    project.write(
        "job.sh", HEAD + "#SBATCH --partition=PGR\n#SBATCH --gpus-per-node=2\npython train.py\n"
    )
    said = project.run("lint", "--site", "mlp", "job.sh", code=2).stdout
    assert "there is no partition 'PGR'" in said
