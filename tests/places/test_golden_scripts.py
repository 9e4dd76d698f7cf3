"""The batch script of one study at every site we know, word by word, as plain files that a person can read.

After a change that is meant: ``WRITE_GOLDEN=1 pytest tests/places/test_golden_scripts.py``, and look at the difference.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HERE
from windlass.core.paths import StudyPaths
from windlass.places.slurm.place import SlurmPlace
from windlass.places.slurm.submission import example_script
from windlass.planning import make_plan
from windlass.site.discover import fetch_cluster
from windlass.site.profiles import list_profiles
from windlass.spec import Overrides, load_study

GOLDEN = HERE / "golden"
SITES = sorted(list_profiles())
STUDY = """\
name: cartpole
command: python train.py --lr {lr} --seed {seed}
parameters:
  lr: [1e-3, 1e-4]
seeds: 50
needs: {gpus: 0.25, cpus: 1.5, memory: 2500MB, time: 3h}
slurm: {account: def-prof, mail_user: me@example.org, options: {exclude: "node[3-5]"}}
"""


def render(site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in list(os.environ):
        if name.startswith(("SLURM", "SBATCH", "SCRATCH", "WINDLASS", "CC_CLUSTER")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("USER", "me")
    project = tmp_path / "project"
    project.mkdir()
    (project / ".git").mkdir()
    (project / "study.yaml").write_text(STUDY)
    study = load_study(str(project / "study.yaml"), Overrides())
    plan = make_plan(SlurmPlace(fetch_cluster(site)), study, {"folder": "/scratch/me/project"})
    assert plan.terms is not None
    script = example_script(plan.terms, StudyPaths(plan.folder))
    return script.replace(sys.executable, "/usr/bin/python3").replace(
        str(project), "/home/me/project"
    )


@pytest.mark.parametrize("site", SITES)
def test_the_script_of_every_site(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = render(site, tmp_path, monkeypatch)
    golden = GOLDEN / f"job-{site}.sh"
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(script)
    assert script == golden.read_text()


@pytest.mark.parametrize("site", SITES)
def test_the_shell_of_the_site_can_read_it(site: str) -> None:
    golden = GOLDEN / f"job-{site}.sh"
    shell = "zsh" if "zsh" in golden.read_text().splitlines()[0] else "bash"
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", str(golden)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""


def test_nothing_is_left_of_sites_that_are_gone() -> None:
    assert sorted(path.stem.removeprefix("job-") for path in GOLDEN.glob("job-*.sh")) == SITES
