"""Runs lines in one bash and tells what they made of the environment. Python 3.9, standard library."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from windlass.core.hidden_file import write_hidden_file
from windlass.core.trust import given_umask

_FIRST_DESCRIPTOR = 100  # out of the way of descriptors that lines of the user's may open
_SHELLS_OWN = ("_", "SHLVL", "PWD", "OLDPWD")
_MARK = "\x1e"  # stands before each step in what the shell prints
_PR_SET_PDEATHSIG = 1
# Where sites keep the `module` command of shells that are no login shells.
FIND_MODULE = """
for windlass_file in "" "$LMOD_PKG/init/bash" "$MODULESHOME/init/bash" \\
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash /usr/share/Modules/init/bash; do
    if type module >/dev/null 2>&1; then break; fi
    if [ -r "$windlass_file" ]; then . "$windlass_file"; fi
done
unset windlass_file
"""


class Step(NamedTuple):
    """Some lines of shell. With `strict` the first line that fails ends them, as with ``set -e``."""

    name: str
    text: str
    strict: bool = False


class ShellFailed(Exception):
    """A step did not end well. `line` counts from 1 within the step; 0 where that is not known."""

    def __init__(self, step: int, line: int, output: str, reason: str) -> None:
        super().__init__(reason)
        self.step = step
        self.line = line
        self.output = output
        self.reason = reason


class ShellResult(NamedTuple):
    env: Dict[str, str]
    outputs: List[str]  # what each step printed


def run_shell(
    steps: Sequence[Step], env: Dict[str, str], cwd: str, timeout_s: float = 900.0
) -> ShellResult:
    """Execute the steps in one bash, one after another. Raises ShellFailed, or OSError where there is no bash."""
    report, output = _high(write_hidden_file(b"")), _high(write_hidden_file(b""))
    sources = [
        _high(write_hidden_file(step.text.encode("utf-8", "surrogateescape") + b"\n"))
        for step in steps
    ]
    try:
        for descriptor in (
            report,
            output,
        ):  # the shell's children write there too, each behind the other
            fcntl.fcntl(
                descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND
            )
        script = _render(steps, report, sources)
        argv = ["bash", "--noprofile", "--norc", "-c", script, "windlass"]
        code = run_process(argv, env, cwd, output, [report, *sources], timeout_s)
        return _read_result(steps, env, code, _contents(report), _contents(output), timeout_s)
    finally:
        for descriptor in (report, output, *sources):
            os.close(descriptor)


def _high(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    os.close(descriptor)
    return moved


def _render(steps: Sequence[Step], report: int, sources: Sequence[int]) -> str:
    lines = []
    for number, step in enumerate(steps):
        lines.append(f"printf '{_MARK}\\n'; printf 'step {number}\\0' >&{report}")
        if step.strict:
            lines.append(f"trap 'printf \"line $LINENO\\0\" >&{report}' ERR; set -eE")
            lines.append(f". /dev/fd/{sources[number]}")
            lines.append("set +eE; trap - ERR")
        else:
            lines.append(f". /dev/fd/{sources[number]} || exit")
    lines.append(f"printf 'env\\0' >&{report}; command -p env -0 >&{report}")
    return "\n".join(lines)


def run_process(
    argv: Sequence[str],
    env: Dict[str, str],
    cwd: Optional[str],
    output: int,
    descriptors: Sequence[int] = (),
    timeout_s: Optional[float] = None,
    beat: Optional[Callable[[], None]] = None,
) -> Optional[int]:
    """Run a command in a session of its own and wait for it. None: it took longer and was killed.

    It does not outlive us, whatever ends us. `beat` is called every few seconds.
    """
    process = subprocess.Popen(
        list(argv),
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=tuple(descriptors),
        start_new_session=True,
        umask=given_umask(),
        preexec_fn=_death_with_parent(),  # noqa: PLW1509  # no threads yet
    )
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        while True:
            left = 3.0 if deadline is None else min(3.0, deadline - time.monotonic())
            if left <= 0:
                return None
            try:
                return process.wait(left)
            except subprocess.TimeoutExpired:
                if beat is not None:
                    beat()
    finally:
        if process.returncode is None:
            _kill_group(process)


def _death_with_parent() -> Optional[Callable[[], None]]:
    """For the child to call: Linux kills it when we end, however that is."""
    try:
        import ctypes  # slow to import, and most agents start nothing here

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()


def _contents(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0)


def _read_result(
    steps: Sequence[Step],
    env: Dict[str, str],
    code: Optional[int],
    report: bytes,
    output: bytes,
    timeout_s: float,
) -> ShellResult:
    text = output.decode("utf-8", "replace")
    outputs = [part.strip("\n") for part in text.split(_MARK + "\n")[1:]]
    head, found, dumped = report.partition(b"env\0")
    if found and code == 0:
        return ShellResult(_read_environment(dumped, env), outputs)
    marks = [mark.split() for mark in head.decode().split("\0") if mark]
    last = max((int(mark[1]) for mark in marks if mark[0] == "step"), default=0)
    lines = [int(mark[1]) for mark in marks if mark[0] == "line"]
    printed = outputs[last] if last < len(outputs) else text
    line = lines[0] if lines else _line_of_syntax_error(printed)
    if code is None:
        reason = f"did not end within {timeout_s:g} s"
    else:
        reason = f"ended with code {code}" if code else "ended the shell"
    raise ShellFailed(last, line, re.sub(r"(?m)^/dev/fd/\d+: ", "", printed), reason)


def _line_of_syntax_error(printed: str) -> int:
    match = re.search(r"^/dev/fd/\d+: line (\d+): ", printed, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _read_environment(dumped: bytes, before: Dict[str, str]) -> Dict[str, str]:
    env = {}
    for entry in dumped.split(b"\0"):
        name, equals, value = os.fsdecode(entry).partition("=")
        if equals and name not in _SHELLS_OWN:
            env[name] = value
    env.update({name: before[name] for name in _SHELLS_OWN if name in before})
    return env
