"""The docs are tested: generated pages are fresh, verbs are documented, links lead somewhere.

What the README and the quickstart tell a newcomer to type is executed in test_first_steps.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import Project
from windlass.agent import ends
from windlass.cli import VERBS

ROOT = Path(__file__).parent.parent


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/write_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_verb_is_told_of_in_some_page_that_a_person_wrote() -> None:
    generated = ("command-line.md", "study-file.md")
    text = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name not in generated)
    assert [verb for verb in VERBS if f"windlass {verb}" not in text] == []


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "examples/README.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_study_of_the_readme_is_valid(project: Project) -> None:
    block = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    project.write("study.yaml", block)
    project.write("train.py", "")
    assert project.json("plan", "--json")["trials"] == 30


def test_no_file_has_marks_of_a_merge() -> None:
    """A merge that nobody resolved leaves two texts that contradict each other."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    mark = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)
    files = [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]
    assert [path for path in files if mark.search(path.read_bytes())] == []


def test_the_table_of_exit_codes_has_all_of_them() -> None:
    text = (ROOT / "docs/failures.md").read_text().partition("| code of a job |")[2].partition("\n\n")[0]
    codes = {value for name, value in vars(ends).items() if name.startswith("EXIT_")}
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == sorted(codes)
