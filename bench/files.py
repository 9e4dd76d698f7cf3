"""Counts: files in a study's folder, and modules imported by `windlass status` and the agent."""

from __future__ import annotations

import subprocess
import sys

from common import count_files, report, timed, windlass, workplace


def modules(code: str) -> set[str]:
    text = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def main() -> None:
    with workplace() as folder:
        for trials in (10_000, 100_000):
            tasks = folder / f"n{trials}.txt"
            tasks.write_text("/bin/true\n" * trials)
            timed(windlass("run", str(tasks), "--quiet", "--folder", str(folder / "studies")))
            report(
                f"files for {trials:,} trials on one agent",
                str(count_files(folder / "studies" / tasks.stem)),
                "at most 30",
            )
    click = modules("import click")
    status = modules("import windlass.cli, windlass.cli.status")
    report("modules imported: status / click", f"{len(status)} / {len(click)}", "ratio below 2")


if __name__ == "__main__":
    main()
