"""Warm starts: a trial forked from a prepared interpreter is the same, from inside and outside, as a cold start."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import ROOT
from windlass.agent.warm.command import PythonCommand, WarmRefused, python_command
from windlass.agent.warm.load import Board, device_files
from windlass.agent.warm.starts import (
    Ended,
    Event,
    Gone,
    Learned,
    Ready,
    Refused,
    Started,
    WarmServer,
)

SOURCE = str(ROOT / "src")


@dataclass
class Outcome:
    returncode: int
    stdout: bytes
    stderr: bytes


@dataclass
class Bench:
    """Runs commands through one warm server, and cold."""

    folder: Path
    env: dict[str, str]
    modules: Sequence[str] = ()
    learn: bool = True
    server: WarmServer | None = None
    events: list[Event] = field(default_factory=list)
    asked: int = 0
    agent: str = SOURCE

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def command(self, words: Sequence[str]) -> PythonCommand:
        return python_command([sys.executable, *words], self.env, str(self.folder))

    def start(self, words: Sequence[str]) -> WarmServer:
        learned = str(self.folder / "warm.json")
        self.server = WarmServer(
            self.command(words), self.env, self.modules, self.learn, self.agent, learned
        )
        self.server.start()
        return self.server

    def ask(
        self, words: Sequence[str], env: Mapping[str, str] | None = None
    ) -> tuple[int, Path, Path]:
        server = self.server or self.start(words)
        self.asked += 1
        out, err = self.folder / f"{self.asked}.out", self.folder / f"{self.asked}.err"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            server.spawn(
                self.asked,
                self.command(words),
                env or self.env,
                out_file.fileno(),
                err_file.fileno(),
            )
        return self.asked, out, err

    def warm(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> Outcome:
        token, out, err = self.ask(words, env)
        ended = self.wait(lambda event: isinstance(event, Ended) and event.token == token)
        assert isinstance(ended, Ended)
        code = os.waitstatus_to_exitcode(ended.status)
        return Outcome(code, out.read_bytes(), err.read_bytes())

    def cold(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> Outcome:
        ended = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=env or self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return Outcome(ended.returncode, ended.stdout, ended.stderr)

    def wait(self, is_it: object) -> Event:
        """The first event for which `is_it` holds, among those so far and those to come."""
        assert self.server is not None and callable(is_it)
        seen = 0
        while True:
            for event in self.events[seen:]:
                seen += 1
                if is_it(event):
                    return event
                if isinstance(event, Gone):
                    raise AssertionError(f"the server is gone: {event.reason}")
            poller = (
                select.poll()
            )  # select() knows no descriptor above 1023, which a long test run may reach
            poller.register(self.server, select.POLLIN)
            readable = poller.poll(60_000)
            assert readable, f"nothing happened for a minute after {self.events}"
            self.events += self.server.read()

    def started(self) -> list[Started]:
        return [event for event in self.events if isinstance(event, Started)]

    def check_same(self, *words: str, times: int = 2) -> Outcome:
        """Both the learning and the warm trial do what a cold one does."""
        expected = self.cold(words)
        for _ in range(times):
            assert self.warm(words) == expected
        assert not any(event.cold_because for event in self.started())
        return expected


def kind(wanted: type) -> object:
    return lambda event: isinstance(event, wanted)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    folder = tmp_path / 'it\'s a "study" ü'
    folder.mkdir()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    made = Bench(folder, {**env, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"})
    yield made
    if made.server is not None:
        made.server.close()


def add_site(bench: Bench, **modules: str) -> None:
    """Installed packages, for the interpreter of this study alone."""
    for name, text in modules.items():
        bench.write(f"lib/site-packages/{name}.py", text)
    bench.env["PYTHONPATH"] = str(bench.folder / "lib" / "site-packages")


# The same as a cold start


ENDS = {
    "returns": "print('out'); import sys; print('err', file=sys.stderr)",
    "exit 3": "import sys; print('x'); sys.exit(3)",
    "exit none": "import sys; sys.exit()",
    "exit true": "import sys; sys.exit(True)",
    "exit minus one": "import sys; sys.exit(-1)",
    "exit text": "import sys; sys.exit('a text')",
    "raise SystemExit tuple": "raise SystemExit((1, 2))",
    "exception": "def f():\n    raise ValueError('bad')\nf()",
    "chained": "try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('x') from e",
    "in context": "try:\n    1 / 0\nexcept Exception:\n    {}['x']",
    "syntax error": "x = (1,\ny = 2\n",
    "import error": "import no_such_module_at_all",
    "recursion": "import sys\nsys.tracebacklimit = 3\ndef f():\n    f()\nf()",
    "os._exit": "import os; print('lost'); os._exit(7)",
    "kills itself": "import os, signal; print('x', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "terminates itself": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupted": "raise KeyboardInterrupt",
    "own hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0",
    "broken hook": "import sys\nsys.excepthook = None\n1 / 0",
    "no newline, binary": "import sys; sys.stdout.buffer.write(b'\\xff\\x00abc')",
    "closed stdout": "import sys; sys.stdout.close()",
    "signals": "import signal as s; print([s.getsignal(n) for n in (s.SIGCHLD, s.SIGINT, s.SIGPIPE, s.SIGTERM)])",
    "mask": "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
}


def test_ends(bench: Bench) -> None:
    for number, (name, text) in enumerate(ENDS.items()):
        bench.write(f"end{number}.py", text)
        words = [f"end{number}.py"]
        assert bench.warm(words) == bench.cold(words), name
    assert not any(event.cold_because for event in bench.started())


def test_a_signal_of_its_own_shows_in_the_status(bench: Bench) -> None:
    bench.write("dies.py", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert bench.warm(["dies.py"]).returncode == -signal.SIGTERM


INSIDE = """
import json, os, sys
import sibling
names = {k: repr(v) for k, v in globals().items() if k.startswith("__") and k not in ("__loader__", "__spec__")}
print(json.dumps({
    "argv": sys.argv, "orig": getattr(sys, "orig_argv", None), "path": sys.path, "cwd": os.getcwd(),
    "names": sorted(names.items()), "loader": type(__loader__).__name__, "file": __file__, "spec": getattr(__spec__, "name", None),
    "sibling": sibling.__file__, "executable": sys.executable, "flags": str(sys.flags),
    "env": sorted(os.environ.items()), "raw": os.popen("env | grep -c ^ODD=").read(),
    "stdin": os.fstat(0).st_rdev, "read": sys.stdin.read(), "buffering": sys.stdout.line_buffering,
    "seekable": os.isatty(1), "encoding": [sys.stdout.encoding, sys.stderr.errors],
    "descriptors": sorted(int(n) for n in os.listdir("/proc/self/fd"))[:3],
    "leader": os.getsid(0) == os.getpid(), "main": sys.modules["__main__"].__dict__ is globals(),
}, indent=1))
"""


def test_inside(bench: Bench) -> None:
    bench.write("proj/inside.py", INSIDE)
    bench.write("proj/sibling.py", "")
    bench.env["ODD"] = "two\nlines = \u00fc"
    bench.env["BYTES"] = os.fsdecode(b"\xff\xfe")
    arguments = [
        "",
        "a b",
        "'\"",
        "$HOME",
        "x,y",
        "two\nlines",
        "\u00fc\u4e2d",
        os.fsdecode(b"\xff"),
        "--lr={}",
    ]
    words = ["-u", "-W", "ignore", "proj/inside.py", *arguments]
    cold, warm, again = bench.cold(words), bench.warm(words), bench.warm(words)
    expected = json.loads(cold.stdout)
    expected["leader"] = True  # the agent gives trials a session of their own, cold or warm
    assert json.loads(warm.stdout) == json.loads(again.stdout) == expected
    assert expected["argv"] == ["proj/inside.py", *arguments]


def test_no_descriptor_of_the_server_is_inherited(bench: Bench) -> None:
    bench.write(
        "open.py", "import os\nfor n in sorted(os.listdir('/proc/self/fd'), key=int):\n    print(n)"
    )
    bench.check_same("open.py")


def test_environment_of_each_trial(bench: Bench) -> None:
    bench.write("env.py", "import os; print(sorted(os.environ.items()))")
    for value in ("1", "x" * 300_000):
        env = {
            **{key: bench.env[key] for key in ("PATH", "PYTHONDONTWRITEBYTECODE")},
            "OPENBLAS_NUM_THREADS": "1",
        }
        env.update({f"BIG{number}": value[:100_000] for number in range(3)})
        assert bench.warm(["env.py"], env).stdout == bench.cold(["env.py"], env).stdout


def test_module(bench: Bench) -> None:
    bench.write("package/__init__.py", "")
    bench.write(
        "package/tool.py", INSIDE.replace("import sibling", "from . import sibling") + "\n1 / 0"
    )
    bench.write("package/sibling.py", "")
    words = ["-m", "package.tool", "a b"]
    cold, warm = bench.cold(words), bench.warm(words)
    assert json.loads(warm.stdout) == {**json.loads(cold.stdout), "leader": True}
    assert warm.stderr == cold.stderr
    assert warm.returncode == cold.returncode == 1


def test_missing_module(bench: Bench) -> None:
    bench.check_same("-m", "no_such_package.tool")


def test_at_the_end(bench: Bench) -> None:
    bench.write(
        "own.py", "class Noisy:\n    def __del__(self):\n        print('deleted')\nkept = Noisy()"
    )
    bench.write(
        "end.py",
        """
        import atexit, threading, time, own
        file = open("unclosed.txt", "a")
        file.write("written\\n")
        class Cycle:
            def __del__(self):
                print("cycle")
        cycle = Cycle(); cycle.me = cycle
        atexit.register(print, "first registered")
        atexit.register(print, "last registered")
        threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
        print("end of script")
        """,
    )
    expected = bench.cold(["end.py"]).stdout.splitlines()
    for _ in range(2):
        lines = bench.warm(["end.py"]).stdout.splitlines()
        assert lines[:4] == expected[:4]
        assert (
            sorted(lines[4:]) == sorted(expected[4:]) == [b"cycle", b"deleted"]
        )  # Python promises no order here
    assert (bench.folder / "unclosed.txt").read_text() == "written\n" * 3


def test_error_at_exit(bench: Bench) -> None:
    bench.write("end.py", "import atexit\ndef f():\n    1 / 0\natexit.register(f)\nprint('x')")
    expected, warm = bench.cold(["end.py"]), bench.warm(["end.py"])
    assert (warm.returncode, warm.stdout) == (expected.returncode, expected.stdout)
    assert warm.stderr.splitlines()[-1] == expected.stderr.splitlines()[-1]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(bench: Bench, method: str) -> None:
    bench.write(
        "pool.py",
        f"""
        import multiprocessing, os, pickle
        class Point:
            def __init__(self, x):
                self.x = x
        def double(point):
            return Point(2 * point.x)
        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                print([point.x for point in pool.map(double, [Point(1), Point(2)])])
            print(pickle.loads(pickle.dumps(Point(5))).x, pickle.dumps(Point(5))[:30])
        """,
    )
    assert bench.check_same("pool.py").stdout.startswith(b"[2, 4]\n5 ")


def test_secrets_differ_between_trials(bench: Bench) -> None:
    bench.write(
        "secret.py",
        """
        import multiprocessing, random, secrets, tempfile, uuid, numpy
        print(random.random()); print(numpy.random.rand()); print(numpy.random.default_rng().random())
        print(uuid.uuid4()); print(secrets.token_hex()); print(next(tempfile._get_candidate_names()))
        print(bytes(multiprocessing.current_process().authkey).hex())
        """,
    )
    outcomes = [bench.warm(["secret.py"]) for _ in range(3)]
    assert [outcome.stderr for outcome in outcomes] == [b""] * 3
    for values in zip(*(outcome.stdout.split() for outcome in outcomes), strict=True):
        assert len(set(values)) == 3


def test_windlass_is_imported_by_the_trial_itself(bench: Bench) -> None:
    bench.write(
        "log.py",
        "import sys\nprint([n for n in sys.modules if 'windlass' in n])\nimport windlass\nwindlass.log(a=1)",
    )
    bench.env["PYTHONPATH"] = SOURCE
    bench.check_same("log.py")


# Learning


LAZY = """
import sys
before = [name for name in ("json.tool", "numpy.linalg", "own") if name in sys.modules]
def work():
    import json.tool, numpy.linalg, own
    return float(numpy.linalg.norm([3.0, 4.0])), own.argv
