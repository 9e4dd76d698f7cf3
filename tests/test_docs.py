"""The docs are tested: generated pages are fresh, verbs are documented, links lead somewhere.

What the README and the quickstart tell a newcomer to type is executed in test_first_steps.py.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.conftest import Project, wait_for
from windlass.agent import ends
from windlass.cli import VERBS

ROOT = Path(__file__).parent.parent


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/write_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_verb_is_told_of_in_some_page_that_a_person_wrote() -> None:
    generated = ("command-line.md", "study-file.md")
    text = "".join(
        page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name not in generated
    )
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
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    mark = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)
    files = [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]
    assert [path for path in files if mark.search(path.read_bytes())] == []


def code_that_means(words: str) -> int:
    """The code in the table of docs/failures.md whose row has these words."""
    text = (
        (ROOT / "docs/failures.md")
        .read_text()
        .partition("| code of a job |")[2]
        .partition("\n\n")[0]
    )
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", text, re.MULTILINE)
    assert [int(code) for code, _ in rows] == sorted(
        value for name, value in vars(ends).items() if name.startswith("EXIT_")
    )
    (code,) = (int(code) for code, meaning in rows if words in meaning)
    return code


def test_agents_end_with_the_codes_of_the_table(project: Project) -> None:
    """Code 4 is seen on a real cluster, in test_end_of_study.py; of code 5 only what `run` says, in test_survival.py."""
    project.write("trial.sh", "touch begun-$1; while [ -e hold ]; do sleep 0.05; done; exit $1")
    setup = json.dumps(f"test ! -e {shlex.quote(str(project.folder / 'broken'))}")
    study = f"command: sh trial.sh {{n}}\nparameters: {{n: [0, 7]}}\nslots: 1\nenvironment: {{setup: [{setup}]}}\n"
    project.write("study.yaml", study)
    project.run("run", "--on", "local", code=1)
    folder = project.study_folder()

    def start(where: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "windlass.agent", str(where)]
        return subprocess.Popen(
            words, cwd=project.folder, env=project.env, stderr=subprocess.DEVNULL
        )

    assert (
        start(folder).wait(120)
        == code_that_means("no trial failed for good here")
        == ends.EXIT_DONE
    )
    assert start(project.folder / "nothing").wait(120) == code_that_means(
        "the study's folder cannot be used"
    )
    project.run("retry", "1", "--no-run")
    (project.folder / "begun-7").unlink()
    project.write("hold", "")
    agent = start(folder)
    wait_for((project.folder / "begun-7").exists)
    agent.terminate()
    assert agent.wait(120) == code_that_means("the agent had to stop")
    (project.folder / "hold").unlink()
    assert start(folder).wait(120) == code_that_means("a trial failed for good")
    project.run("retry", "1", "--no-run")
    project.write("broken", "")
    assert start(folder).wait(120) == code_that_means("the node could not be made ready")
