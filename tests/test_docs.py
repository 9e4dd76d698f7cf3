"""The docs are tested: generated pages are fresh, verbs are documented, the README's first example works."""

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


def test_the_first_example_of_the_readme(project: Project) -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("$ windlass run"))
    assert at < 20, "the first working example stands by line 20"
    project.write("train.py", "import argparse, windlass\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
                  "p.add_argument('--seed', type=int)\na = p.parse_args()\nwindlass.log(step=1, loss=a.lr * a.seed)\n")  # fmt: skip
    env = {**project.env, "PATH": f"{Path(sys.executable).parent}:{project.env['PATH']}"}
    for line in lines[at : at + 2]:
        done = subprocess.run(
            line.removeprefix("$ "), shell=True, cwd=project.folder, env=env, capture_output=True, text=True, check=True
        )
    assert done.stdout.splitlines()[0].split()[:3] == ["lr", "n", "mean"] and len(done.stdout.splitlines()) == 4


def test_the_study_of_the_readme_is_valid(project: Project) -> None:
    block = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    project.write("study.yaml", block)
    assert project.json("plan", "--json")["trials"] == 30
