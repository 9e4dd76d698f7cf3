"""windlass site: what is known of the cluster, and where each fact came from."""

from __future__ import annotations

import json
import os

import click

from windlass.cli.options import json_option
from windlass.core.errors import input_error
from windlass.places.slurm.place import SlurmPlace
from windlass.site.discover import fetch_cluster, find_profile_name
from windlass.site.local import fetch_local_site
from windlass.site.profiles import GENERIC, list_profiles, read_profile
from windlass.view.site import cluster_to_json, local_to_json, render_cluster, render_local_site
from windlass.view.table import render_table


@click.command()
@click.argument("name", required=False)
@click.option(
    "--site",
    "named",
    metavar="NAME",
    help="The profile of the cluster, where it is not recognized.",
)
@click.option(
    "--refresh", is_flag=True, help="Ask the scheduler again; its answers are kept for 5 minutes."
)
@click.option("--list", "list_them", is_flag=True, help="List all profiles.")
@json_option
def command(
    name: str | None, named: str | None, refresh: bool, list_them: bool, as_json: bool
) -> None:
    """Show what is known of this cluster, or of the one whose profile is named, and where each fact came from."""
    if name and named and name != named:
        raise input_error(f"two sites are named: {name} and {named}", "leave one of them out")
    if list_them:
        print(_render_profiles(as_json))
        return
    site = name or named or os.environ.get("WINDLASS_CLUSTER") or None
    if not SlurmPlace.is_offered(site) and find_profile_name("") == GENERIC:
        local = fetch_local_site()
        print(json.dumps(local_to_json(local), indent=2) if as_json else render_local_site(local))
        return
    cluster = fetch_cluster(site, refresh)
    print(json.dumps(cluster_to_json(cluster), indent=2) if as_json else render_cluster(cluster))


def _render_profiles(as_json: bool) -> str:
    """The profiles of clusters that come with Windlass, as a table or as JSON."""
    profiles = [read_profile(name) for name in list_profiles()]
    rows = [
        {"name": profile.name, "as of": profile.as_of, "about": profile.about}
        for profile in profiles
    ]
    if as_json:
        return json.dumps(
            [
                {"name": one.name, "as_of": one.as_of, "about": one.about, "file": one.file}
                for one in profiles
            ],
            indent=2,
        )
    return render_table(rows, width=100).rstrip("\n")
