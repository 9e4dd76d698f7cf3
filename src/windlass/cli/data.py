"""windlass data: pack a study's data ahead of time, and see what is packed."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

import click

from windlass.agent.node.store import render_contents
from windlass.bundle.data import find_items, look_at_item, pack_items
from windlass.cli.options import json_option
from windlass.collect.locate import study_roots
from windlass.core.errors import input_error
from windlass.core.paths import find_project
from windlass.core.units import render_bytes
from windlass.model import Data
from windlass.spec import find_study_file, load_study

_STUDY_ENDINGS = (".yaml", ".yml", ".json")


class _Wanted:
    """The data that a command line means, and where they are looked for."""

    def __init__(self, names: tuple[str, ...], compress: str | None, folder: str | None) -> None:
        file = names[0] if len(names) == 1 and names[0].endswith(_STUDY_ENDINGS) else None
        if not names:
            file = find_study_file(os.getcwd())
            if file is None:
                raise input_error(
                    "no data named and no study.yaml here", "windlass data pack datasets/dataset1"
                )
        self.file = file or ""
        if file is not None:
            study = load_study(file)
            self.project = study.project_dir
            self.items = study.data
            folder = folder or study.given.get("folder")
        else:
            self.project = find_project(os.getcwd())
            self.items = tuple(Data(name) for name in names)
        self.scratch = study_roots(folder, self.project, os.environ.get("SCRATCH"))[0]
        if compress is not None:
            how: Any = compress
            self.items = tuple(replace(item, compress=how) for item in self.items)
        if not self.items:
            raise input_error(f"{self.file} names no data", "data: [datasets/dataset1]")


_names = click.argument("names", nargs=-1, metavar="[STUDY.yaml | PATHS...]")
_folder = click.option(
    "--folder",
    metavar="PATH",
    help="The scratch folder of the project, where paths are looked up first.",
)
_compress = click.option(
    "--compress",
    type=click.Choice(["none", "gzip", "zstd", "auto"]),
    help="How archives are compressed (default: as in the study file).",
)


@click.group()
def command() -> None:
    """Pack a study's data ahead of time, and see what is packed.

    A folder becomes one archive in `.windlass-data` beside it, which is used for as long as the folder is unchanged.
    """


@command.command()
@_names
@_compress
@_folder
@json_option
def pack(names: tuple[str, ...], compress: str | None, folder: str | None, as_json: bool) -> None:
    """Pack folders into archives, unless they are packed already. `run` does the same."""
    wanted = _Wanted(names, compress, folder)
    made: list[str] = []

    def say(text: str) -> None:
        made.append(text)
        print(text, file=sys.stderr, flush=True)

    entries = pack_items(wanted.items, wanted.scratch, wanted.project, wanted.file, say)
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    for entry in entries:
        is_new = any(
            text.startswith(f"{os.path.realpath(entry['source'])}: packing") for text in made
        )
        word = "packed" if is_new else "is an archive" if entry.get("foreign") else "unchanged"
        known = entry.get("content_files")
        holds = f"{render_contents(known, entry['content_bytes'])}, " if known else ""
        print(
            f"{entry['as']}: {word}, {holds}in {entry['archive']} ({render_bytes(entry['bytes'])})"
        )


@command.command(name="list")
@_names
@_compress
@_folder
@json_option
def list_(names: tuple[str, ...], compress: str | None, folder: str | None, as_json: bool) -> None:
    """Show where data are, how large, and whether they are packed as they are now. Writes nothing."""
    wanted = _Wanted(names, compress, folder)
    places = find_items(wanted.items, wanted.scratch, wanted.project, wanted.file)
    rows = [look_at_item(item, path, wanted.scratch) for item, path in places]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        state = f"packed in {row['archive']}" if row["archive"] else "not packed"
        if row.get("doubt"):
            state += f"; `windlass data pack` compares its checksum, because {row['doubt']}"
        print(f"{row['as']}: {render_contents(row['files'], row['bytes'])}, {state}")
