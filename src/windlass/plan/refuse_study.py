"""What would go wrong whatever the scheduler says: placeholders, secrets, folders that nodes cannot see. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from windlass.core.errors import Problem
from windlass.model import Plan
from windlass.plan.refuse_processes import find_process_problems, find_process_warnings
from windlass.plan.shared_outputs import find_output_problems, find_output_warnings
from windlass.plan.shared_places import find_place_warnings
from windlass.plan.source_line import make_problem
from windlass.search import iterate_trials
from windlass.secrets import find_secrets
from windlass.site.cluster import Cluster
from windlass.site.here import MEMORY_FILE_SYSTEMS, Folder, Here, is_below
from windlass.slurm.placeholders import find_placeholder


def command_words(plan: Plan) -> list[str]:
    """Everything that ends in a command: stages, task files, values of parameters."""
    study = plan.study
    words = [word for stage in study.stages for word in stage.words]
    words += [word for task in study.tasks for word in task]
    words += [
        value
        for parameter in study.space.parameters
        for value in parameter.values
        if isinstance(value, str)
    ]
    rows = (value for row in study.space.rows for value in row.values() if isinstance(value, str))
    return [*words, *rows]


def find_command_placeholders(plan: Plan) -> Iterator[Problem]:
    """What a template, or `windlass init`, left to be filled in in the command and in `env`."""
    words: list[tuple[str, str, bool]] = [("command", word, False) for word in command_words(plan)]
    words += [("env", value, False) for value in plan.study.env.values()]
    yield from _placeholders(plan, words)


def find_study_problems(plan: Plan, cluster: Cluster, here: Here) -> Iterator[Problem]:
    yield from find_command_placeholders(plan)
    yield from find_request_placeholders(plan)
    yield from find_secret_problems(plan, here.secrets)
    yield from find_output_problems(plan)
    yield from find_process_problems(plan, command_words(plan))
    yield from _scratch(plan, cluster, here)
    for folder in here.folders:
        yield from _folder(plan, folder, cluster, here)


def find_study_warnings(plan: Plan, here: Here) -> Iterator[str]:
    """What may fail: folders that nodes may not see, outputs that may mix, unused GPUs or nodes."""
    request = plan.request
    for folder in here.folders:
        if (
            is_below(folder.real, ("/tmp", "/var/tmp", "/run"))
            and not here.nodes_are_here
            and not _refused(folder, here)
        ):
            yield f"{folder.path} is usually a folder of this host alone; if nodes cannot see it, every job fails"
    for folder in here.python:
        is_local = is_below(folder.real, ("/tmp", "/var/tmp", "/run")) or _refused(folder, here)
        if is_local and not here.nodes_are_here:
            yield (
                f"jobs start the Python in {folder.path}, which is usually a folder of this host alone; if nodes "
                "cannot see it, every job fails: install Windlass in a folder that they see"
            )
            break
    yield from find_output_warnings(plan)
    yield from find_place_warnings(plan)
    if request is None:
        return
    yield from find_process_warnings(plan, command_words(plan))
    mails = {word.upper() for word in request.mail_types} | {
        str(request.options.get("mail-type", "")).upper()
    }
    if plan.agents > 1 and any({"ALL", "ARRAY_TASKS"} & set(mail.split(",")) for mail in mails):
        yield f"mail of all kinds for {plan.agents} agents is a flood; `mail_type: [END, FAIL]` is one for the array"


def find_request_placeholders(plan: Plan) -> Iterator[Problem]:
    """Options of jobs that a template left to be filled in."""
    request = plan.request
    if request is None:
        return
    named = {"account": request.account, "partition": request.partition, "qos": request.qos}
    named |= {"mail_user": request.mail_user, "gpu_type": request.gpu_type}
    values = [(key, value, True) for key, value in named.items() if value]
    values += [("options", str(value), True) for value in request.options.values()]
    yield from _placeholders(plan, values)


def _placeholders(plan: Plan, values: Iterable[tuple[str, str, bool]]) -> Iterator[Problem]:
    """`values`: key of a setting, text, and whether the text is one value, where also less clear placeholders count."""
    seen = set()
    for key, value, whole in values:
        found = find_placeholder(value, whole=whole)
        if found and (key, found) not in seen:
            seen.add((key, found))
            yield make_problem(
                plan, key, f"{key}: {found} is a placeholder that nobody replaced", "", "fill it in"
            )


def find_secret_problems(plan: Plan, secrets: Mapping[str, str]) -> Iterator[Problem]:
    """A problem for each secret that would be written to the study's folder. `secrets` are variables of this shell."""
    inherit = "jobs" if plan.request is not None else "trials"
    where = (
        "in the queue and in the study's folder"
        if plan.request is not None
        else "in the study's folder"
    )
    seen = set()
    for key, words in _written_down(plan):
        for found in find_secrets(words, secrets):
            if found not in seen:
                seen.add(found)
                yield make_problem(
                    plan,
                    key,
                    f"{key}: holds {found}, which others can read {where}",
                    "",
                    f"take it out and export it in your shell; {inherit} inherit it",
                )


