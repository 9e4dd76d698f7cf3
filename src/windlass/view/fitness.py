"""Judges and renders what was found out about a folder for studies. Pure; see agent/node/fitness.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.core.units import render_bytes, render_duration
from windlass.view.table import render_columns

FIT, LIMITED, UNFIT = "fit", "fit with limits", "unfit"
_LATE_LISTING_S, _LATE_LINE_S = 1.0, 2.0
_TOO_LATE_LINE_S = 15.0  # an agent that beats every 20 s would look dead half of the time
_SLOW_SYNC_S = 0.5
_CLOCKS_APART_S, _CLOCKS_FAR_APART_S = 2.0, 60.0
_LITTLE_BYTES, _FEW_FILES = 1 << 30, 10_000
_MANY_STATES = "the register of claims needs it"


def judge(found: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The verdict, and the reasons for it: those that make the folder unfit first."""
    unfit, limits = _judge_file_system(found)
    more_unfit, more_limits = _judge_other(found.get("other"), bool(found.get("job")))
    unfit += more_unfit
    limits += more_limits + _judge_room(found)
    return (UNFIT if unfit else LIMITED if limits else FIT), [*unfit, *limits]


def _judge_file_system(found: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    unfit, limits = [], []
    link, exclusive = found["link"], found["exclusive"]
    if link["problem"] and exclusive["problem"]:
        unfit.append(f"neither link() nor O_EXCL work ({link['problem']}): {_MANY_STATES}")
    elif link["problem"]:
        limits.append(f"no hard links ({link['problem']}): O_EXCL is used in their place")
    if link["wrong"]:
        unfit.append(_say_race("link()", link))
    if exclusive["wrong"] and (link["problem"] or link["wrong"]):
        unfit.append(_say_race("O_EXCL", exclusive))
    elif exclusive["wrong"]:
        limits.append(_say_race("O_EXCL", exclusive))
    if found["counts_links"] is False:
        limits.append(
            "a file with two names is shown as having one: whether a link was made is looked up otherwise"
        )
    if found["rename"]:
        unfit.append(f"rename() does not work ({found['rename']})")
    sync = found["fsync_s"]
    if sync["problem"]:
        unfit.append(f"fsync() does not work ({sync['problem']}): what was written could be lost")
    elif sync["median"] > _SLOW_SYNC_S:
        limits.append(
            f"fsync() takes {render_duration(sync['median'])}: each claim and each beat of an agent waits for it"
        )
    apart = abs(found["clock_ahead_s"])
    if apart > _CLOCKS_APART_S:
        limits.append(
            f"the clocks of the file system and of {found['host']} are {render_duration(apart)} apart"
        )
    return unfit, limits


def _say_race(what: str, race: Mapping[str, Any]) -> str:
    rounds = race["rounds"]
    return f"{what} is not atomic: in {race['wrong']} of {rounds} races not exactly one process won; {_MANY_STATES}"


def _judge_other(other: Mapping[str, Any] | None, is_job: bool) -> tuple[list[str], list[str]]:
    """What another node, or another process of this one, saw."""
    if other is None:
        witness = "a job on another node" if is_job else "a second process"
        return [f"{witness} did not answer in this folder: nodes may not see it"], []
    unfit, limits, host = [], [], other["host"]
    lines, listings, race = other["lines_s"], other.get("listings_s"), other.get("race")
    if lines["longest"] is None or lines["longest"] > _TOO_LATE_LINE_S:
        unfit.append(f"lines that were appended are seen too late on {host}: {_late(lines)}")
    elif lines["longest"] > _LATE_LINE_S:
        limits.append(f"lines that were appended are seen on {host} after {_late(lines)}")
    if listings is not None and (
        listings["longest"] is None or listings["longest"] > _LATE_LISTING_S
    ):
        limits.append(
            f"new names are seen in listings on {host} after {_late(listings)}: cancelling, and agents that take over "
            "from dead ones, are as late"
        )
    if race is not None and race["wrong"]:
        unfit.append(f"{_say_race('taking a name', race)} (this machine and {host})")
    for clock, text in (
        (other["clock_ahead_s"], f"the clocks of this machine and of {host}"),
        ({"seconds": other["file_clock_ahead_s"]}, f"the clocks of the file system and of {host}"),
    ):
        if clock is not None and abs(clock["seconds"]) > _CLOCKS_APART_S + clock.get(
            "uncertain_s", 0.0
        ):
            far = ": an agent may be taken for dead too early or too late"
            more = far if abs(clock["seconds"]) > _CLOCKS_FAR_APART_S else ""
            limits.append(f"{text} are {render_duration(abs(clock['seconds']))} apart{more}")
    return unfit, limits


def _judge_room(found: Mapping[str, Any]) -> list[str]:
    limits = []
    if found["free_bytes"] < _LITTLE_BYTES:
        limits.append(f"only {render_bytes(found['free_bytes'])} are free")
    if found["free_files"] is not None and found["free_files"] < _FEW_FILES:
        limits.append(f"only {found['free_files']:,} more files can be made")
    return limits


def render_fitness(found: Mapping[str, Any]) -> str:
    """For people: the verdict first, then each fact."""
    verdict, reasons = found["verdict"], found["reasons"]
    sync, other = found["fsync_s"], found["other"]
    rows = [
        ("file system", found["file_system"] or "of unknown type"),
        ("link()", _show_race(found["link"])),
        ("O_EXCL", _show_race(found["exclusive"])),
        (
            "fsync()",
            sync["problem"]
            or f"{render_duration(sync['median'])}, longest {render_duration(sync['longest'])}",
        ),
        (
            "mkfifo",
            (f"does not work ({found['mkfifo']})" if found["mkfifo"] else "works")
            + "; not needed here",
        ),
        ("clock", f"{_ahead(found['clock_ahead_s'])} this machine's"),
        ("free", f"{render_bytes(found['free_bytes'])}{_show_files(found['free_files'])}"),
        *(("quota", line) for line in found["quota"]),
    ]
    if other is None:
        rows.append(("seen from", "nowhere else: nobody answered"))
    else:
        rows += _show_other(other, bool(found.get("job")))
    lines = [
        f"{found['folder']}: {verdict}",
        *(f"  {'problem' if verdict == UNFIT else 'limit'}: {r}" for r in reasons),
    ]
    return "\n".join([*lines, *render_columns(rows, indent="  ")])


def _show_other(other: Mapping[str, Any], is_job: bool) -> list[tuple[str, str]]:
    where = (
        f"{other['host']}, in a job"
        if is_job
        else "a second process: this is one machine only, not two nodes"
    )
    rows = [("seen from", where), ("  lines", f"after {_late(other['lines_s'])}")]
    if "listings_s" in other:
        rows.append(("  listings", f"after {_late(other['listings_s'])}"))
    if "race" in other:
        rows.append(("  races", _show_race(other["race"])))
    clock = other["clock_ahead_s"]
    if clock is not None:
        text = f"{_ahead(clock['seconds'])} this machine's (give or take {render_duration(clock['uncertain_s'])})"
        rows.append(("  clock", text))
    return rows


def _show_race(race: Mapping[str, Any]) -> str:
    if race["problem"]:
        return f"does not work ({race['problem']})"
    if race["wrong"]:
        return f"NOT atomic: {race['wrong']} of {race['rounds']} races were not won by exactly one process"
    return f"atomic: each of {race['rounds']} races was won by exactly one process"


def _show_files(count: int | None) -> str:
    return "" if count is None else f", {count:,} more files"


def _late(times: Mapping[str, Any]) -> str:
    if times["longest"] is None:
        return f"more than {render_duration(times.get('more_than', _TOO_LATE_LINE_S))}"
    return f"{render_duration(times['median'])}, longest {render_duration(times['longest'])}"


def _ahead(seconds: float) -> str:
    if abs(seconds) < 0.05:
        return "the same as"
    return f"{render_duration(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'}"
