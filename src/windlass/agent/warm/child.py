"""A forked process becomes a trial: everything a fresh interpreter would have, then the script, then its end.

Runs in the study's own interpreter. What the script sees and does is what it would see and do in a cold start.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import os
import runpy
import signal
import sys
import threading
import types
import weakref
from importlib.machinery import BuiltinImporter, SourceFileLoader

from windlass.agent.warm.load import Board, Recorder, is_library, library_roots
from windlass.trial import reserved

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is slow to import, and this runs before every first trial
    from collections.abc import Callable
    from typing import NoReturn


_INTERRUPTED = -int(signal.SIGINT)  # an exit code of its own: the process must end by the signal


class Request:
    """One trial to start, as the agent wrote it: parts separated by zero bytes, numbers of parts first."""

    def __init__(self, data: bytes) -> None:
        parts = data.split(b"\0")
        self.kind, self.target, self.program, self.interpreter, self.cwd = map(
            os.fsdecode, parts[:5]
        )
        flags, arguments = int(parts[5]), int(parts[6])
        self.flags = [os.fsdecode(part) for part in parts[7 : 7 + flags]]
        self.arguments = [os.fsdecode(part) for part in parts[7 + flags : 7 + flags + arguments]]
        pairs = (part.partition(b"=") for part in parts[7 + flags + arguments :])
        self.environment = {key: value for key, separator, value in pairs if separator}

    def command_line(self) -> list[str]:
        """The arguments that a cold start would have."""
        module = ["-m"] if self.kind == "module" else []
        return [self.program, *self.flags, *module, self.target, *self.arguments]

    def script_folder(self) -> str:
        """What a cold start puts first in ``sys.path``."""
        if self.kind == "module":
            return self.cwd
        return os.path.dirname(os.path.realpath(os.path.join(self.cwd, self.target)))


def become(request: Request, out: int, err: int, mask: set[signal.Signals]) -> None:
    """Give this forked process the session, descriptors, signals, folder and environment of a trial of its own."""
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.chdir(request.cwd)
    except OSError as error:
        os.write(
            2,
            f"windlass: cannot enter {request.cwd}: {error.strerror}\n".encode("utf-8", "replace"),
        )
        os._exit(127)


def run_cold(request: Request) -> NoReturn:
    """Start a fresh interpreter in this process after all."""
    try:
        os.execve(request.interpreter, request.command_line(), request.environment)
    except OSError as error:
        os.write(
            2,
            f"windlass: cannot start {request.interpreter}: {error.strerror}\n".encode(
                "utf-8", "replace"
            ),
        )
    os._exit(127)


class Inheritance:
    """What the server had imported when it forked. Made before the fork: to look at it all would copy its pages."""

    def __init__(self, environment_changes: dict[str, str | None]) -> None:
        self.environment_changes = environment_changes
        self.modules = frozenset(sys.modules)
        self._last = next(reversed(sys.modules))

    def later_modules(self) -> list[str]:
        """Modules imported since, oldest first."""
        names = []
        for name in reversed(sys.modules):
            if name is self._last:
                break
            if name not in self.modules:
                names.append(name)
        return names[::-1]


def run_warm(request: Request, inheritance: Inheritance, board: Board | None) -> NoReturn:
    """Run the script here and end the process. With a `board`, the script's imports go on it."""
    _move_search_path(os.environ.get("PYTHONPATH", ""), request.environment.get(b"PYTHONPATH", b""))
    os.environ.clear()
    os.environ.update(
        {os.fsdecode(key): os.fsdecode(value) for key, value in request.environment.items()}
    )
    for key, value in inheritance.environment_changes.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    _forget_parent()
    _prepare_sys(request)
    if board is not None:
        sys.meta_path.insert(0, Recorder(board))
    reserved.start()
    if request.kind == "script":
        code = _execute_script(os.path.join(request.cwd, request.target))
    else:
        code = _execute_module(request.target)
    _finish(code, inheritance)


