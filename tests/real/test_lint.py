"""What `windlass lint` says of directives is what a real sbatch does with them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from windlass.lint.script import lint_script
from windlass.slurm.options import LETTERS, VALUES

HEAD = "#!/bin/bash\n"
BODY = "true\n"


def submit(
    cluster: Cluster, folder: Path, text: str | bytes, *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sbatch", "--parsable", *words],
        input=text.encode().decode("latin-1") if isinstance(text, str) else text.decode("latin-1"),
        encoding="latin-1",
        cwd=folder,
        env={**os.environ, **cluster.env},
        capture_output=True,
        timeout=180,
        check=False,
    )


def asked(cluster: Cluster, folder: Path, text: str) -> dict[str, str]:
    """What the scheduler understood of a script that it takes; the job never runs."""
    done = submit(cluster, folder, text, "--hold")
    assert done.returncode == 0, done.stderr
    numbers = re.findall(r"(?m)^\d+", done.stdout)
    said = cluster.run("scontrol", "show", "job", numbers[0])
    cluster.run("scancel", *numbers)
    return dict(re.findall(r"(?m)(\w+)=(\S*)", said))


def problems(text: str | bytes, folder: Path) -> list[str]:
    raw = text.encode() if isinstance(text, str) else text
    return [problem.message for problem in lint_script(raw, "job.sh", str(folder)).problems]


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "true\n#SBATCH --time=7\n",
        HEAD + "set -e\n#SBATCH --time=7\ntrue\n",
        HEAD + "# SBATCH --time=7\ntrue\n",
        HEAD + "  #SBATCH --time=7\ntrue\n",
        HEAD + "#sbatch --time=7\ntrue\n",
    ],
)
def test_ignored_is_ignored(slurm: Cluster, tmp_path: Path, text: str) -> None:
    assert any("ignored" in said for said in problems(text, tmp_path))
    assert asked(slurm, tmp_path, text)["TimeLimit"] != "00:07:00"


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --time=7",
        "#SBATCH --time 7",
        "#SBATCH -t7",
        "#SBATCH --comm=x --time=7",
        "#SBATCH\t--time=7",
        "#SBATCH--time=7",
        "#SBATCH --time=7 # minutes",
        "#SBATCH --time=7# minutes",
        '#SBATCH --time="7"',
        "#SBATCH --time=7 \\",
        "#SBATCH --time=3\n#SBATCH -t 7",
        "# a comment\n\n   \n  # another\n##SBATCH --time=3\n#SBATCH --time=7",
        "#SBATCH --requeue --exclusive=user --time=7 --nice --mem=1GB -J 'a b'",
    ],
)
def test_fine_is_taken(slurm: Cluster, tmp_path: Path, line: str) -> None:
    text = f"{HEAD}{line}\n{BODY}"
    assert problems(text, tmp_path) == []
    assert asked(slurm, tmp_path, text)["TimeLimit"] == "00:07:00"


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --partiton=debug",
        "#SBATCH --job_name=x",
        "#SBATCH --gpu=1",
        "#SBATCH --tim=7",
        "#SBATCH --qos",
        "#SBATCH --requeue=1",
        "#SBATCH --time = 7",
        "#SBATCH --time= 7",
        "#SBATCH --time =7",
        "#SBATCH -t=7",
        "#SBATCH -p=debug",
        "#SBATCH -time=7",
        "#SBATCH time=7",
        "#SBATCH --mem=2 G",
        "#SBATCH --mem=2GiB",
        "#SBATCH --mem=1.5G",
        "#SBATCH --time=24h",
        "#SBATCH --time=7 // minutes",
        "#SBATCH ––time=7",
        "#SBATCH\u00a0--time=7",
        "#SBATCH: --time=7",
        "#SBATCH --job-name=bob's",
        "#SBATCH --array=abc",
        "#SBATCH --array=5-1",
        "#SBATCH --mail-type=DONE",
        "#SBATCH --cpus-per-task=two",
    ],
)
def test_refused_is_refused(slurm: Cluster, tmp_path: Path, line: str) -> None:
    text = f"{HEAD}{line}\n{BODY}"
    assert problems(text, tmp_path)
    assert submit(slurm, tmp_path, text, "--hold").returncode != 0


@pytest.mark.parametrize(
    "text",
    [
        b"true\n",
        b"\n#!/bin/bash\ntrue\n",
        b"\xef\xbb\xbf#!/bin/bash\ntrue\n",
        b"#!/bin/bash\ntrue\r\n",
        b"#!/bin/bash\n\0\n",
    ],
)
def test_files_that_are_refused(slurm: Cluster, tmp_path: Path, text: bytes) -> None:
    assert problems(text, tmp_path)
    assert submit(slurm, tmp_path, text, "--hold").returncode != 0


@pytest.mark.parametrize(
    "line,field,value",
    [
        ("#SBATCH --time=24", "TimeLimit", "00:24:00"),
        ("#SBATCH --time=1:30", "TimeLimit", "00:02:00"),
        ("#SBATCH --time=0", "TimeLimit", "UNLIMITED"),
        ("#SBATCH --time=-1", "TimeLimit", "UNLIMITED"),
        ("#SBATCH --mem=10", "MinMemoryNode", "10M"),
        ("#PBS -N named", "JobName", "named"),
        ("#SBATCH --time=3\n#SBATCH --time=9", "TimeLimit", "00:09:00"),
    ],
)
def test_remarks_are_true(
    slurm: Cluster, tmp_path: Path, line: str, field: str, value: str
) -> None:
    text = f"{HEAD}{line}\n{BODY}"
    found = lint_script(text.encode(), "job.sh", str(tmp_path))
    assert found.problems == ()
    assert [remark for remark in found.remarks if remark.line > 1]
    assert asked(slurm, tmp_path, text)[field] == value


def test_values_taken_as_they_stand(slurm: Cluster, tmp_path: Path) -> None:
    text = f"{HEAD}#SBATCH --job-name=$USER\n#SBATCH --output=~/x.out\n{BODY}"
    said = asked(slurm, tmp_path, text)
    assert said["JobName"] == "$USER"
    assert said["StdOut"].endswith("/~/x.out")
    assert len(problems(text, tmp_path)) == 2
    cut = f"{HEAD}#SBATCH --job-name=a#b\n{BODY}"
    assert asked(slurm, tmp_path, cut)["JobName"] == "a"
    assert problems(cut, tmp_path)


def test_a_missing_log_folder_fails_the_job(slurm: Cluster, tmp_path: Path) -> None:
    text = f"{HEAD}#SBATCH --output=logs/x.out\ntouch ran\n"
    assert problems(text, tmp_path)
    number = submit(slurm, tmp_path, text).stdout.strip()
    wait_for(lambda: "JobState=FAILED" in slurm.run("scontrol", "show", "job", number))
    assert os.listdir(tmp_path) == []
    (tmp_path / "logs").mkdir()
    assert problems(text, tmp_path) == []
    number = submit(slurm, tmp_path, text).stdout.strip()
    wait_for(lambda: "JobState=COMPLETED" in slurm.run("scontrol", "show", "job", number))


def test_a_masked_exit_code(slurm: Cluster, tmp_path: Path) -> None:
    text = HEAD + "python3 -c 'raise SystemExit(3)'\necho done\n"
    assert any(
        "exit code" in remark.message
        for remark in lint_script(text.encode(), "j", str(tmp_path)).remarks
    )
    number = submit(slurm, tmp_path, text).stdout.strip()
    wait_for(lambda: "JobState=COMPLETED" in slurm.run("scontrol", "show", "job", number))


def test_the_table_of_options(slurm: Cluster) -> None:
    """Every option of this Slurm is in the table, with the right kind of value."""
    told = {word[2:] for word in re.findall(r"--[a-z][a-z-]+", slurm.run("sbatch", "--help"))}
    assert told - set(VALUES) == set()
    wrong = []
    env = {**os.environ, **slurm.env}
    for name in sorted(told - {"help", "usage", "version"}):
        bare, given = (
            subprocess.run(
                ["sbatch", "--test-only", word],
                env=env,
                capture_output=True,
                text=True,
                check=False,
                input="",
            ).stderr
            for word in (f"--{name}", f"--{name}=1")
        )
        kind = (
            ""
            if "doesn't allow an argument" in given
            else "="
            if "requires an argument" in bare
            else "?"
        )
        wrong += [(name, kind)] if kind != VALUES[name] else []
    assert wrong == []
    letters = set(re.findall(r"(?m)^\s+-(\w), --", slurm.run("sbatch", "--help")))
    assert letters - set(LETTERS) == set()


def test_the_verb_asks_the_cluster(cluster_project: Project) -> None:
    asks = "#SBATCH --mem={mem}\n#SBATCH --cpus-per-task=1\n#SBATCH --time={time}\n"
    cluster_project.write("ok.sh", HEAD + asks.format(mem="1G", time="0-00:20:00") + BODY)
    assert cluster_project.run("lint", "ok.sh").stdout == "nothing found\n"
    cluster_project.write("big.sh", HEAD + asks.format(mem="900G", time="0-00:20:00") + BODY)
    assert "sbatch refuses it: " in cluster_project.run("lint", "big.sh", code=2).stdout
    for option in ("gres=gpu:h100:1", "gpus=h100:1", "gpus-per-node=h100:1"):
        cluster_project.write(
            "gpu.sh", f"{HEAD}#SBATCH --{option}\n{asks.format(mem='1G', time='0-00:20:00')}{BODY}"
        )
        said = cluster_project.run("lint", "gpu.sh", code=2).stdout
        assert f"gpu.sh:2: --{option}: windlass has no GPUs of type 'h100'; there are: p100" in said
    said = cluster_project.run("lint", "ok.sh", "--array", "0-5000", code=2).stdout
    assert "sbatch refuses it: " in said
    cluster_project.write("long.sh", HEAD + asks.format(mem="1G", time="0-05:00:00") + BODY)
    said = cluster_project.run("lint", "long.sh", code=2).stdout
    assert (
        "long.sh:4: --time=0-05:00:00: such a job never starts: partition debug allows 0-00:30:00"
        in said
    )
    assert "--partition=long" in said
    for time in ("infinite", "Unlimited", "0", "0:00", "-1", "1-"):
        cluster_project.write("long.sh", HEAD + asks.format(mem="1G", time=time) + BODY)
        said = cluster_project.run("lint", "long.sh", code=2).stdout
        assert (
            f"long.sh:4: --time={time}: such a job never starts: partition debug allows 0-00:30:00"
            in said
        )
        assert ("--partition=long" in said) == (time == "1-")
