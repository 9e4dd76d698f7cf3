"""What is known of a cluster: recorded answers of real Slurms, merged with profiles, cached, shown."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests import HERE, ROOT
from tests.conftest import Project
from windlass.core.errors import InputError, SchedulerError
from windlass.core.units import render_limit, render_mb
from windlass.site.cluster import Node, Qos
from windlass.site.discover import (
    cache_path,
    fetch_cluster,
    find_profile_name,
    read_cache,
    slurm_answers,
)
from windlass.site.live import (
    Live,
    count_used_gpus,
    make_live,
    parse_nodes,
    parse_partitions,
    parse_user,
)
from windlass.site.merge import make_cluster
from windlass.site.profiles import read_profile
from windlass.slurm.records import parse_config
from windlass.view.gpus import GpuCount, count_types, gpus_to_json, render_gpus
from windlass.view.site import WIDTH, render_cluster, render_node_counts

DATA = HERE / "data/slurm"
VERSIONS = ("22.05.8", "24.11.5")
ALL_VERSIONS = (*VERSIONS, "24.11.5-database")

# Prints what was recorded, and writes down what it was asked. `down` and `forbid` say what does not answer.
FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> "{folder}/calls"
if [ -e "{folder}/down" ]; then
    case "$*" in ping) echo "Slurmctld(primary) at login1 is DOWN"; exit 1 ;; esac
    echo "Unable to contact slurm controller (connect failure)" >&2; exit 1
fi
if grep -qxF "$(basename "$0") $1 $2" "{folder}/forbid" 2>/dev/null; then echo "Access/permission denied" >&2; exit 1; fi
case "$(basename "$0") $*" in
    "scontrol ping") echo "Slurmctld(primary) at login1 is UP" ;;
    "scontrol show config") cat "{data}/config.txt" ;;
    "scontrol show partition") cat "{data}/partition.txt" ;;
    "scontrol show node -d") cat "{data}/node.txt" ;;
    "sacctmgr -nP show user"*) cat "{data}/user.txt" ;;
    "sacctmgr -nP show qos"*) cat "{data}/qos.txt" ;;
    sacct*) ;;
    *) exit 1 ;;
esac
"""


