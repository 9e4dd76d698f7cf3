"""Puts completion into a shell's start-up files, and takes it out again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from windlass.completion.scripts import SCRIPTS
from windlass.core.errors import FolderError, input_error
from windlass.core.files import write_whole

_BEGIN = "# >>> windlass completion >>>"
_END = "# <<< windlass completion <<<"


@dataclass(frozen=True)
class Places:
    """`script`: the file with the shell's function; `start`: the start-up file that reads it, where one has to."""

    script: str
    start: str | None


def find_shell(named: str | None, environment: Mapping[str, str]) -> str:
    """The shell that is named, or the user's own. Raises InputError for one that has no completion here."""
    shell = named or os.path.basename(environment.get("SHELL", ""))
    if shell in SCRIPTS:
        return shell
    what = (
        f"there is no completion for {shell}"
        if shell
        else "$SHELL does not tell which shell this is"
    )
    raise input_error(what, f"name one of {', '.join(SCRIPTS)}: windlass completion install bash")


def find_places(shell: str, environment: Mapping[str, str]) -> Places:
    """Where a shell's completion goes: its script, and the start-up file that reads it. fish needs no such line."""
    home = environment.get("HOME") or os.path.expanduser("~")
    if shell == "fish":
        config = environment.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        return Places(os.path.join(config, "fish", "completions", "windlass.fish"), None)
    data = environment.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    script = os.path.join(data, "windlass", f"completion.{shell}")
    if shell == "zsh":
        return Places(script, os.path.join(environment.get("ZDOTDIR") or home, ".zshrc"))
    return Places(script, os.path.join(home, ".bashrc"))


def install(shell: str, places: Places) -> list[str]:
    """Write the function and have the shell read it. Returns the files that were changed; none when all is in place."""
    changed = []
    start = _read(places.start) if places.start is not None else ""
    # Before anything is written: a file that cannot be read ends this.
    wanted = _with_block(start, places.script)
    if _read(places.script) != SCRIPTS[shell]:
        _write(places.script, SCRIPTS[shell])
        changed.append(places.script)
    if places.start is not None and wanted != start:
        _write(places.start, wanted)
        changed.append(places.start)
    return changed


def uninstall(places: Places) -> list[str]:
    """Undo `install`. Returns the files that were changed or removed."""
    changed = []
    if places.start is not None:
        start = _read(places.start)
        left = _without_block(start)
        if left != start:
            _write(places.start, left)
            changed.append(places.start)
    if os.path.exists(places.script):
        try:
            os.unlink(places.script)
        except OSError as error:
            raise _failed(places.script, error) from error
        changed.append(places.script)
    return changed


def _with_block(text: str, script: str) -> str:
    """The start-up file with our lines at its end, or in place of those that it has."""
    quoted = "'" + script.replace("'", "'\\''") + "'"
    block = f"{_BEGIN}\n[ -r {quoted} ] && . {quoted}\n{_END}\n"
    if _BEGIN in text and _END in text:
        before, _, rest = text.partition(_BEGIN)
        return before + block + rest.partition(_END)[2].removeprefix("\n")
    between = "" if not text or text.endswith("\n") else "\n"
    return text + between + block


def _without_block(text: str) -> str:
    """A start-up file without the lines that an installation added."""
    if _BEGIN not in text or _END not in text:
        return text
    before, _, rest = text.partition(_BEGIN)
    return before + rest.partition(_END)[2].removeprefix("\n")


def _read(path: str) -> str:
    """The file's text; "" where there is none. Bytes that are no UTF-8 survive being written again."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _failed(path, error) from error


def _write(path: str, text: str) -> None:
    """Replace a file in one step. A link stays one: start-up files are often links into a repository."""
    path = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
        write_whole(path, text, mode=mode)
    except OSError as error:
        raise _failed(path, error) from error


def _failed(path: str, error: OSError) -> FolderError:
    hint = "`windlass completion install --print` prints what to put into a file of your choice"
    return FolderError(f"{path}: {error.strerror or error}\n  hint: {hint}")
