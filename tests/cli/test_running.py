"""Trials as users write them, run by the real agent: environment, limits, retries, interrupts, rude behaviour."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from tests.conftest import Project, processes_with, wait_for

PYTHON = shlex.quote(sys.executable)


def script(project: Project, text: str, **study: object) -> None:
    """A study of one Python script; `study` adds keys to the file."""
    project.write("trial.py", text)
    keys = {"command": f"{PYTHON} trial.py {{n}}", "parameters": {"n": [1]}, **study}
    project.write("study.yaml", json.dumps(keys))


def rows(project: Project) -> list[dict[str, object]]:
    found: list[dict[str, object]] = project.json("results", "--json")
    return found


def test_environment_of_a_trial(project: Project) -> None:
    (project.folder / ".git").mkdir()
    script(
        project,
        "import os, sys, json; print(json.dumps([dict(os.environ), os.getcwd(), os.getpgid(0) == os.getpid(), sys.stdin.read()]))",
        env={"MINE": "a b", "LEARNING": "{n}"},
        slots=2,
    )
    project.env["DISPLAY"] = ":0"
    project.run("run")
    env, cwd, own_group, stdin = json.loads(project.run("logs", "0").stdout)
    assert cwd == str(project.folder) and own_group and stdin == ""
    assert (
        env["OMP_NUM_THREADS"]
        == env["MKL_NUM_THREADS"]
        == str(max(1, len(os.sched_getaffinity(0)) // 2))
    )
    assert env["PYTHONUNBUFFERED"] == "1" and env["MPLBACKEND"] == "Agg" and "DISPLAY" not in env
    assert env["source_dir"] == str(project.folder) and env["project_name"] == project.folder.name
    assert (
        env["scratch_dir"] == str(project.folder / ".windlass")
        and env["exp_name"] == env["WINDLASS_STUDY"]
    )
    assert env["MINE"] == "a b" and env["LEARNING"] == "1"
    assert json.loads(env["WINDLASS_PARAMS"]) == {"n": 1}
    assert env["WINDLASS_TRIAL"] == rows(project)[0]["id"]


def test_scratch_of_the_site_is_used(project: Project) -> None:
    script(project, "import os; print(os.environ['scratch_dir'])")
    project.env["SCRATCH"] = str(project.folder / "scratch disk")
    project.run("run")
    assert project.run("logs", "0").stdout.startswith(str(project.folder / "scratch disk"))


def test_gpus_are_dealt_out(project: Project) -> None:
    script(
        project,
        "import os, time; time.sleep(0.3); print(os.environ['CUDA_VISIBLE_DEVICES'])",
        parameters={"n": list(range(8))},
        needs={"gpus": 1, "cpus": 0.1},
    )
    project.env["CUDA_VISIBLE_DEVICES"] = "2,5"
    assert project.json("plan", "--json")["slots"] == 2
    project.run("run")
    seen = [project.run("logs", str(number)).stdout.strip() for number in range(8)]
    assert set(seen) == {"2", "5"}
    project.env["CUDA_VISIBLE_DEVICES"] = ""
    assert "shows none" in project.run("run", "--name", "other", code=2).stderr


def test_fractions_of_a_gpu_share_it(project: Project) -> None:
    script(
        project,
        "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])",
        parameters={"n": [1, 2, 3, 4]},
        needs={"gpus": 0.5, "cpus": 0.1},
    )
    project.env["CUDA_VISIBLE_DEVICES"] = "7"
    assert project.json("plan", "--json")["slots"] == 2
    project.run("run")
    assert {project.run("logs", str(number)).stdout.strip() for number in range(4)} == {"7"}


def test_exit_codes_and_causes(project: Project) -> None:
    script(
        project,
        "import os, sys\nn = int(sys.argv[1])\nif n == 9: os.kill(os.getpid(), 9)\nsys.exit(n)",
        parameters={"n": [0, 3, 9]},
    )
    project.run("run", code=1)
    found = {row["n"]: (row["state"], row["cause"], row["exit_code"]) for row in rows(project)}
    assert found == {
        0: ("done", "done", 0),
        3: ("failed", "failed", 3),
        9: ("failed", "killed", None),
    }
    assert "exit code 3" in project.run("explain", "1").stdout
    assert "SIGKILL" in project.run("explain", "2").stdout


def test_command_not_found(project: Project) -> None:
    """Lines under `setup` might have brought it, so it was not refused before."""
    study = "command: no-such-program {n}\nparameters: {n: [1]}\nenvironment: {setup: ['true']}\n"
    project.write("study.yaml", study)
    project.run("run", code=1)
    assert rows(project)[0]["exit_code"] == 127
    assert "no-such-program: command not found" in project.run("logs", "--failed").stdout


def test_time_limit_and_a_trial_that_ignores_term(project: Project) -> None:
    script(
        project,
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('here', flush=True)\ntime.sleep(600)",
        timeout="4s",
        grace="1s",
    )
    project.run("run", code=1)
    row = rows(project)[0]
    assert (row["state"], row["cause"], row["exit_code"]) == ("failed", "time limit", None)
    assert project.run("logs", "0").stdout == "here\n"
    assert not processes_with(f"WINDLASS_FOLDER={project.study_folder()}")


def test_retries(project: Project) -> None:
    counter = "import os, sys, pathlib\np = pathlib.Path('count' + sys.argv[1]); p.write_text(p.read_text() + 'x' if p.exists() else 'x')\n"
    script(
        project, counter + "sys.exit(len(p.read_text()) < 3)", retries=2, parameters={"n": [1, 2]}
    )
    project.run("run")
    assert [row["attempts"] for row in rows(project)] == [3, 3]


def test_retries_by_cause(project: Project) -> None:
    script(
        project,
        "import os, sys\nif sys.argv[1] == '1': os.kill(os.getpid(), 9)\nsys.exit(1)",
        retries={"killed": 2},
        parameters={"n": [1, 2]},
    )
    project.run("run", code=1)
    assert [row["attempts"] for row in rows(project)] == [3, 1]


def test_stages(project: Project) -> None:
    project.write(
        "study.yaml",
        f"""
