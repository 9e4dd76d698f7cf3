"""Packs the agent and what it needs into one file, agent.pyz, which also serves ``import windlass`` in trials."""

from __future__ import annotations

import io
import os
import zipfile

# Everything here is Python 3.9 and standard library; tests/test_architecture.py holds that.
TRAVELLING_FOLDERS = ("core", "agent", "trial", "launchers", "environments")
_MAIN = "import sys\nfrom windlass.agent.__main__ import main\nsys.exit(main())\n"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same source gives the same bytes


def agent_sources() -> list[tuple[str, str]]:
    """(name inside the archive, path) of every module that travels."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    names = ["__init__.py"]
    for folder in TRAVELLING_FOLDERS:
        for above, below, files in os.walk(os.path.join(root, folder)):
            below.sort()  # the order of the archive does not depend on the file system
            names += [
                os.path.relpath(os.path.join(above, name), root)
                for name in sorted(files)
                if name.endswith(".py")
            ]
    return [("windlass/" + name.replace(os.sep, "/"), os.path.join(root, name)) for name in names]


def build_agent() -> bytes:
    """The archive's bytes, which depend on the sources alone.

    There is no compiled code in it: that differs between installations, and jobs that wait accept only the agent that
    they were submitted with, also where another member of a group has run the same version of Windlass since.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for name, path in agent_sources():
            with open(path, "rb") as file:
                _add(archive, name, file.read())
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _DATE), data)
