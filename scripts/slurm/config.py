"""Files of a test cluster, from values: slurm.conf, gres.conf, slurmdbd.conf, the prologs, the accounts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CLUSTER_NAME = "windlass"
# Node → its GPUs: type and count.
NODES: dict[str, list[tuple[str, int]]] = {
    "node1": [("p100", 4)],
    "node2": [("v100l", 4)],
    "node3": [("a100", 4)],
    "node4": [("p100", 2), ("a100", 2)],
}
CPUS = 8
MEMORY_MB_PER_CPU = 1000
PARTITIONS: dict[str, str] = {
    "debug": "Nodes=node[1-4] Default=YES DefaultTime=00:10:00 MaxTime=00:30:00",
    "short": "Nodes=node[1-4] DefaultTime=00:05:00 MaxTime=03:00:00",
    "long": "Nodes=node[1-3] DefaultTime=01:00:00 MaxTime=7-00:00:00",
    "a100": "Nodes=node3 DefaultTime=01:00:00 MaxTime=1-00:00:00 AllowAccounts=def-prof",
    "down": "Nodes=node1 State=DOWN",
}
ACCOUNTS = ("def-prof", "rrg-lab")

# Short waits: what Slurm does once in minutes it does here in seconds.
SETTINGS: dict[str, str] = {
    "AuthType": "auth/munge",
    "CredType": "cred/munge",
    "MpiDefault": "none",
    "MailProg": "/bin/true",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=1",
    "JobAcctGatherParams": "OverMemoryKill",
    "PrologFlags": "Alloc",
    "SlurmdParameters": "config_overrides",
    "GresTypes": "gpu",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "DefMemPerCPU": "500",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=2",
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "PriorityWeightFairshare": "1000",
    "PriorityWeightQOS": "1000",
    "KillWait": "5",
    "CompleteWait": "0",
    "MinJobAge": "300",
    "MaxArraySize": "1001",
    "MaxJobCount": "20000",
    "SlurmctldTimeout": "10",
    "SlurmdTimeout": "10",
    "BatchStartTimeout": "10",
    "MessageTimeout": "10",
    "TCPTimeout": "2",
    "JobRequeue": "1",
    "ReturnToService": "2",
    "EnforcePartLimits": "NO",
    "SlurmctldDebug": "info",
    "SlurmdDebug": "info",
}
ACCOUNTING: dict[str, str] = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": "127.0.0.1",
    "AccountingStorageEnforce": "associations,limits,qos,safe",
    "AccountingStorageTRES": "gres/gpu,gres/gpu:p100,gres/gpu:v100l,gres/gpu:a100",
    "AccountingStoreFlags": "job_comment,job_script,job_env",
}

PROLOG = """#!/bin/sh
scratch="{home}/local/$SLURM_JOB_USER.$SLURM_JOB_ID.0"
mkdir -p "$scratch" && chown "$SLURM_JOB_UID" "$scratch" && chmod 700 "$scratch"
exit 0
"""
TASK_PROLOG = """#!/bin/sh
echo "export SLURM_TMPDIR={home}/local/$SLURM_JOB_USER.$SLURM_JOB_ID.0"
"""
EPILOG = """#!/bin/sh
rm -rf "{home}/local/$SLURM_JOB_USER.$SLURM_JOB_ID.0"
exit 0
"""


@dataclass(frozen=True)
class Layout:
    """What the files of one cluster are written for. `home` is short and plain enough for slurm.conf."""

    home: str
    user: str
    host: str
    controller_port: int
    database_port: int
    node_ports: Mapping[str, int]
    gpu_devices: str
    database: bool = True
    nodes_apart: bool = False
    cpus: int = CPUS  # of each node
    job_submit_lua: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def render_files(layout: Layout) -> dict[str, str]:
    """Name in the cluster's folder → text."""
    files = {
        "etc/slurm.conf": render_slurm_conf(layout),
        "etc/gres.conf": render_gres_conf(layout),
        # slurmd wants control groups although nothing here uses them; only this kind may be missing, or not permitted.
        "etc/cgroup.conf": "CgroupPlugin=cgroup/v1\n",
        "etc/hosts": f"127.0.0.1 localhost {layout.host} {' '.join(NODES)}\n",
        "etc/prolog.sh": PROLOG.format(home=layout.home),
        "etc/taskprolog.sh": TASK_PROLOG.format(home=layout.home),
        "etc/epilog.sh": EPILOG.format(home=layout.home),
    }
    if layout.database:
        files["etc/slurmdbd.conf"] = render_slurmdbd_conf(layout)
    return files


