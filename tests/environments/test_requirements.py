"""Files that environments are built from: what is of no matter changes nothing, what cannot work is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windlass.environments.base import Unusable
from windlass.environments.build.requirements import read_build_file


def no_uv(folder: str) -> str:
    raise AssertionError("uv is not asked")


def text_of(path: Path) -> list[str]:
    return read_build_file(str(path), no_uv).text.splitlines()


class TestRequirements:
    def test_comments_and_spaces_are_of_no_matter(self, tmp_path: Path) -> None:
        file = tmp_path / "requirements.txt"
        file.write_text("# our own\n\nnumpy >=1.26 # fast\ntorch==2.3 \\\n   --hash=sha256:abc\n")
        first = read_build_file(str(file), no_uv)
        file.write_text("numpy >=1.26\ntorch==2.3  --hash=sha256:abc")
        assert read_build_file(str(file), no_uv) == first
        assert first.text == "numpy >=1.26\ntorch==2.3 --hash=sha256:abc\n"

    def test_included_files_count(self, tmp_path: Path) -> None:
        (tmp_path / "more").mkdir()
        (tmp_path / "more/base.txt").write_text("numpy\n-c limits.txt\n")
        (tmp_path / "more/limits.txt").write_text("numpy<2\n")
        (tmp_path / "requirements.txt").write_text(
            "--requirement more/base.txt\n-f 'wheels here'\nscipy\n"
        )
        file = read_build_file(str(tmp_path / "requirements.txt"), no_uv)
        assert (
            file.text
            == f"numpy\n--find-links '{tmp_path}/more/../wheels here'\nscipy\n".replace(
                "more/../", ""
            )
        )
        assert file.constraints == "numpy<2\n"

    def test_one_that_includes_itself(self, tmp_path: Path) -> None:
        (tmp_path / "requirements.txt").write_text("-r requirements.txt\n")
        with pytest.raises(Unusable, match="includes itself"):
            text_of(tmp_path / "requirements.txt")

    @pytest.mark.parametrize("line", ["-e .", "--editable=./lib", "."])
    def test_the_project_s_own_code_is_not_built_in(self, tmp_path: Path, line: str) -> None:
        (tmp_path / "requirements.txt").write_text(f"numpy\n{line}\n")
        with pytest.raises(Unusable, match=r"requirements\.txt:2: .* may change") as caught:
            text_of(tmp_path / "requirements.txt")
        assert "PYTHONPATH" in caught.value.hint

    def test_a_file_counts_by_its_content(self, tmp_path: Path) -> None:
        (tmp_path / "requirements.txt").write_text("./my-1.0-py3-none-any.whl\n")
        (tmp_path / "my-1.0-py3-none-any.whl").write_text("a")
        first = text_of(tmp_path / "requirements.txt")
        assert first[0].startswith(str(tmp_path / "./my-1.0-py3-none-any.whl").replace("./", ""))
        (tmp_path / "my-1.0-py3-none-any.whl").write_text("b")
        assert text_of(tmp_path / "requirements.txt") != first

    def test_a_password_is_not_copied(self, tmp_path: Path) -> None:
        file = tmp_path / "requirements.txt"
        file.write_text("--index-url https://me:hunter2@example.org/simple\nnumpy\n")
        with pytest.raises(Unusable, match="holds a password") as caught:
            text_of(file)
        assert "hunter2" not in str(caught.value) + caught.value.hint
        file.write_text("--index-url https://${WHO}:${WORD}@example.org/simple\nnumpy\n")
        assert len(text_of(file)) == 2


class TestProjects:
    def test_declared_dependencies(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text(
            '[project]\nname = "x"\ndependencies = ["torch", "numpy<2"]\n'
        )
        assert text_of(tmp_path / "pyproject.toml") == ["numpy<2", "torch"]

    def test_a_lock_beside_it_decides(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text(
            '[project]\nname = "x"\ndependencies = ["torch"]\n'
        )
        (tmp_path / "uv.lock").write_text("")
        exported = read_build_file(
            str(tmp_path / "pyproject.toml"), lambda folder: "# by uv\ntorch==2.3\n    # via x\n"
        )
        assert exported.text == "torch==2.3\n"
        (tmp_path / "uv.lock").unlink()
        (tmp_path / "poetry.lock").write_text(
            '[[package]]\nname = "torch"\nversion = "2.4"\ngroups = ["main"]\n'
            '[[package]]\nname = "pytest"\nversion = "8"\ngroups = ["dev"]\n'
            '[[package]]\nname = "extra"\nversion = "8"\noptional = true\n'
            '[[package]]\nname = "colorama"\nversion = "1"\nmarkers = "sys_platform == \\"win32\\""\n'
        )
        assert text_of(tmp_path / "pyproject.toml") == [
            "torch==2.4",
            'colorama==1 ; sys_platform == "win32"',
        ]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('[project]\nname = "x"\ndynamic = ["dependencies"]\n', "dynamic"),
            ('[tool.poetry]\nname = "x"\n', "poetry.lock"),
            ("[tool.black]\n", "no .project."),
            ("[project\n", "cannot be read"),
        ],
    )
    def test_what_says_nothing_of_dependencies(self, tmp_path: Path, text: str, words: str) -> None:
        (tmp_path / "pyproject.toml").write_text(text)
        with pytest.raises(Unusable, match=words):
            text_of(tmp_path / "pyproject.toml")

    def test_pipfiles(self, tmp_path: Path) -> None:
        (tmp_path / "Pipfile").write_text(
            '[packages]\nnumpy = "*"\ntorch = {version = ">=2", extras = ["opt"]}\n[dev-packages]\npytest = "*"\n'
        )
        assert text_of(tmp_path / "Pipfile") == ["numpy", "torch[opt]>=2"]
        lock = {
            "default": {
                "numpy": {
                    "version": "==1.26",
                    "hashes": ["sha256:x"],
                    "markers": "python_version >= '3.9'",
                }
            }
        }
        (tmp_path / "Pipfile.lock").write_text(json.dumps(lock))
        assert text_of(tmp_path / "Pipfile") == ["numpy==1.26 ; python_version >= '3.9'"]

    def test_of_a_folder_s_files_the_first_counts(self, tmp_path: Path) -> None:
        with pytest.raises(Unusable, match="has none of Pipfile, pyproject"):
            read_build_file(str(tmp_path), no_uv)
        (tmp_path / "environment.yml").write_text("name: x\n# ours\ndependencies: [python]\n")
        assert read_build_file(str(tmp_path), no_uv).engine == "conda"
        (tmp_path / "requirements.txt").write_text("numpy\n")
        (tmp_path / "Pipfile").write_text('[packages]\nscipy = "*"\n')
        assert read_build_file(str(tmp_path), no_uv).path == str(tmp_path / "Pipfile")

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(Unusable, match=r"nothing\.txt: No such file"):
            text_of(tmp_path / "nothing.txt")
