"""Item: the code is committed, and pushed where there is somewhere to push to."""

from __future__ import annotations

from windlass.check.item import Item, failed, passed, skipped
from windlass.core.counted import counted
from windlass.core.processes import Answer, ask
from windlass.model import Study

NAME = "code"


def check_code(study: Study) -> Item:
    """The item on code: fails where something is not committed, or where the commit is on no remote branch.

    A project without a remote passes; without git the item is skipped.
    """
    inside = _git(study, "rev-parse", "--is-inside-work-tree")
    if inside.code is None:
        return skipped(NAME, "git is not installed here")
    if not inside.ok:
        return failed(
            NAME,
            f"{study.project_dir} is not in a git repository",
            "git init && git add . && git commit",
        )
    commit = read_commit(study)
    if not commit:
        return failed(NAME, "nothing is committed yet", "git add . && git commit")
    status = _git(study, "status", "--porcelain")
    if not status.ok:
        return failed(NAME, f"git status: {status.errors.strip()}", "mend the repository")
    changed = status.text.splitlines()
    if changed:
        names = ", ".join(line[3:] for line in changed[:3]) + (", …" if len(changed) > 3 else "")
        return failed(
            NAME,
            f"{counted(len(changed), 'file is', 'files are')} not committed: {names}",
            "git add … && git commit",
        )
    if not _git(study, "remote").text.strip():
        return passed(NAME, f"all is committed ({commit[:10]}); there is no remote to push to")
    if not _git(study, "branch", "--remotes", "--contains", "HEAD").text.strip():
        return failed(NAME, f"commit {commit[:10]} is on no remote branch", "git push")
    return passed(NAME, f"all is committed and pushed ({commit[:10]})")


def read_commit(study: Study) -> str:
    """The commit the project is at; "" where there is none."""
    answer = _git(study, "rev-parse", "--verify", "--quiet", "HEAD")
    return answer.text.strip() if answer.ok else ""


def _git(study: Study, *arguments: str) -> Answer:
    return ask(["git", "-C", study.project_dir, *arguments])
