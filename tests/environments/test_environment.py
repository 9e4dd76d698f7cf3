"""What trials are executed with: modules, virtual environments, conda, uv, lines of the user's. All of it real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Project, wait_for
from windlass.agent.node.store import NodeStore
from windlass.core.errors import NotReady
from windlass.core.lock import making_lock
from windlass.environments.build.recipe import (
    Recipe,
    fill_wheelhouse,
    make_environment,
    make_on_node,
)
from windlass.environments.conda import enter_conda
from windlass.environments.modules import load_modules
from windlass.environments.shared.shell import ShellFailed, Step, run_shell
from windlass.environments.venv import enter_venv

# A `module` of our own, as a site would have it: it knows two modules and says what it does not know.
MODULE = """
module() {
    [ "$1" = load ] || return 1
    case "$2" in
    python/3.11) export LOADEDMODULES="${LOADEDMODULES:+$LOADEDMODULES:}$2" LOADED_PYTHON=yes ;;
    cuda) [ -n "$LOADED_PYTHON" ] || { echo "cuda wants python first" >&2; return 1; }
        export LOADEDMODULES="$LOADEDMODULES:cuda" CUDA_HOME=/opt/cuda ;;
    old) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'old'" >&2 ;;
    *) echo "Lmod has detected the following error: The following module(s) are unknown: \\"$2\\"" >&2; return 1 ;;
    esac
}
"""

CONDA = """
conda() {
    [ "$1" = activate ] || return 1
    folder="$FAKE_ROOT/envs/$2"
    if [ ! -d "$folder" ]; then
        echo "EnvironmentNameNotFound: Could not find conda environment: $2" >&2
        return 1
    fi
    export CONDA_PREFIX="$folder" CONDA_DEFAULT_ENV="$2" PATH="$folder/bin:$PATH"
}
FAKE_ROOT="$(dirname "$(dirname "$(dirname "${BASH_SOURCE[0]}")")")"
"""


def base_environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **more}


def make_venv(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def site_packages(venv: Path) -> Path:
    return next((venv / "lib").glob("python3*")) / "site-packages"


def make_wheel(folder: Path, name: str, version: str, program: bool = False) -> Path:
    """A wheel of one module, which says its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\ndef main():\n    print(version)\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        if program:
            archive.writestr(
                f"{info}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n"
            )
        archive.writestr(f"{info}/RECORD", "")
    return path


def notes(project: Project) -> list[str]:
    found = []
    for path in sorted((project.study_folder() / "journal").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found += [line["text"] for line in lines if line["e"] == "note"]
    return found


class TestShell:
    def test_what_lines_export_is_what_comes_back(self) -> None:
        env = base_environment(KEPT="1", GONE="2", PWD="/before")
        text = "export NEW=$'a\\nb \"c\"'\nunset GONE\nlocal_only=3\ncd /\necho chatter"
        done = run_shell([Step("setup", text, strict=True)], env, "/tmp")
        assert done.env == {**base_environment(KEPT="1", PWD="/before"), "NEW": 'a\nb "c"'}
        assert done.outputs == ["chatter"]

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("true\nls /nowhere\ntrue", 2, "nowhere"),
            ("true\nif then", 2, "syntax error"),
            ("f() {\n  no_such_program\n}\nf", 2, "no_such_program"),
            ("echo before\nexit 0", 0, "before"),
        ],
    )
    def test_the_first_line_that_fails_is_named(self, text: str, line: int, words: str) -> None:
        with pytest.raises(ShellFailed) as caught:
            run_shell(
                [Step("first", "true"), Step("setup", text, strict=True)], base_environment(), "/"
            )
        assert (caught.value.step, caught.value.line) == (1, line)
        assert words in caught.value.output and "/dev/fd" not in caught.value.output

    def test_what_is_left_in_the_background_does_not_hold_us_up(self) -> None:
        done = run_shell([Step("setup", "sleep 60 & export PROCESS=$!")], base_environment(), "/")
        os.kill(int(done.env["PROCESS"]), signal.SIGKILL)

    def test_one_that_takes_too_long_is_ended(self) -> None:
        with pytest.raises(ShellFailed, match="did not end within"):
            run_shell([Step("setup", "sleep 60")], base_environment(), "/", timeout_s=0.3)


