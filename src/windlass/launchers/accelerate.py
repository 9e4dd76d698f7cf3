"""Starts the processes of a trial with Hugging Face Accelerate. Python 3.9, standard library."""

from __future__ import annotations

from windlass.launchers.base import Command, Launched, Launcher, Needs, Placement, Shape
from windlass.launchers.shared import NODE_RANK, interpreter_of, one_task_a_node, start_on_nodes

_LAUNCH = "accelerate.commands.launch"


class Accelerate(Launcher):
    """`accelerate launch` on each node. What else it can do is taken from the user's configuration of Accelerate."""

    def shape(self, needs: Needs, nodes: int) -> Shape:
        return one_task_a_node(needs)

    def wrap(self, command: Command, placement: Placement) -> Launched:
        python = interpreter_of(command)
        words = [python, "-m", _LAUNCH] if python else ["accelerate", "launch"]
        # Without GPUs as well: `--cpu` alone starts one process on each machine, whatever their number.
        words += ["--multi_gpu"] if placement.world > 1 else []
        words += [f"--num_machines={placement.count}", f"--num_processes={placement.world}"]
        words += [f"--machine_rank={NODE_RANK}", f"--main_process_ip={placement.address}"]
        words += [f"--main_process_port={placement.port}", "--rdzv_backend=static"]
        words += [f"--num_cpu_threads_per_process={placement.cpus_per_process}"]
        words += ["--no_python", *placement.rank_command(command, python or "python3")]
        return Launched(start_on_nodes(words, placement), placement.variables())


MEMBER = Accelerate
