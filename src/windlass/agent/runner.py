"""Runs trials in slots: starts them, reads what they print, limits their time, records how they ended. Python 3.9."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Set

from windlass.agent.child import NOT_EXECUTABLE, Attempt, Trial
from windlass.agent.config import Slot
from windlass.agent.interrupt import Notice
from windlass.agent.keep.checkpoint import Checkpoints
from windlass.agent.keep.nan_files import NanFiles
from windlass.agent.keep.trial_files import TrialFiles
from windlass.agent.node.companions import Companions
from windlass.agent.parts import Equipment, Shared
from windlass.agent.report.listen import Listener
from windlass.agent.report.metrics import Message, MessageReader, MetricsFile
from windlass.agent.report.output import OutputLog
from windlass.agent.report.pipes import Pipes
from windlass.agent.report.record import render_end, render_start
from windlass.agent.report.tally import Tally
from windlass.agent.share.sharing import Sharing
from windlass.agent.starter import Starter
from windlass.agent.stopping import Stopping
from windlass.agent.verdict import Sessions
from windlass.core.claims import ranges as rs
from windlass.core.claims.alive import process_began
from windlass.core.claims.ranges import Ranges
from windlass.core.claims.strays import end_strays
from windlass.core.journal.pieces import OURS
from windlass.core.passing import passing_error
from windlass.core.states import NEVER_RETRIED, STATE_OF, Cause, State

_MOST_STUMBLES = 5  # starts of one trial that the file system prevented; the next one is a failure


class Runner:
    """The slots of one agent. Single-threaded; the loop tells it what happened."""

    def __init__(self, shared: Shared, equipment: Equipment) -> None:
        config, paths, agent, limits = shared.config, shared.paths, shared.agent, shared.limits
        slots, base_env, runtime_folder = equipment.slots, equipment.env, equipment.runtime_folder
        self._config = config
        self.gauges = equipment.gauges
        self._page = equipment.page
        self._journal = shared.journal
        self._notice = Notice(runtime_folder)
        self.attempts: Dict[int, Attempt] = {}  # attempt number → attempt
        self.ended: List[Attempt] = []  # reaped, but not yet recorded
        self.stopping = Stopping(config, limits, agent, self._notice, self.attempts, self.ended)
        notice = {
            "WINDLASS_STOP_SIGNAL": str(self.stopping.signal_number),
            **self._notice.variables(),
        }
        self._env = {**base_env, **limits.variables(), **notice}
        self._limits = limits
        self._checkpoints = Checkpoints(config, paths, self._env)
        self._sessions = Sessions(config, self._checkpoints, limits.job_time_s)
        self._files = TrialFiles(config, runtime_folder, self._env)
        self.warming = equipment.warming
        self.free = list(reversed(slots))
        self.sharing = Sharing(config, slots, agent, runtime_folder, base_env, self._note)
        self._by_pid: Dict[int, Attempt] = {}
        self.output = OutputLog(paths.output_of(agent), paths.output_index_of(agent))
        self.curves = MetricsFile(paths.metrics_of(agent))
        self._listener = Listener(
            config,
            self.curves,
            self.gauges,
            lambda attempt: self.stopping.stop(attempt, Cause.DIVERGED),
        )
        self._listener.note = self._note
        self.pipes = Pipes(shared.poller, self.output, self._listener, config.output_limit_bytes)
        self._nan_files = (
            NanFiles(self._env, self._checkpoints, config, len(slots)) if config.watch_nan else None
        )
        self._starter = Starter(
            config, self._env, self._limits, equipment, self._checkpoints, self._files, self.pipes
        )
        self.workplace = equipment.workplace  # None: trials are executed in the project itself
        # Why a trial could not be started, where the error may pass; the loop takes it and waits.
        self.stumbled: Optional[OSError] = None
        self.no_folder = ""  # why a trial could not be given a working folder
        self._count = self.finished = 0
        self.tally = Tally()
        # Trials that were interrupted here. Any agent may take them once this one has ended.
        self.handed_back: Set[int] = set()
        # Whether this agent begins more attempts; False once it drains or stops.
        self.taking = True
        # Whether the lease is proven, so that no other agent can have taken the trials of this one.
        self.may_begin: Callable[[], bool] = lambda: True
        self.retry: Callable[[Trial], None] = lambda trial: None
        self._others: Optional[Companions] = None

    @property
    def busy(self) -> Set[int]:
        """Trials that this agent is not finished with."""
        return {attempt.trial.number for attempt in self.attempts.values()}

    @property
    def unended(self) -> Set[int]:
        """Trials under way, without those that have ended and are only waiting to be recorded."""
        return self.busy - {attempt.trial.number for attempt in self.ended}

    def join(self, others: Companions) -> None:
        """Trials of this agent have processes on other nodes of the job as well."""
        self._others = self._files.others = self.stopping.others = others
        self._starter.placing.others = others
        self.gauges.spread = others.measure
        self._notice.spread = lambda text: others.tell("notice", until=text)
        others.deliver = MessageReader(self.deliver, self.deliver_report).feed
        self.pipes.adopt(others.fileno(), others.read)

    # -- starting

    def announce(self, trial: Trial, slot: Optional[Slot] = None) -> Attempt:
        """Journal that a trial begins, before it does. `launch` follows once the journal is flushed."""
        slot = slot or self.free[-1]
        self.free.remove(slot)
        attempt = Attempt(trial, self._count, slot, time.monotonic(), time.time())
        self._count += 1
        self.tally.begun(trial.number)
        self.attempts[attempt.attempt] = attempt
        self.sharing.begin(attempt)
        self._sessions.kills.begin(attempt.attempt, attempt.started)
        self._journal.add_line(render_start(attempt))
        if self._config.timeout_s is not None:
            attempt.deadline = attempt.started + self._config.timeout_s
            self.stopping.limit(attempt)
        return attempt

    def forget_progress(self, trial: Trial) -> None:
        """Its next attempt begins at the beginning."""
        self._checkpoints.forget(trial)

    def environment(self, slot: Slot) -> Dict[str, str]:
        """What a trial in this slot would get, but for what is the trial's own."""
        own = {} if slot.gpus is None else {"CUDA_VISIBLE_DEVICES": slot.gpus}
        own.update(
            (os.fsdecode(name), os.fsdecode(value)) for name, value in slot.variables.items()
        )
        return {**self._env, **own}

    def launch(self, attempt: Attempt) -> None:
        """Start an attempt that `announce` has journalled. One that cannot be started ends at once, with a cause."""
        attempt.launched = True
        self._starter.set_variables(attempt)
        if not self._enter_folder(attempt):
            return
        if self._nan_files is not None:
            self._nan_files.begin(attempt)
        if self._begin_session(attempt):
            self._launch_stage(attempt)

    def _enter_folder(self, attempt: Attempt, again: bool = False) -> bool:
        """Give it a working folder. Where the node cannot, the trial is handed back, and no other begins here."""
        if self.workplace is None:
            return True
        try:
            if again:
                self.workplace.start_again(attempt)
            else:
                self.workplace.enter(attempt)
            return True
        except OSError as error:
            if self._stumble(attempt, error):
                self._stage_ended(attempt)
                return False
            self.no_folder = (
                f"a working folder could not be made: {error.strerror or error}: {error.filename}"
            )
            attempt.cause, attempt.note = Cause.STAGE_IN, self.no_folder
            self._stage_ended(attempt)
            return False

    def _begin_session(self, attempt: Attempt) -> bool:
        """False where there is nothing to start."""

        def note(text: str) -> None:
            attempt.note = attempt.note or text
            self._journal.add(
                {"e": "note", "t": round(time.time(), 3), "i": attempt.trial.number, "text": text}
            )

        try:
            if self._sessions.begin(attempt, note):
                return True
            attempt.stage = len(attempt.trial.stages) - 1
        except OSError as error:
            text = f"windlass: checkpoints: {error.filename}: {error.strerror}"
            self._not_started(attempt, NOT_EXECUTABLE, text, error)
            return False
        self._stage_ended(attempt)
        return False

    def _launch_stage(self, attempt: Attempt) -> None:
        if not self.may_begin():
            attempt.cause = attempt.cause or Cause.FOLDER
            self._stage_ended(attempt)
            return
        attempt.begin_stage()
        problem = self._starter.start(attempt)
        if problem is not None:
            self._not_started(attempt, problem.code, problem.text, problem.error)
            return
        if not attempt.warm:
            self._by_pid[attempt.pid] = attempt
            self._page.begin(attempt.slot.number, attempt.pid)
        self.pipes.expect(attempt)
        if (
            not attempt.warm
        ):  # A warm start is gauged once its process is known, see `warm_started`.
            self.gauges.begin(attempt)

    def _not_started(
        self, attempt: Attempt, code: int, text: str, error: Optional[OSError] = None
    ) -> None:
        if error is not None:
            self._stumble(attempt, error)
        self._say(attempt, text)
        attempt.status = code << 8
        self._stage_ended(attempt)

    def _stumble(self, attempt: Attempt, error: OSError) -> bool:
        """Whether it could not be started because of an error that may pass: not the trial's fault, it begins again."""
        attempt.trial.stumbles += 1
        if passing_error(error) is None or attempt.trial.stumbles > _MOST_STUMBLES:
            return False
        attempt.cause = attempt.cause or Cause.FOLDER
        self.stumbled = error
        return True

    def _note(self, text: str) -> None:
        self._journal.add({"e": "note", "t": round(time.time(), 3), "text": text})

    def _say(self, attempt: Attempt, text: str) -> None:
        attempt.why = text
        data = text.encode("utf-8", "replace") + b"\n"
        self.output.add(data, attempt.trial.number, attempt.attempt, OURS, time.time())

    # -- hearing

    def deliver(self, message: Message) -> None:
        """A message of windlass.log has come."""
        attempt = self.attempts.get(message[1])
        if attempt is not None and attempt.trial.number == message[0]:
            self._listener.take_logged(attempt, message)

    def deliver_report(self, reported: Dict[str, Any]) -> None:
        """Something that is no metric: from windlass.log, or from the framework inside a trial."""
        attempt = self.attempts.get(reported.get("attempt", -1))
        if attempt is not None and attempt.ranks is not None and "rank" in reported:
            attempt.ranks.take(reported)
            self.stopping.watch_ranks(attempt)
        elif attempt is not None:
            self._listener.take_report(attempt, reported)

    # -- ending

    def lose(self, lost: Ranges, since: float) -> int:
        """Other agents have had these trials since then: stop their attempts. Returns how many had begun."""
        begun = [
            attempt for attempt in self.attempts.values() if rs.contains(lost, attempt.trial.number)
        ]
        self.abandon([attempt for attempt in begun if not attempt.launched])
        for attempt in begun:
            attempt.lost_at = since
            if attempt not in self.ended and attempt.launched:
                self.stopping.stop(attempt, Cause.TAKEN, 0.0)
        return len(begun)

    def child_ended(
        self, pid: int, status: int, rss_kb: float, cpu_s: float, unseen_s: float = 0.0
    ) -> bool:
        """A process was reaped, up to `unseen_s` after its end; False when it is none of ours."""
        attempt = self._by_pid.pop(pid, None)
        if attempt is None:
            return False
        self._process_ended(attempt, status, rss_kb, cpu_s, unseen_s)
        return True

    def warm_started(self, token: int, pid: int) -> None:
        attempt = self.attempts.get(token)
        if attempt is not None:
            attempt.pid = pid
            self._page.begin(attempt.slot.number, pid)
            self.gauges.begin(attempt)
            if attempt.signal_number:
                attempt.send(attempt.signal_number)

    def warm_ended(self, token: int, status: int, rss_kb: float, cpu_s: float) -> None:
        attempt = self.attempts.get(token)
        if attempt is not None:
            self._process_ended(attempt, status, rss_kb, cpu_s)

    def warm_lost(self) -> List[Attempt]:
        """The warm server is gone, and with it the news of its trials: they are ended and returned, to start cold.

        Those that the guard has ended are not among them: the folder was out of reach.
        """
        waiting = [
            attempt
            for attempt in self.attempts.values()
            if attempt.warm and attempt not in self.ended
        ]
        for attempt in waiting:
            attempt.send(signal.SIGKILL)
            while attempt.pid and process_began(attempt.pid) is not None:
                time.sleep(0.005)
            self.pipes.drain(attempt)
            if self._page.end(attempt.slot.number, attempt.pid).is_fenced:
                attempt.cause = attempt.cause or Cause.FOLDER
                attempt.status = signal.SIGKILL
                self._stage_ended(attempt)
            attempt.pid = 0
        return [attempt for attempt in waiting if attempt not in self.ended]

    def relaunch(self, attempt: Attempt) -> None:
        """Start it again, from the beginning of its stage; of the first, in a folder as it was."""
        if attempt.stage > 0 or self._enter_folder(attempt, again=True):
            self._launch_stage(attempt)

    def abandon(self, attempts: List[Attempt]) -> None:
        """Forget attempts that never became a process; their trials are given back by the loop."""
        for attempt in attempts:
            self.stopping.forget(attempt)
            del self.attempts[attempt.attempt]
            self.free.append(attempt.slot)
            self.sharing.abandon(attempt)

    def _process_ended(
        self, attempt: Attempt, status: int, rss_kb: float, cpu_s: float, unseen_s: float = 0.0
    ) -> None:
        attempt.status = status
        seen = self._page.end(attempt.slot.number, attempt.pid)
        if seen.is_fenced:
            attempt.cause = attempt.cause or Cause.FOLDER
        attempt.note_end(seen.when, unseen_s)
        self._sessions.kills.ended(attempt.attempt, attempt.pid, status)
        attempt.rss_mb = max(attempt.rss_mb, rss_kb / 1024)
        attempt.cpu_s += cpu_s
        self.stopping.end_group(attempt)
        self._stage_ended(attempt)

    def _stage_ended(self, attempt: Attempt) -> None:
        """Go on with the next stage, or free the slot. The books are done later, when the slot is busy again."""
        attempt.end_stage()
        last = attempt.stage + 1 == len(attempt.trial.stages)
        if attempt.status == 0 and attempt.cause is None and not attempt.warned and not last:
            self._close_stage(attempt)
            attempt.stage += 1
            self._launch_stage(attempt)
            return
        self.stopping.forget(attempt)
        self.gauges.end(attempt)
        self.sharing.release(attempt)
        self.ended.append(attempt)
        if self.workplace is None and self._nan_files is None:
            self.free.append(attempt.slot)

    def _close_stage(self, attempt: Attempt) -> None:
        if self.pipes.drain(attempt) and not self.stopping.has_leftovers(attempt.pid):
            # Somebody outside the process group still holds the pipe: a process that went its own way.
            end_strays("WINDLASS_TRIAL", attempt.trial.id)
        attempt.pid = 0

    def finish_ended(self) -> None:
        """Record the attempts that have ended."""
        for attempt in list(self.ended):
            self._close_stage(attempt)
            if self._others is not None and not self._others.is_over(attempt.attempt):
                continue  # what it reported on other nodes is on its way
            if self._nan_files is not None and not self._nan_files.looked_through(attempt):
                continue  # its files are being read: ask again at the next step
            if self.workplace is not None and not self.workplace.is_cleared(attempt):
                continue  # large files are being copied: ask again at the next step
            self._finish(attempt)
            if self.workplace is not None or self._nan_files is not None:
                # Only now: the next trial of the slot works in the same folder.
                self.free.append(attempt.slot)

    def _finish(self, attempt: Attempt) -> None:
        cause, code, number = self._sessions.judge(attempt)
        is_port_taken = cause is Cause.FAILED and self._starter.placing.met_taken_port(attempt)
        self._starter.placing.release(attempt)
        if cause is Cause.STOPPED and self.stopping.end_cause is not None:
            cause = self.stopping.end_cause.find()
        # Whatever fails from here on must not have it recorded twice.
        self.ended.remove(attempt)
        cause, for_free = self.sharing.judge(attempt, cause)
        if is_port_taken and attempt.trial.stumbles < _MOST_STUMBLES:
            attempt.trial.stumbles += 1
            for_free, attempt.note = True, f"{attempt.note}; its port was taken, it gets another"
        self._sessions.kills.forget(attempt.attempt)
        for stream in attempt.streams.values():
            stream.finish(time.time())
        self._journal.add_line(render_end(attempt, cause, code, number))
        self.tally.ended(attempt, cause, code, number)
        attempt.cause = cause
        self.stopping.forget(attempt)
        del self.attempts[attempt.attempt]
        self.finished += 1
        if cause is Cause.DONE:
            if self._checkpoints.configured or attempt.trial.sessions:
                with contextlib.suppress(OSError):  # they take room, and do no harm
                    self._checkpoints.prune(attempt.trial)
        elif STATE_OF[cause] is State.INTERRUPTED:
            self._after_interruption(attempt, cause)
        elif for_free:
            self._try_again(attempt)
        else:
            self._after_failure(attempt, cause)

    def _after_interruption(self, attempt: Attempt, cause: Cause) -> None:
        if attempt.lost_at is not None:
            return  # another agent has it
        if cause is Cause.FOLDER:
            self._try_again(attempt)  # here, or wherever the rest of the queue is given to
        elif cause in (Cause.AGAIN, Cause.NEIGHBOUR) and self.taking:
            self._try_again(attempt)
        else:
            self.handed_back.add(attempt.trial.number)

    def _try_again(self, attempt: Attempt) -> None:
        number = attempt.trial.number
        self._journal.add(
            {"e": "again", "t": round(time.time(), 3), "i": number, "n": attempt.attempt}
        )
        self.retry(attempt.trial)

    def _after_failure(self, attempt: Attempt, cause: Cause) -> None:
        trial = attempt.trial
        trial.tried[cause.value] = trial.tried.get(cause.value, 0) + 1
        allowed = self._config.retries.get(cause.value)
        used = trial.tried[cause.value]
        if allowed is None:
            allowed, used = self._config.retries.get("any", 0), sum(trial.tried.values())
        if used <= allowed and cause not in NEVER_RETRIED:
            self._try_again(attempt)
        elif cause is not Cause.CANCELLED:  # which is what the user wanted
            self.tally.failed_for_good(attempt, cause)

    def live(self) -> Dict[str, Any]:
        """Metrics, progress and use of the attempts under way, for the beat."""
        reported: Dict[str, Any] = {}
        for attempt in self.attempts.values():
            one: Dict[str, Any] = attempt.gauge.live() if attempt.gauge is not None else {}
            if attempt.book:
                one.update(step=attempt.book.step, m=attempt.book.to_json())
            if one:
                reported[str(attempt.trial.number)] = one
        return reported

    def close(self) -> None:
        self.stopping.kill_leftovers()
        if self.workplace is not None:
            for text in self.workplace.close():
                self._note(text)
        self.output.flush(time.time(), force=True)
        self.curves.flush()
        self.output.close()
        self.curves.close()
