"""`windlass doctor --folder` measures together with a job on another node."""

from __future__ import annotations

import os

from scripts.slurm import Cluster

from tests.conftest import Project
from tests.real.conftest import on_cluster


def test_a_job_on_another_node_answers(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        place = project.folder / "studies"
        found = project.json("doctor", "--folder", str(place), "--json")
        other = found["other"]
        assert other is not None, found
        assert other["host"].startswith("node") and other["host"] != found["host"] and found["job"]
        assert other["race"]["rounds"] and not other["race"]["wrong"]
        assert other["lines_s"]["longest"] is not None and other["clock_ahead_s"] is not None
        left = sorted(name for name in os.listdir(place) if name != "hpc_outputs")
        assert left == [".windlass-folder.json"]
        assert not [name for name in os.listdir(place / "hpc_outputs") if name.startswith("doctor")]
        assert not slurm_apart.run("squeue", "-h").strip()