print(before, *work())
"""


def test_learns_what_is_imported_lazily(bench: Bench) -> None:
    bench.write("lazy.py", LAZY)
    bench.write("own.py", "import sys\nargv = list(sys.argv)")
    assert bench.warm(["lazy.py", "1"]).stdout == b"[] 5.0 ['lazy.py', '1']\n"
    learned = bench.wait(kind(Learned))
    assert isinstance(learned, Learned)
    assert {"json.tool", "numpy.linalg"} < set(learned.modules)
    assert "own" not in learned.modules
    assert (
        bench.warm(["lazy.py", "2"]).stdout
        == b"['json.tool', 'numpy.linalg'] 5.0 ['lazy.py', '2']\n"
    )


def test_remembers_what_it_learned(bench: Bench) -> None:
    bench.write("lazy.py", LAZY)
    bench.write("own.py", "argv = 0")
    bench.warm(["lazy.py"])
    bench.wait(kind(Learned))
    assert bench.server is not None
    bench.server.close()
    again = Bench(bench.folder, bench.env)
    assert again.warm(["lazy.py"]).stdout.startswith(b"['json.tool', 'numpy.linalg']")
    assert "numpy.linalg" in next(
        event.modules for event in again.events if isinstance(event, Ready)
    )
    assert again.server is not None
    again.server.close()
    bench.write("lazy.py", LAZY + "# changed")
    changed = Bench(bench.folder, bench.env)
    assert changed.warm(["lazy.py"]).stdout.startswith(b"[]")
    assert changed.server is not None
    changed.server.close()


def test_a_failed_first_trial_does_not_end_learning(bench: Bench) -> None:
    bench.write(
        "lazy.py",
        "import sys\nprint('csv' in sys.modules)\nif sys.argv[1] == 'fail': sys.exit(1)\nimport csv",
    )
    outputs = [bench.warm(["lazy.py", word]).stdout for word in ("fail", "go", "go")]
    assert outputs == [b"False\n", b"False\n", b"True\n"]


def test_trials_wait_for_the_first_to_teach(bench: Bench) -> None:
    bench.write("lazy.py", "import sys\nprint('csv' in sys.modules)\nimport csv")
    asked = [bench.ask(["lazy.py"]) for _ in range(3)]
    for token, _, _ in asked:
        bench.wait(lambda event, token=token: isinstance(event, Ended) and event.token == token)
    assert [out.read_text() for _, out, _ in asked] == ["False\n", "True\n", "True\n"]


def test_a_long_first_trial_does_not_hold_up_the_others(bench: Bench) -> None:
    bench.write(
        "wait.py", "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    )
    bench.write("go.py", "print('went')")
    first, _, _ = bench.ask(["wait.py", "flag"])
    assert bench.warm(["go.py"]).stdout == b"went\n"
    (bench.folder / "flag").touch()
    bench.wait(lambda event: isinstance(event, Ended) and event.token == first)


def test_variable_set_before_an_import(bench: Bench) -> None:
    add_site(bench, reader="import os\nseen = os.environ.get('THREADS')")
    bench.write(
        "sets.py",
        "import os, sys\nos.environ['THREADS'] = sys.argv[1]\nimport reader\nprint(reader.seen)",
    )
    assert [bench.warm(["sets.py", word]).stdout for word in "123"] == [b"1\n", b"2\n", b"3\n"]
    learned = bench.wait(kind(Learned))
    assert isinstance(learned, Learned)
    assert "THREADS" in learned.notes[0] and "reader" in learned.notes[0]


def test_what_a_module_does_to_the_environment_is_kept(bench: Bench) -> None:
    add_site(bench, setter="import os\nos.environ['SET'] = 'yes'\nos.environ.pop('GONE', None)")
    bench.env["GONE"] = "no"
    bench.write("use.py", "import setter, os\nprint(os.environ['SET'], 'GONE' in os.environ)")
    bench.check_same("use.py", times=3)


def test_module_beside_the_script_goes_first(bench: Bench) -> None:
    add_site(bench, tools="name = 'installed'")
    bench.write("a/use.py", "import tools, json\nprint(tools.name)")
    bench.write("b/use.py", "import tools, json\nprint(tools.name)")
    bench.write("b/tools.py", "name = 'beside'")
    bench.write("c/use.py", "import json\nprint(json.name)")
    bench.write("c/json.py", "name = 'mine'")
    assert [bench.warm([f"{folder}/use.py"]).stdout for folder in "aabc"] == [
        b"installed\n", b"installed\n", b"beside\n", b"mine\n"
    ]  # fmt: skip
    assert [bool(event.cold_because) for event in bench.started()] == [False, False, True, True]


def test_variable_that_the_interpreter_read_at_its_start(bench: Bench) -> None:
    bench.write("hash.py", "print(hash('x'))")
    env = {**bench.env, "PYTHONHASHSEED": "0"}
    assert bench.warm(["hash.py"], env).stdout == bench.cold(["hash.py"], env).stdout
    assert "PYTHONHASHSEED" in bench.started()[0].cold_because


def test_variable_that_a_module_read_on_import(bench: Bench) -> None:
    add_site(bench, reader="import os\nseen = os.environ.get('MODE', 'none')")
    bench.write("x.py", "import reader\nprint(reader.seen)")
    modes = ["none", "none", "a", "b", "none"]
    envs = [{**bench.env, **({} if mode == "none" else {"MODE": mode})} for mode in modes]
    assert [bench.warm(["x.py"], env).stdout.decode().strip() for env in envs] == modes
    assert [event.cold_because for event in bench.started()] == [
        "", "", "MODE is different for this trial", "MODE is different for this trial", ""
    ]  # fmt: skip


# Modules that must not be shared


THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"


def test_list_is_imported(bench: Bench) -> None:
    bench.modules, bench.learn = ["csv", "json.tool"], False
    bench.write("look.py", "import sys\nprint('csv' in sys.modules, 'json.tool' in sys.modules)")
    assert bench.warm(["look.py"]).stdout == b"True True\n"
    assert bench.wait(kind(Ready)) == Ready(("csv", "json.tool"), ())


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("threaded", "threaded starts threads"),
        ("user", "user starts threads"),
        ("missing", "missing"),
    ],
)
def test_list_is_refused(bench: Bench, module: str, said: str) -> None:
    add_site(bench, threaded=THREAD, user="import threaded")
    bench.modules, bench.learn = ["json", module], False
    bench.write("x.py", "print('ran')")
    _, out, _ = bench.ask(["x.py"])
    refused = bench.wait(kind(Refused))
    assert isinstance(refused, Refused)
    assert said in refused.reason
    bench.wait(kind(Gone))
    assert out.read_bytes() == b""


def test_threads_that_stop_for_a_fork_are_no_reason(bench: Bench) -> None:
    bench.env["OPENBLAS_NUM_THREADS"] = "2"
    bench.modules, bench.learn = ["numpy"], False
    bench.write("x.py", "import numpy\na = numpy.ones((300, 300))\nprint((a @ a).sum())")
    assert bench.check_same("x.py").stdout == b"27000000.0\n"


def test_auto_leaves_out_what_starts_threads(bench: Bench) -> None:
    add_site(bench, threaded=THREAD + "print", plain="", user="import threaded", later="")
    bench.write(
        "x.py",
        """
        import sys
        print([name in sys.modules for name in ("plain", "user", "threaded", "later")])
        import plain, user, later, threading
        print(threading.active_count())
        """,
    )
    assert bench.warm(["x.py"]).stdout == b"[False, False, False, False]\n2\n"
    outcomes = [bench.warm(["x.py"]).stdout for _ in range(3)]
    assert outcomes[-1] == b"[True, False, False, True]\n2\n"
    learned = bench.wait(kind(Learned))
    assert isinstance(learned, Learned)
    assert any("threaded starts threads" in note for note in learned.notes)
    assert not {"threaded", "user"} & set(learned.modules)


@pytest.mark.parametrize("learn", [True, False])
def test_module_that_prints(bench: Bench, learn: bool) -> None:
    add_site(bench, loud="import sys\nprint('hello')\nprint('there', file=sys.stderr)", plain="")
    bench.modules, bench.learn = ([] if learn else ["loud", "plain"]), learn
    bench.write("x.py", "import plain, loud")
    assert bench.check_same("x.py", times=4).stdout == b"hello\n"
    if not learn:
        ready = bench.wait(kind(Ready))
        assert isinstance(ready, Ready)
        assert ready.modules == ("plain",)
        assert "loud prints on import" in ready.notes[0]


def test_module_that_fails_is_skipped(bench: Bench) -> None:
    add_site(
        bench, broken="import json.tool\nraise RuntimeError('no')", leaves="raise SystemExit(4)"
    )
    bench.write(
        "x.py",
        "try:\n    import broken\nexcept RuntimeError as e:\n    print(e)\nimport csv\nimport leaves",
    )
    assert bench.check_same("x.py", times=3).returncode == 4


def test_running_trials_survive_a_restart_of_the_server(bench: Bench) -> None:
    add_site(bench, loud="print('hello')")
    bench.write(
        "x.py",
        "import loud, os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)",
    )
    first, out, _ = bench.ask(["x.py", "flag"])
    second, _, _ = bench.ask(["x.py", "x.py"])
    bench.wait(lambda event: isinstance(event, Ended) and event.token == second)
    (bench.folder / "flag").touch()
    ended = bench.wait(lambda event: isinstance(event, Ended) and event.token == first)
    assert isinstance(ended, Ended)
    assert (ended.status, out.read_bytes()) == (0, b"hello\n")


def test_device_files() -> None:
    assert device_files(["/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "socket:[1]"]) == [
        "/dev/nvidiactl",
        "/dev/nvidia0",
    ]


def test_board_carries_lines_and_drops_what_does_not_fit() -> None:
    board = Board()
    board.write("a\tb")
    board.write("two\nlines")
    assert board.read() == ["a\tb"]
    board.write("x" * (9 << 20))
    board.write("c")
    assert board.read() == ["c"]
    assert board.read() == []


# The server's life


def test_server_from_the_shipped_agent(bench: Bench, tmp_path: Path) -> None:
    shipped = tmp_path / "agent.pyz"
    with zipfile.ZipFile(shipped, "w") as archive:
        for path in sorted(Path(SOURCE).rglob("*.py")):
            archive.write(path, path.relative_to(SOURCE))
    bench.env["PYTHONPATH"] = str(shipped)
    bench.agent = str(shipped)
    bench.write("x.py", "import windlass\nprint(windlass.__file__)\nwindlass.log(loss=1)")
    assert b"agent.pyz" in bench.check_same("x.py").stdout


def test_server_ends_with_its_socket_and_leaves_trials_alone(bench: Bench) -> None:
    bench.write(
        "x.py",
        "import os, sys, time\nwhile not os.path.exists('flag'): time.sleep(0.01)\nopen('done', 'w').close()",
    )
    bench.ask(["x.py"])
    started = bench.wait(kind(Started))
    assert isinstance(started, Started) and bench.server is not None
    server = bench.server.pid
    bench.server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
    os.kill(started.pid, 0)
    (bench.folder / "flag").touch()
    while not (bench.folder / "done").exists():
        select.select([], [], [], 0.01)


def test_killed_server_is_reported(bench: Bench) -> None:
    bench.write("x.py", "pass")
    server = bench.start(["x.py"])
    bench.wait(kind(Ready))
    os.kill(server.pid, signal.SIGKILL)
    gone = bench.wait(kind(Gone))
    assert isinstance(gone, Gone)
    assert "-9" in gone.reason
    server.spawn(1, bench.command(["x.py"]), bench.env, 1, 2)
    assert server.read() == []


def test_interpreter_that_does_not_start(bench: Bench) -> None:
    bench.write("x.py", "pass")
    bench.env["PYTHONHOME"] = "/nowhere"
    bench.start(["x.py"])
    gone = bench.wait(kind(Gone))
    assert isinstance(gone, Gone)
    assert gone.reason


def test_usage_is_reported(bench: Bench) -> None:
    bench.write("x.py", "data = bytearray(50_000_000)\nfor i in range(300_000): pass")
    bench.warm(["x.py"])
    ended = next(event for event in bench.events if isinstance(event, Ended))
    assert ended.max_rss_kb > 50_000
    assert 0 < ended.cpu_s < 60


# Which commands are Python scripts


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name in ("python", "python3", "python3.11", "bash", "env"):
        (tmp_path / "bin" / name).symlink_to(
            shutil.which("env") if name == "env" else sys.executable
        )
    (tmp_path / "x.py").write_text("pass")
    for name, line in {
        "direct": f"#!{tmp_path}/bin/python -u",
        "by_env": "#!/usr/bin/env python3",
        "by_env_s": "#!/usr/bin/env -S python3 -O",
        "shell": "#!/bin/sh",
        "none": "pass",
    }.items():
        (tmp_path / name).write_text(line + "\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "plain.py").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "zip.py").write_bytes(b"PK\3\4")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "flags", "kind_of", "target", "arguments"),
    [
        (["python", "x.py", "-c", "1"], (), "script", "x.py", ("-c", "1")),
        (
            ["python3.11", "-uO", "-W", "error", "-Xdev", "x.py"],
            ("-uO", "-W", "error", "-Xdev"),
            "script",
            "x.py",
            (),
        ),
        (["/usr/bin/env", "python", "x.py"], (), "script", "x.py", ()),
        (["python3", "-um", "a.b", "x"], ("-u",), "module", "a.b", ("x",)),
        (["python3", "-X", "utf8", "-ma.b"], ("-X", "utf8"), "module", "a.b", ()),
        (["./direct", "1"], ("-u",), "script", "./direct", ("1",)),
        (["./by_env", "1"], (), "script", "./by_env", ("1",)),
        (["./by_env_s"], ("-O",), "script", "./by_env_s", ()),
    ],
)
def test_python_command(
    scripts: Path,
    words: list[str],
    flags: tuple[str, ...],
    kind_of: str,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    command = python_command(words, {"PATH": f"/nowhere:{scripts}/bin"}, str(scripts))
    assert os.path.dirname(command.interpreter) == str(scripts / "bin")
    assert command[2:6] == (flags, kind_of, target, arguments)
    assert command.cwd == str(scripts)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "empty"),
        (["python", "-c", "pass"], "-c"),
        (["python", "-"], "stdin"),
        (["python"], "no script"),
        (["python", "-V"], "-V"),
        (["python", "--help"], "--help"),
        (["python", "-i", "x.py"], "-i"),
        (["python", "-W"], "lacks a value"),
        (["python", "-X", "importtime", "x.py"], "importtime"),
        (["python", "missing.py"], "missing.py cannot be read: No such file"),
        (["python", "."], "cannot be read"),
        (["python", "zip.py"], "not Python source"),
        (["bash", "x.sh"], "bash is not a Python script"),
        (["./shell"], "not a Python script"),
        (["./none"], "not a Python script"),
        (["./plain.py"], "not an executable"),
        (["nowhere"], "not an executable"),
        (["env", "A=1", "python", "x.py"], "env is used"),
    ],
)
def test_python_command_is_refused(scripts: Path, words: list[str], reason: str) -> None:
    with pytest.raises(WarmRefused) as refused:
        python_command(words, {"PATH": f"{scripts}/bin"}, str(scripts))
    assert reason in refused.value.reason


def test_server_is_for_one_interpreter_and_its_flags(bench: Bench) -> None:
    bench.write("x.py", "pass")
    server = bench.start(["x.py"])
    with pytest.raises(WarmRefused):
        server.spawn(1, bench.command(["-O", "x.py"]), bench.env, 1, 2)
