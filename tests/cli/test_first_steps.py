"""What the README and the quickstart tell a newcomer to type works: in a clone, with nothing installed but Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

OFFLINE = (
    "Temporary failure in name resolution",
    "Network is unreachable",
    "No matching distribution found for hatch",
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that git has or would take, as they are now, in a folder of their own."""
    folder = tmp_path_factory.mktemp("first") / "a clone"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listing, cwd=ROOT, text=True).split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def commands(page: str) -> list[list[str]]:
    """The commands of each console block of a page, without what their comments explain."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return [[re.sub(r"\s+# .*", "", line[2:]) for line in block.splitlines()] for block in blocks]


def type_in(folder: Path, lines: list[str]) -> str:
    """Run the lines in one shell, as a newcomer would. Its PATH has `python3` and the system's own programs."""
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    if not (tools / "python3").exists():
        (tools / "python3").symlink_to(Path(sys.base_prefix) / "bin/python3")
    kept = {
        key: value
        for key, value in os.environ.items()
        if key.startswith(("PIP_", "SSL_", "http", "HTTP", "no_"))
    }
    env = {
        **kept,
        "PATH": f"{tools}:/usr/bin:/bin",
        "HOME": str(folder.parent),
        "SLURM_CONF": "/nowhere",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if any(text in done.stderr for text in OFFLINE) and os.environ.get("CI") != "true":
        pytest.skip("pip reaches no package index from here")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_readme_begins_with_commands_that_work_in_a_clone(clone: Path) -> None:
    first = commands("README.md")[0]
    above = (ROOT / "README.md").read_text().splitlines()[:20]
    assert all(any(line in text for text in above) for line in first), (
        "the first example stands within 20 lines"
    )
    printed = type_in(clone, first)
    table = printed[printed.index("lr ") :].splitlines()
    assert table[0].split() == ["lr", "error", "n"] and len(table) == 4


def test_the_quickstart_works_in_a_clone(clone: Path) -> None:
    install, script, study, views, *_ = commands("docs/quickstart.md")
    printed = type_in(clone, [*install, *script, *study, *views])
    assert "it is done" in printed and (clone / "moons/results.csv").read_text().count("\n") > 40


def test_no_page_installs_from_an_index_that_does_not_have_it() -> None:
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/**/*.*"),
        *ROOT.glob("src/**/*.py"),
    ]
    wanted = re.compile(r"pip install (-\S+ )*['\"]?windlass")
    assert [
        str(page)
        for page in pages
        if page.suffix in (".md", ".py") and wanted.search(page.read_text())
    ] == []
