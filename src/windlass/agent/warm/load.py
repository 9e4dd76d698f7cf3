"""Importing modules ahead of the trials, and learning from first trials which ones. Runs in the study's interpreter.

A module may be shared by forked trials only when nothing of it would be missing or different in a trial: it must
leave no thread behind, hold no GPU and print nothing while it is imported.
"""

from __future__ import annotations

import _thread
import gc
import importlib
import importlib.util
import mmap
import os
import sys
import threading
import time
import warnings
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is slow to import, and this runs before every first trial
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from typing import Any

_LIBRARY_FOLDERS = ("site-packages", "dist-packages")
_BOARD_BYTES = 8 << 20
_COUNT_BYTES = 8


def library_roots() -> tuple[str, ...]:
    """Where the standard library lies, each ending in a slash."""
    folders = {os.path.dirname(threading.__file__)}
    folders.update(os.path.dirname(path) for path in sys.path if path.endswith("lib-dynload"))
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


def is_library(spec: ModuleSpec, roots: tuple[str, ...]) -> bool:
    """Whether a module belongs to Python or to an installed package, and not to the user's own project.

    The user's own modules may read the command line or hold state, so each trial imports them itself.
    """
    if spec.origin in ("built-in", "frozen"):
        return True
    files = (
        [spec.origin]
        if spec.has_location and spec.origin
        else list(spec.submodule_search_locations or ())
    )
    return bool(files) and all(_lies_in_library(file, roots) for file in files)


def _lies_in_library(file: str, roots: tuple[str, ...]) -> bool:
    if file.startswith(roots) or any(folder in file.split(os.sep) for folder in _LIBRARY_FOLDERS):
        return True
    return os.path.realpath(file).startswith(roots)


def device_files(open_files: Iterable[str]) -> list[str]:
    """Those of the open files that belong to a GPU."""
    return [path for path in open_files if path.startswith(("/dev/nvidia", "/dev/kfd"))]


def read_open_files() -> list[str]:
    """What this process has open, as far as the system tells."""
    targets = []
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                targets.append(os.readlink("/proc/self/fd/" + name))
            except OSError:
                continue  # the descriptor that listed the folder
    except OSError:
        pass
    return targets


def _thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def threads_stay() -> bool:
    """Whether threads are running that would be missing in a forked process.

    OpenBLAS and others stop their threads in a handler before each fork and start them again when needed. A trial
    fork tells them from the rest.
    """
    if threading.active_count() > 1:
        return True
    if _thread_count() == 1:
        return False
    with warnings.catch_warnings():
        # Newer Pythons warn of a fork with threads, which is what is being tried.
        warnings.simplefilter("ignore")
        process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)
    deadline = time.monotonic() + 0.5  # a thread that was joined may be listed a moment longer
    while _thread_count() > 1:
        if time.monotonic() > deadline:
            return True
        time.sleep(0.005)
    return False


class Unshareable(Exception):
    """The process has changed in a way that its forks must not inherit; only a fresh process is clean again."""

    def __init__(self, module: str, trouble: str, is_output: bool) -> None:
        super().__init__(f"{module} {trouble} on import")
        self.module = module
        self.trouble = trouble
        self.is_output = is_output


class Loader:
    """Imports modules one by one and raises Unshareable at the first that must not be shared.

    `chatter` is the file that descriptors 1 and 2 lead to: when it grows, the module printed something.
    """

    def __init__(self, chatter: int, excluded: dict[str, str]) -> None:
        self.excluded = excluded
        self.failed: dict[str, str] = {}
        self._chatter = chatter
        self._fflush = _find_fflush()
        self._environment = dict(os.environ)
        self.variables_read: set[str] = set()

    def load(self, name: str) -> None:
        """Import `name`, unless it is excluded. A failing import is noted in `failed`."""
        if name in sys.modules or name in self.excluded or name in self.failed:
            return
        size = self._chatter_size()
        gc.disable()  # a collection during imports finds nothing and walks everything
        try:
            with _WatchedEnvironment(self.variables_read):
                importlib.import_module(name)
        except (KeyboardInterrupt, MemoryError):
            raise
        except (
            BaseException
        ) as error:  # also SystemExit: some modules leave when they dislike the machine
            self.failed[name] = f"{type(error).__name__}: {error}"
        finally:
            gc.enable()
        if self._chatter_size() != size:
            raise Unshareable(name, "prints", is_output=True)
        trouble = _find_trouble()
        if trouble:
            raise Unshareable(name, trouble, is_output=False)

    def settle(self) -> None:
        """Prepare what was imported for being shared by forks."""
        # A finalizer made so far cleans up after an object of this process, not of a trial: a folder, a registry.
        for finalizer in list(getattr(weakref.finalize, "_registry", ())):
            finalizer.atexit = False
        gc.freeze()  # trials need not look for garbage here, and so do not copy these pages

    def environment_changes(self) -> dict[str, str | None]:
        """What the imports changed in the environment, which a cold start would have changed too."""
        now = os.environ
        changes: dict[str, str | None] = {
            k: v for k, v in now.items() if self._environment.get(k) != v
        }
        changes.update({key: None for key in self._environment if key not in now})
        return changes

    def _chatter_size(self) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        self._fflush()
        return os.fstat(self._chatter).st_size


