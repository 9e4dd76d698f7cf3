"""The options sbatch knows (22.05 to 25.05), and how a value is written on an #SBATCH line. Pure."""

from __future__ import annotations

import math
import re

# Long name → its letter, and whether a value must ("="), may ("?") or must not ("") follow.
_TABLE = """
account:A= acctg-freq= array:a= batch= bb= bbf= begin:b= chdir:D= cluster= cluster-constraint= clusters:M= comment=
consolidate-segments constraint:C= container= container-id= contiguous core-spec:S= cores-per-socket= cpu-freq=
cpus-per-gpu= cpus-per-task:c= deadline= delay-boot= dependency:d= distribution:m= error:e= exclude:x= exclusive?
export= export-file= extra= extra-node-info:B= get-user-env? gid= gpu-bind= gpu-freq= gpus:G= gpus-per-node=
gpus-per-socket= gpus-per-task= gres= gres-flags= help:h hint= hold:H ignore-pbs input:i= job-name:J=
kill-on-invalid-dep= licenses:L= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu= mem-per-gpu=
mincpus= network= nice? no-kill:k? no-requeue nodefile:F= nodelist:w= nodes:N= ntasks:n=
ntasks-per-core= ntasks-per-gpu= ntasks-per-node= ntasks-per-socket= oom-kill-step? open-mode= output:o= overcommit:O
oversubscribe:s parsable partition:p= power= prefer= priority= profile= propagate? qos:q= quiet:Q reboot requeue
reservation= resv-ports? segment= signal= sockets-per-node= spread-job spread-segments stepmgr switches= test-only
thread-spec= threads-per-core= time:t= time-min= tmp= tres-bind= tres-per-task= uid= usage use-min-nodes verbose:v
version:V wait:W wait-all-nodes= wckey= wrap=
"""

LETTERS: dict[str, str] = {}  # letter → long name
VALUES: dict[str, str] = {}  # long name → "=", "?" or ""
for _word in _TABLE.split():
    _name, _letter, _value = re.fullmatch(r"([a-z-]+)(?::(\w))?([=?]?)", _word).groups()  # type: ignore[union-attr]
    VALUES[_name] = _value
    if _letter:
        LETTERS[_letter] = _name

# Options that say the same thing in other words: naming one of them takes the place of the others.
SAME = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task"}),
    frozenset({"requeue", "no-requeue"}),
    frozenset({"nodes", "nodefile"}),
    frozenset({"ntasks", "ntasks-per-node"}),
    frozenset({"cpus-per-task", "cpus-per-gpu"}),
)


def option_name(word: str) -> str:
    """The long name of an option as users write it: ``--mem``, ``mem_per_cpu``, ``-p``, ``p``."""
    bare = word.strip().lstrip("-")
    return LETTERS.get(bare, bare.replace("_", "-"))


def find_options(word: str) -> list[str]:
    """The options that a long name stands for; sbatch takes any beginning that fits only one."""
    return [word] if word in VALUES else [name for name in VALUES if name.startswith(word)]


def render_value(text: str) -> str:
    """A value as sbatch reads it back from an #SBATCH line.

    There, quotes hold spaces together, # begins a comment outside them, and a backslash keeps the next character
    even inside them, but does not hold a space. Raises ValueError for a line break, which no directive can hold.
    """
    if re.search(r"[\n\r\0]", text):
        raise ValueError("an #SBATCH line cannot hold a line break")
    if not re.search(r"""[\s"'\\#]""", text):
        return text
    return '"' + re.sub(r"""(["\\])""", r"\\\1", text) + '"'


def render_pattern(path: str) -> str:
    """A path as part of a name of a log file, where % has a meaning."""
    return path.replace("%", "%%")


def render_time(seconds: float) -> str:
    """D-HH:MM:SS, never less than asked."""
    whole = math.ceil(seconds)
    return f"{whole // 86400}-{whole // 3600 % 24:02}:{whole // 60 % 60:02}:{whole % 60:02}"