class TestModules:
    def env(self, tmp_path: Path) -> dict[str, str]:
        (tmp_path / "init").mkdir()
        (tmp_path / "init/bash").write_text(MODULE)
        return base_environment(MODULESHOME=str(tmp_path))

    def test_they_are_loaded_in_order(self, tmp_path: Path) -> None:
        env = load_modules(["python/3.11", "cuda"], self.env(tmp_path), "/", print)
        assert (env["LOADEDMODULES"], env["CUDA_HOME"]) == ("python/3.11:cuda", "/opt/cuda")

    @pytest.mark.parametrize(
        ("name", "words"), [("nonsense", "are unknown"), ("old", "Unable to locate")]
    )
    def test_a_missing_one_is_an_error_with_its_own_words(
        self, tmp_path: Path, name: str, words: str
    ) -> None:
        with pytest.raises(NotReady, match=rf"module {name} cannot be loaded on .*{words}"):
            load_modules(["python/3.11", name], self.env(tmp_path), "/", print)

    def test_without_the_command_it_is_a_note_here_and_an_error_in_a_job(
        self, tmp_path: Path
    ) -> None:
        if os.path.exists("/etc/profile.d/modules.sh") or os.path.exists("/etc/profile.d/lmod.sh"):
            pytest.skip("this machine has modules")
        said: list[str] = []
        assert load_modules(["cuda"], base_environment(), "/", said.append) == base_environment()
        assert said == ["there is no `module` command here: cuda not loaded"]
        with pytest.raises(NotReady, match="no `module` command on"):
            load_modules(["cuda"], base_environment(SLURM_JOB_ID="1"), "/", said.append)

    def test_all_that_are_missing_are_told_before_anything_is_run(self, project: Project) -> None:
        project.write("site/init/bash", MODULE)
        project.env["MODULESHOME"] = str(project.folder / "site")
        project.write(
            "study.yaml",
            "command: 'true'\nenvironment:\n  modules: [python/3.11, one, cuda, two]\n",
        )
        done = project.run("run", code=2)
        assert (
            done.stderr.count("hint:") == 2
            and "study.yaml:3: module one" in done.stderr
            and "module two" in done.stderr
        )
        assert not (project.folder / ".windlass").exists()


