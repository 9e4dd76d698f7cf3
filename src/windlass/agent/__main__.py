"""The agent's command line: ``python agent.pyz FOLDER``. Python 3.9, standard library."""

from __future__ import annotations

import argparse
import os
import resource
import select
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from windlass.agent.claim import Claimer, TrialQueue
from windlass.agent.config import AgentConfig, Slot, make_slots, read_config, trial_environment
from windlass.agent.departure import Departure
from windlass.agent.ends import (
    EXIT_AWAY,
    EXIT_DONE,
    EXIT_FULL,
    EXIT_NOT_READY,
    EXIT_REFUSED,
    EXIT_STOPPED,
)
from windlass.agent.first import FirstTrials
from windlass.agent.gauge.gauge import Gauges
from windlass.agent.interrupt import Limits
from windlass.agent.keep.workplace import Workplace
from windlass.agent.lease.fence_page import FencePage
from windlass.agent.lease.guard import FenceRule
from windlass.agent.lease.looks import Looks
from windlass.agent.lease.others import Others
from windlass.agent.lease.reach import Reach, patiently
from windlass.agent.lease.waiting import Waiting
from windlass.agent.loop import Loop
from windlass.agent.node.changed_data import record_changed_data
from windlass.agent.node.companion import companion_main
from windlass.agent.node.companions import METRICS, Companions, count_nodes
from windlass.agent.node.job import LocalScratch, RuntimeFolder, job_gpus, read_job
from windlass.agent.node.job_end import EndCause, JobEnd
from windlass.agent.node.ready import Ready, make_ready
from windlass.agent.node.store import mark_full
from windlass.agent.node.sweep import sweep_dead, sweep_main
from windlass.agent.outdated import PlanWatch, describe_code
from windlass.agent.parts import Equipment, Links, Shared
from windlass.agent.report.mailbox import Mailbox
from windlass.agent.report.streams import outlive_output
from windlass.agent.report.tally import JobLog, Tally
from windlass.agent.runner import Runner
from windlass.agent.share.mps import Mps
from windlass.agent.share.steps import share_job
from windlass.agent.survey.loop import SurveyChoice, prepare_frameworks, survey_slots
from windlass.agent.survey.rehearsal import Rehearsal
from windlass.agent.warm.decide import Warming
from windlass.core.claims.alive import file_clock_ahead_s, identity
from windlass.core.claims.first import FAILED_ALIKE
from windlass.core.errors import NotReady, WindlassError
from windlass.core.ids import agent_id
from windlass.core.journal.events import JOURNAL_VERSION
from windlass.core.journal.write import DiskFull, JournalWriter, append_event, is_full
from windlass.core.passing import passing_error
from windlass.core.paths import StudyPaths
from windlass.core.trialfile import TrialFile
from windlass.core.trust import check_trust
from windlass.core.units import render_duration
from windlass.core.verified import keep_own_program

_SURVEY_LOOK_S = 0.25


