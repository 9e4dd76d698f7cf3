"""A job that waits: what others put into the study's folder meanwhile is not executed."""

from __future__ import annotations

import os
import zipfile

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.study import wait_until_idle


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
def test_an_agent_that_was_exchanged_while_the_job_waited(
    cluster_project: Project, slurm: Cluster
) -> None:
    """The scheduler has a copy of the script, and the script has the checksum."""
    project = cluster_project
    project.run("run", "-e", "s", "--sbatch", "--hold", "--", "echo", "done")
    (number,) = project.json("status", "--json", "s")["jobs"]["jobs"]
    job = str(number["id"]).split("_", maxsplit=1)[0]
    folder, marker = project.study_folder(), project.folder / "executed"
    submitted = (folder / "agent.pyz").read_bytes()
    with zipfile.ZipFile(folder / "agent.pyz", "w") as archive:
        archive.writestr("windlass/__init__.py", "")
        archive.writestr("windlass/agent/__init__.py", "")
        archive.writestr(
            "windlass/agent/__main__.py", f"def main():\n    open({str(marker)!r}, 'w')\n"
        )
    os.chown(folder / "agent.pyz", 65534, -1)
    slurm.run("scontrol", "release", job)
    wait_until_idle(slurm)
    assert not marker.exists()
    logs = folder.parent / "hpc_outputs"
    wait_for(
        lambda: any("was not executed" in log.read_text() for log in logs.glob(f"s_{job}_*.out"))
    )
    assert project.counts() == {"waiting": 1}

    (folder / "agent.pyz").unlink()
    (folder / "agent.pyz").write_bytes(submitted)
    project.run("run", "-e", "s", "--", "echo", "done")
    wait_until_idle(slurm)
    assert project.counts() == {"done": 1}
