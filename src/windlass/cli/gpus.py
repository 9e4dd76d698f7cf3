"""windlass gpus: GPUs in use and free."""

from __future__ import annotations

import json
import sys

import click

from windlass.cli.options import json_option
from windlass.core.errors import SchedulerError, input_error
from windlass.places.slurm.place import SlurmPlace
from windlass.site.discover import fetch_nodes
from windlass.view.gpus import count_types, gpus_to_json, render_gpus
from windlass.view.table import terminal_width


@click.command()
@click.option("--type", "only", metavar="TYPE", help="Show only GPUs of this type.")
@json_option
def command(only: str | None, as_json: bool) -> None:
    """Show GPUs in use and free, by type and by node, as the scheduler has them now."""
    if not SlurmPlace.is_offered(None):
        raise SchedulerError(
            "there is no Slurm on this machine\n  hint: `windlass site` shows this machine's GPUs"
        )
    nodes = tuple(node for node in fetch_nodes() if node.gpus)
    types = [count.type for count in count_types(nodes)]
    if only is not None and only not in types:
        known = ", ".join(kind or "GPUs without a type" for kind in types)
        raise input_error(
            f"no node has GPUs of type {only!r}",
            f"there are: {known}" if known else "there are no GPUs",
        )
    if as_json:
        print(json.dumps(gpus_to_json(nodes, only), indent=2))
    else:
        print(render_gpus(nodes, only, terminal_width(sys.stdout)))