def _written_down(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """(key of the study, texts that stand there) of all that goes to the study's folder as it is."""
    study, request = plan.study, plan.request
    # A value is judged by the name of its parameter, too.
    yield "parameters", [f"--{name}={value}" for name, value in _named_values(plan)]
    first = next(iterate_trials(study), None)
    filled = [word for _, words in first.stages for word in words] if first is not None else []
    yield "command", [*command_words(plan), *filled]
    yield "env", [f"{name}={value}" for name, value in study.env.items()]
    if study.environment is not None:
        yield "setup", list(study.environment.setup)
        yield "environment", [study.environment.value, *study.environment.modules]
    if study.checkpoint is not None:
        yield (
            "checkpoint",
            [*study.checkpoint.resume, *study.checkpoint.write, *study.checkpoint.validate],
        )
    yield "outputs", list(study.outputs)
    yield (
        "options",
        [f"--{name}={value}" for name, value in (request.options if request else {}).items()],
    )


def _named_values(plan: Plan) -> Iterator[tuple[str, str]]:
    space = plan.study.space
    for parameter in space.parameters:
        yield from ((parameter.name, value) for value in parameter.values if isinstance(value, str))
    for row in space.rows:
        yield from ((name, value) for name, value in row.items() if isinstance(value, str))


def _refused(folder: Folder, here: Here) -> str:
    """Why nodes cannot see a folder, where that is certain."""
    if here.nodes_are_here:
        return ""
    if is_below(folder.real, ("/dev/shm",)) or folder.file_system in MEMORY_FILE_SYSTEMS:
        return "is in the memory of this host"
    if here.local_scratch and is_below(folder.real, (here.local_scratch,)):
        return "is on a disk that each node has of its own"
    return ""


def _scratch(plan: Plan, cluster: Cluster, here: Here) -> Iterator[Problem]:
    """Nothing tells where large files belong on this cluster. A study that has its folder already goes on there."""
    is_new = any(folder.path == plan.folder and not folder.exists for folder in here.folders)
    if here.scratch_line and is_new and plan.settings["folder"].value is None:
        yield make_problem(
            plan,
            "folder",
            f"$SCRATCH is not set, and no profile tells where the shared scratch of {cluster.name} is",
            "",
            f"add `{here.scratch_line}` to ~/.bashrc; or `--folder .windlass` keeps the study in the project",
        )


def _folder(plan: Plan, folder: Folder, cluster: Cluster, here: Here) -> Iterator[Problem]:
    reason = _refused(folder, here)
    # No hint leads back to what is refused.
    scratch = "" if is_below(folder.path, (here.scratch,)) else here.scratch
    if folder.path != plan.folder:
        fix = f"move the project below {scratch or 'a folder that all nodes see'}"
    else:
        fix = (
            f"`--folder {scratch}`"
            if scratch
            else "`--folder PATH`, with a path that all nodes see"
        )
    if reason:
        yield make_problem(
            plan, "folder", f"{folder.path} {reason}: other nodes cannot see it", "", fix
        )
    elif (
        not cluster.submit_from_home
        and here.home not in ("", "/")
        and is_below(folder.real, (here.home,))
    ):
        yield make_problem(
            plan,
            "folder",
            f"{folder.path} is in your home, from where {cluster.name} takes no jobs",
            "",
            fix + ("" if here.scratch else "; `export SCRATCH=…` tells where yours is"),
        )
