"""The whole story, top to bottom: a study becomes a plan, a plan a folder, a folder agents, agents results."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from windlass.bundle.again import refresh_folder
from windlass.bundle.data import pack_data
from windlass.bundle.folder import Prepared, folder_error, prepare_folder
from windlass.bundle.restore import restore_register
from windlass.claims import ranges as rs
from windlass.claims.client import ClientJournal, client_name
from windlass.claims.first import find_stop, forget_first
from windlass.claims.ranges import Ranges
from windlass.claims.recover import ended_trials, recover
from windlass.claims.register import Register, RegisterFile
from windlass.claims.turn import Turn
from windlass.collect.follow import Follower
from windlass.collect.index import StudyIndex
from windlass.collect.look import TimeLeftReader, find_lost
from windlass.collect.submissions import read_submissions
from windlass.collect.trial_ids import TrialIds
from windlass.counted import counted
from windlass.errors import AgentError, FolderError, OutOfReach
from windlass.journal.write import DiskFull
from windlass.launch.base import LaunchedAgents, Launcher
from windlass.launch.control import send_cancel
from windlass.model import Plan, Study, Submitted, Terms
from windlass.paths import StudyPaths
from windlass.patience import ending_early, forget_outage, insist
from windlass.planning import done_numbers
from windlass.refusals import check_local_plan
from windlass.search import iterate_trials
from windlass.slurm.queue import read_last_queue
from windlass.slurm.states import JobState
from windlass.states import State
from windlass.submission import agents_may_be_there, present_states, submit_agents
from windlass.trust import check_trust, make_folders

EXIT_DONE, EXIT_NOT_ALL_WELL, EXIT_INTERRUPTED = 0, 1, 130
_AGENT_FULL, _AGENT_REFUSED, _AGENT_OUTDATED = 5, 2, 6
_POLL_S = 0.1
_ENDING_S = 3.0  # that the last jobs are given to end before the scheduler is asked
_QUEUE_S = 10.0  # between questions to the scheduler
_MOST_ENDING = 3  # answers that a job is still ending
_JOBS_POLL_S = 0.5  # looks at files only; the scheduler is asked every 10 s at most
_DEATHS_WITHOUT_PROGRESS = 3


class Reporter(Protocol):
    """Shows what happens; the command line has one for terminals, one for pipes, one for --quiet."""

    def prepared(self, plan: Plan, prepared: Prepared) -> None: ...

    def submitting(self, plan: Plan, present: int) -> None: ...

    def progress(self, follower: Follower, total: int, left_s: Callable[[], float | None] | None = None) -> None: ...

    def say(self, text: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    paths: StudyPaths
    counts: Mapping[State, int]
    exit_code: int


def submit_plan(
    plan: Plan, reporter: Reporter, sample: int | None = None, rehearse_s: float | None = None
) -> tuple[StudyPaths, Submitted]:
    """Prepare the study's folder and see to it that there are agents for what is missing. Returns at once.

    With `rehearse_s`, one agent, which tells for so long what its trials use; see rehearse.py.
    """
    paths = StudyPaths(plan.folder)
    assert plan.terms is not None
    try:
        make_folders(paths, plan.settings["share"].value == "group")
        pack_data(plan)  # may take long: before the turn, which others would take for lost
        register_file = RegisterFile(paths.claims, client_name())
        restore_register(paths, register_file)
        with Turn(register_file, paths.folder):
            more = {**_rehearsal(rehearse_s), **_watching(plan.study, sample)}
            prepared = _prepare(plan, paths, sample, more)
            reporter.prepared(plan, prepared)
            wanted = agents_wanted(plan.terms, prepared.register)
            if rehearse_s is not None:
                wanted = min(1, wanted)
            return paths, submit_agents(plan.terms, paths, wanted, lambda present: reporter.submitting(plan, present))
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def _prepare(plan: Plan, paths: StudyPaths, sample: int | None, more: Mapping[str, Any]) -> Prepared:
    def step() -> Prepared:
        trials = iterate_trials(plan.study)
        return prepare_folder(plan, trials, lambda: done_numbers(paths), client_name(), sample, more)

    return insist(step, paths.folder)


def _rehearsal(rehearse_s: float | None) -> dict[str, Any]:
    return {} if rehearse_s is None else {"rehearse_s": rehearse_s}


def _watching(study: Study, sample: int | None) -> dict[str, Any]:
    """A sample asks whether trials work at all: NaN in their metrics or in the files that they write is a failure."""
    return {} if sample is None or study.on_nan == "ignore" else {"watch_nan": True}


def submit_folder(paths: StudyPaths, terms: Terms) -> Submitted:
    """See to it that there are agents for what is up for taking in a prepared folder."""
    check_trust(paths)
    register_file = RegisterFile(paths.claims, client_name())
    with Turn(register_file, paths.folder):
        return submit_agents(terms, paths, agents_wanted(terms, register_file.read()))


def agents_wanted(terms: Terms, register: Register) -> int:
    """As many as planned, but no more than have something to do; none where nothing is up for taking."""
    if not register.todo:
        return 0
    open_trials = rs.count(register.todo) + rs.count(register.held_ranges())
    return min(terms.agents, -(-open_trials // terms.slots))


def follow_jobs(
    paths: StudyPaths, reporter: Reporter, on_end: Callable[..., None] | None = None, is_sample: bool = False
) -> Outcome:
    """Watch a study's jobs until its trials are through or no agent is left. Ctrl-C ends the watching, not the jobs.

    Returns once the jobs are over: what the scheduler says of them then is final. The time left is the one that
    `windlass status` shows.
    """
    register = RegisterFile(paths.claims, client_name()).read()
    follower = Follower(paths, register.count, register.current, on_end)
    follower.skip_existing(pass_on=True)
    total = rs.count(register.current)
    left_s = TimeLeftReader(paths)
    interrupted = False
    try:
        while True:
            follower.update()
            reporter.progress(follower, total, left_s)
            if not study_is_under_way(paths):
                break
            time.sleep(_JOBS_POLL_S)
        follower.update()
        reporter.progress(follower, total, left_s)
        end_idle_jobs(paths)
        wait_for_jobs(paths)
    except KeyboardInterrupt:
        interrupted = True
        reporter.say("the jobs go on; `windlass status` shows how far they are, `windlass cancel` ends them")
    return _outcome(paths, register, interrupted, is_sample)


def wait_for_jobs(paths: StudyPaths) -> None:
    """Return when no job of the study runs any more.

    Its trials are through: the scheduler is asked once before the ten seconds are over that are between questions.

    A job that is only ending is not waited for longer than half a minute: a dead node can keep it so for hours.
    """
    ending = 0
    for pause_s in itertools.chain((_ENDING_S,), itertools.repeat(_QUEUE_S)):
        time.sleep(pause_s)
        states = present_states(paths, pause_s)
        ending += JobState.ENDING in states
        if JobState.RUNNING not in states and (JobState.ENDING not in states or ending > _MOST_ENDING):
            return


def end_idle_jobs(paths: StudyPaths) -> None:
    """Jobs that wait although nothing is left for them would only take their turn in the queue for nothing."""
    register_file = RegisterFile(paths.claims, client_name())
    with Turn(register_file, paths.folder):
        register = register_file.read()
        jobs = [str(one.job) for one in read_submissions(paths) if one.job is not None]
        queue = read_last_queue(paths.queue)
        waiting = (
            {str(row.array) for row in queue.rows if row.state is JobState.WAITING} if queue is not None else set()
        )
        if not register.held and (not register.todo or find_stop(register.learned) is not None):
            send_cancel([job for job in jobs if job in waiting], only_waiting=True)


def study_is_under_way(paths: StudyPaths) -> bool:
    """Whether a trial is open and an agent waits or runs for it. Without an answer of the scheduler: it is."""
    register_file = RegisterFile(paths.claims, client_name())
    register = register_file.read()
    if not register.held and (not register.todo or find_stop(register.learned) is not None):
        return False
    if agents_may_be_there(paths):
        return True
    recovered = recover(paths, register_file)
    register = register_file.read()
    return bool(register.held) and not recovered.dead


def run_plan(
    plan: Plan,
    launcher: Launcher,
    reporter: Reporter,
    on_end: Callable[..., None] | None = None,
    sample: int | None = None,
    rehearse_s: float | None = None,
) -> Outcome:
    """Prepare the study's folder and see its trials through. Trials that are done are not executed again."""
    paths = StudyPaths(plan.folder)
    check_local_plan(plan)
    if sample is not None and not plan.own_folders:
        plan = replace(plan, slots=1)  # in a folder that trials share, only then is it clear which of them wrote a file
    more = {**_rehearsal(rehearse_s), **_watching(plan.study, sample)}
    prepared = _prepare(plan, paths, sample, more)
    reporter.prepared(plan, prepared)
    return run_folder(paths, plan.slots, launcher, reporter, on_end, sample is not None)


