"""Slurm's own ways to write records, host lists, resources, times and memory → values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from windlass.core.units import parse_clock_s, parse_slurm_mb

Record = dict[str, str]

# What follows one of these is free text up to the end of the line, whatever it looks like.
_FREE_TEXT = {
    "AdminComment",
    "Command",
    "Comment",
    "Extra",
    "JobName",
    "OS",
    "Reason",
    "StdErr",
    "StdIn",
    "StdOut",
    "SystemComment",
    "WorkDir",
}
_WORD = re.compile(r"([A-Za-z][\w:/.()-]*)=(.*)", re.DOTALL)
_NOTHING = {"", "(null)", "N/A", "NONE", "None", "none", "INVALID", "NOT_SET"}
_NO_LIMIT = {"unlimited", "infinite", "partition_limit", "-1"}  # in any case
# Marks after a node's state, as sinfo writes them; scontrol writes words.
_STATE_MARKS = {
    "*": "not_responding",
    "$": "maint",
    "~": "powered_down",
    "#": "powering_up",
    "%": "powering_down",
    "!": "power_down",
    "@": "reboot_requested",
    "^": "reboot_issued",
    "-": "planned",
}
# scontrol's words for what sinfo calls otherwise.
_STATE_WORDS = {
    "invalid_reg": "inval",
    "maintenance": "maint",
    "alloc": "allocated",
    "mix": "mixed",
}
_MEMORY_POWERS = {"": 0, "K": -1, "M": 0, "G": 1, "T": 2, "P": 3}
_COUNT_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}


def parse_records(text: str) -> list[Record]:
    """Records of ``Key=Value`` words as `scontrol show` prints them: a line that is not indented begins one."""
    records: list[Record] = []
    last = ""
    for line in text.replace("\r", "").splitlines():
        if _WORD.match(line) or not records:
            records.append({})
            last = ""
        last = _read_line(line, records[-1], last)
    return [record for record in records if record]


def _read_line(line: str, record: Record, last: str) -> str:
    """Take up one line; gives back the key it ended in, for text that goes on."""
    words = re.split(r"([ \t]+)", line.strip())
    for position in range(0, len(words), 2):
        found = _WORD.fullmatch(words[position])
        if found is None:
            if last and words[position]:
                record[last] += " " + words[position]
            continue
        last = found[1]
        if last in _FREE_TEXT:
            rest = "".join(words[position:])
            record.setdefault(last, rest.partition("=")[2])
            break
        record.setdefault(last, found[2])
    return last


def parse_config(text: str) -> dict[str, str]:
    """The lines ``Key = Value`` of `scontrol show config`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and " " not in key.strip():
            found.setdefault(key.strip(), value.strip())
    return found


def parse_table(text: str, columns: int) -> list[list[str]]:
    """Rows of ``a|b|c`` as `--parsable2` prints them; rows of another width are left out."""
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    return [row for row in rows if len(row) == columns]


def known(text: str | None) -> str:
    """A text, or "" where it is one of Slurm's words for nothing."""
    cleaned = (text or "").strip()
    return "" if cleaned in _NOTHING else cleaned


def split_names(text: str | None) -> tuple[str, ...]:
    """Names with commas between them; empty for ALL and for Slurm's words for nothing."""
    cleaned = known(text)
    return (
        ()
        if cleaned == "ALL"
        else tuple(name.strip() for name in cleaned.split(",") if name.strip())
    )


def parse_hostlist(text: str | None) -> tuple[str, ...]:
    """``node[1-3,07],login1`` → every name, in order. Several brackets in one name multiply."""
    names: list[str] = []
    for part in _split_outside(known(text), "[", "]"):
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [_expand(piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
        names += ["".join(choice) for choice in itertools.product(*choices)]
    return tuple(names)


def _expand(text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if dash and first.isdigit() and last.isdigit():
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        elif part.strip():
            found.append(part.strip())
    return found


def _split_outside(text: str, opening: str, closing: str) -> list[str]:
    """The parts between commas that stand outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == opening:
            depth += 1
        elif character == closing:
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def parse_gres(text: str | None, name: str = "gpu") -> dict[str, int]:
    """How many of a generic resource, by type: ``gpu:a100:4(S:0-1),gpu:2`` → {"a100": 4, "": 2}.

    Takes what `Gres` and `GresUsed` of a node say and what a job asked for (``gres/gpu:a100:2``). Types may hold dots
    and digits. Entries of another name (mps, shard) are left out.
    """
    found: dict[str, int] = {}
    for entry in _split_outside(known(text), "(", ")"):
        bare = entry.replace("(null)", "").removeprefix("gres:").removeprefix("gres/")
        words = re.sub(r"\(.*", "", bare).replace("=", ":").split(":")
        if words[0] != name:
            continue
        rest = [word for word in words[1:] if word != "no_consume"]
        count = _parse_count(rest[-1]) if rest else None
        if rest and count is not None:
            rest = rest[:-1]
        kind = ":".join(word for word in rest if word)
        found[kind] = found.get(kind, 0) + (1 if count is None else count)
    return found


def _parse_count(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(match[1]) * 1024 ** _COUNT_POWERS[match[2]] if match else None


def parse_tres(text: str | None) -> dict[str, str]:
    """``cpu=8,mem=8000M,gres/gpu:a100=4`` → a mapping."""
    pairs = (part.partition("=") for part in known(text).split(","))
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}


def gpus_in_tres(tres: Mapping[str, str]) -> dict[str, int]:
    """GPUs by type in a TRES. What the total has and no type accounts for stands under ""."""
    typed: dict[str, int] = {}
    total = 0
    for key, value in tres.items():
        count = _parse_count(value) or 0
        if key == "gres/gpu":
            total = count
        elif key.startswith("gres/gpu:"):
            typed[key.removeprefix("gres/gpu:")] = count
    rest = total - sum(typed.values())
    return {**typed, "": rest} if rest > 0 else typed


def parse_slurm_time_s(text: str | None) -> float | None:
    """Return the seconds of one of Slurm's times: M, M:S, H:M:S, D-[H[:M[:S]]]. Raises ValueError.

    None means that there is no limit, or that Slurm gives none.
    """
    cleaned = known(text)
    if not cleaned or cleaned.lower() in _NO_LIMIT:
        return None
    seconds = parse_clock_s(cleaned)
    if seconds is None:
        raise ValueError(f"{text!r} is not a time of Slurm's")
    return seconds


def parse_slurm_memory_mb(text: str | None) -> int | None:
    """Return the megabytes of one of Slurm's sizes: ``8000``, ``8000M``, ``7.5G``. Raises ValueError.

    None means that there is no limit, or that Slurm gives none.
    """
    cleaned = known(text)
    if not cleaned or cleaned.lower() in _NO_LIMIT:
        return None
    megabytes = parse_slurm_mb(cleaned)
    if megabytes is None:
        raise ValueError(f"{text!r} is not a size of Slurm's")
    return int(megabytes)


def parse_node_states(text: str | None) -> tuple[str, ...]:
    """``MIXED+DRAIN`` or ``idle*`` → words, lower case, each once; marks become words."""
    found: list[str] = []
    for part in known(text).lower().split("+"):
        word = part.strip()
        marks = []
        while word and word[-1] in _STATE_MARKS:
            marks.append(_STATE_MARKS[word[-1]])
            word = word[:-1]
        found += [_STATE_WORDS.get(word, word), *reversed(marks)]
    return tuple(dict.fromkeys(word for word in found if word))
