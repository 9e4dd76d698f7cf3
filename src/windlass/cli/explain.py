"""windlass explain: what happened to a trial, or why it does not run."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from windlass.bundle.since import describe_other_code
from windlass.claims import ranges as rs
from windlass.claims.register import Register
from windlass.cli.hints import name_study, warn_of_copy
from windlass.cli.options import find_study, folder_option, json_option
from windlass.collect.attempts import overlapping, read_attempts, started_from
from windlass.collect.byhand import render_by_hand
from windlass.collect.facts import read_plan
from windlass.collect.index import read_record
from windlass.collect.look import look, read_register
from windlass.collect.output import OutputReader, last_lines
from windlass.collect.reconcile import AgentView, StudyView
from windlass.collect.trials import find_trials
from windlass.counted import counted
from windlass.paths import StudyPaths
from windlass.secrets import mask
from windlass.states import State
from windlass.trialfile import TrialFile
from windlass.view.jobs import render_jobs, render_nobody, render_wait
from windlass.view.story import render_attempts, render_overlap
from windlass.view.trouble import explain_standstill, find_trouble, is_settled


@click.command()
@click.argument("trial", required=False)
@click.option("--study", help="Which study (default: the newest).")
@folder_option
@json_option
def command(trial: str | None, study: str | None, folder: str | None, as_json: bool) -> None:
    """Say what happened to a trial and what comes next; without a trial, why the study does not go on."""
    paths = find_study(study, folder)
    warn_of_copy(paths)
    register = read_register(paths)
    story = _study_story(paths) if trial is None else _trial_story(paths, register, trial)
    # Studies of earlier versions may have secrets in their commands.
    shown = json.dumps(story, indent=2, ensure_ascii=False) if as_json else "\n".join(story["lines"])
    texts = {name: value for name, value in story.get("settings", {}).items() if isinstance(value, str)}
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
    lines += [f"agent {agent.id} on {agent.host}: {agent.reason or 'ended without a word'}" for agent in ended[-5:]]
    notes = [note for note in view.notes if not note.routine and not is_settled(note, view)]
    lines += [f"note: {note.text}" for note in notes[-5:]]
    lines = [name_study(line, paths) for line in lines]
    return {"study": view.name, "reason": name_study(reason, paths), "lines": lines}


def _trial_story(paths: StudyPaths, register: Register, name: str) -> dict[str, Any]:
    number = find_trials([name], paths, register.count)[0]
    file = TrialFile(paths)
    trial = file.read(number)
    file.close()
    view = look(paths)
    alive = {agent.record.id: bool(agent.alive) for agent in view.agents}
    stories = read_attempts(paths, number)
    verdict = name_study(_verdict(register, number, view, _is_done(paths, number)), paths)
    rung = f"  rung {trial['rung']!r}" if "rung" in trial else ""
    lines = [f"trial {number}  {trial['id']}{rung}"]
    if trial["settings"]:
        lines.append("  " + ", ".join(f"{k}={v}" for k, v in trial["settings"].items()))
    by_hand = render_by_hand(paths, number, started_from(stories))
    if stories:
        by_hand = [*describe_other_code(paths, read_plan(paths), stories[-1].code, stories[-1].start), *by_hand]
    lines += ["  to execute it by hand:", *("    " + line for line in by_hand)]
    stages = [name for name, _ in trial["stages"]]
    lines += ["  " + line for line in render_attempts(stories, stages, alive)]
    overlapped_s = overlapping(stories)
    record = read_record(paths, number) if overlapped_s else None
    lines += ["  " + line for line in render_overlap(stories, overlapped_s, record)]
    lines += [f"  note: {name_study(note.text, paths)}" for note in view.notes if note.number == number]
    lines.append(f"  {verdict}")
    if view.jobs is not None and rs.contains(register.todo, number) and not any(alive.values()):
        lines += [f"    {line}" for line in render_wait(view.jobs)]
    if rs.contains(register.todo, number) and find_trouble(view) is None:
        lines += [f"    {reason}" for reason in _not_ready(view)]
    if stories and (stories[-1].end or {}).get("cause") not in (None, "done"):
        tail = last_lines(OutputReader(paths, stories[-1].agent).read({stories[-1].attempt: number}), 10)
        printed = tail.decode("utf-8", "replace").rstrip().splitlines()
        lines += ["  its last lines:", *("    " + line for line in printed)] if printed else ["  it printed nothing"]
    return {
        "study": os.path.basename(paths.folder),
        "number": number,
        "id": trial["id"],
        "settings": trial["settings"],
        "attempts": [
            {
                "agent": s.agent,
                "host": s.host,
                "start": s.start,
                "end": s.end,
                "code": s.code,
                "job": s.job,
                "times": s.times(stages),
                "counts": record is None or (s.agent, s.attempt) == (record.agent, record.attempt),
            }
            for s in stories
        ],
        "overlapped_s": overlapped_s,
        "by_hand": by_hand,
        "verdict": verdict,
        "lines": lines,
    }


def _not_ready(view: StudyView) -> list[str]:
    """Why the last agents took nothing at all."""
    last = [agent.record for agent in view.agents if not agent.alive][-3:]
    return list(dict.fromkeys(f"on {one.host}: {one.reason}" for one in last if one.reason.startswith("not ready")))


def _is_done(paths: StudyPaths, number: int) -> bool:
    """Whether a success still holds: one that was put back since does not."""
    record = read_record(paths, number)
    return record is not None and record.state is State.DONE


def _verdict(register: Register, number: int, view: StudyView, done: bool) -> str:
    agents = {agent.record.id: agent for agent in view.agents}
    holder = next((agent for agent, held in register.held.items() if rs.contains(held, number)), None)
    if rs.contains(register.todo, number):
        before = rs.count(rs.intersect(register.todo, [(0, number)]))
        at_work = any(agent.alive for agent in view.agents)
        who = "an agent takes it when a slot is free" if at_work else explain_standstill(view)
        return f"it waits, {counted(before, 'trial')} before it; {who}"
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