def run_folder(
    paths: StudyPaths,
    slots: int,
    launcher: Launcher,
    reporter: Reporter,
    on_end: Callable[..., None] | None = None,
    is_sample: bool = False,
) -> Outcome:
    """See the trials of a prepared folder through. Of a sample, only what was put up has to end well."""
    check_trust(paths)
    register = RegisterFile(paths.claims, client_name()).read()
    interrupted = False
    if register.todo or register.held:
        follower = Follower(paths, register.count, register.current, on_end)
        follower.skip_existing()
        interrupted = _supervise(paths, slots, launcher, reporter, follower, rs.count(register.current))
    return _outcome(paths, register, interrupted, is_sample)


def _outcome(paths: StudyPaths, register: Register, interrupted: bool, is_sample: bool) -> Outcome:
    counts = count_states(paths, register)
    expected = rs.count(register.current) - (counts[State.WAITING] if is_sample and not interrupted else 0)
    if counts[State.DONE] == expected:
        return Outcome(paths, counts, EXIT_DONE)
    return Outcome(paths, counts, EXIT_INTERRUPTED if interrupted else EXIT_NOT_ALL_WELL)


def count_states(paths: StudyPaths, register: Register) -> dict[State, int]:
    index = StudyIndex(paths)
    index.refresh()
    try:
        return index.counts(register.count, register.current)
    finally:
        index.close()


