"""`run --rehearse`: one agent with the final request first; the others once its usage has levelled out and fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from windlass.collect.rehearsal import Seen, Verdict, explain_death, judge
from windlass.core.claims.client import client_name
from windlass.core.claims.recover import recover
from windlass.core.claims.register import RegisterFile
from windlass.core.counted import counted
from windlass.core.errors import RehearsalError, input_error
from windlass.core.files import write_whole
from windlass.core.journal.events import Header, decode_event
from windlass.core.journal.read import JournalReader, journal_files, writer_of
from windlass.core.lock import StudyLock
from windlass.core.paths import StudyPaths
from windlass.core.planfile import read_plan_file
from windlass.core.units import render_duration, render_mb
from windlass.model import Plan
from windlass.places.base import Agents, Place

_POLL_S = 0.5  # This looks at files only; the scheduler is asked every 10 s at most.
_PATIENCE_S = 60.0  # for trials to come back from a job that was ended
_TELL_S = 20.0

Say = Callable[[str], None]


class Rehearsal:
    """One agent is watched before the others start. To be made before that agent is started."""

    def __init__(self, place: Place, plan: Plan, paths: StudyPaths, say: Say) -> None:
        self._place = place
        self._plan = plan
        self._paths = paths
        self._say = say
        self._former = set(journal_files(paths.journal))
        self._verdict: Verdict | None = None

    def watch(self, agents: Agents) -> Agents | None:
        """Watch the agent that has just been started. Returns what is to be followed from now on.

        An agent that ends with this command is watched while it is followed. For one that would go on without it, this
        waits: for the verdict, and then starts the other agents. Raises RehearsalError where the trials of such an
        agent do not fit. On a refusal and on Ctrl-C that agent is ended, and its trials go back to the list.
        """
        if self._verdict is not None:
            return agents
        reader = _Reader(self._paths, self._former, agents)
        if not self._place.elsewhere:
            return _WatchedAgents(agents, lambda: self._look(agents, reader))
        submitted = agents.submitted
        assert submitted is not None
        if not submitted.jobs and submitted.present:
            verb = "waits or runs" if submitted.present == 1 else "wait or run"
            raise input_error(
                f"{counted(submitted.present, 'agent')} of this study {verb} already: it is too late for a rehearsal",
                "`windlass cancel` ends them; without --rehearse they go on",
            )
        if not submitted.jobs:
            return agents
        self._say(
            f"rehearsing in job {submitted.jobs[0]}; the other agents wait for its outcome, Ctrl-C cancels it"
        )
        try:
            verdict = self._wait_for_verdict(agents, reader)
        except BaseException:
            self._end(agents, reader)
            raise
        for warning in verdict.warnings:
            self._say(f"warning: {warning}")
        if verdict.problems:
            self._end(agents, reader)
            raise _refusal(
                verdict, "its job has ended, its trials wait again, and no other job was submitted"
            )
        self._say(f"rehearsal passed: {verdict.summary}")
        self._verdict = verdict
        self._forget()
        return self._place.start(self._paths)

    def raise_for_refusal(self) -> None:
        """Once the agents have ended. Raises RehearsalError where one had to be stopped."""
        if self._verdict is not None and self._verdict.problems:
            raise _refusal(self._verdict, "the trials under way were stopped and wait again")

    def _forget(self) -> None:
        """Agents that follow need not rehearse."""
        paths = self._paths
        with StudyLock(RegisterFile(paths.claims, client_name()), paths.folder):
            plan = replace(read_plan_file(paths.plan), rehearse_s=None)
            write_whole(paths.plan, plan.encode())

    # -- an agent that goes on without this command

    def _wait_for_verdict(self, agents: Agents, reader: _Reader) -> Verdict:
        """Wait until it is clear whether the agent's trials fit, or until the agent has ended."""
        teller = _Teller(self._say)
        while True:
            gone, waits = agents.look()  # First: what it has written is there when it is gone.
            seen = reader.update()
            teller.tell(seen, waits)
            allowed = self._place.allowed(self._plan, seen)
            verdict = judge(seen, allowed, gone)
            if verdict is not None:
                return verdict
            if gone:
                text, out_of_memory = agents.explain_end()
                return Verdict("", (explain_death(seen, allowed, text, out_of_memory),))
            time.sleep(_POLL_S)

    def _end(self, agents: Agents, reader: _Reader) -> None:
        """End the agent that rehearses, and see its trials back on the list."""
        problem = agents.stop()
        self._forget()
        if problem:
            self._say(problem)
            return
        register_file = RegisterFile(self._paths.claims, client_name())
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            reader.update()
            if not reader.agents & set(register_file.read().held):
                return
            recover(self._paths, register_file)
            time.sleep(_POLL_S)
        jobs = () if agents.submitted is None else agents.submitted.jobs
        self._say(
            f"job {', '.join(map(str, jobs))} is cancelled; its trials come back once it has ended"
        )

    # -- an agent that ends with this command

    def _look(self, agents: Agents, reader: _Reader) -> bool:
        """Judge what was seen up to now, and stop the agent where it does not fit. Returns whether that is settled."""
        seen = reader.update()
        if seen.bye not in (None, "nothing left"):
            return False  # The user has ended it.
        verdict = judge(seen, self._place.allowed(self._plan, seen))
        if verdict is None:
            return False
        self._verdict = verdict
        for warning in verdict.warnings:
            self._say(f"warning: {warning}")
        if verdict.problems:
            agents.stop()
        else:
            self._say(f"rehearsal passed, going on: {verdict.summary}")
        return True


