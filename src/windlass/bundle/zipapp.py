"""Packs the agent and what it needs into one file, agent.pyz, which also serves ``import windlass`` in trials."""

from __future__ import annotations

import io
import os
import zipfile

# Everything here is Python 3.9 and standard library; tests/test_architecture.py holds that.
AGENT_PACKAGES = ("agent", "claims", "journal")
AGENT_MODULES = (
    "__init__.py",
    "configcopy.py",
    "counted.py",
    "damage.py",
    "errors.py",
    "events.py",
    "fileclock.py",
    "ids.py",
    "knee.py",
    "openness.py",
    "passing.py",
    "paths.py",
    "planfile.py",
    "sealed.py",
    "states.py",
    "trialfile.py",
    "trust.py",
    "verified.py",
    *(os.path.join("slurm", name) for name in ("__init__.py", "ask.py", "gone.py", "queue.py", "rows.py", "states.py")),
    os.path.join("track", "__init__.py"),
    os.path.join("track", "log.py"),
    os.path.join("track", "reserved.py"),
    os.path.join("track", "turn.py"),
)
_MAIN = "import sys\nfrom windlass.agent.__main__ import main\nsys.exit(main())\n"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same source gives the same bytes


def agent_sources() -> list[tuple[str, str]]:
    """(name inside the archive, path) of every module that travels."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    names = list(AGENT_MODULES)
    for package in AGENT_PACKAGES:
        names += [
            os.path.join(package, name)
            for name in sorted(os.listdir(os.path.join(root, package)))
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