class _WatchedEnvironment:
    """Notes which environment variables are asked for: a trial where one of them differs must start cold."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._read: Any = type(os.environ).__getitem__

    def __enter__(self) -> None:
        names, read = self._names, self._read

        def note_and_read(environment: Any, name: str) -> Any:
            names.add(name)
            return read(environment, name)

        type(os.environ).__getitem__ = note_and_read  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        type(os.environ).__getitem__ = self._read  # type: ignore[method-assign]


def _find_trouble() -> str:
    # First, because CUDA starts threads of its own.
    torch_cuda = sys.modules.get("torch.cuda")
    if device_files(read_open_files()) or (torch_cuda is not None and torch_cuda.is_initialized()):
        return "touches the GPU"
    if threads_stay():
        return "starts threads that a forked process does not have"
    return ""


def _find_fflush() -> Any:
    """C's fflush for all of C's streams: what C code printed must be out before a fork and before `os._exit`."""
    try:
        import ctypes

        flush = ctypes.CDLL(None).fflush
    except (ImportError, OSError, AttributeError):
        return lambda: 0
    return lambda: flush(None)


class Board:
    """Shared memory on which a running trial writes what it imports and the server reads it. Never blocks.

    Lines are ``name<TAB>origin``, or ``=KEY=VALUE`` for an environment variable the trial has changed.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _BOARD_BYTES)
        self._read = _COUNT_BYTES

    def write(self, line: str) -> None:
        data = line.encode("utf-8", "surrogateescape") + b"\n"
        end = int.from_bytes(self._memory[:_COUNT_BYTES], "little") or _COUNT_BYTES
        if b"\n" in data[:-1] or end + len(data) > _BOARD_BYTES:
            return
        self._memory[end : end + len(data)] = data
        self._memory[:_COUNT_BYTES] = (end + len(data)).to_bytes(_COUNT_BYTES, "little")

    def read(self) -> list[str]:
        """The lines written since the last call."""
        end = int.from_bytes(self._memory[:_COUNT_BYTES], "little") or _COUNT_BYTES
        data = self._memory[self._read : end]
        self._read = end
        return data.decode("utf-8", "surrogateescape").splitlines()


class Recorder:
    """Stands first in ``sys.meta_path`` of a trial and writes each library module it is asked for on the board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._roots = library_roots()
        self._process = os.getpid()
        self._lock = _thread.allocate_lock()
        self._environment = _environment_bytes()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As the finders behind this one answer; they are asked here so that it is known what they found."""
        if os.getpid() != self._process or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                with self._lock:
                    self._note(name, spec)
                return spec
        return None

    def _note(self, name: str, spec: ModuleSpec) -> None:
        now = _environment_bytes()
        if now != self._environment:
            for key in now.keys() | self._environment.keys():
                if now.get(key) != self._environment.get(key):
                    self._board.write(f"={os.fsdecode(key)}={os.fsdecode(now.get(key, b''))}")
            self._environment = now
        if is_library(spec, self._roots):
            self._board.write(f"{name}\t{spec.origin}")


def _environment_bytes() -> dict[bytes, bytes]:
    data = getattr(os.environ, "_data", None)  # a tenth of the time of going through os.environ
    return dict(data if isinstance(data, dict) else os.environb)


class Follower:
    """Imports in the server what running first trials import, while they are at it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._roots = library_roots()
        self._changed: dict[str, str] = {}
        self.learned: list[str] = []
        self.note = ""

    def follow(self, lines: Iterable[str]) -> None:
        """Take lines of a board. Raises Unshareable; what was learned up to there is kept."""
        for line in lines:
            if line.startswith("="):
                key, _, value = line[1:].partition("=")
                self._changed[key] = value
            elif not self.note:
                name, _, origin = line.partition("\t")
                self._take(name, origin)

    def _take(self, name: str, origin: str) -> None:
        if name not in sys.modules:
            changed = [
                key for key, value in self._changed.items() if os.environ.get(key, "") != value
            ]
            if changed:
                # The module may read the variable when it is imported, and each trial may set another value.
                self.note = (
                    f"the script sets {', '.join(sorted(changed))} before it imports {name}, so trials import it and "
                    "what follows themselves; set it under `env:` in the study to have them start warm"
                )
                return
            if "." not in name and not self._is_same(name, origin):
                return
        self.learned.append(name)
        self._loader.load(name)

    def _is_same(self, name: str, origin: str) -> bool:
        """Whether the server would import the very file that the trial imported."""
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return False
        return spec is not None and str(spec.origin) == origin and is_library(spec, self._roots)