stages:
  setup: {PYTHON} -c "print('setup')"
  train: {PYTHON} -c "import sys; print('train'); sys.exit({{code}})"
  predict: {PYTHON} -c "print('predict')"
parameters: {{code: [0, 4]}}
""",
    )
    project.run("run", code=1)
    assert project.run("logs", "0").stdout == "setup\ntrain\npredict\n"
    assert project.run("logs", "1").stdout == "setup\ntrain\n"
    assert rows(project)[1]["exit_code"] == 4
    assert "in stage train" in project.run("explain", "1").stdout


def test_again_runs_what_is_missing_or_failed(project: Project) -> None:
    script(
        project,
        "import os, sys; sys.exit(sys.argv[1] == '2' and not os.path.exists('mended'))",
        parameters={"n": [1, 2]},
    )
    project.run("run", code=1)
    project.write("mended", "")
    project.run("run")
    assert [row["attempts"] for row in rows(project)] == [1, 2]
    assert "0 to do" in project.run("run").stderr
    assert [row["attempts"] for row in rows(project)] == [1, 2]


def test_a_longer_grid_adds_only_the_new(project: Project) -> None:
    script(project, "print(1)", parameters={"n": [1, 2]})
    project.run("run")
    script(project, "print(1)", parameters={"n": [0, 1, 2, 3]})
    assert "2 trials are new" in project.run("run").stderr
    assert [(row["n"], row["attempts"]) for row in rows(project)] == [
        (1, 1),
        (2, 1),
        (0, 1),
        (3, 1),
    ]


def test_a_changed_command_is_another_trial_and_says_so(project: Project) -> None:
    script(project, "print(1)", parameters={"n": [1, 2]})
    project.run("run")
    script(project, "print(1)", parameters={"n": [1, 2]}, command=f"{PYTHON} -u trial.py {{n}}")
    assert "changed: 2 trials are new" in project.run("run").stderr
    assert len(rows(project)) == 2
    assert len(project.json("results", "--all", "--json")) == 4


def test_waiting_trials_of_a_former_command_are_named(project: Project) -> None:
    """Two commands of one script have one study, unless the user names them."""
    script(project, "print(1)")
    first, second = ([PYTHON, "trial.py", value] for value in ("1", "2"))
    project.run("run", "-e", "both", "--repeat", "3", "--", *first)
    project.run("retry", "--study", "both", "--no-run", "1", "2")
    done = project.run("run", "-e", "both", "--repeat", "2", "--", *second).stderr
    assert "changed: 2 trials are new; the results of 1 done before are kept" in done
    assert (
        "warning: 2 trials of the last run were still waiting and will not be run" in done
        and "`-e NAME`" in done
    )
    again = project.run("run", "-e", "both", "--repeat", "2", "--", *second).stderr
    assert "still waiting" not in again and "are new" not in again
    project.run("retry", "--study", "both", "--no-run", "3")
    back = project.run("run", "-e", "both", "--repeat", "3", "--", *first).stderr
    assert (
        "warning: 1 trial of the last run was still waiting" in back and "3 trials, 2 to do" in back
    )


def test_done_trials_under_a_changed_env_are_named(project: Project) -> None:
    """The variables are no part of a trial's id: its result stands, and the user can have it anew."""
    script(
        project,
        "import os; print('loss=' + os.environ['LR'])",
        metrics=["loss"],
        env={"LR": "0.1", "B": "b"},
    )
    project.run("run")
    assert "differ" not in project.run("run").stderr
    script(
        project,
        "import os; print('loss=' + os.environ['LR'])",
        metrics=["loss"],
        env={"LR": "0.2", "B": "b"},
    )
    done = project.run("run").stderr
    assert "note: `env` (LR) differs from the last run; 1 done trial keeps its result" in done
    assert "`windlass retry --done`" in done
    project.run("retry", "--done", "--yes")
    assert [row["loss"] for row in rows(project)] == [0.2]