class TestVenv:
    def test_trials_and_shells_and_warm_ones_get_it(self, project: Project) -> None:
        venv = make_venv(project.folder / "my env")
        (site_packages(venv) / "only_here.py").write_text("value = 17\n")
        project.write(
            "show.py",
            "import os, only_here, sys\nprint(sys.prefix, only_here.value, os.environ['GREETING'])\n",
        )
        expected = f"{venv} 17 hello"
        for more in ("", "shell: true\n", "warm: [only_here]\n", "warm: auto\n"):
            name = "study" + more.replace(": ", "-").strip()
            project.write(
                "study.yaml",
                f"name: {name!r}\ncommand: python show.py {{n}}\nparameters: {{n: [1, 2, 3]}}\n{more}"
                "environment:\n  venv: my env\n  setup: ['export GREETING=hello']\n",
            )
            project.run("run")
            assert project.counts() == {"done": 3}
            for number in range(3):
                assert expected in project.run("logs", str(number)).stdout.splitlines(), more
            assert any(note.startswith("environment: venv ") for note in notes(project))
            assert not any("refused" in note for note in notes(project))
        record = json.loads((project.study_folder() / "environment.json").read_text())
        assert record["prefix"] == str(venv) and record["python"] == ".".join(
            map(str, sys.version_info[:3])
        )

    def test_packages_are_recorded_and_no_values_of_variables(self, project: Project) -> None:
        venv = make_venv(project.folder / ".venv")
        with zipfile.ZipFile(make_wheel(project.folder, "sprocket", "1.2")) as wheel:
            wheel.extractall(site_packages(venv))
        project.env["MY_TOKEN"] = "hf_abcdefghijklmnop"
        project.write("study.yaml", "command: 'true'\nenvironment: {venv: .venv}\n")
        project.run("run")
        text = (project.study_folder() / "environment.json").read_text()
        assert json.loads(text)["packages"] == {"sprocket": "1.2"}
        assert "abcdefghijklmnop" not in text

    def test_an_environment_that_is_missing_is_told_with_its_line(self, project: Project) -> None:
        project.write(
            "study.yaml", "command: 'true'\nenvironment:\n  setup: ['true']\n  venv: nowhere\n"
        )
        done = project.run("run", code=2)
        assert (
            f"study.yaml:4: the virtual environment {project.folder}/nowhere does not exist"
            in done.stderr
        )
        assert not (project.folder / ".windlass").exists()

    def test_one_whose_python_is_gone_says_which(self, tmp_path: Path) -> None:
        (tmp_path / "venv/bin").mkdir(parents=True)
        (tmp_path / "venv/bin/python").symlink_to("/nowhere/python3.7")
        with pytest.raises(NotReady, match=r"bin/python is /nowhere/python3.7, not on"):
            enter_venv(str(tmp_path / "venv"), base_environment())

    def test_python_s_own_variables_of_before_do_not_stay(self, tmp_path: Path) -> None:
        venv = make_venv(tmp_path / "venv")
        env = enter_venv(str(venv), base_environment(PYTHONHOME="/nowhere", VIRTUAL_ENV="/other"))
        assert env["VIRTUAL_ENV"] == str(venv) and "PYTHONHOME" not in env
        assert env["PATH"].split(":")[0] == f"{venv}/bin"

    def test_what_is_installed_as_it_is_edited_comes_from_the_frozen_copy(
        self, project: Project
    ) -> None:
        """As `pip install -e libs/gear` leaves it."""
        venv = make_venv(project.folder / ".venv")
        project.write("libs/gear/src/gear.py", "value = 'as submitted'\n")
        (site_packages(venv) / "gear.pth").write_text(f"{project.folder}/libs/gear/src\n")
        info = site_packages(venv) / "gear-1.dist-info"
        info.mkdir()
        url = (project.folder / "libs/gear").as_uri()
        (info / "direct_url.json").write_text(
            json.dumps({"url": url, "dir_info": {"editable": True}})
        )
        project.write(
            "study.yaml",
            "code: frozen\ncommand: python -c 'import gear; print(gear.value)'\n"
            "environment:\n  venv: .venv\n  setup: ['echo value = 1 > \"$LIVE\"']\n",
        )
        project.env["LIVE"] = str(project.folder / "libs/gear/src/gear.py")
        project.run("run")
        assert "as submitted" in project.run("logs", "0").stdout

    def test_a_failing_line_of_setup_is_named_and_no_trial_begins(self, project: Project) -> None:
        project.write(
            "study.yaml",
            "command: touch begun\nenvironment:\n  setup:\n  - export A=1\n  - ls /nowhere/at/all\n",
        )
        done = project.run("run", code=1)
        assert "line 2 of `setup` (ls /nowhere/at/all) ended with code" in done.stderr
        assert project.counts() == {"waiting": 1} and not (project.folder / "begun").exists()