def parse_arguments(argv: Optional[List[str]]) -> argparse.Namespace:
    """The options of an agent's command line. Exits with code 2 where they cannot be understood, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="windlass-agent", description="Takes trials of a study and runs them."
    )
    parser.add_argument("folder", help="the study's folder")
    parser.add_argument("--slots", type=int, help="trials at a time (default: as planned)")
    parser.add_argument(
        "--launcher-fd", type=int, help="stop when the other end of this pipe is closed"
    )
    parser.add_argument("--job", metavar="ID", help="the submission that this job is of")
    parser.add_argument(
        "--companion", action="store_true", help="serve the trials on another node of a job"
    )
    parser.add_argument(
        "--linger", action="store_true", help="wait for trials that other agents may give back"
    )
    return parser.parse_args(argv)


def main(argv: Optional[List[str]] = None) -> int:
    """Run one agent, a companion of one, or a sweep of folders that dead jobs left. Returns the exit code.

    Nothing of a study is read before its folder is known to be the user's own. Errors are printed, not raised, except
    those of this program itself; whatever happens, the agent's folders on the node are cleaned up.
    """
    argv = sys.argv[1:] if argv is None else argv
    if "--sweep" in argv:
        return sweep_main(argv)
    arguments = parse_arguments(argv)
    if arguments.job is not None:
        outlive_output()
    paths = StudyPaths(arguments.folder)
    try:
        patiently(lambda: check_trust(paths, every_file=False))
        config = patiently(lambda: read_config(paths.plan))
    except (WindlassError, OSError, ValueError, KeyError) as error:
        print(f"windlass agent: {error}", file=sys.stderr)
        return EXIT_REFUSED if passing_error(error) is None else EXIT_AWAY
    if arguments.companion:
        return companion_main(paths, config, arguments.job)
    try:
        agent = Agent(arguments, paths, config)
    except OSError as error:
        # Without a folder on the node there is no journal: `windlass status` explains this by the job's own output.
        print(f"windlass agent: {mark_full(error)}{error}", file=sys.stderr)
        return EXIT_NOT_READY
    code: Optional[int] = None  # None: an error of our own, which Python reports
    try:
        code = agent.live()
    except DiskFull as error:
        print(f"windlass agent: no room left on the disk of {error}", file=sys.stderr)
        code = EXIT_FULL
    except (OSError, WindlassError) as error:
        full = isinstance(error, OSError) and is_full(error)
        print(f"windlass agent: {'no room left: ' if full else ''}{error}", file=sys.stderr)
        code = EXIT_FULL if full else EXIT_REFUSED
        if passing_error(error) is not None:
            print(
                "windlass agent: the study's folder stayed out of reach: this agent leaves",
                file=sys.stderr,
            )
            code = EXIT_AWAY
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else None
        raise
    finally:
        agent.clean_up(code)
    return code


class Agent:
    """One agent, from its first line in the journal to its last."""

    def __init__(
        self, arguments: argparse.Namespace, paths: StudyPaths, config: AgentConfig
    ) -> None:
        self._arguments = arguments
        self._paths = paths
        self._config = config
        self._id = agent_id()
        self._job = read_job(os.environ, arguments.job)
        if self._job is not None:
            config.gpus = job_gpus(os.environ)
        self._limits = Limits(config, self._job is not None, os.environ)
        self._slots = arguments.slots or config.slots
        self._log: Optional[JobLog] = None
        wanted = bool(config.data) or config.own_folders or config.local_folder
        self._scratch = LocalScratch(self._job, config.local_scratch, wanted)
        self._runtime = RuntimeFolder(self._scratch, self._job)
        self._runtime_folder = self._runtime.path
        self._fifo_path = os.path.join(self._runtime_folder, METRICS)
        os.mkfifo(self._fifo_path, 0o600)

    def clean_up(self, code: Optional[int]) -> None:
        """Remove what was made on the node, and record the exit code, which `sacct` shows less 128 from 128 on."""
        began = time.monotonic()
        self._runtime.remove()
        self._scratch.remove()
        seconds = time.monotonic() - began
        if self._log is not None:
            self._log.write(f"clean-up: {render_duration(seconds)}")
        cleaned = {"e": "cleaned", "t": round(time.time(), 3), "s": round(seconds, 3)}
        if code is not None:
            cleaned["exit"] = code
        append_event(self._paths.journal_of(self._id), cleaned)

    def live(self) -> int:
        """Make the node ready, run trials, and end. The exit code tells the truth."""
        header = self._header()
        self._open_journal(header)
        if self._job is not None:
            name, project = self._config.name, self._config.project_dir
            self._log = JobLog(name, self._paths.folder, project, self._id, self._job)
        claimer = Claimer(self._paths, self._id)
        stop = patiently(claimer.stop, self._config.lease_s)
        if self._job is not None and (
            stop is not None or patiently(claimer.nothing_left, self._config.lease_s)
        ):
            # A job that is not needed, because others were quicker: neither are those that wait behind it.
            Departure(self._paths, self._id, self._limits.resumable).leave(0, self._note)
            return self._leave(
                "nothing left" if stop is None else f"{FAILED_ALIKE}{stop.reason}", EXIT_DONE
            )
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Until the loop listens: leave in order.
            signal.signal(number, lambda *_: sys.exit(EXIT_STOPPED))
        try:
            ready = self._make_ready()
            self._tell_ready(header["code"], ready.times)
        except NotReady as problem:
            # Nothing was taken: the trials are left to nodes that can execute them.
            print(f"windlass agent: {problem}", file=sys.stderr)
            self._note(f"{os.uname().nodename}: {problem}")
            return self._leave(f"not ready: {problem}", EXIT_NOT_READY)
        except SystemExit:
            self._leave("interrupted", EXIT_STOPPED)
            raise
        try:
            os.chdir(self._config.workdir)
            own_folder = self._scratch.made or self._runtime_folder
            queue = self._paths.queue if self._job is not None else ""
            sweep_dead([os.path.dirname(own_folder)], queue, self._note)
            return self._make_loop(ready).run()
        finally:
            record_changed_data(ready.store, self._paths.journal_of(self._id))
            ready.close()

    def _open_journal(self, header: Dict[str, Any]) -> None:
        tries = 0

        def make() -> JournalWriter:
            nonlocal tries
            tries += 1
            # The first try may have made the file although an error was reported; nobody else uses its name.
            path, reserve = self._paths.journal_of(self._id), self._paths.reserve_of(self._id)
            return JournalWriter(path, header, reserve, is_new=tries == 1)

        self._journal = patiently(make, self._config.lease_s)

    def _make_ready(self) -> Ready:
        """This node, and the others of the job. Raises NotReady."""
        try:
            self._program = keep_own_program(self._runtime_folder, self._paths.agent)
        except OSError as error:
            why = f"the agent cannot be copied to {self._runtime_folder}: {error.strerror}"
            raise NotReady(f"{mark_full(error)}{why}") from error
        ready = make_ready(
            self._config, self._scratch, self._note, self._mention, self._paths.folder
        )
        if self._job is not None and count_nodes(os.environ) > 1:
            try:
                at = ready.folders.root if ready.folders is not None else ""
                ready.companions = Companions(
                    self._paths,
                    self._config,
                    self._arguments.job,
                    self._id,
                    self._runtime_folder,
                    self._note,
                    self._mention,
                    at,
                )
            except (NotReady, SystemExit):
                ready.close()
                raise
        return ready

    def _tell_ready(self, code: Dict[str, Any], times: Dict[str, float]) -> None:
        rounded = {name: round(seconds, 3) for name, seconds in times.items()}
        self._journal.add({"e": "ready", "t": round(time.time(), 3), "in_s": rounded})
        if self._log is not None:
            self._log.stage_in(code, times)

    def _header(self) -> Dict[str, Any]:
        header = {
            "e": "agent",
            "t": round(time.time(), 3),
            "v": JOURNAL_VERSION,
            "id": self._id,
            **identity(),
        }
        header.update(
            slots=self._slots, cpus=len(os.sched_getaffinity(0)), gpus=len(self._config.gpus)
        )
        header["clock_s"] = round(file_clock_ahead_s(self._paths.journal), 3)
        header["code"] = describe_code(self._config)
        header["rounds"] = True
        if self._config.settings_key is not None:
            header["settings_key"] = self._config.settings_key
        if self._job is not None:
            header["job"] = self._job
            header.update(self._limits.header())
        return header

    def _note(self, text: str) -> None:
        self._journal.add({"e": "note", "t": round(time.time(), 3), "text": text})
        self._journal.flush()

    def _mention(self, text: str) -> None:
        """For the record: a step that went as it should. `windlass status` does not repeat it."""
        self._journal.add({"e": "note", "t": round(time.time(), 3), "text": text, "routine": True})
        self._journal.flush()

    def _leave(self, reason: str, code: int) -> int:
        """The end of an agent that has taken nothing."""
        self._journal.add({"e": "bye", "t": round(time.time(), 3), "reason": reason})
        self._journal.flush()
        self._journal.close()
        return code

    def _make_reach(self, slots: int) -> Reach:
        stop_signal = int(getattr(signal, f"SIG{self._config.stop_signal}"))
        rule = FenceRule(self._limits.lease_s, self._config.grace_s, stop_signal)
        folder = self._scratch.made or self._runtime_folder
        return Reach(self._id, folder, self._journal, FencePage(slots), rule)

    def _make_environment(self, ready: Ready) -> Dict[str, str]:
        """The variables that all trials of this agent get."""
        config, folder = self._config, self._runtime_folder
        env = trial_environment(
            config, ready.env, self._paths.folder, self._program, self._id, self._fifo_path
        )
        if self._job is not None and (self._slots > 1 or config.measure is not None):
            env.update(share_job(folder, env))
        if config.measure is not None:
            prepare_frameworks(folder, env)
        return env

    def _make_equipment(self, ready: Ready, page: FencePage, slots: List[Slot]) -> Equipment:
        config, paths = self._config, self._paths
        env = self._make_environment(ready)
        warming = workplace = None
        if config.warm_mode != "off":
            warming = Warming(
                config, env, self._program, paths.warm, self._note, ready.wrap, ready.inside
            )
        gauges = Gauges(config, self._id, _SURVEY_LOOK_S if config.measure is not None else None)
        if ready.folders is not None:
            workplace = Workplace(config, paths, self._id, env, ready.folders)
            workplace.others = ready.companions
        return Equipment(
            slots, env, ready.wrap, self._runtime_folder, gauges, page, warming, workplace
        )

    def _make_loop(self, ready: Ready) -> Loop:
        config, paths, limits = self._config, self._paths, self._limits
        groups = max(1, count_nodes(os.environ) // (config.trial_nodes or count_nodes(os.environ)))
        slots = survey_slots(config)
        if config.measure is None:
            slots = make_slots(config, self._slots, groups)
        _allow_descriptors(64 + 4 * self._slots)
        reach = self._make_reach(len(slots))
        shared = Shared(self._id, config, paths, self._journal, select.epoll(), limits)
        runner = Runner(shared, self._make_equipment(ready, reach.page, slots))
        if ready.companions is not None:
            runner.join(ready.companions)
            reach.pulse.on_proof = ready.companions.prove
        runner.tally = Tally(self._log, as_trial=self._job is not None and config.measure is None)
        claimer = Claimer(paths, self._id)
        queue = TrialQueue(patiently(lambda: TrialFile(paths), config.lease_s))
        looks = Looks(paths, self._id, limits.lease_s, claimer.may_take)
        waiting = Waiting(paths, self._id, claimer, looks, limits, self._arguments.linger)
        mailbox = Mailbox(self._fifo_path, runner.deliver, runner.deliver_report, self._note)
        links = Links(claimer, queue, waiting, mailbox, reach, self._arguments.launcher_fd)
        loop = Loop(shared, runner, links)
        loop.companions = ready.companions
        if config.measure is not None:
            reach.others_claim = False
            # Goes also when the agent is killed.
            folder = self._scratch.made or self._runtime_folder

            def make_mps(visible: str) -> Mps:
                return Mps(visible, folder, ready.env, self._id, runner.gauges.nvml)

            loop.survey = SurveyChoice(loop, runner, shared, queue, make_mps)
        else:
            self._watch_study(loop, runner, links)
        return loop

    def _watch_study(self, loop: Loop, runner: Runner, links: Links) -> None:
        """Let the loop notice what becomes of the study: other settings, trials that all fail, the end of its job."""
        config, paths, limits = self._config, self._paths, self._limits
        loop.plan_watch = PlanWatch(paths.plan, config)
        seed_name = config.seed_name if config.several_settings else None
        first = FirstTrials(self._id, self._slots, links.claimer.learn_if_possible, seed_name)
        runner.tally.first = first
        # Whether a trial fails for good is to be known soon.
        links.queue.retries_first = lambda: first.is_watching
        if self._job is not None:
            links.waiting.others = Others(paths, self._id)
            loop.job_end = JobEnd(paths.queue, self._job, limits)
            runner.stopping.end_cause = EndCause(self._job)
            loop.departure = Departure(paths, self._id, limits.resumable)
        if config.rehearse_s is not None:
            loop.rehearsal = Rehearsal(config, runner, self._journal, self._slots)


def _allow_descriptors(wanted: int) -> None:
    """Two pipes a slot: where many slots need more than the usual limit, raise it, but only then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    sys.exit(main())
