"""Holds the shape of the code: who may import whom, no cycles, sizes, what the agent may use, types and style."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.bundle.zipapp import agent_sources

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "windlass"
FILES = sorted(SOURCE.rglob("*.py"))

# A package or top-level module → what of ours it may import. `cli` and `__main__` may import everything.
MAY_IMPORT: dict[str, set[str]] = {
    # These travel to the node.
    "__init__": {"trial"},
    "trial": set(),
    "core": set(),
    "launchers": {"core"},
    "environments": {"core"},
    "agent": {"core", "environments", "launchers", "trial"},
    # Values, which touch nothing.
    "measured": set(),
    "model": set(),
    "secrets": set(),
    "settings": {"environments"},
    "usage": set(),
    "hanging": {"core"},
    "patience": {"core", "hanging"},
    "slurm": {"core"},
    "lint": {"core", "secrets", "slurm"},
    "search": {"core", "model"},
    "spec": {"core", "environments", "launchers", "model", "search", "secrets", "settings"},
    "site": {"core", "secrets", "settings", "slurm"},
    "plan": {
        "core",
        "launchers",
        "measured",
        "model",
        "search",
        "secrets",
        "settings",
        "site",
        "slurm",
        "spec",
        "usage",
    },
    "bundle": {
        "agent",
        "core",
        "environments",
        "launchers",
        "model",
        "plan",
        "search",
        "secrets",
        "settings",
    },
    "trackers": {"core"},
    "collect": {"agent", "core", "measured", "model", "secrets", "slurm", "trackers", "usage"},
    "completion": {"collect", "core"},
    # A place knows all that depends on where agents run: what to plan and to check there, and how to start them.
    "places": {"bundle", "collect", "core", "model", "plan", "search", "secrets", "site", "slurm"},
    "planning": {"bundle", "collect", "core", "measured", "model", "places", "plan", "search"},
    "todo": {"bundle", "collect", "core", "patience"},
    "following": {"bundle", "collect", "core", "patience", "places"},
    "rehearse": {"collect", "core", "model", "places"},
    "flow": {
        "bundle",
        "collect",
        "core",
        "following",
        "model",
        "patience",
        "places",
        "rehearse",
        "search",
    },
    "measure": {
        "bundle",
        "collect",
        "core",
        "flow",
        "measured",
        "model",
        "places",
        "plan",
        "search",
    },
    "check": {
        "bundle",
        "collect",
        "core",
        "flow",
        "model",
        "places",
        "planning",
        "search",
        "site",
        "todo",
    },
    "view": {"check", "collect", "core", "measured", "model", "secrets", "site", "slurm"},
}
FLOW_IMPORTS = (
    18  # modules of ours that the story needs; what is particular to a place or a command is theirs
)
PURE = ("plan/", "search/", "view/", "core/journal/fold.py", "collect/reconcile.py")
# What a pure module must not call: anything that reads or changes the world. (view/results.py writes where it is told.)
IMPURE = {
    "open",
    "run",
    "Popen",
    "listdir",
    "unlink",
    "mkdir",
    "makedirs",
    "rename",
    "replace_file",
    "system",
    "stat",
}


def name_of(path: Path) -> str:
    return (
        path.relative_to(SOURCE)
        .with_suffix("")
        .as_posix()
        .removesuffix("/__init__")
        .replace("/", ".")
    )


def unit_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def own_imports(tree: ast.AST) -> list[str]:
    """Names of our modules that a module imports, without the `windlass.` in front."""
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "windlass"
        ):
            inside = node.module.removeprefix("windlass").removeprefix(".")
            for alias in node.names:
                longer = f"{inside}.{alias.name}".removeprefix(".")
                is_module = (SOURCE / f"{longer.replace('.', '/')}.py").exists() or (
                    SOURCE / longer.replace(".", "/")
                ).is_dir()
                found.append(longer if is_module else inside)
        elif isinstance(node, ast.Import):
            found += [
                alias.name.removeprefix("windlass").removeprefix(".")
                for alias in node.names
                if alias.name.split(".")[0] == "windlass"
            ]
    return found


TREES = {path: ast.parse(path.read_text(), str(path)) for path in FILES}


def test_the_import_table() -> None:
    wrong = []
    for path, tree in TREES.items():
        unit = unit_of(path)
        if unit in ("cli", "__main__"):
            continue
        assert unit in MAY_IMPORT, f"{unit} is not in the table: say what it may import"
        for name in own_imports(tree):
            other = name.split(".")[0]
            if other and other != unit and other not in MAY_IMPORT[unit]:
                wrong.append(f"{path.relative_to(ROOT)} imports windlass.{name}")
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_cycle() -> None:
    seen: set[str] = set()

    def visit(unit: str, above: tuple[str, ...]) -> None:
        assert unit not in above, f"cycle: {' → '.join((*above, unit))}"
        if unit not in seen:
            for other in MAY_IMPORT[unit]:
                visit(other, (*above, unit))
            seen.add(unit)

    for unit in MAY_IMPORT:
        visit(unit, ())


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {name_of(path): set(own_imports(tree)) - {""} for path, tree in TREES.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"cycle: {' → '.join((*above, name))}"
        if name not in done:
            for other in graph.get(name, set()) - {name}:
                visit(other, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_no_own_import_inside_a_function() -> None:
    hidden = [
        f"{path.relative_to(ROOT)}:{function.lineno}"
        for path, tree in TREES.items()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and own_imports(ast.Module(function.body, []))
    ]
    assert not hidden, hidden


def test_sizes() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {len(path.read_text().splitlines())} lines"
        for path in FILES
        if len(path.read_text().splitlines()) > 500
    ]
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if lines > 60:
                    long.append(
                        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
                    )
    assert not long, "\n".join(long)


def test_the_story_needs_few_modules() -> None:
    assert len(set(own_imports(TREES[SOURCE / "flow.py"]))) <= FLOW_IMPORTS


def asks_for_the_place(node: ast.AST) -> bool:
    """Whether this asks which place a study has: compares with its name, or looks whether there are terms of jobs."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", "") == "slurm_answers"
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    names = {getattr(side, "attr", getattr(side, "id", "")) for side in sides}
    has_none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
    texts = {
        inner.value for side in sides for inner in ast.walk(side) if isinstance(inner, ast.Constant)
    }
    return bool(texts & {"slurm", "local"}) or (has_none and "terms" in names)


