"""Runs trials in slots: starts them, reads what they print, limits their time, records how they ended. Python 3.9."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from windlass.agent.child import (
    NO_METRICS,
    Attempt,
    Spawner,
    Trial,
    cause_of,
    explain_start_error,
    fill_in,
    trial_variables,
)
from windlass.agent.config import AgentConfig, Slot
from windlass.agent.diagnose import refine_cause
from windlass.agent.metrics import Curve, Message, MetricBook, MetricsFile, OutputPatterns
from windlass.agent.output import OutputLog, Stream
from windlass.agent.outputs import keep_outputs
from windlass.agent.warming import Warming
from windlass.claims.alive import process_began
from windlass.claims.strays import end_strays
from windlass.journal.pieces import OURS, STDERR, STDOUT
from windlass.journal.write import JournalWriter
from windlass.paths import StudyPaths
from windlass.states import NEVER_RETRIED, Cause

_READ_BYTES = 1 << 16
_WATCH_AFTER_S = 0.005
_LEFTOVER_GRACE_S = 2.0
_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Runner:
    """The slots of one agent. Single-threaded; the loop tells it what happened."""

    def __init__(
        self,
        config: AgentConfig,
        paths: StudyPaths,
        agent: str,
        slots: List[Slot],
        base_env: Dict[str, str],
        journal: JournalWriter,
        poller: select.epoll,
        warming: Optional[Warming],
        runtime_folder: str,
    ) -> None:
        self._config = config
        self._paths = paths
        self._journal = journal
        self._poller = poller
        self._env = base_env
        self._runtime_folder = runtime_folder
        self.warming = warming
        self.free = list(reversed(slots))
        self.attempts: Dict[int, Attempt] = {}  # attempt number → attempt
        self.ended: List[Attempt] = []  # reaped, but not yet recorded
        self._by_pid: Dict[int, Attempt] = {}
        self._by_pipe: Dict[int, Attempt] = {}
        self._timed: Set[Attempt] = set()
        self._unwatched: Deque[Tuple[float, Attempt, int]] = deque()
        self._leftovers: Dict[int, float] = {}  # process group whose leader is gone → when it is killed
        self._spawner = Spawner(base_env)
        self._filled_in = [(name, value) for name, value in config.env.items() if "{" in value]
        self._patterns = OutputPatterns(config.metrics)
        self.output = OutputLog(paths.output_of(agent), paths.output_index_of(agent))
        self.curves = MetricsFile(paths.metrics_of(agent))
        self._count = 0
        self.finished = 0
        self.failed = 0
        self.retry: Callable[[Trial], None] = lambda trial: None

    @property
    def busy(self) -> Set[int]:
        """Trials that this agent is not finished with."""
        return {attempt.trial.number for attempt in self.attempts.values()}

    @property
    def unended(self) -> Set[int]:
        """Trials under way, without those that have ended and are only waiting to be recorded."""
        return self.busy - {attempt.trial.number for attempt in self.ended if not attempt.told}

    # -- starting

    def announce(self, trial: Trial) -> Attempt:
        """Journal that a trial begins, before it does. `launch` follows once the journal is flushed."""
        slot = self.free.pop()
        attempt = Attempt(trial, self._count, slot, time.monotonic(), time.time())
        self._count += 1
        self.attempts[attempt.attempt] = attempt
        self._journal.add_line(
            f'{{"e":"start","t":{attempt.started_wall:.3f},"i":{trial.number},"n":{attempt.attempt},"s":{slot.number}}}'
        )
        if self._config.timeout_s is not None:
            attempt.deadline = attempt.started + self._config.timeout_s
            self._timed.add(attempt)
        return attempt

    def launch(self, attempt: Attempt) -> None:
        attempt.launched = True
        trial = attempt.trial
        seed = trial.settings.get(self._config.seed_name)
        attempt.variables = trial_variables(trial, attempt.attempt, attempt.slot, seed)
        for name, value in self._filled_in:
            attempt.variables[os.fsencode(name)] = os.fsencode(_fill_value(value, trial.settings))
        self._launch_stage(attempt)

    def _launch_stage(self, attempt: Attempt) -> None:
        words = attempt.trial.stages[attempt.stage][1]
        if attempt.trial.node_words:
            words = fill_in(words, self._env, self._arguments_file(attempt, words))
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(out_read, False)
        os.set_blocking(err_read, False)
        attempt.ends = {out_read: STDOUT, err_read: STDERR}
        try:
            attempt.warm = self.warming is not None and self._launch_warm(attempt, words, out_write, err_write)
            if not attempt.warm:
                attempt.pid = self._spawner.spawn(words, attempt.variables, out_write, err_write)
                self._by_pid[attempt.pid] = attempt
            problem = None
        except (OSError, ValueError) as error:
            problem = error if isinstance(error, OSError) else OSError(0, str(error))
        os.close(out_write)
        os.close(err_write)
        if problem is None:
            self._unwatched.append((time.monotonic() + _WATCH_AFTER_S, attempt, attempt.stage))
            return
        code, text = explain_start_error(problem, words)
        self._say(attempt, text)
        attempt.status = code << 8
        self._stage_ended(attempt)

    def _launch_warm(self, attempt: Attempt, words: List[str], out: int, err: int) -> bool:
        """Have it started from a warm interpreter; False where that cannot be."""
        assert self.warming is not None
        own = {os.fsdecode(name): os.fsdecode(value) for name, value in attempt.variables.items()}
        env = {**self._env, **own}
        if not self.warming.takes(words, env):
            return False
        self.warming.spawn(attempt.attempt, words, env, out, err)
        return True

    def _arguments_file(self, attempt: Attempt, words: List[str]) -> str:
        path = os.path.join(self._runtime_folder, f"arguments-{attempt.slot.number}.json")
        if any("{args_json_file}" in word for word in words):
            with open(path, "wb") as file:
                file.write(attempt.trial.settings_json)
        return path

    def _say(self, attempt: Attempt, text: str) -> None:
        data = text.encode("utf-8", "replace") + b"\n"
        self.output.add(data, attempt.trial.number, attempt.attempt, OURS, time.time())

    # -- reading

    def watch(self, now: float) -> Optional[float]:
        """Begin to listen to attempts that have lived for a moment; returns when there will be more of them.

        Most of the cost of a trial that ends at once would otherwise be listening to it: its output is read anyway
        when it has ended.
        """
        while self._unwatched and self._unwatched[0][0] <= now:
            _, attempt, stage = self._unwatched.popleft()
            # Its pipes may be others by now: those of a later stage, or of a start that had to be made again.
            for pipe in attempt.ends if attempt.stage == stage else ():
                if pipe not in self._by_pipe:
                    self._by_pipe[pipe] = attempt
                    self._poller.register(pipe, select.EPOLLIN)
        return self._unwatched[0][0] if self._unwatched else None

    def owns(self, descriptor: int) -> bool:
        return descriptor in self._by_pipe

    def read_pipe(self, pipe: int) -> None:
        attempt = self._by_pipe.get(pipe)
        if attempt is None:
            return
        try:
            data = os.read(pipe, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._stream(attempt, attempt.ends[pipe]).feed(data, time.time())
        else:
            del attempt.ends[pipe]
            self._close_pipe(pipe)

    def _stream(self, attempt: Attempt, kind: int) -> Stream:
        """Made for the first byte: most trials have nothing to say on one of the two."""
        stream = attempt.streams.get(kind)
        if stream is None:
            reader = self._line_reader(attempt) if self._patterns else None
            limit = self._config.output_limit_bytes
            stream = Stream(self.output, attempt.trial.number, attempt.attempt, kind, limit, reader)
            attempt.streams[kind] = stream
        return stream

    def _close_pipe(self, pipe: int) -> None:
        self._by_pipe.pop(pipe, None)
        os.close(pipe)  # which also takes it out of the poller

    def _drain_pipes(self, attempt: Attempt) -> bool:
        """Read all that is there. True when something else still holds a pipe open."""
        held = False
        for pipe, kind in attempt.ends.items():
            try:
                while data := os.read(pipe, _READ_BYTES):
                    self._stream(attempt, kind).feed(data, time.time())
            except BlockingIOError:
                held = True
            self._close_pipe(pipe)
        attempt.ends = {}
        return held

    def _line_reader(self, attempt: Attempt) -> Callable[[bytes], None]:
        def read(line: bytes) -> None:
            found, step = self._patterns.read(line)
            fresh = {
                name: value
                for name, value in found.items()
                if not attempt.book.logged or name not in attempt.book.values
            }
            if fresh:
                self._record(attempt, time.time(), step, fresh)

        return read

    def deliver(self, message: Message) -> None:
        """A message of windlass.log has come."""
        number, attempt_number, when, step, values = message
        attempt = self.attempts.get(attempt_number)
        if attempt is not None and attempt.trial.number == number:
            self._book(attempt).logged = True
            self._record(attempt, when, step, values)

    def _book(self, attempt: Attempt) -> MetricBook:
        if attempt.book is NO_METRICS:
            attempt.book = MetricBook()
        return attempt.book

    def _record(self, attempt: Attempt, when: float, step: Optional[float], values: Dict[str, float]) -> None:
        book = self._book(attempt)
        if step is not None:
            book.step = step
        for name, value in values.items():
            book.add(name, value)
            if name == self._config.metric and not abs(value) < float("inf"):
                self._not_a_number(attempt, name, value)
        if attempt.curve is None:
            attempt.curve = Curve()
        if values and attempt.curve.keep(when):
            self.curves.add(attempt.trial.number, attempt.attempt, when, step, values)

    def _not_a_number(self, attempt: Attempt, name: str, value: float) -> None:
        at_step = "" if attempt.book.step is None else f" at step {attempt.book.step:g}"
        attempt.note = attempt.note or f"{name} became {value}{at_step}"
        if self._config.stop_on_nan and attempt.cause is None:
            self.stop(attempt, Cause.DIVERGED)

    # -- ending

    def stop(self, attempt: Attempt, cause: Cause) -> None:
        """Ask an attempt to end; it is killed if it does not."""
        if attempt.cause is None:
            attempt.cause = cause
        if attempt.kill_at is None:
            attempt.send(signal.SIGTERM)
            attempt.send(signal.SIGCONT)
            attempt.kill_at = time.monotonic() + self._config.grace_s
            self._timed.add(attempt)

    def stop_all(self, cause: Cause, kill: bool = False) -> None:
        for attempt in [attempt for attempt in self.attempts.values() if attempt not in self.ended]:
            self.stop(attempt, cause)
            if kill:
                attempt.send(signal.SIGKILL)

    def blame_us(self) -> None:
        """Attempts that ended badly a moment before we were told to end: the same word reached both."""
        for attempt in self.ended:
            if attempt.cause is None and attempt.status:
                attempt.cause = Cause.STOPPED
                attempt.told = True

    def check_limits(self, now: float) -> Optional[float]:
        """Enforce time limits and graces; returns when to look again."""
        if not self._timed and not self._leftovers:
            return None
        for attempt in list(self._timed):
            if attempt.kill_at is not None and now >= attempt.kill_at:
                attempt.send(signal.SIGKILL)
                attempt.kill_at = now + 1.0
            elif attempt.kill_at is None and attempt.deadline is not None and now >= attempt.deadline:
                self.stop(attempt, Cause.TIME)
        for group, kill_at in list(self._leftovers.items()):
            if now >= kill_at:
                del self._leftovers[group]
                _kill_group(group, signal.SIGKILL)
        times = [a.kill_at if a.kill_at is not None else a.deadline for a in self._timed]
        return min((when for when in (*times, *self._leftovers.values()) if when is not None), default=None)

    def child_ended(self, pid: int, status: int, rss_kb: float, cpu_s: float) -> bool:
        """A process was reaped; False when it is none of ours."""
        attempt = self._by_pid.pop(pid, None)
        if attempt is None:
            return False
        self._process_ended(attempt, status, rss_kb, cpu_s)
        return True

    def warm_started(self, token: int, pid: int) -> None:
        attempt = self.attempts.get(token)
        if attempt is not None:
            attempt.pid = pid
            if attempt.cause is not None:
                attempt.send(signal.SIGTERM)

    def warm_ended(self, token: int, status: int, rss_kb: float, cpu_s: float) -> None:
        attempt = self.attempts.get(token)
        if attempt is not None:
            self._process_ended(attempt, status, rss_kb, cpu_s)

    def warm_lost(self) -> List[Attempt]:
        """The warm server is gone, and with it the news of its trials: they are ended and returned, to start cold."""
        waiting = [attempt for attempt in self.attempts.values() if attempt.warm and attempt not in self.ended]
        for attempt in waiting:
            attempt.send(signal.SIGKILL)
            while attempt.pid and process_began(attempt.pid) is not None:
                time.sleep(0.005)
            self._drain_pipes(attempt)
            attempt.pid = 0
        return waiting

    def relaunch(self, attempt: Attempt) -> None:
        self._launch_stage(attempt)

    def abandon(self, attempts: List[Attempt]) -> None:
        """Forget attempts that never became a process; their trials are given back by the loop."""
        for attempt in attempts:
            self._timed.discard(attempt)
            del self.attempts[attempt.attempt]
            self.free.append(attempt.slot)

    def _process_ended(self, attempt: Attempt, status: int, rss_kb: float, cpu_s: float) -> None:
        attempt.status = status
        attempt.rss_mb = max(attempt.rss_mb, rss_kb / 1024)
        attempt.cpu_s += cpu_s
        group = attempt.pid
        # Whatever the trial left in its process group ends with it.
        if _kill_group(group, signal.SIGTERM):
            self._leftovers[group] = time.monotonic() + _LEFTOVER_GRACE_S
            _kill_group(group, signal.SIGCONT)
        self._stage_ended(attempt)

    def _stage_ended(self, attempt: Attempt) -> None:
        """Go on with the next stage, or free the slot. The books are done later, when the slot is busy again."""
        attempt.ended = time.monotonic()
        last = attempt.stage + 1 == len(attempt.trial.stages)
        if attempt.status == 0 and attempt.cause is None and not last:
            self._close_stage(attempt)
            attempt.stage += 1
            self._launch_stage(attempt)
            return
        self.free.append(attempt.slot)
        self.ended.append(attempt)

    def _close_stage(self, attempt: Attempt) -> None:
        if self._drain_pipes(attempt) and attempt.pid not in self._leftovers:
            # Somebody outside the process group still holds the pipe: a process that went its own way.
            end_strays("WINDLASS_TRIAL", attempt.trial.id)
        attempt.pid = 0

    def finish_ended(self) -> None:
        """Record the attempts that have ended."""
        for attempt in self.ended:
            self._close_stage(attempt)
            self._finish(attempt)
        self.ended.clear()

    def _finish(self, attempt: Attempt) -> None:
        cause, code, number = cause_of(attempt.status)
        if attempt.cause is not None:
            cause = attempt.cause  # also when it then ended with 0: it was told to stop before it was done
        elif cause in (Cause.FAILED, Cause.KILLED):
            cause = refine_cause(cause, number, [stream.tail() for stream in attempt.streams.values()])
        if self._config.outputs:
            attempt.note = keep_outputs(self._config, self._paths, attempt.trial) or attempt.note
        for stream in attempt.streams.values():
            stream.finish(time.time())
        self._journal.add_line(self._end_line(attempt, cause, code, number))
        self._timed.discard(attempt)
        del self.attempts[attempt.attempt]
        self.finished += 1
        if cause is not Cause.DONE:
            self._after_failure(attempt, cause)

    def _after_failure(self, attempt: Attempt, cause: Cause) -> None:
        trial = attempt.trial
        trial.tried[cause.value] = trial.tried.get(cause.value, 0) + 1
        allowed = self._config.retries.get(cause.value)
        used = trial.tried[cause.value]
        if allowed is None:
            allowed, used = self._config.retries.get("any", 0), sum(trial.tried.values())
        if used <= allowed and cause not in NEVER_RETRIED:
            self._journal.add({"e": "again", "t": round(time.time(), 3), "i": trial.number, "n": attempt.attempt})
            self.retry(trial)
        else:
            self.failed += 1

    def _end_line(self, attempt: Attempt, cause: Cause, code: int, number: int) -> str:
        """The journal's line, written out by hand: this is the busiest place of all."""
        wall, duration_s = attempt.started_wall, attempt.ended - attempt.started
        line = (
            f'{{"e":"end","t":{wall + duration_s:.3f},"i":{attempt.trial.number},"n":{attempt.attempt},'
            f'"cause":"{cause.value}","code":{code},"start":{wall:.3f},"dur":{duration_s:.4f},'
            f'"cpu_s":{attempt.cpu_s:.3f},"rss_mb":{attempt.rss_mb:.1f}'
        )
        more: Dict[str, Any] = {}
        if number:
            more["sig"] = number
        if attempt.streams:
            more["out"] = sum(stream.total_bytes for stream in attempt.streams.values())
        if attempt.book.values:
            more["m"] = attempt.book.to_json()
        if attempt.book.step is not None:
            more["step"] = attempt.book.step
        if len(attempt.trial.stages) > 1:
            more["stage"] = attempt.trial.stages[attempt.stage][0]
        if attempt.note:
            more["note"] = attempt.note
        return f"{line},{_compact(more)[1:]}" if more else line + "}"

    def live(self) -> Dict[str, Any]:
        """Metrics of the attempts under way, for the beat."""
        return {
            str(attempt.trial.number): {"step": attempt.book.step, "m": attempt.book.to_json()}
            for attempt in self.attempts.values()
            if attempt.book.values
        }

    def close(self) -> None:
        for group in self._leftovers:
            _kill_group(group, signal.SIGKILL)
        self.output.flush(time.time(), force=True)
        self.curves.flush()
        self.output.close()
        self.curves.close()


def _kill_group(group: int, number: int) -> bool:
    """Whether there was anybody in the group."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def _fill_value(text: str, settings: Dict[str, Any]) -> str:
    for name, value in settings.items():
        text = text.replace("{" + name + "}", value if isinstance(value, str) else _compact(value))
    return text
