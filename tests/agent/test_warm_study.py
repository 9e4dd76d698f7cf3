"""Warm starts as a user has them: through `windlass run`."""

from __future__ import annotations

import json
import os
import signal
import sys

from tests.conftest import Project, processes_with, wait_for

SCRIPT = """
import sys, os, windlass
first = "decimal" in sys.modules
def lazily():
    import decimal
    return decimal.Decimal(1)
lazily()
windlass.log(step=1, loss=float(sys.argv[1]))
print(json_text := repr([first, sys.argv[1:], os.environ["WINDLASS_TRIAL_NUMBER"], os.environ["OMP_NUM_THREADS"]]))
sys.exit(3 if sys.argv[1] == "7" else 0)
"""


def study(project: Project, warm: object, script: str = SCRIPT, **more: object) -> None:
    project.write("trial.py", script)
    keys = {
        "command": [sys.executable, "trial.py", "{n}", "a b"],
        "parameters": {"n": list(range(10))},
        "warm": warm,
        **more,
    }
    project.write("study.yaml", json.dumps(keys))


def test_auto_learns_and_behaves_as_cold(project: Project) -> None:
    study(project, "auto", metric="loss")
    project.run("run", code=1)
    rows = project.json("results", "--json")
    assert {row["n"]: row["exit_code"] for row in rows} == {
        n: 3 if n == 7 else 0 for n in range(10)
    }
    assert [row["loss"] for row in rows] == [float(n) for n in range(10)]
    printed = [eval(project.run("logs", str(n)).stdout) for n in range(10)]
    assert [line[1:3] for line in printed] == [[[str(n), "a b"], str(n)] for n in range(10)]
    assert not printed[0][0] and printed[9][0], (
        "the last trial found loaded what the first one imported lazily"
    )
    assert (project.study_folder() / "warm.json").exists()
    assert not processes_with(f"WINDLASS_FOLDER={project.study_folder()}")


def test_a_list_of_modules(project: Project) -> None:
    study(project, ["decimal", "json"])
    project.run("run", code=1)
    assert all(eval(project.run("logs", str(n)).stdout)[0] for n in (0, 9))


def test_a_command_that_is_no_python_script_starts_cold_and_says_so(project: Project) -> None:
    project.write(
        "study.yaml",
        json.dumps({"command": "true {n}", "parameters": {"n": [1, 2]}, "warm": "auto"}),
    )
    done = project.run("run")
    assert "warm start refused" in done.stderr
    assert project.counts() == {"done": 2}


def test_a_named_module_that_starts_threads_is_refused(project: Project) -> None:
    project.write(
        "restless.py",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    )
    study(project, ["restless"], env={"PYTHONPATH": str(project.folder)})
    done = project.run("run", code=2)
    assert "restless" in done.stderr and "thread" in done.stderr
    assert "done" not in project.counts()
    study(project, "off", env={"PYTHONPATH": str(project.folder)})
    project.run("run", code=1)
    assert project.counts() == {"done": 9, "failed": 1}


def test_limits_hold_for_warm_trials(project: Project) -> None:
    study(
        project,
        "auto",
        "import time, sys\nprint('on', flush=True)\ntime.sleep(600 if sys.argv[1] == '1' else 0)\n",
        timeout="6s",
        grace="1s",
    )
    project.run("run", code=1)
    assert project.counts() == {"done": 9, "failed": 1}
    assert project.json("results", "--json")[1]["cause"] == "time limit"


def test_kill_of_the_agent_takes_warm_trials_along(project: Project) -> None:
    study(
        project,
        "auto",
        "import time, sys, os\nopen('at' + sys.argv[1], 'w')\ntime.sleep(0 if sys.argv[1] in '012' else 600)\n",
    )
    run = project.start("run", "--quiet")
    wait_for((project.folder / "at4").exists)
    folder = project.study_folder()
    agents = [agent["id"] for agent in project.json("status", "--json")["agents"] if agent["alive"]]
    header = json.loads((folder / "journal" / f"{agents[0]}.jsonl").read_text().splitlines()[0])
    run.kill()
    os.kill(header["pid"], signal.SIGKILL)
    run.communicate()
    wait_for(lambda: not processes_with(f"WINDLASS_AGENT={agents[0]}"))


def test_kill_of_the_warm_server(project: Project) -> None:
    held = project.write("hold", "")
    wait = "while int(sys.argv[1]) >= 3 and os.path.exists('hold'): time.sleep(0.05)"
    study(project, "auto", f"import os, sys, time\n{wait}\n")
    run = project.start("run", "--quiet")
    wait_for(lambda: project.counts().get("done", 0) == 3)
    folder = project.study_folder()
    (server,) = wait_for(
        lambda: [
            pid for pid in processes_with(f"WINDLASS_FOLDER={folder}") if _parent_is_agent(pid)
        ]
    )
    os.kill(server, signal.SIGKILL)
    held.unlink()
    _, errors = run.communicate(timeout=180)
    assert run.returncode == 0, f"what was lost with the server is started again, cold: {errors}"
    assert project.counts() == {"done": 10}


def _parent_is_agent(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            parent = int(file.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{parent}/cmdline", "rb") as file:
            return any(word.endswith(b"agent.pyz") for word in file.read().split(b"\0"))
    except OSError:
        return False