def make_settings(layout: Layout) -> dict[str, str]:
    """Every key of slurm.conf that is given once. An empty value leaves a key out."""
    home = layout.home
    settings = {
        "ClusterName": CLUSTER_NAME,
        "SlurmctldHost": f"{layout.host}(127.0.0.1)",
        "SlurmUser": layout.user,
        "SlurmdUser": layout.user,
        "AuthInfo": f"socket={home}/run/munge,cred_expire=5",
        "SlurmctldPort": str(layout.controller_port),
        "SlurmctldPidFile": f"{home}/run/slurmctld.pid",
        "SlurmdPidFile": f"{home}/run/slurmd.%n.pid",
        "StateSaveLocation": f"{home}/state",
        "SlurmdSpoolDir": f"{home}/spool/%n",
        "SlurmctldLogFile": f"{home}/log/slurmctld.log",
        "SlurmdLogFile": f"{home}/log/slurmd.%n.log",
        "Prolog": f"{home}/etc/prolog.sh",
        "Epilog": f"{home}/etc/epilog.sh",
        "TaskProlog": f"{home}/etc/taskprolog.sh",
        **SETTINGS,
    }
    if layout.database:
        settings |= ACCOUNTING
        settings["AccountingStoragePort"] = str(layout.database_port)
        # Connections to slurmdbd do not look at AuthInfo.
        settings["AccountingStoragePass"] = f"{home}/run/munge"
    if layout.job_submit_lua:
        settings["JobSubmitPlugins"] = "lua"
    return settings | dict(layout.settings)


def render_slurm_conf(layout: Layout) -> str:
    lines = [f"{key}={value}" for key, value in make_settings(layout).items() if value]
    for node, gpus in NODES.items():
        host = node if layout.nodes_apart else layout.host
        gres = ",".join(f"gpu:{kind}:{count}" for kind, count in gpus)
        lines.append(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={layout.node_ports[node]}"
            f" CPUs={layout.cpus} Sockets=1 CoresPerSocket={layout.cpus} ThreadsPerCore=1"
            f" RealMemory={layout.cpus * MEMORY_MB_PER_CPU} Gres={gres}"
            f" Feature={','.join(kind for kind, _ in gpus)} State=UNKNOWN"
        )
    lines += [f"PartitionName={name} {options}" for name, options in PARTITIONS.items()]
    return "\n".join(lines) + "\n"


def render_gres_conf(layout: Layout) -> str:
    lines = ["AutoDetect=off"]
    for node, gpus in NODES.items():
        first = 0
        for kind, count in gpus:
            devices = f"{layout.gpu_devices}[{first}-{first + count - 1}]"
            lines.append(f"NodeName={node} Name=gpu Type={kind} File={devices}")
            first += count
    return "\n".join(lines) + "\n"


def render_slurmdbd_conf(layout: Layout) -> str:
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.home}/run/munge",
        "DbdHost": layout.host,
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(layout.database_port),
        "SlurmUser": layout.user,
        "LogFile": f"{layout.home}/log/slurmdbd.log",
        "PidFile": f"{layout.home}/run/slurmdbd.pid",
        "StorageType": "accounting_storage/mysql",
        # Through a socket, whose path slurmdbd takes from MYSQL_UNIX_PORT.
        "StorageHost": "localhost",
        "StorageUser": layout.user,
        "StorageLoc": "slurm_acct_db",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def render_accounts(user: str) -> str:
    """Commands for sacctmgr. GPUs can be limited only after slurmctld has told the database that there are some."""
    commands = [
        f"add account {account} Description={account} Organization=lab" for account in ACCOUNTS
    ]
    commands += [
        # Beyond the first limit a job pends, beyond the second it is refused: sites do either.
        "add qos short MaxWall=01:00:00",
        "add qos onegpu Flags=DenyOnLimit MaxTRESPerJob=gres/gpu=1",
        f"add user {user} Account={','.join(ACCOUNTS)} DefaultAccount={ACCOUNTS[0]}",
        f"modify user {user} set DefaultAccount={ACCOUNTS[0]} QOS=normal,short,onegpu DefaultQOS=normal",
    ]
    if user == "root":
        commands.append("delete user root where account=root")
    return "\n".join(commands) + "\n"
