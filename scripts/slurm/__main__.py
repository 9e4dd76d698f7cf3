"""The command line: `python -m scripts.slurm start` and `python -m scripts.slurm stop`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from .cluster import Cluster, ClusterError
from .config import CPUS
from .storage import FILE_SYSTEMS

FOLDER = Path(__file__).parent.parent.parent / ".slurm"
ABOUT = """\
A real Slurm is up, in {folder}.

  node1  4 x p100            {cpus} CPUs, {cpus}000 MB each; GPUs are only names
  node2  4 x v100l
  node3  4 x a100
  node4  2 x p100, 2 x a100
  partitions  debug (default, 30 min)  short (3 h)  long (7 days)  a100 (1 day, account def-prof)  down
{accounts}
In a shell that shall use it:

{exports}
  sinfo

`{stop}` ends it."""
ACCOUNTS = """\
  accounts    def-prof (default)  rrg-lab
  QOS         normal  short (1 h)  onegpu (1 GPU a job)
"""


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.slurm", description="A real Slurm on this machine."
    )
    parser.add_argument("verb", choices=["start", "stop"])
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="where it lives (default: .slurm)"
    )
    parser.add_argument("--no-database", action="store_true", help="without accounting")
    parser.add_argument(
        "--nodes-apart",
        action="store_true",
        help="nodes have nothing in common but shared folders (root only)",
    )
    parser.add_argument(
        "--share",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
        help="with --nodes-apart: a folder below a temporary one that all nodes see, as that of your project",
    )
    parser.add_argument(
        "--scratch",
        choices=FILE_SYSTEMS,
        default="",
        help="with --nodes-apart: a real network file system that every node mounts for itself",
    )
    parser.add_argument(
        "--cpus", type=int, default=CPUS, help=f"of each node, pretended (default: {CPUS})"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a line of slurm.conf"
    )
    parser.add_argument(
        "--when-stdin-ends",
        action="store_true",
        help="wait until whoever holds standard input is gone",
    )
    return parser.parse_args()


def stop_command(folder: Path) -> str:
    """What ends the cluster in this folder."""
    if folder.resolve() == FOLDER.resolve():
        return "make slurm-stop"
    return f"python3 -m scripts.slurm stop --folder {shlex.quote(str(folder))}"


def start(cluster: Cluster) -> None:
    if cluster.exists and not cluster.is_up:
        print("the cluster that was here is not whole any more: starting it anew")
        cluster.stop()
    if not cluster.exists:
        cluster.start()
    has_accounts = "slurmdbd" in cluster.processes
    exports = "\n".join(
        f"  export {name}={shlex.quote(value)}" for name, value in cluster.env.items()
    )
    accounts = ACCOUNTS if has_accounts else ""
    stop = stop_command(cluster.folder)
    print(
        ABOUT.format(
            folder=cluster.folder, cpus=cluster.cpus, exports=exports, accounts=accounts, stop=stop
        )
    )


def main() -> int:
    words = parse_words()
    settings = dict(setting.split("=", 1) for setting in words.set)
    cluster = Cluster(
        words.folder,
        database=not words.no_database,
        nodes_apart=words.nodes_apart,
        shared=words.share,
        scratch=words.scratch,
        cpus=words.cpus,
        settings=settings,
    )
    if words.when_stdin_ends:
        sys.stdin.read()
    try:
        if words.verb == "start":
            start(cluster)
        else:
            print("stopped" if cluster.exists else "there was none")
            cluster.stop()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