class Recorded:
    """Slurm's commands on PATH, answering from a recording."""

    def __init__(self, folder: Path, version: str) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        for name in ("sbatch", "scontrol", "sacctmgr", "sacct"):
            (programs / name).write_text(FAKE.format(folder=folder, data=DATA / version))
            (programs / name).chmod(0o755)
        (folder / "slurm.conf").write_text("ClusterName=windlass\n")
        self.env = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)

    def forbid(self, *questions: str) -> None:
        (self.folder / "forbid").write_text("".join(f"{question}\n" for question in questions))

    def stop_answering(self) -> None:
        (self.folder / "down").touch()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    commands = Recorded(tmp_path, "22.05.8")
    for name in ("WINDLASS_CLUSTER", "WINDLASS_SITE", "CC_CLUSTER", "SLURM_CONF_SERVER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in commands.env.items():
        monkeypatch.setenv(name, value)
    return commands


def read(version: str, name: str) -> str:
    return (DATA / version / name).read_text()


def live_of(version: str) -> Live:
    texts = {
        "scontrol show partition": read(version, "partition.txt"),
        "scontrol show node": read(version, "node.txt"),
    }
    if (DATA / version / "user.txt").exists():
        texts |= {"user": read(version, "user.txt"), "qos": read(version, "qos.txt"), "sacct": ""}
    return make_live(parse_config(read(version, "config.txt")), texts, "sacct" in texts)


# Recorded answers of real clusters


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_partitions_and_limits(version: str) -> None:
    live = live_of(version)
    assert live.version == version.removesuffix("-database") and live.max_array_size == 1001
    debug, short, long, a100, down = live.partitions
    assert debug.is_default and debug.max_time_s == 1800 and debug.default_time_s == 600
    assert (
        debug.nodes == ("node1", "node2", "node3", "node4")
        and debug.default_memory_per_cpu_mb == 500
    )
    assert (
        short.max_time_s == 3 * 3600
        and long.max_time_s == 7 * 86400
        and a100.allow_accounts == ("def-prof",)
    )
    assert not down.up and down.max_time_s is None and down.default_time_s is None


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes(version: str) -> None:
    node1, node2, node3, node4 = live_of(version).nodes
    assert (node1.cpus, node1.cpus_used, node1.memory_mb, node1.memory_used_mb) == (
        8,
        3,
        8000,
        1500,
    )
    assert (
        node1.gpus == {"p100": 4} and node1.gpus_used == {"p100": 2} and node1.states == ("mixed",)
    )
    assert node2.states == ("allocated",) and node2.gpus_used == {"v100l": 2} and node2.usable
    assert node3.gpus_used == {} and node3.partitions == ("debug", "short", "long", "a100")
    assert node4.gpus_used == {"p100": 2, "a100": 1} and not node4.usable
    assert node4.reason.startswith("fan = broken, see ticket #12 [")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_does_not_answer(version: str) -> None:
    down = parse_nodes(read(version, "node-down.txt"))[2]
    assert (
        down.states == ("down", "not_responding")
        and not down.usable
        and down.reason.startswith("Not responding [")
    )


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_nodes_are_counted_as_sinfo_counts_them(version: str) -> None:
    live = live_of(version)
    listed = {
        line.split()[0].rstrip("*"): line.split()[3]
        for line in read(version, "sinfo.txt").splitlines()[1:]
    }
    counted = {
        partition.name: render_node_counts(
            node for node in live.nodes if partition.name in node.partitions
        )
        for partition in live.partitions
    }
    assert counted == listed


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_gpus_in_use_are_the_same_however_the_cluster_keeps_account(version: str) -> None:
    used = [node.gpus_used for node in live_of(version).nodes]
    assert used == [{"p100": 2}, {"v100l": 2}, {}, {"p100": 2, "a100": 1}]
    undetailed = re.sub(r"(?m)^   (GresUsed|GresDrain)=.*\n", "", read(version, "node.txt"))
    tracked = version != "24.11.5"
    assert [node.gpus_used for node in parse_nodes(undetailed)] == (used if tracked else [{}] * 4)


def test_a_node_drained_while_idle() -> None:
    node = live_of("24.11.5-database").nodes[2]
    assert (
        node.states == ("idle", "drain")
        and not node.usable
        and node.reason.startswith("being moved [")
    )


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5-database"])
def test_accounts_and_qos(version: str) -> None:
    live = live_of(version)
    assert (
        live.accounts == ("def-prof", "rrg-lab")
        and live.default_account == "def-prof"
        and live.accounting
    )
    assert live.qos == (
        Qos("normal"),
        Qos("onegpu", max_gpus_per_job=1),
        Qos("short", max_time_s=3600.0),
    )


def test_a_default_account_of_another_cluster_is_none_here() -> None:
    found = parse_user(
        "lab|here|class||normal|normal|\nlab|there|lab||normal|normal|\n", "", "here"
    )
    assert found["accounts"] == ("class",) and found["default_account"] is None


def test_a_node_that_went_down_with_a_job_on_it_is_not_in_use() -> None:
    nodes = [
        Node("a", 8, 8000, states=states)
        for states in (("down", "completing"), ("idle", "completing"), ("idle", "maint"))
    ]
    assert render_node_counts(nodes) == "1/0/2/3"


def test_a_cluster_without_accounting() -> None:
    live = live_of("24.11.5")
    assert live.accounts == () and live.qos == () and live.accounting is False
    assert live.sources["accounting"] == "scontrol show config" and "accounts" not in live.sources


def test_limits_of_associations() -> None:
    rows = "lab|here|lab||normal,+long|normal|200\nlab|here|class|gpu|normal|normal|50\nlab|there|other||x|x|1\n"
    found = parse_user(rows, "normal|1-00:00:00|cpu=8,gres/gpu:a100=2|10\n", "here")
    assert (
        found["accounts"] == ("class", "lab")
        and found["default_account"] == "lab"
        and found["max_submit"] == 50
    )
    assert found["qos"] == (Qos("long"), Qos("normal", 86400.0, 2, 10))


def test_odd_forms_of_nodes() -> None:
    mig, old, two, cloud = parse_nodes(read("hand-made", "node.txt"))
    assert mig.gpus == {"a100_1g.5gb": 14, "a100_3g.20gb": 4}
    assert mig.gpus_used == {"a100_1g.5gb": 3, "a100_3g.20gb": 1} and mig.usable
    assert mig.cpus == 46 and mig.memory_mb == 510000 - 2048 and mig.states == ("mixed", "planned")
    assert (
        old.gpus == {"": 8} and old.gpus_used == {"": 5} and old.features == () and old.cpus == 16
    )
    assert two.gpus == {"2080ti": 8} and two.gpus_used == {"2080ti": 3} and not two.usable
    assert two.states == ("idle", "not_responding", "drain", "inval")
    assert cloud.gpus == {} and cloud.usable and cloud.cpus == 8


def test_odd_forms_of_partitions() -> None:
    gpu, empty = parse_partitions(read("hand-made", "partition.txt"), 500)
    assert (
        gpu.deny_accounts == ("guest", "demo")
        and gpu.allow_accounts == ()
        and gpu.allow_qos == ("normal", "long")
    )
    assert (
        gpu.nodes == ("mig01", "old01", "two01", "two02", "two03", "two10")
        and gpu.max_time_s == 216000
    )
    assert (
        gpu.max_nodes == 1 and gpu.max_cpus_per_node == 24 and gpu.max_memory_per_node_mb == 190000
    )
    assert gpu.default_memory_per_cpu_mb == 4000 and empty.default_memory_per_cpu_mb == 500
    assert not empty.up and empty.nodes == ()


@pytest.mark.parametrize(
    "tres,gres,used",
    [
        ("cpu=1,gres/gpu=3,gres/gpu:a=1,gres/gpu:b=2", None, {"a": 1, "b": 2}),
        ("cpu=1", "gpu:a:1(IDX:0),gpu:b:2(IDX:4-5)", {"a": 1, "b": 2}),
        ("cpu=1,gres/gpu=5", None, {"a": 4, "b": 1}),
        ("cpu=1,gres/gpu=3", "gpu:a:0(IDX:N/A),gpu:b:3(IDX:4-6)", {"b": 3}),
        ("cpu=1,gres/gpu=9", None, {"a": 4, "b": 4}),
        (None, None, {}),
    ],
)
def test_gpus_in_use_from_either_place(
    tres: str | None, gres: str | None, used: dict[str, int]
) -> None:
    assert count_used_gpus({"a": 4, "b": 4}, tres, gres) == used


# Profile and live facts


def test_live_facts_win_and_each_fact_says_where_it_came_from() -> None:
    cluster = make_cluster(
        read_profile("cedar"), live_of("22.05.8"), {"account": "rrg-lab"}, "/home/me/site.toml"
    )
    assert cluster.name == "windlass" and cluster.profile == "cedar" and cluster.live
    assert [gpu.name for gpu in cluster.gpus] == ["p100", "v100l", "a100"]
    assert cluster.sources["gpus"] == "scontrol show node"
    assert cluster.sources["partitions"] == "scontrol show partition"
    assert cluster.sources["max_array_size"] == "scontrol show config"
    assert cluster.sources["accounts"] == "sacctmgr"
    assert (
        cluster.sources["gpu_form"] == "profile cedar (2025)"
        and cluster.gpu_form == "gpus-per-node"
    )
    assert cluster.sources["shebang"] == "guess" and cluster.sources["max_submit"] == "not known"
    assert (
        cluster.defaults == {"gpu_type": "v100l", "account": "rrg-lab"}
        and cluster.defaults_file == "/home/me/site.toml"
    )
    assert cluster.sources["defaults.account"] == "site file /home/me/site.toml"


def test_shares_of_a_node() -> None:
    plain = make_cluster(read_profile("generic"), live_of("22.05.8"))
    assert [(gpu.share_cpus, gpu.share_memory_mb) for gpu in plain.gpus] == [(2, 2000)] * 3
    assert [(gpu.name, gpu.count, gpu.per_node) for gpu in plain.gpus] == [
        ("p100", 6, 4),
        ("v100l", 4, 4),
        ("a100", 6, 4),
    ]
    nodes = (Node("big", 64, 512000, {"p100": 4}), Node("small", 16, 64000, {"p100": 4}))
    gpu = make_cluster(read_profile("generic"), Live(nodes=nodes, sources={"nodes": "x"})).gpus[0]
    assert (gpu.share_cpus, gpu.share_memory_mb) == (4, 16000)
    gpu = make_cluster(read_profile("cedar"), Live(nodes=nodes, sources={"nodes": "x"})).gpus[0]
    assert (gpu.share_cpus, gpu.share_memory_mb) == (6, 32000)
    gpu = make_cluster(read_profile("cedar"), Live(nodes=nodes[1:], sources={"nodes": "x"})).gpus[0]
    assert (gpu.share_cpus, gpu.share_memory_mb) == (4, 16000)


def test_types_come_from_the_nodes_where_the_profile_is_silent() -> None:
    nodes = (Node("a", 8, 8000, {"": 4}),)
    live = Live(nodes=nodes, sources={"nodes": "x"})
    assert not make_cluster(read_profile("generic"), live).typed_gpus
    assert make_cluster(read_profile("generic"), live_of("22.05.8")).typed_gpus
    assert not make_cluster(read_profile("plai"), live_of("22.05.8")).typed_gpus


def test_a_default_that_the_cluster_no_longer_has_is_dropped_and_said() -> None:
    cluster = make_cluster(read_profile("rwth"), live_of("22.05.8"))
    assert (
        cluster.defaults == {}
        and sum("is not on this cluster" in note for note in cluster.notes) == 2
    )


def test_what_could_not_be_asked_comes_from_the_profile() -> None:
    cluster = make_cluster(
        read_profile("narval"), Live(name="narval", version="24.11.5", sources={"version": "x"})
    )
    assert cluster.gpus[0].name == "a100" and cluster.sources["gpus"] == "profile narval (2026)"
    assert cluster.max_submit == 1000 and cluster.accounts == ()


# Which site this is


def test_the_profile_is_found(monkeypatch: pytest.MonkeyPatch, recorded: Recorded) -> None:
    assert find_profile_name("Narval") == "narval" and find_profile_name("windlass") == "generic"
    monkeypatch.setenv("CC_CLUSTER", "fir")
    assert find_profile_name("windlass") == "fir" and find_profile_name("narval") == "narval"


@pytest.mark.parametrize(
    "host,name",
    [
        ("cedar5.cedar.computecanada.ca", "cedar"),
        ("gra-login1", "graham"),
        ("integra1", "generic"),
        ("borg", "plai"),
        ("login18-1.hpc.itc.rwth-aachen.de", "rwth"),
        ("uhtred", "mlp"),
        ("escience6", "ilcc"),
        ("laptop", "generic"),
        ("firefly", "generic"),
    ],
)
def test_the_profile_is_found_by_the_host(
    host: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("CC_CLUSTER", raising=False)
    uname = os.uname()
    monkeypatch.setattr(os, "uname", lambda: type(uname)((uname[0], host, *uname[2:])))
    assert find_profile_name("") == name


def test_the_site_that_is_named_wins(monkeypatch: pytest.MonkeyPatch, recorded: Recorded) -> None:
    monkeypatch.setenv("WINDLASS_CLUSTER", "plai")
    assert fetch_cluster().profile == "plai"
    assert fetch_cluster("rwth").profile == "rwth"
    with pytest.raises(InputError, match="'nosuch'"):
        fetch_cluster("nosuch")


def test_another_known_cluster_is_not_mixed_with_this_one(recorded: Recorded) -> None:
    folder = recorded.folder / "config/windlass/sites"
    folder.mkdir(parents=True)
    (folder / "ours.toml").write_text('clusters = ["windlass"]\nthrottle = 4\n')
    ours = fetch_cluster()
    assert ours.profile == "ours" and ours.live and ours.throttle == 4
    narval = fetch_cluster("narval")
    assert (
        not narval.live
        and narval.partitions == ()
        and any("belongs to ours" in note for note in narval.notes)
    )


def test_a_profile_without_clusters_is_that_of_the_cluster_of_its_name(recorded: Recorded) -> None:
    folder = recorded.folder / "config/windlass/sites"
    folder.mkdir(parents=True)
    (folder / "windlass.toml").write_text('shell_partition = "short"\n')
    assert fetch_cluster().profile == "windlass"
    (folder / "ours.toml").write_text('clusters = ["windlass"]\n')
    assert fetch_cluster().profile == "ours"  # a name that is given counts more


def test_the_users_site_file_is_heard(recorded: Recorded) -> None:
    path = recorded.folder / "config/windlass/site.toml"
    path.parent.mkdir(parents=True)
    path.write_text('account = "rrg-lab"\n')
    cluster = fetch_cluster("cedar")
    assert cluster.defaults == {
        "account": "rrg-lab",
        "gpu_type": "v100l",
    } and cluster.defaults_file == str(path)


# Whether there is a Slurm


def test_slurm_is_there_when_configured_even_if_it_is_down(recorded: Recorded) -> None:
    assert slurm_answers() and recorded.calls == []
    recorded.stop_answering()
    assert slurm_answers() and recorded.calls == []


def test_no_slurm(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/nonexistent/slurm.conf")
    assert not slurm_answers() and recorded.calls == []
    monkeypatch.setenv("PATH", str(recorded.folder))
    monkeypatch.setenv("SLURM_CONF", str(recorded.folder / "slurm.conf"))
    assert not slurm_answers()
    with pytest.raises(SchedulerError, match="no Slurm on this machine"):
        fetch_cluster()
    assert "nothing was asked" in fetch_cluster("narval").notes[-1]


def test_a_configuration_that_slurm_finds_by_itself(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF")
    if any(
        os.path.exists(path) for path in ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
    ):
        pytest.skip("this machine has a Slurm of its own")
    assert slurm_answers() and recorded.calls == ["scontrol ping"]
    (recorded.folder / "etc").mkdir()
    shutil.copy(recorded.folder / "slurm.conf", recorded.folder / "etc/slurm.conf")
    recorded.forget_calls()
    assert slurm_answers() and recorded.calls == []


# Asking, and remembering


def test_each_question_is_asked_once_and_then_not_again(recorded: Recorded) -> None:
    first = fetch_cluster()
    asked = recorded.calls
    assert len(asked) == len(set(asked)) == 7
    assert fetch_cluster() == first and recorded.calls == asked
    assert fetch_cluster("plai").partitions == first.partitions and recorded.calls == asked
    fetch_cluster(refresh=True)
    assert len(recorded.calls) == 14


def test_what_is_remembered_is_what_was_said(recorded: Recorded) -> None:
    fetch_cluster()
    kept = read_cache(cache_path())
    assert kept is not None and kept[0] == live_of("22.05.8")


def age_cache(seconds: float) -> None:
    path = Path(cache_path())
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "asked_at": data["asked_at"] - seconds}))


def test_after_five_minutes_it_is_asked_again(recorded: Recorded) -> None:
    fetch_cluster()
    recorded.forget_calls()
    age_cache(301)
    fetch_cluster()
    assert len(recorded.calls) == 7


def test_another_configuration_is_another_cluster(recorded: Recorded) -> None:
    fetch_cluster()
    before = cache_path()
    os.utime(recorded.folder / "slurm.conf", (1, 1))
    assert cache_path() != before


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"live": {}}', '{"asked_at": 1, "live": {"nodes": [{}]}}', "\x00"]
)
def test_a_damaged_memory_is_ignored(recorded: Recorded, damage: str) -> None:
    first = fetch_cluster()
    Path(cache_path()).write_text(damage)
    assert replace(fetch_cluster(), asked_at=None) == replace(first, asked_at=None)


