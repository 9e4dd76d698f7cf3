"""windlass usage: how much of disks and of computing time is used."""

from __future__ import annotations

import json
import os

import click

from windlass.cli.options import json_option
from windlass.core.errors import SchedulerError
from windlass.core.paths import find_project
from windlass.site.cluster import Cluster
from windlass.site.discover import fetch_cluster, find_scratch
from windlass.site.usage import fetch_answers, fetch_disks
from windlass.view.usage import render_usage, usage_to_json


@click.command()
@click.option(
    "-a", "--account", help="Show only the share of this account (default: all of yours)."
)
@click.option(
    "--site",
    metavar="NAME",
    help="The profile of the cluster (default: the one that fits this machine).",
)
@json_option
def command(account: str | None, site: str | None, as_json: bool) -> None:
    """Show how much of disks and of computing time is used.

    The file systems of your home, the scratch and the project are looked at. Then the programs that the site has are
    asked: those that its profile names under `usage`, diskusage_report or quota, lfs quota, and sshare.
    """
    cluster = _find_cluster(site)
    folders = [os.path.expanduser("~"), find_scratch(os.environ) or "", find_project(os.getcwd())]
    disks = fetch_disks(folder for folder in folders if folder)
    answers = fetch_answers(
        cluster, disks, [account] if account else _accounts(cluster), os.environ
    )
    print(
        json.dumps(usage_to_json(disks, answers), indent=2)
        if as_json
        else render_usage(disks, answers)
    )


def _find_cluster(site: str | None) -> Cluster | None:
    try:
        return fetch_cluster(site)
    except SchedulerError:
        return None


def _accounts(cluster: Cluster | None) -> list[str]:
    """The user's accounts, as far as the scheduler or the site file tells."""
    if cluster is None:
        return []
    named = (
        str(cluster.defaults["account"])
        if cluster.defaults.get("account")
        else cluster.default_account
    )
    return list(cluster.accounts) or ([named] if named else [])
