"""Real clusters for tests: one for all tests of a worker, and fresh ones for tests that break things."""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.slurm import (
    FILE_SYSTEMS,
    Cluster,
    NodesApartRefused,
    StorageRefused,
    find_missing_programs,
)

from tests.conftest import Project, wait_for

ROOT = Path(__file__).parent.parent.parent
# `make test-file-systems` runs tests on clusters whose scratch is this file system; see scripts/slurm/storage.py.
SCRATCH = os.environ.get("WINDLASS_TEST_SCRATCH", "")
# The one that `make test` uses: the lightest, and its listings are as old as those of NFS may be.
USUAL_SCRATCH = "sshfs"
SCRATCH_OPTIONS: dict[str, Any] = {"scratch": SCRATCH, "nodes_apart": True} if SCRATCH else {}
if SCRATCH and SCRATCH not in FILE_SYSTEMS:
    pytest.exit(
        f"WINDLASS_TEST_SCRATCH is {SCRATCH!r}, and is to be one of {', '.join(FILE_SYSTEMS)}", 2
    )

# A Python with torch, and perhaps JAX, Lightning and others. `make test` has none: they are large.
REAL_PARTS = os.environ.get("WINDLASS_TEST_TORCH", "")

needs_local_disk = pytest.mark.skipif(
    bool(SCRATCH), reason="the small disk that this test mounts is not seen by nodes that are apart"
)


def require_slurm() -> None:
    missing = find_missing_programs()
    if missing:
        message = f"a real Slurm is needed, `make slurm` installs it; missing: {', '.join(missing)}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only `make test-file-systems` has the time for."""
    if not SCRATCH:
        left_out = [item for item in items if item.get_closest_marker("file_systems")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def refuse_storage(kind: str, why: str) -> None:
    """Skip. In CI the file system of `make test` must be there, where the machine has FUSE at all."""
    if kind == USUAL_SCRATCH and os.environ.get("CI") == "true" and os.path.exists("/dev/fuse"):
        pytest.fail(why)
    pytest.skip(why)


def start_guard(cluster: Cluster) -> subprocess.Popen[bytes]:
    """A process that stops the cluster should this one be killed."""
    words = [
        sys.executable,
        "-m",
        "scripts.slurm",
        "stop",
        "--when-stdin-ends",
        "--folder",
        str(cluster.folder),
    ]
    return subprocess.Popen(
        words,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextlib.contextmanager
def started(cluster: Cluster) -> Iterator[Cluster]:
    require_slurm()
    try:
        cluster.start()
    except NodesApartRefused as error:
        pytest.skip(str(error))
    except StorageRefused as error:
        refuse_storage(cluster.scratch_kind, str(error))
    guard = start_guard(cluster)
    try:
        yield cluster
    finally:
        cluster.stop()
        guard.kill()
        guard.communicate()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with accounting that tests share. They leave it as they found it."""
    options = {**SCRATCH_OPTIONS, "shared": [tmp_path_factory.getbasetemp()]}
    with started(Cluster(tmp_path_factory.mktemp("slurm"), **options)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A shared cluster whose nodes have hostnames, processes and local disks of their own. No accounting."""
    folder, shared = tmp_path_factory.mktemp("apart"), [tmp_path_factory.getbasetemp()]
    if REAL_PARTS:
        shared.append(Path(REAL_PARTS).parent.parent)  # nodes have a /tmp of their own
    with started(
        Cluster(folder, database=False, nodes_apart=True, shared=shared, scratch=SCRATCH)
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A shared cluster with a network file system mounted on every node, also in `make test`. No accounting."""
    folder, shared = tmp_path_factory.mktemp("mounts"), [tmp_path_factory.getbasetemp()]
    kind = SCRATCH or USUAL_SCRATCH
    with started(
        Cluster(folder, database=False, nodes_apart=True, shared=shared, scratch=kind)
    ) as cluster:
        yield cluster


@pytest.fixture
def make_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Start clusters of one's own: `make_cluster(database=False, settings={"MaxArraySize": "11"})`."""
    with contextlib.ExitStack() as stack:

        def make(folder: Path | None = None, **options: Any) -> Cluster:
            options = {"shared": [tmp_path_factory.getbasetemp()], **options, **SCRATCH_OPTIONS}
            return stack.enter_context(
                started(Cluster(folder or tmp_path_factory.mktemp("own"), **options))
            )

        yield make


def cancel_all(cluster: Cluster) -> None:
    """Cancel every job, and wait until none is left."""
    user = getpass.getuser()
    # At once, not after KillWait; a job may be ending by itself meanwhile.
    cluster.run("scancel", "--quiet", "--full", "--signal=KILL", f"--user={user}")
    cluster.run("scancel", "--quiet", f"--user={user}")
    wait_for(lambda: not cluster.run("squeue", "-h").strip())


@contextlib.contextmanager
def on_cluster(project: Project, cluster: Cluster) -> Iterator[Project]:
    """The project's commands talk to this cluster; its jobs are gone afterwards."""
    project.env.update(cluster.env)
    if cluster.has_scratch:
        # Projects of other tests have the same name.
        project.env["SCRATCH"] = str(cluster.scratch / project.folder.parent.name)
    elif cluster.nodes_apart:
        # A cluster of several machines that no profile describes is refused without $SCRATCH.
        project.write("config/windlass/sites/apart.toml", 'clusters = ["windlass"]\n')
    try:
        yield project
    finally:
        cancel_all(cluster)


@pytest.fixture
def cluster_project(project: Project, slurm: Cluster) -> Iterator[Project]:
    with on_cluster(project, slurm):
        yield project
