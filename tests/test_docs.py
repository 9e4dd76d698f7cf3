"""The docs are tested: generated pages are fresh, verbs are documented, links lead somewhere.

What the README and the quickstart tell a newcomer to type is executed in test_first_steps.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import Project
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
