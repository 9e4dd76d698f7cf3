"""What would fail on the cluster is said before it is queued: all of it, with numbers, the place and the cure."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from windlass.core.units import spell_duration
from windlass.model import Plan
from windlass.plan.refuse import find_local_problems, find_problems, find_warnings
from windlass.plan.refuse_request import find_request_problems
from windlass.plan.request_case import Case
from windlass.plan.settings import resolve_settings
from windlass.plan.slurm import plan_slurm
from windlass.plan.source_line import find_line
from windlass.site.cluster import Cluster, GpuType, Node, Partition, Qos
from windlass.site.here import (
    Folder,
    Here,
    fetch_here,
    file_system_of,
    is_below,
    matches_login_host,
)
from windlass.slurm.placeholders import find_placeholder
from windlass.spec import load_study

HOUR = 3600.0
GPUS = {
    "node1": {"p100": 4},
    "node2": {"v100l": 4},
    "node3": {"a100": 4},
    "node4": {"p100": 2, "a100": 2},
}
PARTITIONS = {
    "node1": "debug short long",
    "node2": "debug short long",
    "node3": "debug short long a100",
    "node4": "debug short",
}
CLUSTER = Cluster(
    "testcluster",
    partitions=(
        Partition("debug", is_default=True, max_time_s=HOUR / 2),
        Partition("short", max_time_s=3 * HOUR),
        Partition("long", max_time_s=7 * 24 * HOUR),
        Partition(
            "a100", max_time_s=24 * HOUR, allow_accounts=("def-prof",), allow_qos=("normal",)
        ),
        Partition("down", up=False),
    ),
    nodes=tuple(
        Node(name, 8, 8000, gpus, partitions=tuple(PARTITIONS[name].split()))
        for name, gpus in GPUS.items()
    ),
    gpus=(
        GpuType("p100", 6, 4, 12288),
        GpuType("v100l", 4, 4, 32768),
        GpuType("a100", 6, 4, 40960),
    ),
    accounts=("def-prof", "rrg-lab"),
    default_account="def-prof",
    qos=(Qos("normal"), Qos("short", max_time_s=HOUR), Qos("onegpu", max_gpus_per_job=1)),
    max_submit=1000,
)
STUDY = "command: python train.py --lr {lr}\nparameters: {lr: [1, 2, 3, 4]}\n"


def make(
    tmp_path: Path, extra: str = "", study: str = STUDY, cluster: Cluster = CLUSTER, **flags: Any
) -> Plan:
    file = tmp_path / "study.yaml"
    file.write_text(study + extra)
    loaded = load_study(str(file))
    settings = resolve_settings(flags, loaded.given, cluster.defaults, "")
    return plan_slurm(loaded, 4, settings, cluster, str(tmp_path / "out"))


def problems(plan: Plan, cluster: Cluster = CLUSTER, here: Here | None = None) -> list[str]:
    return [problem.render() for problem in find_problems(plan, cluster, here or Here())]


def test_a_sound_plan_passes(tmp_path: Path) -> None:
    for extra in (
        "",
        "needs: {gpus: 1, gpu_type: a100, cpus: 2, memory: 2GB, time: 10m}\n",
        "slurm: {account: rrg-lab}\n",
    ):
        plan = make(tmp_path, extra)
        assert problems(plan) == []
        assert find_warnings(plan, CLUSTER, Here()) == []


@pytest.mark.parametrize(
    "extra,line,expected",
    [
        ("needs: {time: 2h}\n", 3, ["jobs of 2 h 5 min never start", "partition debug allows 30 min", "--partition short", "4 jobs of 30 min"]),
        ("needs:\n  time: 30d\nslurm: {partition: long}\n", 4, ["30 d", "partition long allows 7 d", "5 jobs of 7 d"]),
        ("needs:\n  gpus: 1\n  gpu_type: a10\n", 5, ["no GPUs of type 'a10'", "p100 (12 GB), v100l (32 GB), a100 (40 GB)", "gpu_type: a100"]),
        ("needs: {gpus: 1, gpu_type: p100}\nslurm: {partition: a100}\n", 4, ["partition a100 has no p100 GPUs", "debug, long, short"]),
        ("needs: {gpus: 5, gpu_type: a100}\n", 3, ["5 a100 GPUs", "no node of partition debug has more than 4", "gpus: 4"]),
        ("needs: {gpus: 1, gpu_type: p100, gpu_memory: 20GB}\n", 3, ["20480 MB", "p100 has 12288 MB", "v100l (32 GB), a100 (40 GB)"]),
        ("needs: {gpus: 2, gpu_type: a100}\nslurm: {gpus_per_job: 1}\n", 4, ["a trial needs 2 GPUs", "a job would have 1", "gpus_per_job: 2"]),
        ("needs: {cpus: 12}\nslots: 1\n", 3, ["12 cores", "no node of partition debug gives more than 8", "cpus: 8"]),
        ("needs: {memory: 3GB, cpus: 1}\nslots: 3\n", 3, ["9216 MB", "8000 MB", "memory: 2666M", "--slots 2"]),
        ("slurm: {partition: dbug}\n", 3, ["no partition 'dbug'", "debug, short, long, a100, down", "partition: debug"]),
        ("slurm: {partition: down}\n", 3, ["down is down", "partition: short"]),
        ("slurm: {partition: a100, account: rrg-lab}\n", 3, ["does not take jobs of account rrg-lab", "account: def-prof"]),
        ("slurm: {account: def-pro}\n", 3, ["no account 'def-pro'", "def-prof, rrg-lab", "account: def-prof"]),
        ("slurm: {qos: shrt}\n", 3, ["QOS 'shrt'", "normal, short, onegpu", "qos: short"]),
        ("slurm: {qos: short, partition: a100}\n", 3, ["a100 does not take QOS short", "qos: normal"]),
        ("slurm: {qos: short, partition: long}\nneeds: {time: 2h}\n", 4, ["QOS short allows 1 h"]),
        ("slurm: {qos: onegpu}\nneeds: {gpus: 2, gpu_type: a100}\n", 4, ["QOS onegpu allows 1"]),
        ("slurm: {agents: 9}\n", 3, ["9 agents for 4 trials"]),
        ("slurm: {nodes: 5, agents: 1}\n", 3, ["5 nodes", "at most 4"]),
        ("slurm:\n  options: {contraint: x}\n", 4, ["no option --contraint", "--constraint"]),
        ("slurm:\n  options: {array: 0-9}\n", 4, ["--array"]),
        ("slurm: {account: TO_FILL_ACCOUNT}\n", 3, ["TO_FILL_ACCOUNT is a placeholder"]),
        ("slurm: {mail_user: <your email>}\n", 3, ["<your email> is a placeholder"]),
        ("env: {X: " + "hf_" + "Ab1" * 12 + "}\n", 3, ["env: holds a Hugging Face token", "export it"]),
    ],
)  # fmt: skip
def test_refused_with_place_and_cure(
    tmp_path: Path, extra: str, line: int, expected: list[str]
) -> None:
    said = "\n".join(problems(make(tmp_path, extra)))
    for words in expected:
        assert words in said
    assert f"study.yaml:{line}: " in said


def test_all_at_once(tmp_path: Path) -> None:
    plan = make(
        tmp_path,
        "needs: {gpus: 9, gpu_type: a100, time: 9d, cpus: 99}\nslurm: {account: me, qos: best}\n",
    )
    said = "\n".join(problems(plan))
    for words in ("9 a100 GPUs", "9 d", "99 cores", "account 'me'", "QOS 'best'"):
        assert words in said


def test_flags_are_answered_with_flags(tmp_path: Path) -> None:
    (said,) = problems(make(tmp_path, "", time="2h"))
    assert "study.yaml" not in said
    assert "`--time 25m`" in said


def test_a_job_fits_if_one_of_several_partitions_takes_it(tmp_path: Path) -> None:
    assert problems(make(tmp_path, "needs: {time: 2h}\n", partition="debug,short")) == []


def test_each_alone_is_there_and_never_together(tmp_path: Path) -> None:
    nodes = (Node("big", 64, 100_000), Node("gpu", 4, 4000, {"a100": 4}))
    cluster = dataclasses.replace(CLUSTER, partitions=(), nodes=nodes)
    plan = make(
        tmp_path, "needs: {gpus: 1, gpu_type: a100, memory: 50GB, cpus: 2}\n", cluster=cluster
    )
    (said,) = problems(plan, cluster)
    assert "no node" in said and "at once" in said and "gpu has 4 cores, 4000 MB" in said


def test_an_unknown_cluster_refuses_nothing_it_cannot_know(tmp_path: Path) -> None:
    cluster = Cluster("new")
    extra = "needs: {gpus: 64, gpu_type: b300, cpus: 512, memory: 9TB, time: 90d}\nslots: 1\nlaunch: plain\n"
    slurm = "slurm: {account: a, partition: b, qos: c}\n"
    assert problems(make(tmp_path, extra + slurm, cluster=cluster), cluster) == []


def test_an_account_where_one_is_wanted(tmp_path: Path) -> None:
    cluster = dataclasses.replace(CLUSTER, default_account=None, account_rule="required")
    (said,) = problems(make(tmp_path, cluster=cluster), cluster)
    assert "wants an account (yours: def-prof, rrg-lab)" in said and "`--account def-prof`" in said


def test_accounts_that_the_site_writes_otherwise(tmp_path: Path) -> None:
    accounts = ("def-prof_cpu", "def-prof_gpu", "lab_gpu")
    cluster = dataclasses.replace(CLUSTER, accounts=accounts, default_account=None)
    for name in ("def-prof", "Def-Prof_gpu", "lab"):
        assert (
            problems(make(tmp_path, f"slurm: {{account: {name}}}\n", cluster=cluster), cluster)
            == []
        )
    (said,) = problems(make(tmp_path, "slurm: {account: def-pro}\n", cluster=cluster), cluster)
    assert "yours: def-prof, lab_gpu" in said


def test_a_site_that_chooses_the_partition_itself(tmp_path: Path) -> None:
    cluster = dataclasses.replace(CLUSTER, name_partition=False)
    plan = make(tmp_path, cluster=cluster)

    def said(time_s: int) -> list[str]:
        assert plan.request is not None
        case = Case(plan, dataclasses.replace(plan.request, time_s=time_s), cluster)
        return [problem.render() for problem in find_request_problems(case)]

    assert said(3 * 86400) == []
    up = tuple(partition for partition in CLUSTER.partitions if partition.up)
    cluster = dataclasses.replace(cluster, partitions=up)
    assert "testcluster allows 7 d" in said(8 * 86400)[0]


def test_types_where_there_are_none(tmp_path: Path) -> None:
    nodes = (Node("n", 8, 8000, {"": 4}, partitions=("debug",)),)
    cluster = dataclasses.replace(CLUSTER, nodes=nodes, gpus=(GpuType("", 4, 4),))
    (said,) = problems(
        make(tmp_path, "needs: {gpus: 1, gpu_type: a100}\n", cluster=cluster), cluster
    )
    assert "leave the type out" in said
    extra = "needs: {gpus: 4}\nlaunch: torchrun\n"
    assert problems(make(tmp_path, extra, cluster=cluster), cluster) == []


def test_more_jobs_than_one_may_have(tmp_path: Path) -> None:
    cluster = dataclasses.replace(CLUSTER, max_submit=2)
    (said,) = problems(make(tmp_path, "slots: 1\n", cluster=cluster, agents=3), cluster)
    assert "3 agents, and you may have 2 jobs" in said


@pytest.mark.parametrize(
    "command,refused",
    [
        ("python t.py --data TO_FILL_PATH", True),
        ("python t.py --user <username>", True),
        ("python t.py --account def-someuser", True),
        ("python t.py --out YOUR_FOLDER", True),
        ("python t.py --pad '<pad>' --html '<b>' --cmp 'a<b>c'", False),
        ("python t.py --name default-xx --your-option 1", False),
    ],
)
def test_placeholders_in_commands(tmp_path: Path, command: str, refused: bool) -> None:
    plan = make(
        tmp_path, study=f'command: "{command} --lr {{lr}}"\nparameters: {{lr: [1]}}\n', agents=1
    )
    said = problems(plan)
    assert bool(said) == refused
    if refused:
        assert "placeholder" in said[0] and "study.yaml:1:" in said[0]


def test_placeholders_as_whole_values() -> None:
    for text in (
        "<account>",
        "def-xxxx",
        "rrg-someprof",
        "CHANGE_ME",
        "<anything at all>",
        "your-account",
        "XXXX",
    ):
        assert find_placeholder(text, whole=True), text
    for text in ("def-prof", "rrg-xxl", "me@x.org", "a100", "gpu:a100:1", "your", "node[1-3]"):
        assert not find_placeholder(text, whole=True), text


def test_a_secret_of_this_shell_in_a_command(tmp_path: Path) -> None:
    plan = make(
        tmp_path,
        study="command: python t.py --k hunter2hunter2 --lr {lr}\nparameters: {lr: [1]}\n",
        agents=1,
    )
    (said,) = problems(plan, here=Here(secrets={"MY_KEY": "hunter2hunter2"}))
    assert "$MY_KEY" in said and "hunter2" not in said and "study.yaml:1:" in said
    assert problems(plan) == []


def test_folders_that_nodes_cannot_see(tmp_path: Path) -> None:
    plan = make(tmp_path)

    def said(real: str, file_system: str = "ext4", **changes: Any) -> tuple[list[str], list[str]]:
        here = Here(folders=(Folder(plan.folder, real, file_system),), **changes)
        return problems(plan, here=here), find_warnings(plan, CLUSTER, here)

    assert "memory of this host" in said("/dev/shm/x")[0][0]
    assert "`--folder /scratch/me`" in said("/dev/shm/x", scratch="/scratch/me")[0][0]
    leading_back = said("/dev/shm/x", scratch=os.path.dirname(plan.folder))[0][0]
    assert (
        os.path.dirname(plan.folder) not in leading_back.partition("hint")[2]
        and "all nodes see" in leading_back
    )
    assert "memory of this host" in said("/mnt/x", "tmpfs")[0][0]
    assert "of its own" in said("/scratch-ssd/me/x", local_scratch="/scratch-ssd")[0][0]
    refused, warned = said("/tmp/x")
    assert refused == [] and "folder of this host" in warned[0]
    assert said("/tmpfoo/x") == said("/home/me/x") == ([], [])
    for real, kind in (("/dev/shm/x", "tmpfs"), ("/tmp/x", "ext4")):
        assert said(real, kind, nodes_are_here=True) == ([], [])
    for real, kind in (("/dev/shm/venv/bin", "tmpfs"), ("/tmp/venv/bin", "ext4")):
        _, (warning,) = said(
            "/home/me/x", python=(Folder("/home/me/bin", "/home/me/bin"), Folder(real, real, kind))
        )
        assert f"jobs start the Python in {real}" in warning


def test_sites_that_take_no_jobs_from_home(tmp_path: Path) -> None:
    plan = make(tmp_path)
    cluster = dataclasses.replace(CLUSTER, submit_from_home=False)
    here = Here(
        home="/home/me", scratch="/scratch/me", folders=(Folder(plan.folder, "/home/me/p"),)
    )
    (said,) = problems(plan, cluster, here)
    assert "home" in said and "--folder /scratch/me" in said
    elsewhere = dataclasses.replace(here, folders=(Folder(plan.folder, "/project/p"),))
    assert problems(plan, cluster, elsewhere) == []
    assert problems(plan, CLUSTER, here) == []


@pytest.mark.parametrize(
    "extra,expected",
    [
        (
            "needs: {gpus: 1}\n",
            "no GPU type is given: jobs may get any of p100 (12 GB), v100l (32 GB), a100 (40 GB)",
        ),
        ("env: {MASTER_PORT: '29500'}\n", "MASTER_PORT=29500 is the same for all trials"),
        ("slurm: {mail_user: me@x.org, mail_type: ALL, agents: 4}\n", "flood"),
        ("slurm: {nodes: 2, agents: 1}\n", "a job gets 2 nodes"),
        ("slurm: {options: {t: infinite}}\n", "does not know of it; write `needs: {time: …}`"),
        (
            "slurm: {options: {mem-per-cpu: 2G}}\n",
            "does not know of it; write `needs: {memory: …}`",
        ),
    ],
)
def test_warned_of(tmp_path: Path, extra: str, expected: str) -> None:
    plan = make(tmp_path, extra)
    assert problems(plan) == []
    (said,) = find_warnings(plan, CLUSTER, Here())
    assert expected in said


def test_a_grace_that_the_cluster_does_not_give(tmp_path: Path) -> None:
    cluster = dataclasses.replace(CLUSTER, kill_wait_s=30)
    plan = make(tmp_path, "grace: 2m\n", cluster=cluster)
    (said,) = find_warnings(plan, cluster, Here())
    assert (
        "`grace` is 2 min" in said
        and "30 s after it tells it to end (KillWait)" in said
        and "has 25 s" in said
    )
    assert plan.end_grace_s == 25.0
    plan = make(tmp_path, "grace: 20s\n", cluster=cluster)
    assert plan.end_grace_s == 20.0 and find_warnings(plan, cluster, Here()) == []
    hasty = dataclasses.replace(CLUSTER, kill_wait_s=5)
    plan = make(tmp_path, cluster=hasty)
    assert plan.end_grace_s == 2.5 and find_warnings(plan, hasty, Here()) == [], (
        "the default adapts"
    )
    assert make(tmp_path, "grace: 2m\n").end_grace_s == 120.0, "nobody could be asked"


def test_several_gpus_for_who_uses_them(tmp_path: Path) -> None:
    study = "command: torchrun --nproc-per-node 2 t.py {lr}\nparameters: {lr: [1]}\n"
    plan = make(tmp_path, "needs: {gpus: 2, gpu_type: a100}\n", study=study, agents=1)
    assert find_warnings(plan, CLUSTER, Here()) == []


def test_nodes_that_are_out_of_service(tmp_path: Path) -> None:
    nodes = tuple(
        dataclasses.replace(node, states=("drain",), reason="fan") if node.name == "node2" else node
        for node in CLUSTER.nodes
    )
    cluster = dataclasses.replace(CLUSTER, nodes=nodes)
    plan = make(tmp_path, "needs: {gpus: 1, gpu_type: v100l}\n", cluster=cluster)
    assert problems(plan, cluster) == []
    (said,) = find_warnings(plan, cluster, Here())
    assert "node2: fan" in said
    plan = make(tmp_path, "needs: {cpus: 1, memory: 1G}\nslots: 1\n", cluster=cluster)
    assert find_warnings(plan, cluster, Here()) == [], "others fit"


def test_where_we_are(tmp_path: Path) -> None:
    assert "job 7" in find_warnings(make(tmp_path), CLUSTER, Here(job="7"))[0]
    (said,) = find_local_problems(True, Here(host="cedar1", is_login_host=True))
    assert "cedar1 is a login host" in said.message
    assert "may be" in find_local_problems(True, Here(host="x"))[0].message
    assert (
        find_local_problems(False, Here(host="laptop"))
        == find_local_problems(True, Here(job="7"))
        == []
    )


def test_looking_around(tmp_path: Path) -> None:
    cluster = dataclasses.replace(
        CLUSTER, local_scratch="/scratch-ssd/$USER", scratch="/shared/$USER", login_hosts=("*",)
    )
    environ = {
        "USER": "me",
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "A_TOKEN": "abcdefghij12",
        "PATH": "/bin",
    }
    here = fetch_here(cluster, environ, [str(tmp_path)])
    assert (here.scratch, here.local_scratch, here.home) == (
        "/shared/me",
        "/scratch-ssd",
        str(tmp_path.resolve()),
    )
    assert (
        here.is_login_host and here.job == "" and dict(here.secrets) == {"A_TOKEN": "abcdefghij12"}
    )
    assert "abcdefghij12" not in repr(here)
    assert fetch_here(dataclasses.replace(cluster, login_hosts=()), environ).job == "7"


def test_file_systems() -> None:
    mounts = "/dev/sda / ext4 rw 0 0\ntmpfs /mnt/a\\040b tmpfs rw 0 0\nnfs /home nfs4 rw 0 0\ntmpfs /home tmpfs rw 0 0\n"
    assert file_system_of("/mnt/a b/c", mounts) == "tmpfs"
    assert file_system_of("/mnt/a", mounts) == "ext4"
    assert file_system_of("/home/me", mounts) == "tmpfs"
    assert is_below("/a/b", ["/a"]) and is_below("/a", ["/a"]) and not is_below("/ab", ["/a"])
    assert matches_login_host("login3.cluster.org", ["login*"]) and not matches_login_host(
        "node3", ["login*"]
    )


def test_finding_lines() -> None:
    text = "# time: no\nneeds:\n  # time: no\n  gpus: 1\n\n  time: 3h\nslurm: {account: x, 'qos': y}\ntime: 1\n"
    assert find_line(text, "needs", "time") == 6
    assert find_line(text, "slurm", "qos") == 7
    assert find_line(text, "slurm", "time") == 0
    assert find_line(text, "", "time") == 8


def test_durations() -> None:
    assert [spell_duration(s) for s in (0, 59, 60, 5400, 86400 * 7, 90061)] == [
        "0s",
        "59s",
        "1m",
        "1h30m",
        "7d",
        "1d1h1m1s",
    ]


def test_outputs_outside_of_the_trials_folders_tell_trials_apart(tmp_path: Path) -> None:
    """Two trials with one absolute path are refused where they may run side by side, else warned of."""
    base = "command: train {args}\nparameters: {lr: [1, 2], b: [1, 11], a: [11, 1]}\nseeds: 2\n"

    def verdict(pattern: str, slots: int, agents: int = 1, env: str = "") -> str:
        plan = make(tmp_path, f"outputs: ['{pattern}']\n{env}", base)
        plan = dataclasses.replace(plan, slots=slots, agents=agents, trial_count=16)
        if any("nobody can tell whose" in text for text in problems(plan)):
            return "refused"
        return (
            "warned"
            if any("both write" in text for text in find_warnings(plan, CLUSTER, Here()))
            else ""
        )

    local = "$SLURM_TMPDIR/out"
    assert (verdict(local + "-{lr}", 2), verdict(local + "-{lr}", 1, 4), verdict(local, 1, 4)) == (
        "refused",
        "warned",
        "",
    )
    assert (verdict("/s/{lr}", 1, 4), verdict("/s/x", 1, 4), verdict("/s/{lr}", 1)) == (
        "refused",
        "refused",
        "warned",
    )
    whole = "-{lr}-{a}-{b}-"
    assert (verdict(local + whole + "{seed}", 8), verdict(local + whole + "$WINDLASS_SEED", 8)) == (
        "",
        "",
    )
    assert (
        verdict(local + "-{lr}-{a}{b}-{seed}", 8) == "refused"
    )  # 1 and 11 are written as 11 and 1
    assert verdict("/s/$WINDLASS_TRIAL_NUMBER", 8, 4) == "" == verdict("/s/{trial_id}", 8, 4)
    assert (verdict(local + "/$WINDLASS_SLOT", 8, 4), verdict("/s/$WINDLASS_SLOT", 8, 4)) == (
        "",
        "refused",
    )
    assert verdict("$OUT/model.pt", 8, env="env: {OUT: '/s/{trial_id}'}\n") == ""
    assert verdict("models/{lr}", 8, 4) == ""
    plan = dataclasses.replace(
        make(tmp_path, "outputs: ['/s/{lr}']\n", base), slots=2, trial_count=16
    )
    (text,) = problems(plan)
    assert (
        "study.yaml:4: outputs: /s/{lr}: trials 0 and 1 both write /s/1, and may run side by side"
        in text
    )


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("needs: {gpus: 2, gpu_type: a100}\n", "`launch: torchrun`"),
        ("needs: {nodes: 2}\n", "nothing starts its processes on the others"),
        ("needs: {nodes: 3}\nslurm: {nodes: 4}\nlaunch: srun\n", "slurm: {nodes: 3}"),
    ],
)
def test_processes_that_nobody_starts(tmp_path: Path, extra: str, expected: str) -> None:
    (said,) = problems(make(tmp_path, extra))
    assert expected in said


@pytest.mark.parametrize("launch", ["plain", "torchrun", "script", "lightning", "torch-launch"])
def test_a_launcher_starts_them(tmp_path: Path, launch: str) -> None:
    plan = make(tmp_path, f"needs: {{gpus: 2, gpu_type: a100}}\nlaunch: {launch}\n")
    assert problems(plan) == []
