"""Runs trials in slots: starts them, reads what they print, limits their time, records how they ended. Python 3.9."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from windlass.agent.child import (
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
from windlass.agent.metrics import Message, MetricsFile, OutputPatterns
from windlass.agent.output import OutputLog, Stream
from windlass.agent.outputs import keep_outputs
from windlass.agent.warming import Warming
from windlass.claims.strays import end_strays
from windlass.journal.pieces import OURS, STDERR, STDOUT
from windlass.journal.write import JournalWriter
from windlass.paths import StudyPaths
from windlass.states import NEVER_RETRIED, Cause

_READ_BYTES = 1 << 16
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
        self._by_pid: Dict[int, Attempt] = {}
        self._by_pipe: Dict[int, Attempt] = {}
        self._timed: Set[Attempt] = set()
        self._leftovers: Dict[int, float] = {}  # process group whose leader is gone → when it is killed
        self._spawner = Spawner()
        self._patterns = OutputPatterns(config.metrics)
        self.output = OutputLog(paths.output_of(agent), paths.output_index_of(agent))
        self.curves = MetricsFile(paths.metrics_of(agent))
        self._count = 0
        self.finished = 0
        self.failed = 0
        self.retry: Callable[[Trial], None] = lambda trial: None

    @property
    def busy(self) -> Set[int]:
        return {attempt.trial.number for attempt in self.attempts.values()}

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
        trial = attempt.trial
        seed = trial.settings.get(self._config.seed_name)
        variables = trial_variables(trial, attempt.attempt, attempt.slot, _compact(trial.settings), seed)
        attempt.env = {**self._env, **variables}
        for name, value in self._config.env.items():
            if "{" in value:
                attempt.env[name] = _fill_value(value, trial.settings)
        self._launch_stage(attempt)

    def _launch_stage(self, attempt: Attempt) -> None:
        words = attempt.trial.stages[attempt.stage][1]
        if any("{" in word for word in words):
            words = fill_in(words, attempt.env, self._arguments_file(attempt, words))
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        for pipe, kind in ((out_read, STDOUT), (err_read, STDERR)):
            os.set_blocking(pipe, False)
            reader = self._line_reader(attempt) if self._patterns else None
            trial_number, limit = attempt.trial.number, self._config.output_limit_bytes
            stream = Stream(self.output, trial_number, attempt.attempt, kind, limit, reader)
            attempt.ends[pipe] = stream
            attempt.streams.append(stream)
            self._by_pipe[pipe] = attempt
            self._poller.register(pipe, select.EPOLLIN)
        try:
            if self.warming is not None and self.warming.takes(words, attempt.env):
                attempt.warm = True
                self.warming.spawn(attempt.attempt, words, attempt.env, out_write, err_write)
            else:
                attempt.warm = False
                attempt.pid = self._spawner.spawn(words, attempt.env, out_write, err_write)
                self._by_pid[attempt.pid] = attempt
        except (OSError, ValueError) as error:
            os_error = error if isinstance(error, OSError) else OSError(0, str(error))
            code, text = explain_start_error(os_error, words)
            self._say(attempt, text)
            attempt.status = code << 8
            self._stage_ended(attempt)
        finally:
            os.close(out_write)
            os.close(err_write)

    def _arguments_file(self, attempt: Attempt, words: List[str]) -> str:
        path = os.path.join(self._runtime_folder, f"arguments-{attempt.slot.number}.json")
        if any("{args_json_file}" in word for word in words):
            with open(path, "w", encoding="utf-8") as file:
                file.write(_compact(attempt.trial.settings))
        return path

    def _say(self, attempt: Attempt, text: str) -> None:
        data = text.encode("utf-8", "replace") + b"\n"
        self.output.add(data, attempt.trial.number, attempt.attempt, OURS, time.time())

    # -- reading

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
            attempt.ends[pipe].feed(data, time.time())
        else:
            self._close_pipe(attempt, pipe)

    def _close_pipe(self, attempt: Attempt, pipe: int) -> None:
        attempt.ends.pop(pipe).finish(time.time())
        del self._by_pipe[pipe]
        os.close(pipe)  # which also takes it out of the poller

    def _drain_pipes(self, attempt: Attempt) -> bool:
        """Read all that is there. True when something else still holds a pipe open."""
        held = False
        for pipe in list(attempt.ends):
            stream = attempt.ends[pipe]
            try:
                while data := os.read(pipe, _READ_BYTES):
                    stream.feed(data, time.time())
            except BlockingIOError:
                held = True
            self._close_pipe(attempt, pipe)
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
            attempt.book.logged = True
            self._record(attempt, when, step, values)

    def _record(self, attempt: Attempt, when: float, step: Optional[float], values: Dict[str, float]) -> None:
        book = attempt.book
        if step is not None:
            book.step = step
        for name, value in values.items():
            book.add(name, value)
            if name == self._config.metric and not abs(value) < float("inf"):
                self._not_a_number(attempt, name, value)
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
        for attempt in list(self.attempts.values()):
            self.stop(attempt, cause)
            if kill:
                attempt.send(signal.SIGKILL)

    def check_limits(self, now: float) -> Optional[float]:
        """Enforce time limits and graces; returns when to look again."""
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
        """The warm server is gone; what it was asked to start but had not is returned, to be started cold."""
        waiting = []
        for attempt in list(self.attempts.values()):
            if not attempt.warm:
                continue
            if attempt.pid:
                attempt.send(signal.SIGKILL)
                self._process_ended(attempt, signal.SIGKILL, 0.0, 0.0)
            else:
                self._drain_pipes(attempt)
                waiting.append(attempt)
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
        if self._drain_pipes(attempt) and attempt.pid not in self._leftovers:
            # Somebody outside the process group still holds the pipe: a process that went its own way.
            end_strays("WINDLASS_TRIAL", attempt.trial.id)
        attempt.pid = 0
        last = attempt.stage + 1 == len(attempt.trial.stages)
        if attempt.status == 0 and attempt.cause is None and not last:
            attempt.stage += 1
            self._launch_stage(attempt)
            return
        self._finish(attempt)

    def _finish(self, attempt: Attempt) -> None:
        cause, code, number = cause_of(attempt.status)
        if attempt.cause is not None:
            cause = attempt.cause  # also when it then ended with 0: it was told to stop before it was done
        elif cause in (Cause.FAILED, Cause.KILLED):
            cause = refine_cause(cause, number, [stream.tail() for stream in attempt.streams])
        if self._config.outputs:
            attempt.note = keep_outputs(self._config, self._paths, attempt.trial) or attempt.note
        self._journal.add_line(_compact(self._end_event(attempt, cause, code, number)))
        self._timed.discard(attempt)
        del self.attempts[attempt.attempt]
        self.free.append(attempt.slot)
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

    def _end_event(self, attempt: Attempt, cause: Cause, code: int, number: int) -> Dict[str, Any]:
        duration_s = time.monotonic() - attempt.started
        event: Dict[str, Any] = {
            "e": "end",
            "t": round(attempt.started_wall + duration_s, 3),
            "i": attempt.trial.number,
            "n": attempt.attempt,
            "cause": cause.value,
            "code": code,
            "start": round(attempt.started_wall, 3),
            "dur": round(duration_s, 4),
            "cpu_s": round(attempt.cpu_s, 3),
            "rss_mb": round(attempt.rss_mb, 1),
        }
        optional: Tuple[Tuple[str, Any], ...] = (
            ("sig", number),
            ("out", sum(stream.total_bytes for stream in attempt.streams)),
            ("m", attempt.book.to_json()),
            ("note", attempt.note),
        )
        event.update((key, value) for key, value in optional if value)
        if attempt.book.step is not None:
            event["step"] = attempt.book.step
        if len(attempt.trial.stages) > 1:
            event["stage"] = attempt.trial.stages[attempt.stage][0]
        return event

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
