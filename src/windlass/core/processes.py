"""The only place outside the agent that starts processes.

Each function imports `subprocess` itself: a look at a study without jobs starts none, and should not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

from windlass.core.trust import given_umask


@dataclass(frozen=True)
class Answer:
    """What a command printed. Without a code it could not be run (`errors` says why) or did not answer in time."""

    code: int | None
    text: str = ""
    errors: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0


def ask(
    argv: Sequence[str],
    timeout_s: float = 30.0,
    text: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Answer:
    """Run a command, `text` on its standard input, and keep what it says on its two streams apart."""
    import subprocess

    try:
        done = subprocess.run(
            list(argv),
            input=text.encode(),
            capture_output=True,
            timeout=timeout_s,
            env=env,
            cwd=cwd,
            check=False,
            umask=given_umask(),  # jobs inherit that of sbatch
        )
    except subprocess.TimeoutExpired:
        return Answer(
            None, errors=f"{argv[0]} did not answer within {timeout_s:g} s", timed_out=True
        )
    except OSError as error:
        return Answer(None, errors=f"{argv[0]}: {error.strerror}")
    return Answer(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


def fetch_text(
    argv: Sequence[str],
    timeout_s: float = 20.0,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
) -> str | None:
    """What a command prints on both streams, or None when it cannot be run. Its exit code does not matter."""
    import subprocess

    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            cwd=cwd,
            env=env,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace")


def start_detached(
    argv: Sequence[str], pass_descriptors: Sequence[int], errors: int
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that Ctrl-C in the terminal reaches only us."""
    import subprocess

    return subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
        umask=given_umask(),
        pass_fds=tuple(pass_descriptors),
    )


def stream(
    argv: Sequence[str], consume: Callable[[bytes], object], cwd: str | None = None
) -> Answer:
    """Run a command and hand on, piece by piece and as bytes, what it prints. Ended if `consume` raises."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd,
                bufsize=0,
            )
        except OSError as error:
            return Answer(None, errors=f"{argv[0]}: {error.strerror}")
        try:
            assert process.stdout is not None
            while piece := process.stdout.read(1 << 18):
                consume(piece)
        except BaseException:
            process.kill()
            raise
        finally:
            process.communicate()
        errors.seek(0)
        return Answer(process.returncode, errors=errors.read().decode("utf-8", "replace"))
