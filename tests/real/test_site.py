"""What Windlass knows of a real cluster, and GPUs counted while real jobs hold them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scripts.slurm import Cluster

from tests.conftest import Project, wait_for
from tests.real.conftest import on_cluster, require_slurm


@pytest.fixture(autouse=True)
def own_cache(project: Project) -> None:
    project.env["XDG_CACHE_HOME"] = str(project.folder / "cache")


def test_facts_of_the_cluster(cluster_project: Project) -> None:
    data = cluster_project.json("site", "--json")
    assert data["name"] == "windlass" and data["profile"] == "generic" and data["live"]
    assert data["version"] and data["max_array_size"] == 1001 and data["accounting"] is True
    partitions = {partition["name"]: partition for partition in data["partitions"]}
    assert [name for name, partition in partitions.items() if partition["is_default"]] == ["debug"]
    assert {name: partition["max_time_s"] for name, partition in partitions.items()} == {
        "debug": 1800,
        "short": 3 * 3600,
        "long": 7 * 86400,
        "a100": 86400,
        "down": None,
    }
    assert partitions["a100"]["allow_accounts"] == ["def-prof"] and not partitions["down"]["up"]
    assert {
        gpu["name"]: (gpu["count"], gpu["per_node"], gpu["memory_mb"]) for gpu in data["gpus"]
    } == {
        "p100": (6, 4, 12288),
        "v100l": (4, 4, 32768),
        "a100": (6, 4, 40960),
    }
    assert {(gpu["share_cpus"], gpu["share_memory_mb"]) for gpu in data["gpus"]} == {(2, 2000)}
    assert data["accounts"] == ["def-prof", "rrg-lab"] and data["default_account"] == "def-prof"
    qos = {one["name"]: one for one in data["qos"]}
    assert (
        qos["short"]["max_time_s"] == 3600
        and qos["onegpu"]["max_gpus_per_job"] == 1
        and "normal" in qos
    )


def test_nodes_are_counted_as_sinfo_counts_them(cluster_project: Project, slurm: Cluster) -> None:
    text = cluster_project.run("site", "--refresh").stdout
    for line in slurm.run("sinfo", "-s", "-h").splitlines():
        name, _, _, counts = line.split()[:4]
        assert any(
            row.split()[:1] == [name] and counts in row.split() for row in text.splitlines()
        ), line


def test_a_named_profile_over_the_live_facts(cluster_project: Project) -> None:
    data = cluster_project.json("site", "--site", "plai", "--json")
    assert data["typed_gpus"] is False and data["account_rule"] == "never"
    assert data["sources"]["account_rule"] == "profile plai (2022)"
    assert data["sources"]["partitions"] == "scontrol show partition"


def test_shares_are_asked_for(cluster_project: Project) -> None:
    answers = {
        one["command"].split()[0]: one for one in cluster_project.json("usage", "--json")["answers"]
    }
    assert "def-prof" in answers["sshare"]["text"]


def submit(cluster: Cluster, node: str, *words: str) -> None:
    cluster.run(
        "sbatch",
        "--output=/dev/null",
        "-w",
        node,
        "-c",
        "1",
        "--mem=100",
        *words,
        "--wrap",
        "sleep 600",
    )


def test_gpus_held_by_every_form_of_request(cluster_project: Project, slurm: Cluster) -> None:
    submit(slurm, "node1", "--gres=gpu:p100:1")
    submit(slurm, "node1", "--gres=gpu:1")
    submit(slurm, "node2", "--gpus=v100l:2")
    submit(slurm, "node3", "--gpus=1")
    submit(slurm, "node4", "--gpus-per-node=a100:1")
    submit(slurm, "node4", "--gpus-per-node=1")
    wait_for(lambda: slurm.run("squeue", "-h", "-t", "R", "-o", "%i").count("\n") == 6)
    slurm.run("scontrol", "update", "nodename=node4", "state=drain", "reason=fan = broken")
    slurm.run("scontrol", "update", "nodename=node3", "state=drain", "reason=x")
    try:
        data = cluster_project.json("gpus", "--json")
        text = cluster_project.run("gpus", "--type", "a100").stdout
    finally:
        for name in ("node3", "node4"):
            slurm.run("scontrol", "update", f"nodename={name}", "state=resume")
    types = {row["type"]: row for row in data["types"]}
    in_use = {kind: row["in_use"] for kind, row in types.items()}
    assert sum(in_use.values()) == 7 and in_use["v100l"] == 2
    assert {kind: row["total"] for kind, row in types.items()} == {"a100": 6, "p100": 6, "v100l": 4}
    assert types["p100"]["free"] == 2 and types["v100l"]["free"] == 2 and types["a100"]["free"] == 0
    for row in types.values():
        assert row["total"] == row["in_use"] + row["free"] + row["out_of_service"]
    by_node: dict[str, int] = {}
    for row in data["nodes"]:
        by_node[row["node"]] = by_node.get(row["node"], 0) + row["in_use"]
    assert by_node == {"node1": 2, "node2": 2, "node3": 1, "node4": 2}
    assert "fan = broken" in text and "p100" not in text


def test_without_accounting_and_with_the_controller_gone(
    project: Project, make_cluster: Callable[..., Cluster]
) -> None:
    cluster = make_cluster(database=False)
    with on_cluster(project, cluster):
        data = project.json("site", "--json")
        assert data["accounting"] is False and data["accounts"] == [] and len(data["nodes"]) == 4
        cluster.run(
            "sbatch", "--output=/dev/null", "-w", "node2", "--gpus=3", "--wrap", "sleep 600"
        )
        wait_for(lambda: cluster.run("squeue", "-h", "-t", "R").strip())
        counted = {row["type"]: row["in_use"] for row in project.json("gpus", "--json")["types"]}
        assert counted == {"a100": 0, "p100": 0, "v100l": 3}
        cluster.stop_controller()
        try:
            assert project.json("site", "--json")["partitions"] == data["partitions"]
            assert "does not answer" in project.run("site", "--refresh", code=1).stderr
            assert "does not answer" in project.run("gpus", code=1).stderr
        finally:
            cluster.start_controller()


def test_packages_without_a_configuration(project: Project) -> None:
    require_slurm()
    if any(Path(path).exists() for path in ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")):
        pytest.skip("this machine has a Slurm of its own")
    assert "SLURM_CONF" not in project.env
    assert "there is no Slurm on it" in project.run("site", timeout=30).stdout
    project.env["SLURM_CONF"] = str(project.folder / "nonexistent.conf")
    assert "there is no Slurm on it" in project.run("site", timeout=30).stdout