def _move_search_path(ours: str, theirs: bytes) -> None:
    """Modules are looked for in the trial's own folder where the server was given another one."""
    before, after = ours.split(os.pathsep), os.fsdecode(theirs).split(os.pathsep)
    if before != after and len(before) == len(after):
        moved = {path: after[number] for number, path in enumerate(before)}
        sys.path[:] = [moved.get(path, path) for path in sys.path]


def _forget_parent() -> None:
    """Renew what a module keeps of the process that imported it: random state, keys, folders."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
        key = process.AuthenticationString(os.urandom(32))
        process.current_process()._config["authkey"] = key


def _prepare_sys(request: Request) -> None:
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path.insert(0, request.script_folder())
    first = "-m" if request.kind == "module" else request.target
    sys.argv[:] = [first, *request.arguments]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = request.command_line()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.isatty():
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _fresh_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins)
    main.__loader__ = BuiltinImporter
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # multiprocessing's name for the same module
        sys.modules["__mp_main__"] = main
    return main


def _execute_script(path: str) -> int:
    main = _fresh_main()
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__file__ = path
    main.__dict__["__cached__"] = None
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(
            f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}",
            file=sys.stderr,
        )
        return 2
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except BaseException as error:
        return _exit_code(error)
    return 0


def _execute_module(name: str) -> int:
    _fresh_main()
    try:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    except BaseException as error:
        return _exit_code(error)
    return 0


def _exit_code(error: BaseException) -> int:
    """Report an exception that left the script as the interpreter does, and give the exit code it means."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next  # our own frames; a cold start has none
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    _call_hook(error)
    return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _call_hook(error: BaseException) -> None:
    failure = None
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except BaseException as raised:
        failure = raised
    if failure is not None:
        print("Error in sys.excepthook:", file=sys.stderr)
        failure.__context__ = None
        trace = failure.__traceback__
        failure.__traceback__ = trace.tb_next if trace is not None else None
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)


def _finish(code: int, inheritance: Inheritance) -> NoReturn:
    """End as an interpreter does, in its order, but leave what the server had imported to the kernel."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:
        _exit_code(error)
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass  # Python 3.9 raises the last exception again after having printed it
    is_flushed = _flush_streams()
    _clear_modules(inheritance.later_modules())
    is_flushed = _flush_streams() and is_flushed
    flush_c_streams()
    if code == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code if is_flushed else 120)


def flush_c_streams() -> None:
    """Write out what C code printed and C has not written yet."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        ctypes.CDLL(None).fflush(None)


def _flush_streams() -> bool:
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except BaseException as error:
        trouble = types.SimpleNamespace(
            exc_type=type(error),
            exc_value=error,
            exc_traceback=None,
            err_msg=None,
            object=sys.stdout,
        )
        sys.unraisablehook(trouble)
        return False
    try:
        if sys.stderr is not None and not sys.stderr.closed:
            sys.stderr.flush()
    except BaseException:
        pass  # nowhere left to say so
    return True


def _clear_modules(names: list[str]) -> None:
    """Let go of the script and of its own modules: files are flushed and ``__del__`` is called.

    Libraries are left alone, whether they were imported before the fork or after.
    """
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            setattr(sys, name, None)
    # Collecting also puts objects in the order in which they refer to each other: a file's text layer before its bytes.
    gc.collect()
    roots = library_roots()
    alive = []
    sys.modules.pop("__mp_main__", None)
    for name in ["__main__", *names]:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if name == "__main__" or spec is None or not is_library(spec, roots):
            alive.append(_forget_module(name))
    gc.collect()
    for reference in reversed(alive):
        module = reference()
        if isinstance(module, types.ModuleType):
            _clear_module(module)
    gc.collect()


def _forget_module(name: str) -> Callable[[], object]:
    """Take a module out of ``sys.modules`` and keep a weak reference to it."""
    module = sys.modules.pop(name, None)
    return weakref.ref(module) if isinstance(module, types.ModuleType) else lambda: None


def _clear_module(module: types.ModuleType) -> None:
    """Set its names to None, private ones first, as the interpreter does."""
    names = module.__dict__
    for is_private in (True, False):
        for key in list(names):
            if key != "__builtins__" and (key[:1] == "_" and key[1:2] != "_") == is_private:
                names[key] = None
