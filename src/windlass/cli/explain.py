"""windlass explain: what happened to a trial, or why it does not run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import click

from windlass.bundle.since import describe_other_code
from windlass.cli.hints import name_study, warn_of_copy
from windlass.cli.options import folder_option, json_option
from windlass.cli.studies import find_study_and_trials, study_and_trials, take_one_trial
from windlass.cli.ticket import write_ticket
from windlass.collect.attempts import AttemptStory, overlapping, read_attempts, started_from
from windlass.collect.byhand import render_by_hand
from windlass.collect.index import read_record
from windlass.collect.look import look, read_register
from windlass.collect.output import OutputReader, last_lines
from windlass.collect.ranks import only_rank
from windlass.collect.reconcile import AgentView, StudyView
from windlass.collect.trials import find_trials
from windlass.core.claims import ranges as rs
from windlass.core.claims.register import Register
from windlass.core.counted import counted
from windlass.core.ids import settings_as_given
from windlass.core.journal.records import TrialRecord
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_if_there
from windlass.core.states import State
from windlass.core.trialfile import TrialFile
from windlass.secrets import mask
from windlass.view.jobs import render_jobs, render_nobody, render_wait
from windlass.view.story import render_attempts, render_overlap
from windlass.view.trouble import explain_standstill, find_trouble, is_settled


@click.command()
@study_and_trials("[STUDY] [TRIAL]")
@click.option(
    "--ticket",
    is_flag=True,
    help="Collect all that a support desk asks about this trial or job (123_4).",
)
@folder_option
@json_option
def command(
    arguments: tuple[str, ...], study: str | None, ticket: bool, folder: str | None, as_json: bool
) -> None:
    """Explain what happened to a trial and what comes next; without a trial, why the study does not go on.

    With --ticket, print what a support desk asks about a trial (number or id) or a job (123_4): what failed, where,
    when, what it asked for, and how to see it again. Secrets are masked; read it before you send it.
    """
    if ticket:
        print(write_ticket(arguments, study, folder), end="")
        return
    paths, trials = find_study_and_trials(arguments, study, folder)
    trial = take_one_trial(trials)
    warn_of_copy(paths)
    register = read_register(paths)
    story = _study_story(paths) if trial is None else _trial_story(paths, register, trial)
    # Studies of earlier versions may have secrets in their commands.
    shown = (
        json.dumps(story, indent=2, ensure_ascii=False) if as_json else "\n".join(story["lines"])
    )
    texts = {
        name: value for name, value in story.get("settings", {}).items() if isinstance(value, str)
    }
    print(mask(shown, {**os.environ, **texts}))


def _study_story(paths: StudyPaths) -> dict[str, Any]:
    view = look(paths)
    open_trials = view.counts[State.WAITING.value] + view.counts[State.INTERRUPTED.value]
    alive = [agent for agent in view.agents if agent.alive]
    waits = counted(open_trials, "trial waits", "trials wait")
    if not open_trials and not view.running:
        reason = "nothing is left to do"
    elif not alive:
        reason = str(find_trouble(view) or f"{waits} and {render_nobody(view.jobs)}")
    else:
        slots = sum(agent.record.slots for agent in alive)
        reason = f"{len(view.running)} of {counted(slots, 'slot')} busy; {waits} for a free one"
    lines = [f"{view.name}: {reason}"]
    if view.jobs is not None:
        lines += [f"  {line}" for line in render_jobs(view.jobs)]
    ended = [agent.record for agent in view.agents if not agent.alive]
    lines += [
        f"agent {agent.id} on {agent.host}: {agent.reason or 'ended without a message'}"
        for agent in ended[-5:]
    ]
    notes = [note for note in view.notes if not note.routine and not is_settled(note, view)]
    lines += [f"note: {note.text}" for note in notes[-5:]]
    lines = [name_study(line, paths) for line in lines]
    return {"study": view.name, "reason": name_study(reason, paths), "lines": lines}


def _trial_story(paths: StudyPaths, register: Register, name: str) -> dict[str, Any]:
    """What happened to one trial: facts for `--json`, and under "lines" the text for people."""
    number = find_trials([name], paths, register.count)[0]
    file = TrialFile(paths)
    trial = file.read(number)
    file.close()
    view = look(paths)
    stories = read_attempts(paths, number)
    verdict = name_study(_verdict(register, number, view, _is_done(paths, number)), paths)
    by_hand = render_by_hand(paths, number, started_from(stories))
    if stories:
        last = stories[-1]
        plan = read_plan_if_there(paths.plan)
        by_hand = [*describe_other_code(paths, plan, last.code, last.start), *by_hand]
    overlapped_s = overlapping(stories)
    counting = read_record(paths, number) if overlapped_s else None
    stages = [name for name, _ in trial["stages"]]
    rung = f"  rung {trial['rung']!r}" if "rung" in trial else ""
    lines = [f"trial {number}  {trial['id']}{rung}"]
    if trial["settings"]:
        lines.append("  " + ", ".join(f"{k}={v}" for k, v in settings_as_given(trial).items()))
    lines += ["  to execute it by hand:", *_indent(by_hand, 4)]
    alive = {agent.record.id: bool(agent.alive) for agent in view.agents}
    lines += _indent(render_attempts(stories, stages, alive))
    lines += _indent(render_overlap(stories, overlapped_s, counting))
    notes = [note.text for note in view.notes if note.number == number]
    lines += [f"  note: {name_study(text, paths)}" for text in notes]
    lines.append(f"  {verdict}")
    lines += _indent(_why_waiting(view, register, number), 4)
    if stories and (stories[-1].end or {}).get("cause") not in (None, "done"):
        lines += _indent(_last_printed(paths, stories[-1], number))
    return {
        "study": os.path.basename(paths.folder),
        "number": number,
        "id": trial["id"],
        "settings": settings_as_given(trial),
        "attempts": [_attempt_facts(story, stages, counting) for story in stories],
        "overlapped_s": overlapped_s,
        "by_hand": by_hand,
        "verdict": verdict,
        "lines": lines,
    }


def _indent(lines: Iterable[str], columns: int = 2) -> list[str]:
    return [" " * columns + line for line in lines]


def _why_waiting(view: StudyView, register: Register, number: int) -> list[str]:
    """Why nobody executes a trial that is on the list: its jobs wait, or its agents found no usable node."""
    if not rs.contains(register.todo, number):
        return []
    lines: list[str] = []
    if view.jobs is not None and not any(agent.alive for agent in view.agents):
        lines += render_wait(view.jobs)
    if find_trouble(view) is None:
        lines += _not_ready(view)
    return lines


def _last_printed(paths: StudyPaths, story: AttemptStory, number: int) -> list[str]:
    """The last ten lines that an attempt printed, with a heading; of several ranks, those of the one that failed."""
    pieces, heading = (
        OutputReader(paths, story.agent).read({story.attempt: number}),
        "its last lines:",
    )
    rank = (story.end or {}).get("rank")
    if rank:  # what the others printed when they were ended is of no interest
        pieces, heading = (
            only_rank(pieces, rank[0]),
            f"the last lines of rank {rank[0]} on {rank[1]}:",
        )
    printed = last_lines(pieces, 10).decode("utf-8", "replace").rstrip().splitlines()
    return [heading, *_indent(printed)] if printed else ["it printed nothing"]


def _attempt_facts(
    story: AttemptStory, stages: list[str], counting: TrialRecord | None
) -> dict[str, Any]:
    """An attempt for `--json`. Where attempts overlapped, `counting` is the record of the one that counts."""
    counts = counting is None or (story.agent, story.attempt) == (counting.agent, counting.attempt)
    return {
        "agent": story.agent,
        "host": story.host,
        "start": story.start,
        "end": story.end,
        "code": story.code,
        "job": story.job,
        "times": story.times(stages),
        "counts": counts,
    }


def _not_ready(view: StudyView) -> list[str]:
    """Why the last agents took nothing at all."""
    last = [agent.record for agent in view.agents if not agent.alive][-3:]
    return list(
        dict.fromkeys(
            f"on {one.host}: {one.reason}" for one in last if one.reason.startswith("not ready")
        )
    )


def _is_done(paths: StudyPaths, number: int) -> bool:
    """Whether a success still holds: one that was put back since does not."""
    record = read_record(paths, number)
    return record is not None and record.state is State.DONE


def _verdict(register: Register, number: int, view: StudyView, done: bool) -> str:
    agents = {agent.record.id: agent for agent in view.agents}
    holder = next(
        (agent for agent, held in register.held.items() if rs.contains(held, number)), None
    )
    if rs.contains(register.todo, number):
        before = rs.count(rs.intersect(register.todo, [(0, number)]))
        at_work = any(agent.alive for agent in view.agents)
        next_step = "an agent takes it when a slot is free" if at_work else explain_standstill(view)
        return f"it waits, {counted(before, 'trial')} before it; {next_step}"
    if holder is not None:
        return _verdict_of_held(agents.get(holder), holder, done)
    if done:
        return "it is done"
    if rs.contains(register.cancelled, number):
        return f"it was cancelled: `windlass retry {number}` brings it back, `windlass retry --cancelled` all of these"
    if not rs.contains(register.current, number):
        return "the study no longer has this setting"
    return f"it did not end well and is not tried again by itself: `windlass retry {number}`"


def _verdict_of_held(agent: AgentView | None, holder: str, done: bool) -> str:
    """What is so of a trial that an agent has taken."""
    job = None if agent is None else agent.record.job
    where = f"agent {holder}" + ("" if agent is None else f" on {agent.record.host}")
    if job is not None:
        where += f", job {job['array']}" + ("" if job.get("task") is None else f"_{job['task']}")
    if agent is not None and agent.alive:
        return "it is done" if done else f"it runs, or is next in its agent's queue ({where})"
    if agent is not None and agent.alive is None and not agent.record.ended:
        return f"its agent's job is over; it is taken up again when the agent is certainly gone ({where})"
    return f"its agent is gone: `windlass run` takes it up again ({where})"
