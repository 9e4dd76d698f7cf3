"""Item: nothing waits for a window or a keyboard. A look at the program's source, and a run without a display."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from windlass.check.item import Item, failed, passed, skipped
from windlass.check.trial import TriedTrial

NAME = "headless"
_MOST_FILES = 500
# Full names of what opens a window or waits for somebody, and what to do instead.
_CALLS = {
    "matplotlib.pyplot.show": "plt.savefig(…) writes it to a file",
    "pylab.show": "plt.savefig(…) writes it to a file",
    "cv2.imshow": "cv2.imwrite(…) writes it to a file",
    "cv2.waitKey": "leave it out",
    "cv2.namedWindow": "leave it out",
    "input": "take it from the command line",
    "breakpoint": "leave it out",
    "pdb.set_trace": "leave it out",
    "webbrowser.open": "leave it out",
    "tkinter.Tk": "leave it out",
    "tkinter.mainloop": "leave it out",
    "turtle.mainloop": "leave it out",
    "turtle.done": "leave it out",
}
_BEGINNINGS = {"pygame.display.": "SDL_VIDEODRIVER=dummy, or leave it out"}
_METHODS = {"mainloop": "leave it out"}
# In what a program says at its end.
_NO_DISPLAY = "display", "tclerror", "eoferror", "x11", "xcb", "glfw", "opengl"
_DEFAULT_NAMES = {"plt": "matplotlib.pyplot"}  # also where the import cannot be seen


@dataclass(frozen=True)
class Window:
    """A line that opens a window or waits for somebody."""

    place: str  # file:line
    what: str
    instead: str


def check_headless(windows: Iterable[Window], tried: TriedTrial | None) -> Item:
    """The item on windows: fails where the source opens a window, or where the trial failed for want of a display."""
    found = list(windows)
    if found:
        first = found[0]
        places = tuple(f"{window.place}: {window.what}" for window in found)
        return failed(
            NAME,
            f"{first.place} calls {first.what}",
            f"there is no screen on a node: {first.instead}",
            places,
        )
    if tried is None:
        return skipped(
            NAME, "the source opens no window; the program was not started", "leave out --no-run"
        )
    if tried.problem and any(argument in tried.problem.lower() for argument in _NO_DISPLAY):
        return failed(
            NAME, f"a trial without a display {tried.problem}", "write to files instead of a screen"
        )
    if tried.problem:
        return skipped(NAME, "the source opens no window; the trial did not get far enough")
    return passed(NAME, f"the source opens no window, and a trial without a display {tried.ending}")


def find_windows(
    stages: Iterable[tuple[str, Iterable[str]]], workdir: str, project: str
) -> list[Window]:
    """Looks through the programs that the stages start, and what they import from the project."""
    pending = [path for _, arguments in stages for path in _programs(list(arguments), workdir)]
    seen: dict[str, None] = {}
    found: list[Window] = []
    while pending and len(seen) < _MOST_FILES:
        path = os.path.realpath(pending.pop(0))
        if path in seen:
            continue
        seen[path] = None
        tree = _parse(path)
        if tree is None:
            continue
        found += _windows_in(tree, os.path.relpath(path, workdir))
        roots = (os.path.dirname(path), workdir, project, os.path.join(project, "src"))
        pending += [file for name in _imports(tree) for file in _module_files(name, roots)]
    return found


def _programs(arguments: list[str], workdir: str) -> Iterator[str]:
    """Python files among the arguments of a command, also those that stand inside a line for a shell."""
    pieces = [piece.strip("'\"") for argument in arguments for piece in argument.split()]
    for number, piece in enumerate(pieces):
        if piece.endswith(".py") and os.path.isfile(os.path.join(workdir, piece)):
            yield os.path.join(workdir, piece)
        elif piece == "-m" and number + 1 < len(pieces):
            yield from _module_files(pieces[number + 1], (workdir, os.path.join(workdir, "src")))


def _module_files(name: str, roots: Iterable[str]) -> list[str]:
    """The file of a module, looked for in `roots`; nothing where it is not the user's own."""
    inside = name.replace(".", os.sep)
    for root in roots:
        for ending in (".py", "/__main__.py", "/__init__.py"):
            path = os.path.join(root, inside + ending)
            if os.path.isfile(path):
                return [path]
    return []


def _parse(path: str) -> ast.Module | None:
    """The syntax tree of a file; None where it cannot be read or is no Python of this version."""
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError):
        return None


def _imports(tree: ast.Module) -> Iterator[str]:
    """The names of all modules that a file may import. A name imported from a package may be a module as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _windows_in(tree: ast.Module, shown: str) -> Iterator[Window]:
    """The calls in a file that open a window or wait for a key. Names are resolved through the file's own imports."""
    names = dict(_DEFAULT_NAMES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update((alias.asname, alias.name) for alias in node.names if alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(
                (alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            window = _window(node, names, f"{shown}:{node.lineno}")
            if window is not None:
                yield window


def _window(node: ast.Call, names: dict[str, str], place: str) -> Window | None:
    """The window that a call opens; None where it opens none.

    Calls are recognised by their full names, by the beginning of those, by the name of a method, or by
    `render_mode="human"`.
    """
    written = _dotted(node.func)
    head, dot, rest = written.partition(".")
    full = names.get(head, head) + dot + rest
    for keyword in node.keywords:
        if (
            keyword.arg == "render_mode"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value == "human"
        ):
            return Window(place, "render_mode='human'", "render_mode='rgb_array' or none")
    if full in _CALLS:
        return Window(place, f"{written}()", _CALLS[full])
    for beginning, instead in _BEGINNINGS.items():
        if full.startswith(beginning):
            return Window(place, f"{written}()", instead)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        return Window(place, f".{node.func.attr}()", _METHODS[node.func.attr])
    return None


def _dotted(node: ast.expr) -> str:
    """A chain of attributes as text, such as `plt.show`; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
