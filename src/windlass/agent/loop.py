"""The agent's life: claim, run, refill, stop in time, give back. Python 3.9, standard library."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import Any, Collection, Dict, List, Optional, Union

from windlass.agent import ends
from windlass.agent.child import Attempt
from windlass.agent.claim import Claimer, TrialQueue
from windlass.agent.companions import Companions
from windlass.agent.departure import Departure
from windlass.agent.ends import Mode
from windlass.agent.fence_page import clock_s
from windlass.agent.holding import Holding
from windlass.agent.interrupt import Limits
from windlass.agent.job_end import JobEnd
from windlass.agent.mailbox import Mailbox
from windlass.agent.outdated import EXIT_OUTDATED, NOTE, PlanWatch
from windlass.agent.patient_loop import PatientLoop
from windlass.agent.reach import Reach, patiently
from windlass.agent.rehearsal import Rehearsal
from windlass.agent.runner import Runner
from windlass.agent.take_down import TakeDown
from windlass.agent.waiting import Waiting
from windlass.agent.warm_watch import WarmLoss, WarmWatch
from windlass.claims import ranges as rs
from windlass.claims.alive import beat_s, idle_beat_s
from windlass.claims.first import FAILED_ALIKE, find_stop
from windlass.claims.ranges import Ranges
from windlass.claims.register import Overtaken
from windlass.journal.write import DiskFull, JournalWriter
from windlass.states import Cause

_FIRST_BEAT_S = 5.0  # so that something is told of the first trials soon
_TOLD_S = 1.0  # the scheduler tells all processes of a job to end: trials may obey before we have heard of it
_FENCED_LOOK_S = 0.25  # how often, where nothing may begin, whether the folder is back


class Loop(PatientLoop):
    """Single-threaded: everything happens in `step`."""

    def __init__(
        self,
        agent: str,
        runner: Runner,
        claimer: Claimer,
        queue: TrialQueue,
        journal: JournalWriter,
        poller: select.epoll,
        mailbox: Mailbox,
        runtime_folder: str,
        launcher: Optional[int],
        waiting: Waiting,
        limits: Limits,
        reach: Reach,
    ) -> None:
        super().__init__(runner, poller, limits, reach)
        self._agent = agent
        self._claimer = claimer
        self._queue = queue
        self._journal = journal
        self._mailbox = mailbox
        self._runtime_folder = runtime_folder
        self._launcher = launcher
        self._waiting = waiting
        self._looks = waiting.looks
        self._holding = Holding(claimer, queue, runner, reach, self._note)
        self.rehearsal: Optional[Rehearsal] = None
        self.plan_watch: Optional[PlanWatch] = None
        self.departure: Optional[Departure] = None
        self.job_end: Optional[JobEnd] = None
        self.companions: Optional[Companions] = None
        self._warm = WarmWatch(poller, runner, self._note, self._go_on_cold)
        self._began = time.monotonic()
        self._next_beat = self._began + min(_FIRST_BEAT_S, beat_s(limits.lease_s))
        self._controlled_at, self._heard = 0.0, 0  # the look at the register that was heeded last
        self._last_claim = (self._began, 0)  # when, and how many had finished by then
        self._unfinished: List[int] = []
        self._announced: List[Attempt] = []  # their starts are in the journal, or on their way there
        self._nobody_fits = False  # until something ends, or more is learned
        self._may_hold_more = False  # than we know of: then others have to find out when we are gone
        self._stopped = False  # because the first trials of the study all failed alike
        runner.retry = queue.push_again
        runner.may_begin = lambda: reach.can_begin

    # -- setting up and taking down

    def run(self) -> int:
        """Work until nothing is left or we are told to stop. The exit code tells the truth."""
        self._wake, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)  # the wake-up pipe carries the number
        self._reach.open()
        self._runner.gauges.open()
        learned = patiently(self._claimer.learned, self._limits.lease_s)
        self._heed_failures(learned)
        self._runner.sharing.open(self._runner.gauges.nvml, learned, self._claimer.learn_if_possible)
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
        return self._exit or self._runner.tally.exit_code()

    def _take_down(self) -> None:
        """Nothing is under way here, unless an error of our own brought us down. Raises nothing: that error counts."""
        take_down = TakeDown(self._agent, self._runner)
        try:
            take_down.attempt("ends of trials could not be recorded", self._runner.finish_ended)
            self._unfinished = sorted(self._runner.busy | self._runner.handed_back | set(self._unfinished))
            take_down.end_processes()
            if self.rehearsal is not None:
                self.rehearsal.close()
            self._runner.tally.close(self._reason)
            failed = self._runner.tally.failed
            self._journal.add({"e": "bye", "t": round(time.time(), 3), "reason": self._reason, "failed": failed})
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
                too_short = self.departure.leave(self._runner.tally.cut, self._note)
                self._exit = self._exit or (ends.EXIT_TIME_UP if too_short else ends.EXIT_DONE)
                self._journal.flush_reserve()

    def _give_back(self, unfinished: Ranges, busy: Collection[int] = ()) -> None:
        cancelled = self._claimer.give_back(unfinished, busy)
        if cancelled:
            self._journal.add({"e": "cancel", "t": round(time.time(), 3), "r": cancelled})
            self._journal.flush_reserve()

    # -- one turn

    def _step(self) -> bool:
        """Record what has ended, fill free slots, write, wait. One write tells of the ends and the new starts."""
        runner = self._runner
        self._holding.check()
        if runner.ended and not self._wait_for_word():
            # What a trial said before it ended is read before its end is recorded.
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
        until = min(self._next_beat, self._looks.next_at if self._runner.attempts else self._waiting.until(now))
        if self._limits.near_at is not None and self._mode in (Mode.RUN, Mode.DRAIN):
            until = min(until, self._limits.near_at)
        if self._runner.ended:
            until = min(until, now + _TOLD_S / 4)
        for when in (self._runner.stopping.check_limits(now), self._runner.pipes.watch(now), self._runner.gauges.due()):
            if when is not None and when < until:
                until = when
        if not self._reach.may_begin:
            until = min(until, now + _FENCED_LOOK_S)
        elif self._mode is Mode.RUN and self._runner.free and not self._nobody_fits:
            until = now if self._queue else min(until, max(now, self._looks.claim_at(self._runner.finished)))
        output_s = self._runner.output.due_in_s(time.time())
        return max(0.0, until - now if output_s is None else min(until - now, output_s))

    def _fill(self) -> None:
        """Put a trial into every free slot."""
        runner = self._runner
        self._nobody_fits = False
        while runner.free:
            chosen = runner.sharing.choose(self._queue, runner.free) if self._queue else None
            if chosen is not None:
                self._announced.append(runner.announce(*chosen))
            elif not self._claim_more():
                break
        if self._announced:
            self._launch()

    def _launch(self) -> None:
        """Start what was announced, once the journal has it. What cannot be started now stays announced."""
        runner = self._runner
        # Writing may have taken so long that others have begun these trials: then the next step looks first.
        if not self._flush_journal() or not self._reach.can_begin:
            return
        self._mailbox.restore()
        soon_s = 0.0 if self._reach.is_proof_old else beat_s(self._limits.lease_s)
        self._next_beat = min(self._next_beat, time.monotonic() + soon_s)  # an agent that was idle wrote seldom
        while self._announced:
            attempt = self._announced.pop(0)
            if runner.no_folder:
                self._abandon([attempt])
            elif attempt.attempt in runner.attempts:  # it may have been given up meanwhile
                runner.launch(attempt)
        if runner.no_folder and self._mode is Mode.RUN:
            self._note(f"{os.uname().nodename}: {runner.no_folder}")
            self._change(Mode.DRAIN, f"not ready: {runner.no_folder}")
            self._exit = ends.EXIT_NOT_READY
        self._warm.update()
        if runner.stumbled is not None:
            error, runner.stumbled = runner.stumbled, None
            self._reach.fail(error)

    def _claim_more(self) -> bool:
        """Nobody that we hold fits: take others, as many as might."""
        wanted = self._runner.sharing.wanted(self._runner.free)
        held = len(self._queue.window(wanted))
        if held < wanted and self._claim(wanted - held):
            return True
        self._nobody_fits = bool(self._queue) or wanted == 0
        return False

    def _claim(self, free: int) -> bool:
        now = time.monotonic()
        idle, ended = not self._runner.attempts, self._runner.finished
        if not self._looks.should_claim(now, idle, ended) or self._is_outdated():
            return False
        self._look_at_job_end(now)
        self._looks.claim_failed(now)  # until it has not
        # How fast it goes now, not on the whole: the first trials may have waited for something.
        since, finished = self._last_claim
        rate_per_s = (self._runner.finished - finished) / max(now - since, 0.001)
        if not self._flush_journal():
            return False
        try:
            if self._runner.workplace is not None:
                self._runner.workplace.sync()  # ends must not be safer than outputs
            # A claim lets go of what is finished: everybody, on whatever machine, must be able to read that it is.
            self._journal.sync()
            interrupted = {*self._runner.handed_back, *self._unfinished}  # still ours: given back at the end
            busy = {*self._runner.busy, *interrupted, *rs.numbers(self._queue.rest())}
            taken = self._claimer.take(free, rate_per_s, busy)
            self._holding.lose(self._claimer.lost)
        except (DiskFull, OSError) as error:
            self._cannot_write(error)
            return False
        self._queue.push(taken)
        self._last_claim = (now, ended)
        self._looks.claimed(now, bool(taken), ended)
        return bool(taken)

    def _is_outdated(self) -> bool:
        """Whether the study has other code or settings than this agent; then it gives back what it has not begun."""
        if self._mode is not Mode.RUN or self.plan_watch is None:
            return False
        change = self.plan_watch.find_change()
        if change is None:
            return False
        self._change(Mode.DRAIN, change)
        self._note(change + NOTE)
        self._exit = ends.EXIT_DONE if self._limits.job else EXIT_OUTDATED
        self._let_go()
        return True

    def _let_go(self) -> None:
        """Give back what has not begun, so that others can take it."""
        try:
            self._journal.flush()
            self._journal.sync()
            interrupted = {*self._runner.handed_back, *self._unfinished}
            self._give_back(self._queue.rest(), {*self._runner.busy, *interrupted})
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
        if self._queue.rest():
            return True
        return self._waiting.may_continue(time.monotonic(), self._runner.tally.longest_s)

    def _wait_for_word(self) -> bool:
        """In a job, trials that did not end well: are we about to be told to end as well?"""
        if not self._limits.job or self._mode is Mode.STOP:
            return False
        now = time.monotonic()
        return any(
            attempt.cause is None and not attempt.warned and attempt.status and now - attempt.ended < _TOLD_S
            for attempt in self._runner.ended
        )

    # -- what happened

    def _handle(self, descriptor: int) -> None:
        if descriptor == self._wake:
            self._read_signals()
        elif self._runner.pipes.owns(descriptor):
            self._runner.pipes.read(descriptor)
            if self.companions is not None and self.companions.is_gone and self._mode is not Mode.STOP:
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
        """Tell the trials under way; those that are not done in time are handed back."""
        self._change(Mode.NEAR, "the end of the job's time is near")
        told = self._runner.stopping.warn_all(until - self._limits.reserve_s)
        self._note(f"the end is near: no more trials are begun here, {told} under way were told")

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
            if not self._runner.child_ended(pid, status, usage.ru_maxrss, cpu_s, self._reach.blocked_s):
                self._reach.replace_guard(pid)

    def _go_on_cold(self, loss: WarmLoss) -> None:
        """Start the trials of a warm interpreter anew without one, unless the study insists on it."""
        if loss.is_error:
            self._change(Mode.STOP, f"warm: {loss.reason}")
            self._exit = ends.EXIT_REFUSED
            print(f"windlass agent: warm start refused: {loss.reason}", file=sys.stderr)
            self._unfinished = sorted({attempt.trial.number for attempt in loss.waiting} | self._runner.unended)
            self._runner.abandon(loss.waiting)
            return
        for attempt in loss.waiting:
            self._runner.relaunch(attempt)

    def _note(self, text: str) -> None:
        self._journal.add({"e": "note", "t": round(time.time(), 3), "text": text})

    # -- writing

    def _flush(self, now: float) -> None:
        self._read_control(now)
        try:
            self._runner.output.flush(time.time())
            self._runner.curves.flush()
        except (DiskFull, OSError) as error:
            self._cannot_write(error)
        is_due, began = now >= self._next_beat, clock_s()
        if is_due:
            self._next_beat = now + (beat_s if self._runner.attempts else idle_beat_s)(self._limits.lease_s)
            self._journal.add({"e": "beat", "t": round(time.time(), 3), "live": self._runner.live()})
        if self._flush_journal() and is_due:
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
            self._note("the time of the job was cut: trials are begun only if they end before that")

    def _flush_journal(self) -> bool:
        try:
            self._journal.flush()
        except (DiskFull, OSError) as error:
            self._cannot_write(error)
            return False
        return True

    def _disk_full(self, error: DiskFull) -> None:
        if self._exit != ends.EXIT_FULL:
            print(f"windlass agent: no room left on the disk of {error}; no more trials are started", file=sys.stderr)
            self._change(Mode.DRAIN if self._mode is Mode.RUN else self._mode, "disk full")
            self._exit = ends.EXIT_FULL
            self._abandon_unlaunched()
        try:
            self._journal.flush_reserve()
        except (DiskFull, OSError):
            pass  # kept, and tried again at every turn and at the end

    def _cannot_write(self, error: Union[DiskFull, OSError]) -> None:
        """The disk is full; or the folder is out of reach, which `_attend` hears of, and anything else ends us."""
        if not isinstance(error, DiskFull):
            raise error
        self._disk_full(error)

    def _abandon_unlaunched(self) -> None:
        self._announced.clear()
        self._abandon([attempt for attempt in self._runner.attempts.values() if not attempt.launched])

    def _abandon(self, unlaunched: List[Attempt]) -> None:
        """These are given back at the end."""
        self._unfinished.extend(attempt.trial.number for attempt in unlaunched)
        self._runner.abandon(unlaunched)
