"""A trial that spans nodes: each of them has the code, the data and a local folder under the same paths."""

from __future__ import annotations

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import on_cluster
from tests.real.study import wait_until_idle

pytestmark = pytest.mark.slow
# Every rank looks at what its node has and says so.
RANK = """\
import os, socket
local = os.environ["SLURM_TMPDIR"]
names = sorted(os.listdir(os.path.join(local, "datasets", "small")))
open(os.path.join(local, "mine"), "w").write("x")
print(socket.gethostname(), names, os.path.exists("rank.py"), os.environ["source_dir"] == os.getcwd(), flush=True)
"""


LEFT = "find {} -maxdepth 2 -name '*_0_*' 2>/dev/null; true"  # jobs' own folders


def write_study(project: Project) -> None:
    project.write("rank.py", RANK)
    for name in ("a", ".hidden", "b c"):
        project.write(f"datasets/small/{name}", name)
    project.write(
        "study.yaml",
        "command: srun --ntasks-per-node=1 python3 rank.py {n}\nparameters: {n: [1, 2]}\ndata: [datasets/small]\n"
        "needs: {time: 10m}\nslurm: {nodes: 3, agents: 1}\nslots: 1\n",
    )


def test_each_node_has_what_the_first_has(project: Project, slurm_apart: Cluster) -> None:
    with on_cluster(project, slurm_apart):
        write_study(project)
        project.run("run", "--wait")
        assert project.counts() == {"done": 2}
        lines = project.run("logs", "0").stdout.splitlines()
        assert len({line.split()[0] for line in lines}) == 3, lines
        assert all("['.hidden', 'a', 'b c'] True True" in line for line in lines), lines
        notes = project.json("status", "--json")["notes"]
        assert sum("datasets/small" in note for note in notes) == 3, "unpacked once on each node"


def test_what_was_made_on_other_nodes_is_gone_afterwards(project: Project, make_cluster: object) -> None:
    """Also after a cancel. The site has no local folder of its own here: ours is made on every node."""
    cluster: Cluster = make_cluster(  # type: ignore[operator]
        database=False, nodes_apart=True, settings={"Prolog": "", "TaskProlog": "", "Epilog": ""}
    )
    with on_cluster(project, cluster):
        local = cluster.home / "local"
        project.write("config/windlass/sites/generic.toml", f'local_scratch = "{local}/$USER"\n')
        write_study(project)
        project.run("run", "--wait")
        assert project.counts() == {"done": 2}
        wait_until_idle(cluster)
        assert cluster.run("srun", "-N4", "--quiet", "sh", "-c", LEFT.format(local)).strip() == ""
        project.run("retry", "--done", "--yes", "--no-run")
        project.write("rank.py", "import time\ntime.sleep(600)\n")
        project.run("run")
        wait_for(lambda: project.counts().get("running"))
        project.run("cancel", "--yes")
        wait_until_idle(cluster)
        assert cluster.run("srun", "-N4", "--quiet", "sh", "-c", LEFT.format(local)).strip() == ""