def _refusal(verdict: Verdict, state: str) -> RehearsalError:
    """The error for a rehearsal that was refused: all problems, then the state in which the study is left."""
    lines = [problem.render() for problem in verdict.problems]
    return RehearsalError(
        "\n".join([f"the rehearsal was refused: {lines[0]}", *lines[1:], f"  {state}"])
    )


class _Reader:
    """Reads the journals of the agents that rehearse: one, and another where its job was started anew."""

    def __init__(self, paths: StudyPaths, former: set[str], agents: Agents) -> None:
        self._paths = paths
        self._owner = agents
        self._readers: dict[str, JournalReader] = {}
        self._strangers = set(former)
        self.seen = Seen()
        self.agents: set[str] = set()

    def update(self) -> Seen:
        """Read what the rehearsing agent has written since the last call. Journals of other agents are left out."""
        for path in journal_files(self._paths.journal):
            if path in self._strangers:
                continue
            reader = self._readers.setdefault(path, JournalReader(path))
            while events := reader.read():
                header = decode_event(events[0])
                if isinstance(header, Header):
                    if not header.is_agent or not self._owner.owns(events[0]):
                        self._strangers.add(path)
                        break
                    self.seen = Seen()  # Files come in the order in which their writers began.
                    self.agents.add(writer_of(path))
                for event in events:
                    self.seen.take(event)
        return self.seen


class _Teller:
    """Says how a rehearsal goes, now and then."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._next = 0.0
        self._began = False
        self._reason = ""

    def tell(self, seen: Seen, waits: str) -> None:
        """Say why the job waits, when the rehearsal begins, and now and then how much memory is used."""
        now = time.monotonic()
        if waits and waits != self._reason and not seen.begun:
            self._reason = waits
            self._say(f"its job waits: {waits}")
        if seen.begun and not self._began:
            self._began, self._next = True, now + _TELL_S
            self._say(f"the rehearsal has begun, with {counted(seen.begun, 'trial')}")
        elif seen.level is not None and now >= self._next:
            self._next = now + _TELL_S
            growth = seen.level["growing_mb_per_min"]
            how = f"growing at {growth:.0f} MB/min" if growth else "not growing"
            self._say(
                f"rehearsing for {render_duration(seen.level['since_s'])}: {render_mb(seen.peak_mb)}, {how}"
            )


class _WatchedAgents:
    """Agents that are looked at whenever somebody waits for them, until `look` returns True."""

    def __init__(self, agents: Agents, look: Callable[[], bool]) -> None:
        self._agents = agents
        self._look = look
        self._settled = False
        self._next = 0.0
        self.submitted, self.poll_s, self.left_s = agents.submitted, agents.poll_s, agents.left_s
        self.look, self.owns, self.explain_end = agents.look, agents.owns, agents.explain_end
        self.interrupt, self.stop, self.complaints = (
            agents.interrupt,
            agents.stop,
            agents.complaints,
        )
        self.close = agents.close

    def wait(self, patience_s: float) -> int | None:
        """Wait for the agents, and judge the rehearsal at intervals until the verdict is there."""
        code = self._agents.wait(patience_s)
        now = time.monotonic()
        if not self._settled and (now >= self._next or code is not None):
            self._next = now + _POLL_S
            self._settled = self._look()
        return code