def test_what_is_remembered_of_clusters_long_gone_is_removed(recorded: Recorded) -> None:
    fetch_cluster()
    gone, other = (
        Path(cache_path()).with_name("cluster-0.json"),
        Path(cache_path()).with_name("study.db"),
    )
    for path in (gone, other):
        path.touch()
        os.utime(path, (1, 1))
    fetch_cluster(refresh=True)
    assert not gone.exists() and other.exists() and Path(cache_path()).exists()


def test_a_folder_that_cannot_be_written_does_no_harm(recorded: Recorded) -> None:
    (recorded.folder / "cache").write_text("a file, not a folder")
    assert fetch_cluster().live


def test_a_controller_that_is_down_is_a_clear_error(recorded: Recorded) -> None:
    recorded.stop_answering()
    with pytest.raises(
        SchedulerError, match=r"controller on login1 does not answer\n  hint: try again later"
    ):
        fetch_cluster()
    assert recorded.calls == ["scontrol ping"]


def test_while_the_controller_is_down_the_last_answers_serve_for_a_day(recorded: Recorded) -> None:
    first = fetch_cluster()
    recorded.stop_answering()
    age_cache(3600)
    later = fetch_cluster()
    assert later.partitions == first.partitions and "60 min ago" in later.notes[-1]
    with pytest.raises(SchedulerError):
        fetch_cluster(refresh=True)
    age_cache(86400)
    with pytest.raises(SchedulerError):
        fetch_cluster()


