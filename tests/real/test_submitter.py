"""What job_submitter.sh promises, on a real cluster."""

from __future__ import annotations

import re

from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import cancel_all
from tests.real.study import wait_until_idle
from windlass.core.ids import slug

DUMP = 'sh -c \'env > "$scratch_dir/dump"; while [ -e "$scratch_dir/hold" ]; do sleep 0.1; done\'\n'


def test_defaults_and_variables_of_its_files(cluster_project: Project, slurm: Cluster) -> None:
    project = cluster_project
    project.write("hpc_files/experiment_configurations.txt", DUMP)
    project.env["SCRATCH"] = str(project.folder / "scratch")
    words = (
        "-C",
        "hpc_files/experiment_configurations.txt",
        "--gpus",
        "2",
        "--cpus",
        "2",
        "--num-nodes",
        "2",
        "-W",
        "plain",
    )
    asked = project.json("plan", *words, "--json")["request"]
    assert (asked["gpus"], asked["nodes"], asked["memory_mb"]) == (2, 2, 8000), (
        "a default is cut to what a node has"
    )
    assert (
        "gives more than 8000 MB"
        in project.run("plan", *words, "--mem-per-gpu", "10G", code=2).stderr
    )
    hold = project.write(f"scratch/{slug(project.folder.name)}/hold", "")
    project.run(
        "run",
        "-C",
        "hpc_files/experiment_configurations.txt",
        "--exp-name",
        "dumped",
        "--sbatch=--exclude=node2",
    )
    dump = project.study_folder().parent / "dump"
    wait_for(dump.exists)
    (job,) = slurm.run("squeue", "-h", "-o", "%A").split()
    shown = slurm.run("scontrol", "show", "job", f"{job}_0")
    hold.unlink()
    assert re.search(r"TRES=cpu=2,mem=8000M,node=1,billing=\d+,gres/gpu=1\b", shown), shown
    wait_until_idle(slurm)
    found = dict(line.split("=", 1) for line in dump.read_text().splitlines() if "=" in line)
    assert (
        found["path_to_local_node_storage"] == found["SLURM_TMPDIR"]
        and found["exp_name"] == "dumped"
    )


def test_a_cluster_without_scratch_that_nobody_knows(
    project: Project, slurm_apart: Cluster
) -> None:
    project.env.update(slurm_apart.env)
    project.write("study.yaml", "command: echo {x}\nparameters: {x: [1]}\n")
    refused = project.run("run", "--on", "slurm", code=2)
    assert "$SCRATCH is not set" in refused.stderr and "add `export SCRATCH=/" in refused.stderr
    assert not (project.folder / ".windlass").exists()
    project.run("plan", "--folder", ".windlass")
    scratch = project.folder / "scratch"
    project.write(
        "config/windlass/sites/toy.toml",
        f'clusters = [\'windlass\']\nscratch = """{scratch}/$USER"""\n',
    )
    project.env.pop("USER", None)
    try:
        project.run("run", "--on", "slurm", "--wait", "--quiet")
    finally:
        cancel_all(slurm_apart)
    assert project.study_folder().is_relative_to(scratch) and "$" not in str(project.study_folder())