# -- following agents to the end


class _Interrupts:
    """Counts Ctrl-C: the first asks to finish what is under way, the second to stop it."""

    def __init__(self) -> None:
        self.count = 0
        self._old: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._old[number] = signal.signal(number, self._count)
        return self

    def _count(self, number: int, _frame: object) -> None:
        self.count += 1 if number == signal.SIGINT else 2

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)


def _supervise(
    paths: StudyPaths, slots: int, launcher: Launcher, reporter: Reporter, follower: Follower, total: int
) -> bool:
    """Keep an agent going until the trials are through. Returns whether the user interrupted it."""
    deaths = 0
    with _Interrupts() as interrupts, ending_early(lambda: interrupts.count > 1):
        while True:
            ended_before = follower.ended
            agents = launcher.launch(paths.folder, slots)
            try:
                code = _follow(agents, interrupts, reporter, follower, total)
                complaints = agents.complaints().strip()
            finally:
                agents.close()
            _raise_for(code, paths, complaints)
            if complaints:
                reporter.say(complaints)
            if code == _AGENT_OUTDATED and not interrupts.count:
                reporter.say("the code or the settings have changed: another agent goes on with them as they are now")
                continue
            if interrupts.count or code >= 0:
                return interrupts.count > 0
            # Killed by a signal that was not ours: what it held is taken back, and another agent goes on.
            deaths = 1 if follower.ended > ended_before else deaths + 1
            if deaths >= _DEATHS_WITHOUT_PROGRESS:
                raise AgentError(
                    f"the agent was killed by signal {-code} {counted(deaths, 'time')} without finishing a trial"
                )
            recover(paths, RegisterFile(paths.claims, client_name()))
            reporter.say(f"the agent was killed by signal {-code}; another one goes on")


def _follow(agents: LaunchedAgents, interrupts: _Interrupts, reporter: Reporter, follower: Follower, total: int) -> int:
    heard = 0
    pause_s = _POLL_S
    while True:
        code = agents.wait(pause_s)
        began = time.monotonic()
        if _update(follower, interrupts, heard, code is not None) or code is not None:
            reporter.progress(follower, total)
        count = interrupts.count  # looked at once: another may come at any moment
        if count > heard:
            _pass_on(agents, heard, count, reporter, follower)
            heard = count
        if code is not None:
            return code
        # Looking must stay cheap next to what is looked at.
        pause_s = min(2.0, max(_POLL_S, 20 * (time.monotonic() - began)))


def _update(follower: Follower, interrupts: _Interrupts, heard: int, is_last: bool) -> bool:
    """Read what is new in the journals. While an agent is there, a folder out of reach is not the end.

    The agent has patience of its own, and how long it lasts is for the agent to decide. Ctrl-C must get through to it.
    """
    try:
        with ending_early(lambda: interrupts.count > heard):
            news = follower.update()
    except OutOfReach:
        if is_last:
            raise
        return False
    forget_outage()
    return news