def test_what_is_forbidden_stays_unknown(recorded: Recorded) -> None:
    recorded.forbid("scontrol show node", "sacctmgr -nP show", "sacct -nXP -S")
    cluster = fetch_cluster("narval")
    assert (
        cluster.partitions
        and cluster.nodes == ()
        and cluster.accounts == ()
        and cluster.accounting is False
    )
    assert (
        cluster.sources["gpus"] == "profile narval (2026)"
        and cluster.sources["accounts"] == "not known"
    )


# Shown


def test_the_text_has_every_fact_and_fits(recorded: Recorded) -> None:
    text = render_cluster(fetch_cluster("cedar"))
    assert max(len(line) for line in text.splitlines()) <= WIDTH
    for words in (
        "debug*",
        "30 min",
        "3/1/0/4",
        "12 GB",
        "def-prof (default), rrg-lab",
        "onegpu",
        "1001 (tasks 0 to 1000)",
    ):
        assert words in text
    for source in (
        "scontrol show partition",
        "scontrol show node",
        "sacctmgr",
        "profile cedar (2025)",
        "guess",
    ):
        assert source in text


def test_every_profile_fits(recorded: Recorded) -> None:
    for path in (ROOT / "src/windlass/site/profiles").glob("*.toml"):
        text = render_cluster(make_cluster(read_profile(path.stem)))
        assert max(len(line) for line in text.splitlines()) <= WIDTH, path.stem