def test_only_places_ask_where_a_study_runs() -> None:
    """Elsewhere the decision is a method of Place, or a value that the place has put into the plan."""
    allowed = (
        "places/",
        "model.py",
        "site/",
    )  # model.py: what a plan without jobs has; site/: what this machine has
    wrong = []
    for path, tree in TREES.items():
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(allowed):
            wrong += [
                f"{name}:{node.lineno}" for node in ast.walk(tree) if asks_for_the_place(node)
            ]  # type: ignore[attr-defined]
    assert not wrong, wrong


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_pure_modules_touch_nothing() -> None:
    wrong = []
    for path, tree in TREES.items():
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(PURE):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = (
                    node.func.id
                    if isinstance(node.func, ast.Name)
                    else getattr(node.func, "attr", "")
                )
                if called in IMPURE:
                    wrong.append(f"{name}:{node.lineno} calls {called}")
    assert not wrong, wrong


def test_colours_are_chosen_in_one_place() -> None:
    """What is printed is escaped unless it is one of the constants of view/escapes.py; these know an own sequence."""
    allowed = {
        "view/escapes.py",
        "agent/report/printed.py",
        "agent/report/progress.py",
        "core/journal/reason.py",
        "spec/help_text.py",
    }
    others = [path.relative_to(SOURCE).as_posix() for path in FILES if "x1b" in path.read_text()]
    assert set(others) <= allowed, "use the colours of windlass.view.escapes"


def test_only_shell_starts_processes() -> None:
    allowed = {"core/processes.py", "core/queue/ask.py"}
    for path, tree in TREES.items():
        name = path.relative_to(SOURCE).as_posix()
        if name in allowed or name.startswith(("agent/", "environments/", "launchers/")):
            continue
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert "subprocess" not in imported, f"{name} starts processes"


def test_every_seam_has_its_contract_test() -> None:
    """A folder that is its own registry: what is added there is tried without being mentioned anywhere."""
    seams = {"launchers", "environments", "search", "trackers", "places"}
    without = [
        name for name in sorted(seams) if not (ROOT / f"tests/{name}/test_contract.py").exists()
    ]
    registries = {
        path.relative_to(SOURCE).parts[0]
        for path, tree in TREES.items()
        if path.name == "base.py" and "ABC" in path.read_text()
    }
    assert not without
    assert registries <= seams, "a folder with an interface in base.py is a seam"


def test_few_files_at_the_top_of_the_agent() -> None:
    assert len(list((SOURCE / "agent").glob("*.py"))) <= 18


AGENT_FILES = [(name, Path(path)) for name, path in agent_sources()]


@pytest.mark.parametrize("name,path", AGENT_FILES, ids=[name for name, _ in AGENT_FILES])
def test_the_agent_is_old_python_and_standard_library(name: str, path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    shipped = {
        name.removeprefix("windlass/")
        .removesuffix(".py")
        .removesuffix("/__init__")
        .replace("/", ".")
        for name, _ in AGENT_FILES
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            for imported in names:
                top = imported.split(".")[0]
                assert top in sys.stdlib_module_names or top in ("__future__", "windlass"), (
                    f"{name} imports {imported}"
                )
        assert not isinstance(node, ast.Match) if hasattr(ast, "Match") else True
    for imported in own_imports(tree):
        assert imported in shipped or imported == "", (
            f"{name} imports windlass.{imported}, which does not travel"
        )


def modules_after(code: str) -> set[str]:
    text = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_status_starts_light() -> None:
    """Counted in modules, not in time: few of our own, few of the standard library, none of the heavy libraries."""
    status = modules_after("import windlass.cli, windlass.cli.status") - modules_after(
        "import click"
    )
    ours = {name for name in status if name.split(".")[0] == "windlass"}
    assert len(ours) <= 84 and "windlass.settings" not in ours
    assert len(status - ours) <= 25
    assert not {name.split(".")[0] for name in status} & {"pydantic", "ruamel", "polars", "numpy"}


def test_the_agent_imports_only_the_standard_library() -> None:
    loaded = modules_after("import windlass.agent.__main__")
    strangers = (
        {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"windlass"}
    )
    before = {name.split(".")[0] for name in modules_after("")}
    assert strangers <= before


def test_log_is_cheap_to_import() -> None:
    assert len(modules_after("import windlass") - modules_after("")) < 40


def test_style_and_types() -> None:
    for words in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
