"""What several launchers use: job steps, and one task for each node or process. Python 3.9, standard library."""

from __future__ import annotations

from typing import List

from windlass.launchers.base import Command, Needs, Placement, Shape, is_python

NODE_RANK = "@node_rank@"  # replaced on each node by _task.py


def one_task_a_node(needs: Needs) -> Shape:
    """For a launcher that starts the processes of its node itself."""
    return Shape(tasks=1, cpus=needs.cpus)


def one_task_a_process(needs: Needs) -> Shape:
    """For a launcher whose processes Slurm starts. Trials that share a node share its tasks out."""
    tasks = needs.processes_of_a_trial * needs.trials
    return Shape(tasks, -(-needs.cpus // tasks))


def step(placement: Placement, tasks: int) -> Command:
    """`srun` with so many tasks on each node of the trial, up to the command that it starts.

    The step asks for what the trial has, and no more: trials that share a job do not wait for each other. It ends as a
    whole when one task fails. All sizes are named, because `srun` would take what is not from the job's variables.
    """
    nodes, cpus = placement.count, max(1, placement.cpus // tasks)
    words = ["srun", "--exact", "--kill-on-bad-exit=1", "--input=none", "--mem=0"]
    words += [f"--nodes={nodes}", f"--nodelist={','.join(placement.nodes)}"]
    words += [f"--ntasks={nodes * tasks}", f"--ntasks-per-node={tasks}", f"--cpus-per-task={cpus}"]
    words.append(f"--job-name={placement.env.get('WINDLASS_STUDY') or 'trial'}")
    return words + _gpu_options(placement)


def _gpu_options(placement: Placement) -> List[str]:
    """Slurm chooses the devices of a step. Every task of a node sees all of them, and picks one by its local rank."""
    if not placement.gpus:
        return ["--gres=none"] if placement.env.get("SLURM_JOB_GPUS") else []
    if placement.env.get(
        "SLURM_GPUS_PER_NODE"
    ):  # as the job was submitted; the two forms exclude each other
        return [f"--gpus-per-node={placement.gpus}"]
    return [f"--gres=gpu:{placement.gpus}"]


def start_on_nodes(command: Command, placement: Placement) -> Command:
    """One task on each node, which starts the processes there; NODE_RANK in `command` becomes the node's number."""
    around = [placement.python, "-S", "-E", placement.task, "node"]
    words = [*around, *placement.enter(command)]
    return [*step(placement, 1), *words] if placement.count > 1 else words


def start_ranks(command: Command, placement: Placement) -> Command:
    """One process a rank: as tasks of a job step, or, without Slurm, started by _task.py."""
    inside = placement.enter(command)
    if placement.nodes:
        return [*step(placement, placement.processes), *placement.rank_command(inside)]
    count = str(placement.processes)
    return [placement.python, "-S", "-E", placement.task, "fork", count, *inside]


def interpreter_of(command: Command) -> str:
    """The interpreter that `command` starts, "" where it starts something else."""
    return command[0] if is_python(command[0]) else ""