def test_done_trials_of_other_code_or_another_configuration_file_are_named(
    project: Project,
) -> None:
    project.write("conf.yaml", "lr: 0.1\nwidth: 8\n")
    project.write("plot.py", "x")
    keys = {"command": "sh trial.sh {config}", "config": "conf.yaml", "parameters": {"lr": [1]}}
    for step, (code, conf, lr) in enumerate(
        [
            ("a", "lr: 0.1\nwidth: 8\n", [1]),
            ("a", "lr: 0.3\nwidth: 8\n", [1]),
            ("b", "lr: 0.3\nwidth: 9\n", [1, 2]),
        ]
    ):
        project.write("trial.sh", f"echo {code}; cat $1")
        project.write("conf.yaml", conf)
        project.write("study.yaml", json.dumps({**keys, "parameters": {"lr": lr}}))
        done = project.run("run").stderr
        if step < 2:
            assert "from the last run" not in done, "its own value of lr is each trial's"
    assert (
        "note: `config` (conf.yaml) and trial.sh differ from the last run; 1 done trial keeps its result"
        in done
    )
    project.run("retry", "--done", "--yes")
    assert (
        "b\n" in project.run("logs", "0").stdout and "width: 9" in project.run("logs", "0").stdout
    )
    assert "from the last run" not in project.run("run").stderr


def test_metrics_from_processes_and_threads(project: Project) -> None:
    script(
        project,
        """
import multiprocessing, threading, subprocess, sys, windlass

def work(k):
    for i in range(200):
        windlass.log(step=i, **{f"loss{k}": i})

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(k,)) for k in range(2)]
    workers += [threading.Thread(target=work, args=(k,)) for k in range(2, 5)]
    for worker in workers: worker.start()
    subprocess.run([sys.executable, "-c", "import windlass; windlass.log(other=5)"], check=True)
    for worker in workers: worker.join()
    windlass.log({"a/b": 1.5, "nothing": float("nan")}, step=7)
""",
    )
    project.run("run")
    journal = next((project.study_folder() / "journal").glob("*.jsonl")).read_text().splitlines()
    end = next(json.loads(line) for line in journal if '"e":"end"' in line)
    assert {name: count for name, (_, _, _, count) in end["m"].items()} == {
        **{f"loss{k}": 200 for k in range(5)},
        "other": 1,
        "a/b": 1,
        "nothing": 1,
    }
    assert end["m"]["loss3"] == [199.0, 0.0, 199.0, 200] and end["m"]["nothing"][0] == "nan"


def test_log_outside_a_trial_does_nothing(project: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import windlass; windlass.log(step=1, loss='x')"],
        env=project.env,
        check=True,
    )
    assert done.returncode == 0


