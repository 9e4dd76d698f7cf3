"""Trials in a real container: what they see there, and what is found out before they start."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.core.errors import NotReady
from windlass.environments.base import Wanted, load_kind
from windlass.environments.container.binds import (
    Bind,
    choose_folders,
    make_mount_points,
    parse_bind,
)
from windlass.environments.container.image import BadImage, copy_image, look_at_image

SHOW = """
import json, os, signal, sys, time
import windlass
from pathlib import Path

what = {"inside": os.path.exists("/etc/inside"), "argv": sys.argv[1:], "cwd": os.getcwd(), "path": sys.path,
        "version": sys.version_info[:2], "environ": dict(os.environ), "home": os.listdir(os.path.expanduser("~"))}
windlass.log(loss=len(sys.argv))
Path(sys.argv[1] + ".json").write_text(json.dumps(what))
if sys.argv[1] == "fails":
    sys.exit(7)
"""


def write_sif(path: Path, architecture: bytes = b"02\0", size: int = 100, cut: int = 0) -> Path:
    """The head of an image, and data of that size."""
    head = struct.pack(
        "<32s10s3s3s16s8q", b"#!/usr/bin/env run", b"SIF_MAGIC\0", b"01\0", architecture, b"i" * 16,
        0, 0, 0, 0, 0, 0, 128, size,
    )  # fmt: skip
    path.write_bytes((head.ljust(128, b"\0") + b"d" * size)[: -cut or None])
    return path


class TestImage:
    def test_its_head_tells_whether_it_is_whole_and_for_this_machine(self, tmp_path: Path) -> None:
        assert look_at_image(str(write_sif(tmp_path / "a.sif")), "x86_64").size_bytes == 228
        with pytest.raises(BadImage, match="cut short: it has 218 of 228 bytes"):
            look_at_image(str(write_sif(tmp_path / "b.sif", cut=10)), "x86_64")
        with pytest.raises(BadImage, match="is for arm64, and this machine is x86_64"):
            look_at_image(str(write_sif(tmp_path / "c.sif", b"04\0")), "x86_64")
        with pytest.raises(BadImage, match="there is no image"):
            look_at_image(str(tmp_path / "none.sif"))
        (tmp_path / "d.sif").write_text("a text")
        with pytest.raises(BadImage, match="no image of Apptainer"):
            look_at_image(str(tmp_path / "d.sif"))
        with pytest.raises(BadImage, match="a folder without /bin"):
            look_at_image(str(tmp_path))

    def test_a_copy_is_the_same_image_under_the_same_key(self, tmp_path: Path) -> None:
        image = look_at_image(str(write_sif(tmp_path / "a.sif")), os.uname().machine)
        copy_image(image, str(tmp_path))
        assert (tmp_path / "image.sif").read_bytes() == (tmp_path / "a.sif").read_bytes()
        write_sif(tmp_path / "a.sif", size=101)
        assert look_at_image(str(tmp_path / "a.sif")).key != image.key
        with pytest.raises(BadImage, match="changed while it was copied"):
            copy_image(image, str(tmp_path))


class TestBinds:
    def test_what_the_user_binds(self, tmp_path: Path) -> None:
        env = {"HOME": str(tmp_path), "DATA": str(tmp_path)}
        assert parse_bind("~", env, "/").target == str(tmp_path)
        assert parse_bind("$DATA:/models:ro", env, "/").render() == [
            "--bind",
            f"{tmp_path}:/models:ro",
        ]
        assert parse_bind("${DATA}", env, "/").source == str(tmp_path)
        assert parse_bind(".", env, str(tmp_path)).source == str(tmp_path)
        with pytest.raises(NotReady, match="there is no /no/such"):
            parse_bind("/no/such:/x", env, "/")
        with pytest.raises(NotReady, match="neither ro nor rw"):
            parse_bind("~:/x:rx", env, "/")

    def test_a_path_with_a_comma_is_one_path(self) -> None:
        assert Bind("/a,b", "/x:y", "ro").render() == [
            "--mount",
            '"type=bind","source=/a,b","destination=/x:y","ro"',
        ]

    def test_a_folder_reached_by_a_link_is_bound_at_both_paths(self) -> None:
        base = Path("/opt/windlass-test-binds")
        try:
            base.mkdir()
        except OSError:
            pytest.skip("/opt cannot be written to")
        try:
            (base / "real/below").mkdir(parents=True)
            (base / "link").symlink_to(base / "real")
            found = choose_folders(
                [str(base / "link"), str(base / "real/below"), "/tmp", "", "/no"]
            )
            assert [bind.target for bind in found] == [str(base / "link"), str(base / "real")]
        finally:
            (base / "link").unlink()
            for folder in ("real/below", "real", "."):
                (base / folder).rmdir()

    def test_what_lies_in_the_home_folder_has_a_place_in_the_one_inside(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "home/project").mkdir(parents=True)
        (tmp_path / "home/.netrc").touch()
        binds = [
            Bind(f"{tmp_path}/home/{name}", f"/home/me/{name}") for name in ("project", ".netrc")
        ]
        make_mount_points("/home/me", str(tmp_path / "over"), [*binds, Bind("/x", "/elsewhere")])
        assert (tmp_path / "over/project").is_dir() and (tmp_path / "over/.netrc").is_file()


def container_study(project: Project, more: str = "", environment: str = "") -> None:
    project.write("show.py", SHOW)
    project.write(
        "study.yaml",
        "name: boxed\ncommand: [python3, show.py, '{n}', 'two words', \"it's\", 'ü \"q\" $HOME']\n"
        f"parameters: {{n: [a, b]}}\nmetric: loss\nenv: {{SAID: 'ä = b'}}\n"
        f"environment: {{container: image.sif{environment}}}\n{more}",
    )


class TestInside:
    @pytest.mark.parametrize("warm", ["off", "auto"])
    def test_trials_see_what_they_see_outside_and_the_python_of_the_image(
        self, container_project: Project, warm: str
    ) -> None:
        project = container_project
        project.env.update(PYTHONPATH="/host/lib", VIRTUAL_ENV="/host", OTHER="x=1 2")
        container_study(project, f"warm: {warm}\ncode: live\n")
        project.run("run", "--on", "local", "--wait")
        assert project.counts() == {"done": 2}
        seen = json.loads((project.folder / "a.json").read_text())
        assert seen["inside"]
        assert seen["argv"] == ["a", "two words", "it's", 'ü "q" $HOME']
        assert seen["cwd"] == str(project.folder)
        assert seen["environ"]["SAID"] == "ä = b" and seen["environ"]["OTHER"] == "x=1 2"
        assert "VIRTUAL_ENV" not in seen["environ"] and "/host" not in str(seen["path"])
        assert seen["environ"]["WINDLASS_STUDY"] == "boxed"
        home = {name for name in os.listdir(os.path.expanduser("~")) if name != ".netrc"}
        assert not home & set(seen["home"])
        assert [row["loss"] for row in project.json("results", "--json")] == [5, 5]

    def test_exit_codes_and_signals_pass(self, container_project: Project) -> None:
        project = container_project
        project.write(
            "end.py",
            "import os, signal, sys, time\n"
            "def end(*_):\n    print('told', flush=True)\n    sys.exit(3)\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "if sys.argv[1] == 'code': sys.exit(7)\n"
            "if sys.argv[1] == 'killed': os.kill(os.getpid(), 9)\n"
            "time.sleep(60)\n",
        )
        project.write(
            "study.yaml",
            "command: python3 end.py {n}\nparameters: {n: [code, killed, waits]}\ntimeout: 6s\nslots: 3\n"
            "environment: {container: image.sif}\n",
        )
        project.run("run", "--on", "local", "--wait", code=None)
        rows = {row["n"]: row for row in project.json("results", "--json")}
        assert rows["code"]["exit_code"] == 7
        assert "told" in project.run("logs", "2").stdout

    def test_a_folder_of_the_node_is_seen_where_the_study_says(
        self, container_project: Project, tmp_path: Path
    ) -> None:
        project = container_project
        (tmp_path / "more").mkdir()
        (tmp_path / "more/file").write_text("there")
        project.write(
            "study.yaml",
            "command: cat /models/file\nenvironment:\n  container: image.sif\n"
            f"  bind: ['{tmp_path}/more:/models:ro']\n",
        )
        project.run("run", "--on", "local", "--wait")
        assert project.run("logs", "0").stdout.strip() == "there"

    def test_the_option_names_an_image(self, container_project: Project) -> None:
        project = container_project
        words = ["-s", "image.sif", "--", "cat", "/etc/inside"]
        project.run("run", "--on", "local", "--wait", *words)
        assert project.run("logs", "0").stdout.strip() == "image"

    def test_a_folder_is_an_image_as_well(self, container_project: Project, image: Path) -> None:
        project = container_project
        project.write(
            "study.yaml",
            f"command: cat /etc/inside\nenvironment: {{container: {image.parent}/rootfs}}\n",
        )
        project.run("run", "--on", "local", "--wait")
        assert project.run("logs", "0").stdout.strip() == "image"

    def test_an_image_is_built_once_from_a_definition(self, container_project: Project) -> None:
        project = container_project
        project.write(
            "box.def",
            "Bootstrap: localimage\nFrom: image.sif\n\n%environment\n    export BUILT=yes\n",
        )
        project.write(
            "study.yaml",
            "command: [sh, -c, 'echo built $BUILT']\nenvironment: {container: box.def}\n",
        )
        project.run("env", "build")
        (image,) = (project.folder / "cache/windlass/environments").glob("image-*.sif")
        before = image.stat().st_mtime_ns
        project.run("run", "--on", "local", "--wait")
        assert project.run("logs", "0").stdout.strip() == "built yes"
        assert image.stat().st_mtime_ns == before


class TestBeforeAnythingRuns:
    def test_check_looks_for_imports_inside(self, container_project: Project) -> None:
        project = container_project
        project.write("train.py", "import json\nimport not_in_the_image\n")
        text = "command: python3 train.py\nenvironment: {container: image.sif}\n"
        project.write("study.yaml", text)
        done = project.run("check", "--on", "local", code=None)
        assert "train.py:2 imports not_in_the_image, which python3 does not have" in done.stdout

    def test_what_is_wrong_with_an_image_is_an_error_with_its_line(self, project: Project) -> None:
        container_study(project)
        done = project.run("run", "--on", "local", code=2)
        assert "study.yaml:6: there is no image" in done.stderr
        write_sif(project.folder / "image.sif", cut=5)
        assert "is cut short" in project.run("run", "--on", "local", code=2).stderr
        write_sif(project.folder / "image.sif", b"11\0")
        assert "is for s390x" in project.run("run", "--on", "local", code=2).stderr

    def test_an_example_with_an_image_that_is_cut_short(self, container_project: Project) -> None:
        """What an example imports is looked for inside the image, which must be whole first."""
        project = container_project
        whole = (project.folder / "image.sif").read_bytes()
        (project.folder / "cut.sif").write_bytes(whole[: len(whole) // 2])
        project.run("init", "--example", "container", "example")
        words = ("example/study.yaml", "--on", "local")
        done = project.run("run", *words, "-s", "cut.sif", code=2)
        assert "cut.sif is cut short" in done.stderr
        shown = project.run("plan", *words, "-s", "image.sif").stdout
        assert re.search(r"^env +container \S*image\.sif$", shown, re.MULTILINE)

    def test_a_bind_without_a_source_and_a_missing_program(self, project: Project) -> None:
        project.env["PATH"] = (
            "/no/programs"  # nor sbatch: no node of a cluster could have it either
        )
        write_sif(project.folder / "image.sif")
        container_study(project, environment=", bind: ['/no/such:/x'], runtime: no-apptainer")
        done = project.run("run", "--on", "local", code=2)
        assert "there is no /no/such" in done.stderr
        assert "there is no no-apptainer here" in done.stderr

    def test_a_key_of_containers_without_one(self, project: Project) -> None:
        project.write("study.yaml", "command: 'true'\nenvironment: {bind: [/x]}\n")
        assert "`bind` belongs to `container`" in project.run("plan", code=2).stderr


def test_the_command_is_whole_behind_the_image() -> None:
    wanted = Wanted("container", "/x.sif", "shared", (), (), "/project")
    words = load_kind("container").wrap(wanted, ["python", "-c", "a b"])
    assert words[-4:] == ["/x.sif", "python", "-c", "a b"]