def test_spans_and_sizes() -> None:
    assert [render_limit(value) for value in (0, 90, 1800, 93600, 604800)] == [
        "0 s",
        "1 min 30 s",
        "30 min",
        "1 d 2 h",
        "7 d",
    ]
    assert render_mb(850) == "850 MB" and render_mb(12288) == "12 GB"


def test_gpus_by_type_and_node() -> None:
    nodes = parse_nodes(read("22.05.8", "node-down.txt"))
    assert count_types(nodes) == [
        GpuCount("a100", 6, 1, 0, 5),
        GpuCount("p100", 6, 4, 2, 0),
        GpuCount("v100l", 4, 2, 2, 0),
    ]
    assert count_types((*nodes, *nodes)) == count_types(nodes)
    data = gpus_to_json(nodes, "a100")
    assert [row["node"] for row in data["nodes"]] == ["node3", "node4"]
    assert data["types"] == [
        {"type": "a100", "total": 6, "in_use": 1, "free": 0, "out_of_service": 5}
    ]
    text = render_gpus(nodes)
    assert re.search(r"node2 +v100l +4 +2 +2 +0 +allocated +no core is free", text)
    assert max(len(line) for line in text.splitlines()) <= 100


def test_gpus_without_a_type() -> None:
    assert count_types(parse_nodes(read("hand-made", "node.txt")))[0] == GpuCount("", 8, 5, 3, 0)
    assert render_gpus(()) == "no GPUs on this cluster"