def test_import_from_the_shipped_agent(project: Project) -> None:
    """A Python that has no Windlass still finds it: -S leaves out site-packages."""
    script(
        project,
        "import windlass; print(windlass.__file__); windlass.log(loss=2)",
        command=f"{PYTHON} -S trial.py {{n}}",
        metric="loss",
    )
    project.run("run")
    assert "agent.pyz" in project.run("logs", "0").stdout
    assert rows(project)[0]["loss"] == 2.0


def test_metrics_from_output(project: Project) -> None:
    script(
        project,
        r"""
import sys
print("step 3: loss=0.5, acc: 0.25")
print('{"loss": 0.125, "step": 9}')
sys.stderr.write("\r 45%|####      | 450/1000 [00:01<00:02, 300it/s, acc=0.75]")
print("validation score -> 12.5")
""",
        metrics={"loss": None, "acc": None, "score": r"score -> ([\d.]+)"},
    )
    project.run("run")
    row = rows(project)[0]
    assert (row["loss"], row["loss.max"], row["acc"], row["score"]) == (0.125, 0.5, 0.75, 12.5)


@pytest.mark.parametrize("on_nan", ["warn", "stop"])
def test_not_a_number(project: Project, on_nan: str) -> None:
    script(
        project,
        "import time, windlass\nwindlass.log(step=4, loss=float('nan'))\ntime.sleep(1.0)\nopen('survived', 'w').close()",
        metric="loss",
        on_nan=on_nan,
    )
    project.run("run", code=1 if on_nan == "stop" else 0)
    row = rows(project)[0]
    assert row["cause"] == ("diverged" if on_nan == "stop" else "done")
    assert (project.folder / "survived").exists() == (on_nan == "warn")
    assert "loss became nan at step 4" in project.run("explain", "0").stdout


def test_ctrl_c_once_lets_running_trials_end(project: Project) -> None:
    script(
        project,
        "import sys, time; open('began' + sys.argv[1], 'w'); time.sleep(1.5)",
        parameters={"n": list(range(6))},
        slots=2,
    )
    run = project.start("run")
    wait_for(lambda: len(list(project.folder.glob("began*"))) == 2)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=180)
    assert run.returncode == 130 and "Ctrl-C again" in errors
    assert project.counts() == {"done": 2, "waiting": 4}


def test_ctrl_c_twice_stops_them(project: Project) -> None:
    script(
        project,
        "import sys, time; open('began' + sys.argv[1], 'w'); time.sleep(600)",
        parameters={"n": list(range(6))},
        slots=2,
    )
    run = project.start("run")
    wait_for(lambda: len(list(project.folder.glob("began*"))) == 2)
    run.send_signal(signal.SIGINT)
    wait_for(lambda: "Ctrl-C" in os.read(run.stderr.fileno(), 9999).decode())
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=180)
    assert run.returncode == 130
    assert project.counts() == {"interrupted": 2, "waiting": 4}
    assert {row["cause"] for row in rows(project) if row["state"] == "interrupted"} == {"stopped"}
    assert not processes_with(f"WINDLASS_FOLDER={project.study_folder()}")


def test_a_trial_that_leaves_children_behind(project: Project) -> None:
    script(
        project,
        """
import subprocess, sys
subprocess.Popen(["sleep", "600"])                            # in the same process group, holding the pipes
subprocess.Popen(["sleep", "601"], start_new_session=True)    # in a session of its own
print("gone")
""",
        parameters={"n": [1, 2, 3]},
    )
    project.run("run")
    assert project.counts() == {"done": 3}
    assert not processes_with(f"WINDLASS_FOLDER={project.study_folder()}")


