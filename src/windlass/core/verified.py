"""Starts agent.pyz only if it is what was submitted, also in a job that waited for days. Python 3.9, standard library.

The checksum travels in the batch script, of which the scheduler has a copy of its own. What was read and compared is
what is executed: from a file without a name, which nobody can exchange between the two.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipimport

from windlass.core.paths import StudyPaths

# A newer agent that the user's own later command has put in the folder is accepted too: where only that user can write.
# Elsewhere the one that was submitted is executed, which a later command has kept beside the newer one.
# A file system that does not answer is waited for: 100 s in all.
_LOADER = """\
import errno, hashlib, os, sys, time
path, wanted = sys.argv[1:3]
away = [getattr(errno, name, 0) for name in "EIO ESTALE EINTR ENOTCONN ETIMEDOUT ECONNRESET EHOSTDOWN".split()]
def read(path, pause=0.1):
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()), file.read()
    except OSError as error:
        if error.errno not in away or pause > 60:
            raise
    time.sleep(pause)
    return read(path, 2 * pause)
try:
    status, program = read(path)
except OSError as error:
    print("windlass: error:", path, "cannot be read:", error.strerror, "- once it can be, `windlass run` goes on.",
          file=sys.stderr)
    sys.exit(2)
if hashlib.sha256(program).hexdigest() != wanted:
    for found in (status, os.stat(os.path.dirname(path))):
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            try:
                program = read("%s-%s.pyz" % (path[:-4], wanted[:12]))[1]
            except OSError:
                pass
            if hashlib.sha256(program).hexdigest() == wanted:
                break
            print("windlass:", path, "is not the agent that was to be started here, and somebody else may have put it "
                  "there. It was not executed. `windlass run` writes it anew.", file=sys.stderr)
            sys.exit(2)
try:
    copy = os.memfd_create("windlass")
except (AttributeError, OSError):
    import tempfile
    copy = os.dup(tempfile.TemporaryFile().fileno())
with os.fdopen(os.dup(copy), "wb") as file:
    file.write(program)
sys.argv[:3] = [path]
sys.path.insert(0, "/proc/self/fd/%d" % copy)
from windlass.agent.__main__ import main
sys.exit(main())
"""


def agent_command(python: str, agent: str, digest: str, arguments: list[str]) -> list[str]:
    """The command that starts the agent if its SHA-256 is `digest`, or if nobody but this user can have written it."""
    return [python, "-I", "-c", _LOADER, agent, digest, *arguments]


def read_digest(paths: StudyPaths) -> str:
    """The checksum of the agent that the last `windlass run` wrote; "" where it is not known."""
    try:
        with open(paths.plan, encoding="utf-8") as file:
            return str(json.load(file).get("agent") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def keep_own_program(folder: str, otherwise: str) -> str:
    """Write the archive that this process was loaded from to a private folder; returns its path there.

    Trials import it: so they have what was verified, wherever the study's folder is. A process that was loaded from no
    archive gets `otherwise`.
    """
    program = own_program()
    if not program:
        return otherwise
    path = os.path.join(folder, "agent.pyz")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(program)
    return path


def own_program() -> bytes:
    """The archive that this process was loaded from; empty where there is none."""
    loader = globals().get("__loader__")
    if not isinstance(loader, zipimport.zipimporter):
        return b""
    with open(loader.archive, "rb") as file:
        return file.read()


def own_digest() -> str:
    return hashlib.sha256(own_program()).hexdigest()
