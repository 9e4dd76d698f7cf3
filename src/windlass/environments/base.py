"""The interface of a kind of environment. Python 3.9, standard library.

An environment has up to three layers, entered one after another: modules, one environment of its own (a virtual
environment, say), and lines of the user's. Each layer is a kind, and a kind is a module of this folder.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields
from typing import (
    Any,
    Callable,
    ClassVar,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from windlass import environments
from windlass.core.members import load_member, member_names

Command = List[str]
Say = Callable[[str], None]
Variables = Dict[str, str]


@dataclass(frozen=True)
class Wanted:
    """The environment that a study asks for, as plan.json has it."""

    kind: str  # a module of this folder; "": none but modules and lines of the user's
    value: str  # what the kind takes: a folder, a name, a file
    place: str  # where something that is built is built: shared or node
    modules: Sequence[str]
    setup: Sequence[str]  # lines for the shell
    project: str  # its folder
    record: str = ""  # the file that keeps what was found on the node
    # Of what the environment is made from; another one is another environment.
    digest: Optional[str] = ""
    build: Optional[Mapping[str, Any]] = None  # what build/recipe.py needs
    editable: Sequence[
        str
    ] = ()  # folders of the project that the environment imports from as they are
    options: Mapping[str, Any] = field(default_factory=dict)  # the other keys of the kind

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Wanted":
        """What plan.json says. Raises TypeError where that is damaged."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: stored[name] for name in names if name in stored})

    def to_json(self) -> Dict[str, Any]:
        """What plan.json is to say. `options` is left out where there are none, as plans of earlier versions do."""
        said = asdict(self)
        if not said["options"]:
            del said["options"]
        return said

    def expand(self, path: str) -> str:
        """A path of the study file, which is relative to the project."""
        return os.path.normpath(
            os.path.join(self.project, os.path.expandvars(os.path.expanduser(path)))
        )


class Key(NamedTuple):
    """A key of the section `environment` of the study file that a kind brings along; see `Row` in settings.py."""

    name: str
    kind: str  # how values are read: a name in KINDS of spec/kinds.py
    help: str
    example: str
    more: str = ""
    flags: Tuple[str, ...] = ()  # options of the command line that set it


class Trouble(NamedTuple):
    """Something that is wrong with a study's environment, below which key, and what to do about it."""

    key: str
    message: str
    hint: str = ""


class Findings(NamedTuple):
    """What a look at an environment has found, and the variables with what could be entered here."""

    troubles: List[Trouble]
    env: Variables


class Unusable(Exception):
    """An environment cannot be made from what the study names; the text says why."""

    def __init__(self, message: str, hint: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.hint = hint
        self.line = line


class Folders(NamedTuple):
    """Where the client keeps what agents build or install from."""

    built: str
    wheels: str
    is_shared: bool  # whether nodes other than this machine use them


class Store(Protocol):
    """The cache on the node's own disk, as far as an environment uses it; see agent/node/store.py."""

    def provide(
        self, key: str, make: Callable[[str], None], size_bytes: int, files: int, what: str, /
    ) -> str:
        """The folder of an entry, which `make` has filled unless it was there. Raises NotReady."""

    def make_folder(self) -> str:
        """An empty folder of this agent's own, which goes with it. Raises NotReady."""


class Node(NamedTuple):
    """Where an environment is entered."""

    workdir: str
    store: Store
    say: Say  # takes what the user wants to know
    local: str = ""  # the job's folder on the node's own disk; "" where there is none
    folders: Sequence[str] = ()  # those that trials use, wherever they are


class Inside(Protocol):
    """An environment with programs and variables of its own, which are not those that the agent sees."""

    def find_program(self, name: str) -> Optional[str]:
        """The path that a program has inside; None where there is none."""

    def translate(self, env: Mapping[str, str]) -> Variables:
        """The variables that a program has inside, where it is started with `env`."""


class EnvironmentKind(ABC):
    """One kind. It is looked at on the client and entered on the node, each time by an object of its own."""

    name: ClassVar[str]  # as in the study file; the name of the module
    layer: ClassVar[int] = 1  # 0: before the environment of its own; 2: after it
    keys: ClassVar[Tuple[Key, ...]] = ()  # of a kind of layer 1: the first goes by the kind's name

    # -- on the client

    def is_wanted(self, wanted: Wanted) -> bool:
        return wanted.kind == self.name

    @abstractmethod
    def find_problems(self, wanted: Wanted, env: Variables) -> Findings:
        """What is missing here and would be missing on the node too. Changes nothing."""

    def find_folder(self, wanted: Wanted, env: Mapping[str, str]) -> Optional[str]:
        """The folder whose `bin` trials have on their PATH, if it is known before anything is built or entered."""
        return None

    def render(self, wanted: Wanted, folders: Folders, env: Variables) -> Wanted:
        """What plan.json is to say, with paths that hold wherever the code is executed. Raises Unusable."""
        return wanted

    def refresh(self, wanted: Wanted, say: Say) -> Wanted:
        """What plan.json is to say now, where `wanted` is what it says. Raises Unusable or NotReady."""
        return wanted

    def name_source(self, wanted: Wanted) -> str:
        """What the environment is made from, for messages."""
        return wanted.value

    def fetch(self, wanted: Wanted, has_internet: Optional[bool], say: Say) -> None:  # noqa: B027
        """Fetch here what nodes cannot fetch themselves. Raises NotReady."""

    def make(self, wanted: Wanted, say: Say) -> str:
        """Make here what the first agent would make. Returns its folder, "" if nothing is to be made."""
        return ""

    def find_made(self, wanted: Wanted) -> Tuple[str, bool]:
        """The folder of what is made, and whether it is there. Raises NotReady."""
        return "", False

    def wrap_here(
        self, wanted: Wanted, env: Mapping[str, str], command: Command
    ) -> Optional[Command]:
        """What executes `command` in the environment here, changing nothing; None where that cannot be."""
        return None

    # -- on the node

    @abstractmethod
    def enter(self, wanted: Wanted, env: Variables, node: Node) -> Variables:
        """The variables of trials. Raises NotReady, which says what is missing on this node."""

    def wrap(self, wanted: Wanted, command: Command) -> Command:
        """What is started in place of `command`, for an environment that takes a command of its own to enter."""
        return command

    @property
    def inside(self) -> Optional[Inside]:
        """After `enter`: what is inside, for an environment that hides the programs of the node."""
        return None


def kind_names() -> List[str]:
    """Every kind that there is."""
    return member_names(environments)


def load_kind(name: str) -> EnvironmentKind:
    """The kind of that name. Raises KeyError where there is none."""
    kind: EnvironmentKind = load_member(environments, name)()
    return kind


def own_kind_names() -> List[str]:
    """The kinds of which an environment has one at most, in the order in which messages name them."""
    usual = ["venv", "conda", "uv", "build", "container"]
    own = [name for name in kind_names() if load_kind(name).layer == 1]
    return sorted(own, key=lambda name: (usual.index(name) if name in usual else len(usual), name))


def layers_of(wanted: Wanted) -> List[EnvironmentKind]:
    """The kinds that an environment consists of, in the order in which they are entered."""
    kinds = [kind for kind in map(load_kind, kind_names()) if kind.is_wanted(wanted)]
    return sorted(kinds, key=lambda kind: kind.layer)