def test_a_gigabyte_of_output(project: Project) -> None:
    project.write(
        "study.yaml",
        "command: sh -c 'head -c 1000000000 /dev/zero; echo end {n}'\nparameters: {n: [1]}\n",
    )
    project.run("run")
    size = subprocess.run(
        f"{shlex.join(project.words('logs', '0'))} | tee /dev/stderr 2>&1 >/dev/null | wc -c",
        shell=True, cwd=project.folder, env=project.env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(size.stdout) == 1_000_000_000 + len("end 1\n")
    folder = project.study_folder()
    assert '"out":1000000006' in next((folder / "journal").glob("*.jsonl")).read_text()
    for path in (folder / "output").iterdir():
        path.unlink()


def test_output_limit_keeps_beginning_and_end(project: Project) -> None:
    script(
        project,
        "print('first')\nfor i in range(400000): print('line', i)\nprint('last')",
        output_limit="1MB",
    )
    project.run("run")
    text = project.run("logs", "0").stdout
    assert text.startswith("first\n") and text.endswith("last\n") and "bytes left out" in text
    assert len(text) < 3_000_000


def test_binary_output_and_no_newline(project: Project) -> None:
    script(
        project,
        "import sys; sys.stdout.buffer.write(bytes(range(256)) + b'no newline'); sys.stderr.write('error')",
    )
    project.run("run")
    done = subprocess.run(
        project.words("logs", "0"),
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        check=True,
    )
    # What a carriage return (13) overwrote, back to the line's begin (10), is left out, as it would be on a screen.
    assert done.stdout == bytes(range(11)) + bytes(range(14, 256)) + b"no newline"
    assert done.stderr == b"error"


def test_progress_bars_do_not_bloat_the_log(project: Project) -> None:
    script(
        project,
        "import sys, time\nfor i in range(20000): sys.stderr.write(f'\\r{i}/20000 [#####    ]')\nsys.stderr.write('\\nfinished\\n')",
    )
    project.run("run")
    done = project.run("logs", "0")
    assert done.stderr.endswith("19999/20000 [#####    ]\nfinished\n")
    assert len(done.stderr) < 2000


def test_logs_follow_a_running_trial(project: Project) -> None:
    script(
        project,
        "import os, time\nprint('begin')\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('end')",
    )
    run = project.start("run", "--quiet")
    wait_for(
        lambda: (
            (project.folder / ".windlass").exists()
            and "begin" in project.run("logs", "0", code=None).stdout
        )
    )
    logs = project.start("logs", "0", "-f")
    assert logs.stdout.readline() == "begin\n"
    project.write("go", "")
    assert logs.communicate(timeout=180)[0] == "end\n"
    run.communicate(timeout=180)


def test_cancel_and_retry(project: Project) -> None:
    script(
        project,
        "import os, sys, time\nopen('began' + sys.argv[1], 'w')\nif not os.path.exists('quick'): time.sleep(600)",
        parameters={"n": list(range(5))},
        slots=2,
    )
    run = project.start("run", "--quiet")
    wait_for(lambda: len(list(project.folder.glob("began*"))) == 2)
    assert "give more" not in project.run("cancel", "0", "4").stdout
    wait_for(lambda: project.counts().get("cancelled") == 2)
    assert project.run("cancel", code=2).stderr.count("--yes") == 1
    project.run("cancel", "--yes")
    run.communicate(timeout=180)
    assert run.returncode == 1
    assert project.counts() == {"cancelled": 5}
    project.write("quick", "")
    assert "5 cancelled" in project.run("run", code=1).stderr
    project.run("retry", "--cancelled")
    assert project.counts() == {"done": 5}
    before = [row["attempts"] for row in rows(project)]
    project.run("retry", "3")
    assert [row["attempts"] for row in rows(project)] == [*before[:3], before[3] + 1, before[4]]


def test_joblog(project: Project) -> None:
    script(
        project, "import sys; print('abc'); sys.exit(int(sys.argv[1]))", parameters={"n": [0, 5]}
    )
    project.run("run", "--joblog", "jobs.log", code=1)
    lines = [line.split("\t") for line in (project.folder / "jobs.log").read_text().splitlines()]
    assert lines[0] == [
        "Seq",
        "Host",
        "Starttime",
        "JobRuntime",
        "Send",
        "Receive",
        "Exitval",
        "Signal",
        "Command",
    ]
    found = {line[0]: (line[5], line[6], line[7], line[8]) for line in lines[1:]}
    assert found["1"] == ("4", "0", "0", f"{sys.executable} trial.py 0")
    assert found["2"] == ("4", "5", "0", f"{sys.executable} trial.py 5")
    (project.folder / "trial.py").write_text("print('abc')")
    project.run("run", "--joblog", "jobs.log")
    project.run("logs", "--joblog", "all.log")
    text = (project.folder / "jobs.log").read_text()
    assert text == (project.folder / "all.log").read_text() and len(text.splitlines()) == 4
    project.run("run", "--joblog", "nothing-to-do.log")
    assert (project.folder / "nothing-to-do.log").read_text() == text


def test_outputs_are_kept(project: Project) -> None:
    script(
        project,
        "import sys; open(f'model-{sys.argv[1]}.npz', 'w').write(sys.argv[1])",
        parameters={"n": [1, 2]},
        outputs=["model-{n}.npz"],
    )
    project.run("run")
    kept = sorted((file["trial"], file["path"]) for file in project.json("outputs", "--json"))
    assert kept == sorted((row["id"], f"model-{row['n']}.npz") for row in rows(project))


def test_settings_layers(project: Project) -> None:
    script(project, "print(1)", timeout="2h", slots=3)
    project.write("config/windlass/site.toml", 'timeout = "1h"\ngrace = "5s"\nslots = 1\n')
    settings = project.json("plan", "--json", "--slots", "4")["settings"]
    assert settings["slots"] == {"value": 4, "source": "command line"}
    assert settings["timeout_s"] == {"value": 7200.0, "source": "study"}
    assert settings["grace_s"] == {"value": 5.0, "source": "site"}
    assert settings["retries"] == {"value": {}, "source": "default"}
    assert not (project.folder / ".windlass").exists()


def test_a_hundred_thousand_trials_need_a_yes(project: Project) -> None:
    project.write(
        "study.yaml",
        f"command: 'true {{a}} {{b}}'\nparameters:\n  a: {list(range(400))}\n  b: {list(range(400))}\n",
    )
    done = project.run("run", code=2)
    assert "160,000" in done.stderr and "--yes" in done.stderr
    assert not (project.folder / ".windlass").exists()


def test_number_of_files_does_not_grow_with_trials(project: Project) -> None:
    counts = {}
    for trials in (100, 3000):
        project.write("tasks.txt", "true\n" * trials)
        project.run("run", "tasks.txt", "--name", f"n{trials}", "--quiet")
        folder = project.folder / ".windlass" / f"n{trials}"
        counts[trials] = len([path for path in folder.rglob("*") if path.is_file()])
    assert counts[3000] <= max(counts[100], 16)


def test_more_slots_than_the_usual_limit_of_descriptors(project: Project) -> None:
    words = project.words(
        "run",
        "--quiet",
        "--slots",
        "150",
        "--param",
        "n=1",
        "--seeds",
        "200",
        "--",
        "sh",
        "-c",
        "sleep 0.2; echo {n} {seed}",
    )
    limited = f"ulimit -Sn 128; exec {shlex.join(words)}"
    done = subprocess.run(
        ["sh", "-c", limited],
        cwd=project.folder,
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert project.counts() == {"done": 200}


def test_a_python_path_of_the_study_does_not_hide_windlass(project: Project) -> None:
    project.write("lib/own.py", "")
    project.write("train.py", "import own, windlass\nwindlass.log(loss=1)\n")
    command = (
        f"{sys.executable} -S train.py {{x}}"  # -S: what is installed for this Python is not seen
    )
    path = json.dumps(str(project.folder / "lib"))
    project.write(
        "study.yaml",
        f"command: {command}\nparameters: {{x: [1]}}\nenv: {{PYTHONPATH: {path}}}\nmetric: {{name: loss}}\n",
    )
    project.run("run")
    assert project.json("results", "--json")[0]["loss"] == 1


def test_a_study_of_the_same_name_elsewhere_in_the_project(project: Project) -> None:
    """What one of them has done is not taken for the other's."""
    project.write(".git/HEAD", "")
    for place in ("a", "b"):
        project.write(
            f"{place}/exp.yaml",
            "command: sh train.sh {x}\nparameters: {x: [1, 2]}\nmetrics: [loss]\n",
        )
        project.write(f"{place}/train.sh", f"echo loss={ord(place)}\n")
    project.run("run", "a/exp.yaml", "--on", "local")
    done = project.run("run", "b/exp.yaml", "--on", "local", code=2)
    assert "a/exp.yaml" in done.stderr and "-e NAME" in done.stderr
    project.run("run", "b/exp.yaml", "--on", "local", "-e", "other")
    assert [row["loss"] for row in project.json("results", "other", "--json")] == [98, 98]
    (project.folder / "a").rename(project.folder / "c")
    project.run("run", "c/exp.yaml", "--on", "local")  # it was moved, and is the same
    assert len(project.json("results", "exp", "--json")) == 2