class TestConda:
    def root(self, tmp_path: Path, script: bool = True) -> Path:
        root = tmp_path / "miniconda3"
        make_venv(root / "envs/torch")
        hooks = root / "envs/torch/etc/conda/activate.d"
        hooks.mkdir(parents=True)
        (hooks / "cc.sh").write_text("export CC=$CONDA_PREFIX/bin/cc\n")
        if script:
            (root / "etc/profile.d").mkdir(parents=True)
            (root / "etc/profile.d/conda.sh").write_text(CONDA)
        return root

    def test_by_name_through_conda(self, tmp_path: Path) -> None:
        root = self.root(tmp_path)
        env = enter_conda("torch", base_environment(HOME=str(tmp_path)), "/", print)
        assert (env["CONDA_DEFAULT_ENV"], env["PATH"].split(":")[0]) == (
            "torch",
            f"{root}/envs/torch/bin",
        )

    def test_by_name_without_conda(self, tmp_path: Path) -> None:
        root, said = self.root(tmp_path, script=False), []
        env = enter_conda("torch", base_environment(HOME=str(tmp_path)), "/", said.append)
        assert env["CC"] == f"{root}/envs/torch/bin/cc" and said == [
            f"conda itself is not found; using {root}/envs/torch"
        ]

    def test_by_folder(self, tmp_path: Path) -> None:
        folder = self.root(tmp_path) / "envs/torch"
        env = enter_conda(str(folder), base_environment(), "/", print)
        assert env["CONDA_PREFIX"] == str(folder) and env["CC"] == f"{folder}/bin/cc"

    def test_what_is_missing_is_told(self, tmp_path: Path) -> None:
        self.root(tmp_path)
        with pytest.raises(NotReady, match="Could not find conda environment: tensorflow"):
            enter_conda("tensorflow", base_environment(HOME=str(tmp_path)), "/", print)
        if not os.path.exists("/opt/conda"):
            with pytest.raises(NotReady, match=r"looked for etc/profile.d/conda.sh"):
                enter_conda("torch", base_environment(), "/", print)

    def test_before_the_queue_with_what_there_is(self, project: Project) -> None:
        home = project.folder / "home"
        home.mkdir()
        self.root(home)
        project.env["HOME"] = str(home)
        project.write(
            "study.yaml",
            "command: python -c 'import sys; print(sys.prefix)'\nenvironment: {conda: tensorflow}\n",
        )
        done = project.run("run", code=2)
        assert "study.yaml:2: there is no conda environment named tensorflow" in done.stderr
        assert "there are: torch" in done.stderr
        project.write(
            "study.yaml",
            "command: python -c 'import sys; print(sys.prefix)'\nenvironment: {conda: torch}\n",
        )
        project.run("run")
        assert str(home / "miniconda3/envs/torch") in project.run("logs", "0").stdout


def build_of(tmp_path: Path, text: str, **more: Any) -> dict[str, Any]:
    places = {
        "root": str(tmp_path / "environments"),
        "wheels": str(tmp_path / "wheels"),
        "wheels_only": False,
    }
    return {
        "file": "requirements.txt",
        "engine": "pip",
        "text": text,
        "constraints": "",
        **places,
        **more,
    }


