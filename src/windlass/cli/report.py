"""Shows a run while it goes on: a live line on a terminal, plain lines in a pipe, nothing with --quiet."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from windlass.bundle.folder import Prepared
from windlass.cli.hints import name_study
from windlass.collect.follow import Follower
from windlass.core.claims import ranges as rs
from windlass.core.counted import counted
from windlass.core.journal.code import render_code
from windlass.core.paths import StudyPaths
from windlass.core.states import State
from windlass.flow import Reporter
from windlass.model import Plan, Submitted
from windlass.view.escapes import REDRAW
from windlass.view.plan import render_cost_line, render_submitted
from windlass.view.progress import Progress, RateMeter, render_line, render_plain
from windlass.view.table import wants_color

_LIVE_S = 0.1
_FIRST_PLAIN_S = 2.0
_PLAIN_S = 60.0


class StreamReporter(Reporter):
    """Writes to standard error, so that standard output stays the result's."""

    def __init__(self, quiet: bool, folder: str = "") -> None:
        self._folder = folder  # of the study; commands that are printed name it where they have to
        self._quiet = quiet
        self._live = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._color = self._live and wants_color(sys.stderr)
        self._meter = RateMeter()
        self._began = time.monotonic()
        self._next = 0.0
        self._gap_s = _FIRST_PLAIN_S
        self._line_open = False
        self._notes = 0

    def prepared(self, plan: Plan, prepared: Prepared) -> None:
        """Show how many trials are to do, what has changed since the last run, and what is left out."""
        total = rs.count(prepared.register.current)
        todo = rs.count(prepared.register.todo)
        held = rs.count(prepared.register.held_ranges())
        parts = [f"{plan.study.name}: {counted(total, 'trial')}, {todo:,} to do"]
        if held:
            parts.append(f"{held} taken by other agents")
        parts.append(f"{plan.slots} at a time")
        self.say(", ".join(parts))
        self._say_changes(prepared, total)
        self.say_code(prepared.code)
        cancelled = rs.count(rs.intersect(prepared.register.cancelled, prepared.register.current))
        if cancelled:
            left_out = counted(cancelled, "cancelled trial is", "cancelled trials are")
            self.say(
                f"{left_out} left out; `windlass retry --cancelled` brings back what was cancelled"
            )
        if prepared.recovered:
            self.say(
                f"took back the trials of {counted(len(prepared.recovered), 'agent')} that had died"
            )

    def submitting(self, plan: Plan, present: int) -> None:
        """What the jobs cost that are about to be submitted, beside the agents that are there already."""
        cost = render_cost_line(plan, present)
        if cost:
            self.say(cost)

    def started(self, submitted: Submitted | None) -> None:
        """What was submitted, and how to follow it; nothing of an agent on this machine."""
        if submitted is not None:
            self.say(render_submitted(submitted))

    def _say_changes(self, prepared: Prepared, total: int) -> None:
        """What is different from the last run: trials that are new or no longer wanted, and settings of done ones."""
        added, former = prepared.added, prepared.former
        new = counted(added, "trial is", "trials are") + " new"
        if added and (former or prepared.dropped):
            kept = (
                f"; the results of {former} done before are kept (`windlass results --all`)"
                if former
                else ""
            )
            self.say(f"the command or its settings have changed: {new}{kept}")
        elif added and added < total:
            self.say(f"{new} since the last run")
        if prepared.dropped:
            dropped = counted(
                prepared.dropped, "trial of the last run was", "trials of the last run were"
            )
            self.say(
                f"warning: {dropped} still waiting and will not be run, because the study no longer asks for that; "
                "to run everything, run the former command with a name of its own (`-e NAME`)"
            )
        if prepared.changed and prepared.done:
            kept = counted(
                prepared.done, "done trial keeps its result", "done trials keep their results"
            )
            verb = "differs" if len(prepared.changed) == 1 else "differ"
            self.say(
                f"note: {' and '.join(prepared.changed)} {verb} from the last run; {kept}, "
                "without being run again (`windlass retry --done` does that)"
            )

    def say_code(self, code: Mapping[str, Any] | None) -> None:
        """Which frozen code trials are going to use. Live code is recorded by each agent when it begins."""
        if code:
            self.say(f"code: {render_code(code)}")

    def progress(
        self, follower: Follower, total: int, left_s: Callable[[], float | None] | None = None
    ) -> None:
        """Show the state of the trials.

        On a terminal one line is redrawn a few times a second; in a pipe a line is added now and then.
        `left_s` estimates the time left where the follower's own rate is not enough. Notes of agents are shown at once,
        whatever the interval.
        """
        now = time.monotonic()
        for note in follower.notes[self._notes :]:
            self.say(note)
        self._notes = len(follower.notes)
        rate_per_s = self._meter.add(now, follower.ended)
        settled = follower.count(State.WAITING) + follower.count(State.RUNNING) == 0
        if self._quiet or (now < self._next and not (settled and self._live)):
            return
        progress = self._measure(follower, total, now, rate_per_s)
        if left_s is not None:
            progress = replace(progress, eta_s=left_s())
        if self._live:
            self._next = now + _LIVE_S
            width = shutil.get_terminal_size().columns
            line = render_line(progress, width - 1, self._color)
            print(f"{REDRAW}{line}", end="", file=sys.stderr, flush=True)
            self._line_open = True
            return
        self._next = now + self._gap_s
        self._gap_s = min(_PLAIN_S, self._gap_s * 1.5)
        print(render_plain(progress), file=sys.stderr, flush=True)

    def _measure(
        self, follower: Follower, total: int, now: float, rate_per_s: float | None
    ) -> Progress:
        """The numbers that a line of progress is made of. The time left follows from the rate of trials that ended."""
        left = follower.count(State.WAITING) + follower.count(State.RUNNING)
        return Progress(
            total=total,
            done=follower.count(State.DONE),
            failed=follower.count(State.FAILED),
            running=follower.count(State.RUNNING),
            interrupted=follower.count(State.INTERRUPTED),
            cancelled=follower.count(State.CANCELLED),
            elapsed_s=now - self._began,
            rate_per_s=rate_per_s,
            eta_s=left / rate_per_s if rate_per_s else None,
        )

    def say(self, text: str) -> None:
        """Print a line, below the live line if there is one; with --quiet print nothing."""
        if self._quiet:
            return
        self.close()
        print(
            name_study(text, StudyPaths(self._folder)) if self._folder else text,
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        """Leave the live line standing and go on below it."""
        if self._line_open:
            print(file=sys.stderr)
            self._line_open = False
