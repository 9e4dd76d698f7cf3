"""Packs the agent and what it needs into one file, agent.pyz, which also serves ``import windlass`` in trials."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import marshal
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
    "ids.py",
    "knee.py",
    "openness.py",
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
    """The archive's bytes: sources, and the same compiled for this very Python; others fall back to the source."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", _MAIN.encode())
        for name, path in agent_sources():
            with open(path, "rb") as file:
                source = file.read()
            _add(archive, name, source)
            _add(archive, name + "c", _compiled(path, name))
    return buffer.getvalue()


def _compiled(path: str, name: str) -> bytes:
    """The module compiled, from the cache that importing it has left where there is one."""
    module = name.removesuffix(".py").replace("/", ".")
    code = importlib.machinery.SourceFileLoader(module, path).get_code(module)
    # Flags 0, time 0: the importer of archives compares it with nothing but the version of Python.
    return importlib.util.MAGIC_NUMBER + b"\0" * 12 + marshal.dumps(code)


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _DATE), data)
