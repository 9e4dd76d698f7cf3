"""Nothing that a study, a file or a program brings along reaches a terminal as more than text and colour."""

from __future__ import annotations

import io
import os
import pty
import random
import re
from pathlib import Path

import pytest

from tests.conftest import Project
from windlass.cli.terminal import ProgramOutput, SafeStream
from windlass.view.escapes import GREEN, RESET, OutputFilter, escape, show
from windlass.view.table import render_cell

EVIL = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x9b5n\u202eback\x7f\udcff"


def test_text_is_escaped_and_our_own_colours_are_not() -> None:
    shown = show(f"{GREEN}done{RESET} {EVIL}\n\tnext \x1b<00>32m\r")
    assert shown.startswith("\x1b[32mdone\x1b[0m ")
    rest = shown.removeprefix("\x1b[32mdone\x1b[0m ")
    assert re.sub(r"[\n\t]", "", rest).isprintable()
    assert rest == (
        "\\x1b]0;title\\x07\\x1b[2J\\x1b[31mred\\u009b5n\\u202eback\\u007f\\udcff\n\tnext \\x1b<00>32m\\x0d"
    )
    assert escape("plain äöü 語 👩‍🔬\n") == "plain äöü 語 👩‍🔬\n"
    assert render_cell(EVIL).isprintable()


def test_a_stream_of_ours() -> None:
    below = io.StringIO()
    stream = SafeStream(below)
    print("a\x1b[2Jb", file=stream)
    stream.writelines(iter(["c\x1b]52;c;Zm9v\x07\n"]))
    assert below.getvalue() == "a\\x1b[2Jb\nc\\x1b]52;c;Zm9v\\x07\n"
    with pytest.raises(TypeError):
        stream.write(b"bytes")  # type: ignore[arg-type]


ALLOWED = re.compile(rb"\x1b\[[0-9;:]*m|\x1b\[[012]?K")


def test_program_output_keeps_its_colours_alone() -> None:
    filtered = OutputFilter()
    assert filtered.feed(b"\x1b[1;38;5;208mloss\x1b[0m\r\x1b[K50%\x08\x08") == (
        b"\x1b[1;38;5;208mloss\x1b[0m\r\x1b[K50%\x08\x08"
    )
    assert filtered.feed(b"\x1b]0;t\x07\x1b[A\x1b[6n\x1bc\xc2\x9b2J\xe2\x80\x9c\x0e") == (
        b"\\x1b]0;t\\x07\\x1b[A\\x1b[6n\\x1bc\\u009b2J\xe2\x80\x9c\\x0e"
    )
    assert filtered.end() == b"\x1b[0m"
    alphabet = [
        b"\x1b",
        b"[",
        b"]",
        b"3",
        b"1",
        b";",
        b"m",
        b"K",
        b"A",
        b"\x07",
        b"\xc2",
        b"\x9b",
        b"x",
        b"\n",
    ]
    random_ = random.Random(1)
    for _ in range(2000):
        data = b"".join(random_.choices(alphabet, k=random_.randrange(1, 12)))
        whole, pieces = OutputFilter(), OutputFilter()
        expected = whole.feed(data) + whole.end()
        place = random_.randrange(len(data) + 1)
        found = pieces.feed(data[:place]) + pieces.feed(data[place:]) + pieces.end()
        assert found == expected, data
        assert b"\x1b" not in ALLOWED.sub(b"", found), data
        assert b"\xc2\x9b" not in found, data


def test_logs_to_a_terminal_are_filtered_and_to_a_file_they_are_exact(tmp_path: Path) -> None:
    printed = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\n"
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as terminal:
        output = ProgramOutput(terminal)
        output.write(printed)
        output.close()
        shown = b""
        while not shown.endswith(b"\r\n\x1b[0m"):
            shown += os.read(master, 1000)
    os.close(master)
    assert shown == b"\x1b[31mred\x1b[0m \\x1b]0;title\\x07\r\n\x1b[0m"
    path = tmp_path / "log"
    with path.open("w", encoding="utf-8") as file:
        output = ProgramOutput(file)
        output.write(printed)
        output.close()
    assert path.read_bytes() == printed


def test_every_verb_shows_escapes_as_text(project: Project) -> None:
    """One study whose parameters, output and files are hostile, looked at with everything that shows them."""
    evil = "\x1b]0;title\x07\x1b[31mred"
    (project.folder / "evil.py").write_text(
        "import sys, os\n"
        f"name = {evil!r}\n"
        "open('out ' + name, 'w').write('x')\n"
        "print(name); print(name, file=sys.stderr)\n"
        "raise SystemExit(name)\n"
    )
    quoted = '"\\e]0;title\\a\\e[31mred"'
    (project.folder / "study.yaml").write_text(
        f"command: python evil.py {{x}}\nparameters: {{x: [{quoted}]}}\noutputs: ['out*']\n"
    )
    for words in (
        ["plan"],
        ["run"],
        ["status"],
        ["results"],
        ["results", "--wide"],
        ["results", "--failed"],
        ["results", "--json"],
        ["explain", "0"],
        ["outputs"],
        ["explain", "0", "--ticket"],
        ["plan", "--param", f"{evil}=1"],
        ["plan", f"{evil}.yaml"],
        ["logs", "--study", evil],
    ):
        done = project.run(*words, code=None)
        text = done.stdout + done.stderr
        assert not re.search("[\x1b\x07]", text), (words, text)
    done = project.run("logs", "0")
    assert evil in done.stdout, "a pipe gets what the program printed"
