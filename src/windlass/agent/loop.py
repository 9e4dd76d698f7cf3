"""The agent's life: claim, run, refill, stop in time, give back. Python 3.9, standard library."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any, Collection, Dict, List, Optional, Set, Union

from windlass.agent import ends
from windlass.agent.child import Attempt, Trial
from windlass.agent.departure import Departure
from windlass.agent.ends import Mode
from windlass.agent.lease.claiming import Claiming
from windlass.agent.lease.fence_page import clock_s
from windlass.agent.lease.holding import Holding
from windlass.agent.lease.reach import patiently
from windlass.agent.node.companions import Companions
from windlass.agent.node.job_end import JobEnd
from windlass.agent.outdated import EXIT_OUTDATED, NOTE, PlanWatch
from windlass.agent.parts import Choice, Links, Shared
from windlass.agent.patient_loop import PatientLoop
from windlass.agent.runner import Runner
from windlass.agent.stopping import NOTIFIED_S
from windlass.agent.survey.rehearsal import Rehearsal
from windlass.agent.take_down import TakeDown
from windlass.agent.warm.watch import WarmLoss, WarmWatch
from windlass.core.claims import ranges as rs
from windlass.core.claims.alive import beat_s, idle_beat_s
from windlass.core.claims.first import FAILED_ALIKE, find_stop
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.register import Overtaken
from windlass.core.journal.write import DiskFull
from windlass.core.states import Cause

_FIRST_BEAT_S = 5.0  # The first beat comes early, so that users soon see how the first trials do.
# How often the agent looks whether the folder is back, where nothing may begin.
_FENCED_LOOK_S = 0.25
_SIGNALS = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Loop(PatientLoop):
    """Single-threaded: everything happens in `step`."""

    def __init__(self, shared: Shared, runner: Runner, links: Links) -> None:
        limits, reach = shared.limits, links.reach
        super().__init__(runner, shared.poller, limits, reach)
        self._agent = shared.agent
        self._claimer = links.claimer
        self._queue = links.queue
        self._journal = shared.journal
        self._mailbox = links.mailbox
        self._launcher = links.launcher
        self._waiting = links.waiting
        self._looks = links.waiting.looks
        self._holding = Holding(links.claimer, links.queue, runner, reach, self.note)
        self.survey: Optional[Choice] = None
        self.rehearsal: Optional[Rehearsal] = None
        self.plan_watch: Optional[PlanWatch] = None
        self.departure: Optional[Departure] = None
        self.job_end: Optional[JobEnd] = None
        self.companions: Optional[Companions] = None
        self._warm = WarmWatch(shared.poller, runner, self.note, self._go_on_cold)
        self._began = time.monotonic()
        self._next_beat = self._began + min(_FIRST_BEAT_S, beat_s(limits.lease_s))
        self._controlled_at, self._heard = 0.0, 0  # the look at the register that was heeded last
        self._unfinished: List[int] = []  # trials that are given back when the agent ends
        # The starts of these attempts are in the journal, or on their way there; their processes do not exist yet.
        self._announced: List[Attempt] = []
        self._claiming = Claiming(self, shared, runner, links, self._holding)
        # Whether the register may give this agent trials that it does not know of. Then it gives nothing back, and
        # other agents have to find out that it is gone.
        self._may_hold_more = False
        self._stopped = False  # Whether the first trials of the study all failed alike.
        runner.retry = links.queue.push_again
        runner.may_begin = lambda: reach.can_begin

    # -- setting up and taking down

    def run(self) -> int:
        """Work until nothing is left or the agent is asked to stop. Returns the agent's exit code."""
        self._wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)  # the wake-up pipe carries the number
        self._reach.open()
        self._runner.gauges.open()
        learned = patiently(self._claimer.learned, self._limits.lease_s)
        self._heed_failures(learned)
        nvml = self._runner.gauges.nvml
        self._runner.sharing.open(nvml, learned, self._claimer.learn_if_possible)
        self._mailbox.watch(self._poller)
        self._looks.watch(self._poller)
        for descriptor in (self._wake, self._launcher):
            if descriptor is not None:
                self._poller.register(descriptor, select.EPOLLIN)
        try:
            while self._attend():
                pass
        except Overtaken:
            self._may_hold_more = True
            raise
        finally:
            self._take_down()
        code = self._exit or self._runner.tally.exit_code()
        return code if self.survey is None else self.survey.settle(code)

    def _take_down(self) -> None:
        """Nothing is under way here, unless an error of our own brought us down. Raises nothing: that error counts."""
        if self.survey is not None:
            self.survey.close()
        take_down = TakeDown(self._agent, self._runner)
        try:
            take_down.attempt("ends of trials could not be recorded", self._runner.finish_ended)
            self._unfinished = sorted(self._runner.busy | self.given_up)
            take_down.end_processes()
            if self.rehearsal is not None:
                self.rehearsal.close()
            self._runner.tally.close(self._reason)
            failed = self._runner.tally.failed
            self._journal.add(
                {"e": "bye", "t": round(time.time(), 3), "reason": self._reason, "failed": failed}
            )
            take_down.attempt("the end could not be recorded", self._record_end)
            if take_down.is_failed:
                self._exit = self._exit or (ends.EXIT_FULL if take_down.is_full else ends.EXIT_AWAY)
            self._reach.pulse.close()
            self._journal.close()
        finally:
            self._reach.release_guard()

    def _record_end(self) -> None:
        self._journal.flush_reserve()
        # Only after the journal is written: whoever takes these trials next must know what became of them.
        if not self._may_hold_more:
            self._give_back(rs.union(self._queue.rest(), rs.from_numbers(self._unfinished)))
            if self.departure is not None:
                too_short = self.departure.leave(self._runner.tally.cut, self.note)
                self._exit = self._exit or (ends.EXIT_TIME_UP if too_short else ends.EXIT_DONE)
                self._journal.flush_reserve()

    def _give_back(self, unfinished: Ranges, busy: Collection[int] = ()) -> None:
        cancelled = self._claimer.give_back(unfinished, busy)
        if cancelled:
            self._journal.add({"e": "cancel", "t": round(time.time(), 3), "r": cancelled})
            self._journal.flush_reserve()

    # -- one step

    def _step(self) -> bool:
        """Record what has ended, fill free slots, write, wait. One write tells of the ends and the new starts."""
        runner = self._runner
        self._holding.check()
        if runner.ended and not self._awaits_signal():
            # What a trial reported before it ended is read before its end is recorded.
            self._mailbox.read()
            runner.finish_ended()
            if runner.workplace is not None and runner.workplace.is_full:
                self._disk_full(DiskFull("the study's outputs"))
            self._heed_failures(runner.tally.news())
        now = time.monotonic()
        if self._limits.is_near(now) and self._mode in (Mode.RUN, Mode.DRAIN):
            self._end_is_near(self._limits.deadline or now)
        if self._announced and self._mode is not Mode.RUN:
            self._abandon_unlaunched()
        if self._mode is Mode.RUN:
            self._limits.usual_s = runner.tally.usual_s
            if self._limits.too_late(now, self._began, not (runner.attempts or runner.finished)):
                self._change(Mode.DRAIN, "the job's time is too short for another trial")
            elif self._reach.may_begin:
                self._fill()
        if not runner.attempts and (self._mode is not Mode.RUN or not self._may_continue()):
            return False
        now = time.monotonic()
        if runner.gauges.look(now) and self.rehearsal is not None:
            self.rehearsal.look(now)
        self._flush(now)
        self._wait(self._patience_s(now))
        return True

    def _patience_s(self, now: float) -> float:
        """How long the poll may wait for something to happen."""
        until = min(
            self._next_beat,
            self._looks.next_at if self._runner.attempts else self._waiting.until(now),
        )
        if self._limits.near_at is not None and self._mode in (Mode.RUN, Mode.DRAIN):
            until = min(until, self._limits.near_at)
        if self._runner.ended:
            until = min(until, now + NOTIFIED_S / 4)
        for when in (
            self._runner.stopping.check_limits(now),
            self._runner.pipes.watch(now),
            self._runner.gauges.due(),
        ):
            if when is not None and when < until:
                until = when
        if not self._reach.may_begin:
            until = min(until, now + _FENCED_LOOK_S)
        elif self._mode is Mode.RUN and self.survey is None:
            until = min(until, self._claiming.due(now))
        if self.survey is not None and self._mode is Mode.RUN and not self.survey.is_over:
            until = min(until, now + self.survey.pause_s)
        output_s = self._runner.output.due_in_s(time.time())
        return max(0.0, until - now if output_s is None else min(until - now, output_s))

    def _fill(self) -> None:
        """Put a trial into every free slot; or, where the agent is there to measure, let the survey begin trials."""
        if self.survey is None:
            self._claiming.fill(self._announced)
        if self._announced:
            self._launch()
        if self.survey is not None:
            self.survey.advance(time.monotonic())

    def begin(self, trial: Trial) -> Attempt:
        """Begin a trial that no register has given."""
        attempt = self._runner.announce(trial)
        self._announced.append(attempt)
        self._launch()
        return attempt

    def _launch(self) -> None:
        """Start what was announced, once the journal has it. What cannot be started now stays announced."""
        runner = self._runner
        # Writing may have taken so long that others have begun these trials: then the next step looks first.
        if not self.flush_journal() or not self._reach.can_begin:
            return
        self._mailbox.restore()
        soon_s = 0.0 if self._reach.is_proof_old else beat_s(self._limits.lease_s)
        # The next beat may be far off, because an idle agent writes seldom.
        self._next_beat = min(self._next_beat, time.monotonic() + soon_s)
        while self._announced:
            attempt = self._announced.pop(0)
            if runner.no_folder:
                self._abandon([attempt])
            elif attempt.attempt in runner.attempts:  # it may have been given up meanwhile
                runner.launch(attempt)
        if runner.no_folder and self._mode is Mode.RUN:
            self.note(f"{os.uname().nodename}: {runner.no_folder}")
            self._change(Mode.DRAIN, f"not ready: {runner.no_folder}")
            self._exit = ends.EXIT_NOT_READY
        self._warm.update()
        if runner.stumbled is not None:
            error, runner.stumbled = runner.stumbled, None
            self._reach.fail(error)

    # -- what claiming asks of the loop

    @property
    def given_up(self) -> Set[int]:
        """Trials that are still this agent's own by the register, and that it does not begin any more."""
        return {*self._runner.handed_back, *self._unfinished}

    def may_claim(self, now: float) -> bool:
        """Whether this agent may take more trials. It notices here that the study was changed or its job was cut."""
        if self._is_outdated():
            return False
        self._look_at_job_end(now)
        return True

    def _is_outdated(self) -> bool:
        """Whether the study has other code or settings than this agent; then it gives back what it has not begun."""
        if self._mode is not Mode.RUN or self.plan_watch is None:
            return False
        change = self.plan_watch.find_change()
        if change is None:
            return False
        self._change(Mode.DRAIN, change)
        self.note(change + NOTE)
        self._exit = ends.EXIT_DONE if self._limits.job else EXIT_OUTDATED
        self._let_go()
        return True

    def _let_go(self) -> None:
        """Give back what has not begun, so that others can take it."""
        try:
            self._journal.flush()
            self._journal.sync()
            self._give_back(self._queue.rest(), {*self._runner.busy, *self.given_up})
            self._queue.clear()
        except (DiskFull, OSError):
            pass  # Still ours: given back at the end.

    def _heed_failures(self, learned: Optional[Dict[str, Any]]) -> None:
        """Begin no more trials where the first ones of the study all failed alike; go on if another one ended well."""
        if learned is None:
            return
        stop = find_stop(learned)
        if stop is not None and self._mode is Mode.RUN:
            self._stopped = True
            self._change(Mode.DRAIN, f"{FAILED_ALIKE}{stop.reason}")
            self._let_go()
        elif stop is None and self._stopped and self._mode is Mode.DRAIN:
            self._stopped = False
            self._change(Mode.RUN, "nothing left")

    def _may_continue(self) -> bool:
        """Nothing under way and nothing to take: wait only where trials of others may still come back."""
        if self.survey is not None or self._queue.rest():
            return self.survey is None or not self.survey.is_over
        return self._waiting.may_continue(time.monotonic(), self._runner.tally.longest_s)

    def _awaits_signal(self) -> bool:
        """Whether the agent may be about to get the signal that has ended trials: then their end is not judged yet."""
        if not self._limits.job or self._mode is Mode.STOP:
            return False
        return self._runner.stopping.may_be_notified(time.monotonic())

    # -- what happened

    def _handle(self, descriptor: int) -> None:
        if descriptor == self._wake:
            self._read_signals()
        elif self._runner.pipes.owns(descriptor):
            self._runner.pipes.read(descriptor)
            others_gone = self.companions is not None and self.companions.is_gone
            if others_gone and self._mode is not Mode.STOP:
                self._stop("the processes on other nodes of the job have ended", Cause.NODE)
                self._exit = ends.EXIT_NOT_READY
        elif self._mailbox.owns(descriptor):
            self._mailbox.read()
        elif descriptor == self._launcher:
            self._read_launcher()
        elif self._looks.owns(descriptor):
            self._looks.heed(time.monotonic())
        elif self._warm.owns(descriptor):
            self._warm.read(descriptor)

    def _read_launcher(self) -> None:
        assert self._launcher is not None
        if not os.read(self._launcher, 64):
            self._poller.unregister(self._launcher)
            self._stop("the launcher went away")

    def _read_signals(self) -> None:
        numbers = set(os.read(self._wake, 4096))
        for number in numbers - {signal.SIGCHLD}:
            now = time.monotonic()
            if number == signal.SIGUSR1:
                until = self._limits.hear(now)
                if until is not None and self._mode in (Mode.RUN, Mode.DRAIN):
                    self._end_is_near(until)
            elif number == signal.SIGINT and self._mode is Mode.RUN:
                self._change(Mode.DRAIN, "interrupted")
                self._exit = ends.EXIT_STOPPED
            elif self._limits.at_its_end(now):
                self._stop("the job's time limit", Cause.JOB_TIME)
            else:
                self._stop("interrupted")
        if signal.SIGCHLD in numbers:
            self._reap()

    def _change(self, mode: Mode, reason: str) -> None:
        self._mode, self._reason = mode, reason
        self._runner.taking = mode is Mode.RUN

    def _end_is_near(self, until: float) -> None:
        """Notify the trials under way; those that are not done in time are handed back."""
        self._change(Mode.NEAR, "the end of the job's time is near")
        notified = self._runner.stopping.warn_all(until - self._limits.reserve_s)
        self.note(
            f"the end is near: no more trials are begun here, {notified} under way were notified"
        )

    def _stop(self, reason: str, cause: Cause = Cause.STOPPED) -> None:
        """End the trials under way: politely the first time, at once the second."""
        again = self._mode is Mode.STOP
        self._change(Mode.STOP, reason)
        self._exit = ends.EXIT_STOPPED
        if self._limits.job:
            self._runner.stopping.blame_us(cause)
        self._runner.stopping.stop_all(cause, kill=again)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            cpu_s = usage.ru_utime + usage.ru_stime
            unseen_s = self._reach.blocked_s
            if not self._runner.child_ended(pid, status, usage.ru_maxrss, cpu_s, unseen_s):
                self._reach.replace_guard(pid)

    def _go_on_cold(self, loss: WarmLoss) -> None:
        """Start the trials of a warm interpreter anew without one, unless the study insists on it."""
        if loss.is_error:
            self._change(Mode.STOP, f"warm: {loss.reason}")
            self._exit = ends.EXIT_REFUSED
            print(f"windlass agent: warm start refused: {loss.reason}", file=sys.stderr)
            waiting = {attempt.trial.number for attempt in loss.waiting}
            self._unfinished = sorted(waiting | self._runner.unended)
            self._runner.abandon(loss.waiting)
            return
        for attempt in loss.waiting:
            self._runner.relaunch(attempt)

    def note(self, text: str) -> None:
        self._journal.add({"e": "note", "t": round(time.time(), 3), "text": text})

    # -- writing

    def _flush(self, now: float) -> None:
        self._read_control(now)
        try:
            self._runner.output.flush(time.time())
            self._runner.curves.flush()
        except (DiskFull, OSError) as error:
            self.cannot_write(error)
        is_due, began = now >= self._next_beat, clock_s()
        if is_due:
            interval_s = beat_s if self._runner.attempts else idle_beat_s
            self._next_beat = now + interval_s(self._limits.lease_s)
            live = self._runner.live()
            self._journal.add({"e": "beat", "t": round(time.time(), 3), "live": live})
        if self.flush_journal() and is_due:
            self._reach.pulse.sync_soon(began, self._next_beat - now)

    def _read_control(self, now: float) -> None:
        """Heed what the last look at the register found: cancelled trials, other settings, fewer jobs at a time."""
        idle, looks = not self._runner.attempts, self._looks
        looks.look(now, idle)
        if looks.looked_at == self._controlled_at:
            return
        self._controlled_at = looks.looked_at
        self._mailbox.restore()
        if not idle or looks.reads != self._heard:
            self._is_outdated()  # `windlass run` changes the register after plan.json
            self._look_at_job_end(now)
        register = looks.register
        if register is None or looks.reads == self._heard:
            return
        self._heard = looks.reads
        self._runner.sharing.hear(register.learned)
        self._heed_failures(register.learned)
        if self._mode is Mode.RUN and self._limits.job and register.is_beyond_throttle(self._agent):
            self._change(Mode.DRAIN, "fewer jobs at a time were asked for")
        cancelled = register.cancelled
        if cancelled:
            self._queue.drop(cancelled)
            for attempt in list(self._runner.attempts.values()):
                if rs.contains(cancelled, attempt.trial.number):
                    self._runner.stopping.stop(attempt, Cause.CANCELLED)

    def _look_at_job_end(self, now: float) -> None:
        if self.job_end is not None and self.job_end.look(now):
            self.note("the time of the job was cut: trials are begun only if they end before that")

    def flush_journal(self) -> bool:
        """Write what the journal has gathered. False where the disk is full."""
        try:
            self._journal.flush()
        except (DiskFull, OSError) as error:
            self.cannot_write(error)
            return False
        return True

    def _disk_full(self, error: DiskFull) -> None:
        if self._exit != ends.EXIT_FULL:
            print(
                f"windlass agent: no room left on the disk of {error}; no more trials are started",
                file=sys.stderr,
            )
            self._change(Mode.DRAIN if self._mode is Mode.RUN else self._mode, "disk full")
            self._exit = ends.EXIT_FULL
            self._abandon_unlaunched()
        try:
            self._journal.flush_reserve()
        except (DiskFull, OSError):
            pass  # The events are kept, and written again with every step and at the end.

    def cannot_write(self, error: Union[DiskFull, OSError]) -> None:
        """The disk is full; or the folder is out of reach, which `_attend` hears of, and anything else ends us."""
        if not isinstance(error, DiskFull):
            raise error
        self._disk_full(error)

    def _abandon_unlaunched(self) -> None:
        self._announced.clear()
        self._abandon([one for one in self._runner.attempts.values() if not one.launched])

    def _abandon(self, unlaunched: List[Attempt]) -> None:
        """These are given back at the end."""
        self._unfinished.extend(attempt.trial.number for attempt in unlaunched)
        self._runner.abandon(unlaunched)
