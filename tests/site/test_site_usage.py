"""`windlass usage`: disks are looked at, the programs that a site has are asked."""

from __future__ import annotations

from tests.conftest import Project


def answer(project: Project, name: str, script: str) -> None:
    project.write(f"bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)
    project.env["PATH"] = (
        f"{project.folder / 'bin'}:{project.env['PATH'].removeprefix(str(project.folder / 'bin') + ':')}"
    )


def test_disks_quotas_and_the_commands_of_a_profile(project: Project) -> None:
    project.env["SLURM_CONF"] = str(project.folder / "none.conf")
    project.env["SCRATCH"] = str(project.folder)
    found = project.json("usage", "--json")
    assert (
        all(0 <= disk["free_bytes"] <= disk["total_bytes"] for disk in found["disks"])
        and found["disks"]
    )
    answer(project, "quota", "echo 'quota exceeded' >&2; exit 1")
    answer(project, "r_wlm_usage", 'echo "asked with $*"')
    project.write("config/windlass/site.toml", 'account = "rwth0123"\n')
    text = project.run("usage", "--site", "rwth").stdout
    assert "$ r_wlm_usage -p rwth0123 -q\n  asked with -p rwth0123 -q\n" in text
    assert (
        "$ quota -s\n  no answer: quota exceeded" in text
        and "file systems" in text
        and "GB" in text
    )
    answer(project, "diskusage_report", "printf 'home 1k/500k\n'")
    commands = [
        one["command"]
        for one in project.json("usage", "--site", "rwth", "-a", "p7", "--json")["answers"]
    ]
    assert commands == ["r_wlm_usage -p p7 -q", "diskusage_report"]
