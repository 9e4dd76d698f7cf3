"""Starts the processes of a trial with mpirun. Python 3.9, standard library."""

from __future__ import annotations

from windlass.launchers.base import Command, Launched, Launcher, Needs, Placement, Shape
from windlass.launchers.shared import one_task_a_process


class Mpi(Launcher):
    """`mpirun` of Open MPI on the trial's nodes. Slurm's own plugins for MPI, which differ by site, are not used."""

    def shape(self, needs: Needs, nodes: int) -> Shape:
        return one_task_a_process(needs)

    def wrap(self, command: Command, placement: Placement) -> Launched:
        words = ["mpirun", "-np", str(placement.world), "--bind-to", "none"]
        if placement.nodes:
            hosts = (f"{node}:{placement.processes}" for node in placement.nodes)
            words += ["--host", ",".join(hosts)]
        else:
            words.append("--oversubscribe")  # it counts whole cores, and trials may share them
        words += [part for name in sorted(_passed(placement)) for part in ("-x", name)]
        words += placement.rank_command(placement.enter(command))
        return Launched(words, placement.variables())


def _passed(placement: Placement) -> set[str]:
    """Variables that the ranks on other nodes would not have: mpirun passes on what it is told to."""
    if placement.count == 1:
        return set()
    own = {name for name in placement.env if name.startswith("WINDLASS_")}
    usual = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV"}
    return (own | usual & set(placement.env) | set(placement.variables())) | _OF_A_TRIAL


_OF_A_TRIAL = {
    "WINDLASS_TRIAL",
    "WINDLASS_TRIAL_NUMBER",
    "WINDLASS_ATTEMPT",
    "WINDLASS_SLOT",
    "WINDLASS_PARAMS",
    "WINDLASS_CHECKPOINT_DIR",
}
MEMBER = Mpi