def find_uv() -> str | None:
    return shutil.which("uv", path=f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")


def with_pip(tmp_path: Path) -> dict[str, str]:
    """Packages come from a folder of ours, and from nowhere else."""
    return base_environment(
        PIP_FIND_LINKS=str(tmp_path / "index"), PIP_NO_INDEX="1", PIP_CONFIG_FILE="/dev/null"
    )


def find_links(tmp_path: Path) -> dict[str, str]:
    """The same with uv where it is, which is ten times as fast."""
    uv = find_uv()
    if uv is None:
        return with_pip(tmp_path)
    env = base_environment(
        UV_FIND_LINKS=str(tmp_path / "index"), UV_OFFLINE="1", UV_CACHE_DIR=str(tmp_path / "cache")
    )
    return {**env, "PATH": f"{os.path.dirname(uv)}:{env['PATH']}"}


class TestBuild:
    def test_once_for_a_content_and_python(self, tmp_path: Path) -> None:
        make_wheel(tmp_path / "index", "sprocket", "1.0", program=True)
        make_wheel(tmp_path / "index", "sprocket", "2.0", program=True)
        said: list[str] = []
        recipe = Recipe(
            build_of(tmp_path, "sprocket==1.0\n"),
            str(tmp_path / "environments"),
            find_links(tmp_path),
        )
        folder = make_environment(recipe, said.append)
        assert subprocess.check_output([f"{folder}/bin/sprocket"], text=True) == "1.0\n"
        assert make_environment(recipe, said.append) == folder and len(said) == 2, (
            "the second one builds nothing"
        )
        other = Recipe(build_of(tmp_path, "sprocket\n"), recipe.root, find_links(tmp_path))
        assert make_environment(other, said.append) != folder and len(said) == 4
        assert subprocess.check_output([f"{other.link}/bin/sprocket"], text=True) == "2.0\n"

    def test_what_cannot_be_built_is_named_with_the_log(self, tmp_path: Path) -> None:
        recipe = Recipe(
            build_of(tmp_path, "no-such-thing==7\n"),
            str(tmp_path / "environments"),
            with_pip(tmp_path),
        )
        with pytest.raises(NotReady, match=r"no-such-thing==7 \(log: ") as caught:
            make_environment(recipe, print)
        log = str(caught.value).rpartition("log: ")[2].rstrip(")")
        assert "no-such-thing" in Path(log).read_text()
        left = [path for path in Path(recipe.root).iterdir() if path.is_dir()]
        assert left == [] and not recipe.is_built()

    def test_of_several_builders_one_builds_and_a_killed_one_is_followed(
        self, tmp_path: Path
    ) -> None:
        make_wheel(tmp_path / "index", "sprocket", "1.0")
        build = build_of(tmp_path, "sprocket\n")
        code = (
            "import json, sys\nfrom windlass.environments.build.recipe import *\n"
            "build, env = json.loads(sys.argv[1])\nrecipe = Recipe(build, build['root'], env)\n"
            "print(make_environment(recipe, lambda text: print(text, flush=True)))"
        )
        words = [sys.executable, "-c", code, json.dumps([build, find_links(tmp_path)])]
        first = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None and "building" in first.stdout.readline()
        first.kill()
        first.communicate()
        together = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        outputs = [process.communicate()[0] for process in together]
        assert [process.returncode for process in together] == [0, 0, 0], outputs
        assert sum("built the environment" in output for output in outputs) == 1
        assert len({output.splitlines()[-1] for output in outputs}) == 1
        folders = [
            path
            for path in Path(build["root"]).iterdir()
            if path.is_dir() and not path.is_symlink()
        ]
        assert len(folders) == 1, "what the killed one left is gone"

    def test_one_that_lost_its_python_is_built_again(self, tmp_path: Path) -> None:
        make_wheel(tmp_path / "index", "sprocket", "1.0")
        recipe = Recipe(
            build_of(tmp_path, "sprocket\n"), str(tmp_path / "environments"), find_links(tmp_path)
        )
        folder = make_environment(recipe, print)
        (Path(folder) / "bin/python").unlink()
        make_environment(recipe, print)
        assert subprocess.check_output(
            [f"{folder}/bin/python", "-c", "import sprocket; print(sprocket.version)"]
        )

    def test_on_the_node_s_disk_from_a_wheelhouse_without_a_network(self, tmp_path: Path) -> None:
        make_wheel(tmp_path / "index", "sprocket", "1.0", program=True)
        build = build_of(tmp_path, "sprocket\n", wheels_only=True)
        without = Recipe(build, build["root"], with_pip(tmp_path))
        with pytest.raises(NotReady, match="there is no wheelhouse for Python 3"):
            make_on_node(without, NodeStore(str(tmp_path / "node"), print), print, wheels_only=True)
        wheels = fill_wheelhouse(without, print)
        assert [path.name for path in Path(wheels).glob("*.whl")] == [
            "sprocket-1.0-py3-none-any.whl"
        ]
        shutil.rmtree(tmp_path / "index")
        # Wherever else packages could come from, nobody answers.
        deaf = base_environment(
            PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_CONFIG_FILE="/dev/null"
        )
        store = NodeStore(str(tmp_path / "node"), print)
        folder = make_on_node(Recipe(build, build["root"], deaf), store, print, wheels_only=True)
        assert folder.startswith(str(tmp_path / "node"))
        assert subprocess.check_output([f"{folder}/bin/sprocket"], text=True) == "1.0\n", (
            "programs know where they are"
        )
        store.close()

    def test_with_uv(self, tmp_path: Path) -> None:
        if find_uv() is None:
            pytest.skip("uv is not installed")
        make_wheel(tmp_path / "index", "sprocket", "1.0", program=True)
        env = find_links(tmp_path)
        recipe = Recipe(build_of(tmp_path, "sprocket\n"), str(tmp_path / "environments"), env)
        folder = make_environment(recipe, print)
        assert "uv pip install" in Path(recipe.log).read_text()
        assert subprocess.check_output([f"{folder}/bin/sprocket"], text=True) == "1.0\n"
        bad = Recipe(build_of(tmp_path, "no-such-thing\n"), recipe.root, env)
        with pytest.raises(NotReady, match="no-such-thing"):
            make_environment(bad, print)

    def test_a_study_builds_what_it_needs(self, project: Project) -> None:
        make_wheel(project.folder / "index", "sprocket", "3.1")
        project.env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
        project.write("requirements.txt", "--find-links index\nsprocket  # turns\n")
        project.write(
            "study.yaml",
            "command: python -c 'import sprocket; print(sprocket.version, {n})'\nparameters: {n: [1, 2]}\n"
            "environment: {build: requirements.txt}\n",
        )
        shown = project.json("env", "show", "--json")
        assert (shown["kind"], shown["built"], shown["problems"]) == ("build", "no", [])
        done = project.run("run")
        assert (
            "building the environment from requirements.txt" in done.stderr
            and project.counts() == {"done": 2}
        )
        assert "3.1 1" in project.run("logs", "0").stdout
        shown = project.json("env", "show", "--json")
        assert shown["built"] == "yes" and shown["packages"]["sprocket"] == "3.1"
        assert "sprocket==3.1\n" in project.run("env", "freeze").stdout
        assert project.run("env", "build").stdout.strip() == shown["folder"], "there already"
        record = json.loads((project.study_folder() / "environment.json").read_text())
        assert record["packages"]["sprocket"] == "3.1"
        make_wheel(project.folder / "index", "sprocket", "3.2")
        assert "has changed" not in project.run("retry", "0", "--no-run").stderr
        project.write("requirements.txt", "--find-links index\nsprocket==3.2\n")
        done = project.run("retry", "0", "--yes")
        assert (
            "requirements.txt has changed since the last run: agents make the environment anew"
            in done.stderr
        )
        assert "3.2 1" in project.run("logs", "0").stdout


class TestLock:
    def test_one_at_a_time_and_never_the_dead(self, tmp_path: Path) -> None:
        path = str(tmp_path / "turn")
        code = (
            "import sys, time\nfrom windlass.core.lock import making_lock\n"
            f"assert making_lock({path!r}, 'other').take()\nprint(flush=True)\ntime.sleep(60)"
        )
        holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert holder.stdout is not None and holder.stdout.readline()
        turn = making_lock(path, "mine")
        assert not turn.take()
        holder.kill()
        holder.communicate()
        assert turn.take()
        assert not making_lock(path, "third").take()
        turn.release()
        assert making_lock(path, "third").take()


class TestUv:
    @pytest.fixture
    def uv_project(self, project: Project) -> Project:
        uv = find_uv()
        if uv is None:
            pytest.skip("uv is not installed")
        wheel = make_wheel(project.folder / "index", "sprocket", "1.0")
        project.env |= {"PATH": f"{os.path.dirname(uv)}:{project.env['PATH']}", "UV_OFFLINE": "1"}
        project.env["UV_PYTHON"] = sys.executable
        project.write(
            "pyproject.toml",
            '[project]\nname = "thing"\nversion = "1"\nrequires-python = ">=3.9"\ndependencies = ["sprocket"]\n'
            f'[tool.uv.sources]\nsprocket = {{ path = "index/{wheel.name}" }}\n',
        )
        subprocess.run(["uv", "lock", "--quiet"], cwd=project.folder, env=project.env, check=True)
        return project

    def test_the_project_s_own(self, uv_project: Project) -> None:
        project = uv_project
        project.write(
            "study.yaml",
            "command: python -c 'import sprocket, sys; print(sys.prefix, sprocket.version)'\nenvironment: {uv: true}\n",
        )
        project.run("run")
        assert f"{project.folder}/.venv 1.0" in project.run("logs", "0").stdout

    def test_without_a_lock_it_is_told_before(self, uv_project: Project) -> None:
        project = uv_project
        (project.folder / "uv.lock").unlink()
        project.write("study.yaml", "command: 'true'\nenvironment: {uv: true}\n")
        done = project.run("run", code=2)
        assert "study.yaml:2: there is no" in done.stderr and "`uv lock` writes one" in done.stderr


def test_an_agent_that_is_refuse_when_signalled_while_it_activates_leaves_nothing(
    project: Project,
) -> None:
    project.write(
        "study.yaml",
        "command: touch begun\nenvironment:\n  setup:\n  - touch activating\n  - exec sleep 600.0625\n",
    )
    process = project.start("run")
    wait_for((project.folder / "activating").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=180)
    assert not (project.folder / "begun").exists() and project.counts() == {"waiting": 1}
    left = subprocess.run(["pgrep", "-f", "sleep 600.0625"], capture_output=True, check=False)
    assert left.stdout == b""