def _pass_on(agents: LaunchedAgents, heard: int, count: int, reporter: Reporter, follower: Follower) -> None:
    if heard == 0 and count == 1:
        running = follower.count(State.RUNNING)
        reporter.say(f"finishing {counted(running, 'running trial')} and taking no more; Ctrl-C again stops at once")
        agents.drain()
    else:
        reporter.say("stopping the running trials")
        agents.stop()


def _raise_for(code: int, paths: StudyPaths, complaints: str) -> None:
    if code == _AGENT_FULL:
        raise folder_error(DiskFull(paths.folder), paths.folder)
    if code == _AGENT_REFUSED:
        raise FolderError(complaints or f"the agent could not work in {paths.folder}")


# -- changing what is to be done


def cancel_trials(paths: StudyPaths, chosen: Ranges) -> Ranges:
    """Take trials off the list; agents stop those under way within seconds. Returns what was cancelled."""
    register_file = RegisterFile(paths.claims, client_name())
    cancelled: Ranges = []

    def change(register: Register) -> Register:
        # Read after the register: what an agent has finished it may hold for a while yet.
        finished = {number for agent in register.held for number in ended_trials(paths, agent)}
        held = rs.subtract(register.held_ranges(), rs.from_numbers(finished))
        cancelled[:] = rs.intersect(rs.union(register.todo, held), chosen)
        register.todo = rs.subtract(register.todo, chosen)
        register.cancelled = rs.union(register.cancelled, cancelled)
        return register

    # Of those under way their agents tell more when they have ended; if they still can.
    _change(paths, register_file, change, "cancel", cancelled)
    return cancelled


def refresh_code(paths: StudyPaths) -> Mapping[str, Any] | None:
    """Have trials that are put back use the project as it is now. Returns the frozen code; None where it is live."""
    try:
        return refresh_folder(paths, client_name())
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def retry_trials(paths: StudyPaths, chosen: Ranges, keep_going: bool = False) -> Ranges:
    """Put trials back on the list, whatever became of them; not those under way. Returns what was put back.

    A study that has stopped because its first trials all failed alike goes on. It may stop again for the same reason,
    unless other trials of it are done or `keep_going` is set.
    """
    register_file = RegisterFile(paths.claims, client_name())
    put_back: Ranges = []

    def change(register: Register) -> Register:
        # Also those that are on the list already: what a dead agent held has just been put there.
        put_back[:] = rs.subtract(chosen, register.held_ranges())
        register.todo = rs.union(register.todo, put_back)
        register.cancelled = rs.subtract(register.cancelled, chosen)
        done = rs.intersect(rs.from_numbers(done_numbers(paths)), register.current)
        register.learned = forget_first(register.learned, keep_going or bool(rs.subtract(done, put_back)))
        return register

    _change(paths, register_file, change, "retry", put_back)
    return put_back


def set_throttle(paths: StudyPaths, limit: int) -> None:
    """Let so many agents hold trials at a time, 0 for any number. Those that are too many end by themselves."""

    def change(register: Register) -> Register | None:
        before, register.throttle = register.throttle, limit or None
        return None if register.throttle == before else register

    try:
        RegisterFile(paths.claims, client_name()).update(change)
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def _change(
    paths: StudyPaths, register_file: RegisterFile, change: Callable[[Register], Register], kind: str, changed: Ranges
) -> None:
    """Make a change of the register and write it down; `change` fills `changed`."""

    def record() -> None:
        with ClientJournal(paths) as journal:
            journal.write({"e": kind, "r": changed, **TrialIds(paths).render(changed)})

    try:
        insist(lambda: recover(paths, register_file), paths.folder)
        insist(lambda: register_file.update(change), paths.folder)
        if changed:
            insist(record, paths.folder)
    except (OSError, DiskFull) as error:
        raise folder_error(error, paths.folder) from error


def chosen_states(paths: StudyPaths, register: Register, states: Sequence[State]) -> Ranges:
    """The trials of the study as it stands now that are in one of these states."""
    index = StudyIndex(paths)
    index.refresh()
    try:
        found = set(index.numbers(states))
        if State.INTERRUPTED in states:
            found |= find_lost(paths, index)
        return rs.intersect(rs.from_numbers(found), register.current)
    finally:
        index.close()
