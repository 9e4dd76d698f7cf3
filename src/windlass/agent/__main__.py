"""The agent's command line: ``python agent.pyz FOLDER``. Python 3.9, standard library."""

from __future__ import annotations

import argparse
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional

from windlass.agent.claim import Claimer, TrialQueue
from windlass.agent.config import AgentConfig, make_slots, read_config, trial_environment
from windlass.agent.interrupt import Limits
from windlass.agent.job import LocalScratch, job_gpus, read_job
from windlass.agent.loop import EXIT_DONE, EXIT_FULL, EXIT_NOT_READY, EXIT_REFUSED, EXIT_STOPPED, Loop
from windlass.agent.ready import Ready, make_ready
from windlass.agent.runner import Runner
from windlass.agent.store import NotReady
from windlass.agent.sweep import sweep_dead, sweep_main
from windlass.agent.warming import Warming
from windlass.claims.alive import identity
from windlass.errors import WindlassError
from windlass.events import JOURNAL_VERSION
from windlass.ids import agent_id
from windlass.journal.write import DiskFull, JournalWriter, is_full
from windlass.paths import StudyPaths
from windlass.trialfile import TrialFile


def parse_arguments(words: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windlass-agent", description="Takes trials of a study and runs them.")
    parser.add_argument("folder", help="the study's folder")
    parser.add_argument("--slots", type=int, help="trials at a time (default: as planned)")
    parser.add_argument("--launcher-fd", type=int, help="stop when the other end of this pipe is closed")
    parser.add_argument("--job", metavar="ID", help="the submission that this job is of")
    parser.add_argument("--linger", action="store_true", help="wait for trials that other agents may give back")
    return parser.parse_args(words)


def main(words: Optional[List[str]] = None) -> int:
    words = sys.argv[1:] if words is None else words
    if "--sweep" in words:
        return sweep_main(words)
    arguments = parse_arguments(words)
    paths = StudyPaths(arguments.folder)
    try:
        config = read_config(paths.plan)
    except (OSError, ValueError, KeyError) as error:
        print(f"windlass agent: {error}", file=sys.stderr)
        return EXIT_REFUSED
    agent = agent_id()
    job = read_job(os.environ, arguments.job)
    if job is not None:
        config.gpus = job_gpus(os.environ)
    scratch = LocalScratch(job, config.local_scratch, bool(config.data) or config.code is not None)
    runtime_folder = tempfile.mkdtemp(prefix="windlass-", dir=scratch.made or None)
    try:
        return _live(arguments, paths, config, agent, job, scratch, runtime_folder)
    except DiskFull as error:
        print(f"windlass agent: no room left on the disk of {error}", file=sys.stderr)
        return EXIT_FULL
    except (OSError, WindlassError) as error:
        full = isinstance(error, OSError) and is_full(error)
        print(f"windlass agent: {'no room left: ' if full else ''}{error}", file=sys.stderr)
        return EXIT_FULL if full else EXIT_REFUSED
    finally:
        shutil.rmtree(runtime_folder, ignore_errors=True)
        scratch.remove()


def _live(
    arguments: argparse.Namespace,
    paths: StudyPaths,
    config: AgentConfig,
    agent: str,
    job: Optional[Dict[str, Any]],
    scratch: LocalScratch,
    runtime_folder: str,
) -> int:
    count = arguments.slots or config.slots
    header = {"e": "agent", "t": round(time.time(), 3), "v": JOURNAL_VERSION, "id": agent, **identity(), "slots": count}
    if job is not None:
        header["job"] = job
    journal = JournalWriter(paths.journal_of(agent), header, paths.reserve_of(agent))

    def note(text: str) -> None:
        journal.add({"e": "note", "t": round(time.time(), 3), "text": text})
        journal.flush()

    if job is not None and Claimer(paths, agent).nothing_left():
        _say_goodbye(journal, "nothing left")  # a unit that a chain did not need
        return EXIT_DONE
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(EXIT_STOPPED))  # until the loop listens: leave in order
    try:
        ready = make_ready(config, scratch, note)
    except NotReady as problem:
        return _not_ready(journal, problem)
    except SystemExit:
        _say_goodbye(journal, "interrupted")
        raise
    try:
        os.chdir(config.workdir)
        if scratch.made:
            sweep_dead([os.path.dirname(scratch.made)], paths.queue if job is not None else "", note)
        swept = scratch.made or runtime_folder  # goes also when the agent is killed
        return _run_trials(arguments, paths, config, agent, job, ready, journal, note, swept, runtime_folder)
    finally:
        ready.close()


def _say_goodbye(journal: JournalWriter, reason: str) -> None:
    """The end of an agent that has taken nothing."""
    journal.add({"e": "bye", "t": round(time.time(), 3), "reason": reason})
    journal.flush()
    journal.close()


def _not_ready(journal: JournalWriter, problem: NotReady) -> int:
    """Nothing was taken: the trials are left to nodes that can execute them."""
    print(f"windlass agent: {problem}", file=sys.stderr)
    journal.add({"e": "note", "t": round(time.time(), 3), "text": f"{os.uname().nodename}: {problem}"})
    _say_goodbye(journal, f"not ready: {problem}")
    return EXIT_NOT_READY


def _run_trials(
    arguments: argparse.Namespace,
    paths: StudyPaths,
    config: AgentConfig,
    agent: str,
    job: Optional[Dict[str, Any]],
    ready: Ready,
    journal: JournalWriter,
    note: Callable[[str], None],
    swept: str,
    runtime_folder: str,
) -> int:
    fifo_path = os.path.join(runtime_folder, "metrics")
    os.mkfifo(fifo_path, 0o600)
    # Open at both ends, so that the pipe outlives its writers.
    fifo = os.open(fifo_path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    count = arguments.slots or config.slots
    slots = make_slots(config, count)
    _allow_descriptors(64 + 4 * count)
    env = trial_environment(config, ready.env, paths.folder, paths.agent, agent, fifo_path)
    poller = select.epoll()
    warming = None
    if config.warm_mode != "off":
        warming = Warming(config, env, paths.agent, paths.warm, note)
    limits = Limits(config, job is not None, os.environ)
    runner = Runner(config, paths, agent, slots, env, journal, poller, warming, runtime_folder, limits)
    claimer = Claimer(paths, agent)
    queue = TrialQueue(TrialFile(paths))
    loop = Loop(
        agent, runner, claimer, queue, journal, poller, fifo, swept, arguments.launcher_fd, arguments.linger, limits
    )
    return loop.run()


def _allow_descriptors(wanted: int) -> None:
    """Two pipes a slot: where many slots need more than the usual limit, raise it, but only then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    sys.exit(main())
