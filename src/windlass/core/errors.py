"""Every error a user can meet, as one tree; each says what to do next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the input, where it stands, and a line that mends it."""

    message: str
    hint: str = ""
    file: str = ""
    line: int = 0  # 1-based; 0 when unknown
    column: int = 0  # 1-based; 0 when unknown

    def render(self) -> str:
        place = self.file
        if place and self.line:
            place += f":{self.line}" + (f":{self.column}" if self.column else "")
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class WindlassError(Exception):
    """Base of all errors shown to the user without a traceback."""

    exit_code = 2


class InputError(WindlassError):
    """The user's input is wrong; carries all problems found, not only the first."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.render() for problem in problems))


class FolderError(WindlassError):
    """The study's folder cannot be used: missing, read-only, full, or of another version."""


class OutOfReach(WindlassError):
    """The file system of a folder does not answer, although it was tried for a while; see patience.py.

    No FolderError: nothing that takes a damaged folder for an empty one may take this for an answer.
    """


class SchedulerError(WindlassError):
    """The scheduler does not answer, or did not do what it was asked for."""

    exit_code = 1


class AgentError(WindlassError):
    """An agent ended in a way that is no trial's fault."""

    exit_code = 1


class RehearsalError(WindlassError):
    """The rehearsal has shown that the request does not fit. Nothing but the rehearsal was submitted."""

    exit_code = 1


def input_error(message: str, hint: str = "") -> InputError:
    """An InputError of one problem that stands in no file."""
    return InputError([Problem(message, hint)])


class NotReady(Exception):
    """A node cannot be made ready for trials; the text says why. No trial is begun there."""
