"""A shell that writes down what was typed in it and what became of its environment."""

from __future__ import annotations

import os
import shlex
import sys

COMMANDS, BEFORE, AFTER = "commands", "before", "after"
_RC = """# What `windlass shell --record` starts: your own shell, with a pencil.
if [ -r /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi
if [ -r ~/.bashrc ]; then . ~/.bashrc; fi
unset HISTFILE HISTTIMEFORMAT HISTIGNORE
HISTCONTROL=
history -c
windlass_folder={folder}
windlass_last=
windlass_write() {{
    local code=$? line
    line=$(builtin history 1)
    line="${{line#"${{line%%[![:space:]]*}}"}}"
    if [ -n "$line" ] && [ "$line" != "$windlass_last" ]; then
        windlass_last=$line
        line="${{line#* }}"
        printf '%s %s\\0' "$code" "${{line#"${{line%%[![:space:]]*}}"}}" >> "$windlass_folder/{commands}"
    fi
    return $code
}}
PROMPT_COMMAND="windlass_write${{PROMPT_COMMAND:+; $PROMPT_COMMAND}}"
trap 'command -p env -0 > "$windlass_folder/{after}"' EXIT
command -p env -0 > "$windlass_folder/{before}"
"""


def write_recorder(folder: str) -> tuple[str, ...]:
    """Make the folder of a recording, visible to this user alone. Returns the command that starts the shell."""
    os.makedirs(folder, mode=0o700)
    rc = os.path.join(folder, "rc")
    text = _RC.format(folder=shlex.quote(folder), commands=COMMANDS, before=BEFORE, after=AFTER)
    with open(rc, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    shell = shlex.join(["bash", "--rcfile", rc, "-i"])
    draft = shlex.join([sys.executable, "-m", "windlass", "shell", "--draft", folder])
    return ("bash", "-c", f"{shell}; {draft}")