def cli(project: Project, recorded: Recorded) -> Project:
    project.env.update(recorded.env)
    return project


def test_the_verbs(project: Project, recorded: Recorded) -> None:
    cli(project, recorded)
    data = project.json("site", "--json")
    assert data["profile"] == "generic" and data["sources"]["nodes"] == "scontrol show node"
    assert "Slurm 22.05.8" in project.run("site").stdout
    assert project.json("site", "--site", "plai", "--json")["account_rule"] == "never"
    assert "two sites" in project.run("site", "plai", "--site", "rwth", code=2).stderr
    assert "known are: beluga" in project.run("site", "nosuch", code=2).stderr
    assert project.json("gpus", "--json")["types"][1] == {
        "type": "p100",
        "total": 6,
        "in_use": 4,
        "free": 2,
        "out_of_service": 0,
    }
    assert "a100, p100, v100l" in project.run("gpus", "--type", "h100", code=2).stderr
    recorded.stop_answering()
    assert "controller on login1 does not answer" in project.run("gpus", code=1).stderr


def test_the_verbs_without_slurm(project: Project, recorded: Recorded) -> None:
    cli(project, recorded)
    project.env["PATH"] = str(recorded.folder)
    assert "there is no Slurm on it" in project.run("site").stdout
    assert project.json("site", "--json")["cpus"] >= 1
    assert "nothing was asked" in project.run("site", "narval").stdout
    assert {row["name"] for row in project.json("site", "--list", "--json")} >= {"cedar", "generic"}
    assert "no Slurm" in project.run("gpus", code=1).stderr


def test_a_broken_profile_of_the_users_is_named_with_its_line(
    project: Project, recorded: Recorded
) -> None:
    cli(project, recorded)
    path = recorded.folder / "config/windlass/sites/mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text("throttle = 3\ntrottle = 4\n")
    assert f"{path}:2: unknown key 'trottle'" in project.run("site", "mine", code=2).stderr
