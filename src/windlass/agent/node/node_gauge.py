"""Measures trials on a node that is not the agent's own, for its companion. Python 3.9, standard library."""

from __future__ import annotations

import json
import time
from typing import Callable, Dict, Optional, Tuple

from windlass.agent.gauge.meter import Meter
from windlass.agent.gauge.nodes import node_use_of, render_node_use
from windlass.agent.gauge.nvml import Nvml, NvmlError
from windlass.agent.gauge.peaks import Peaks

_FIRST_S, _EVERY_S = 0.3, 2.0  # between looks
_SHARE = 0.007  # of one core, for looking
_SEND_S = 10.0  # between messages about one trial


class NodeGauge:
    """What the trials of one agent take on this node. Processes are known by their environment."""

    def __init__(self, agent: str, node: str, on_gpus: bool, send: Callable[[bytes], None]) -> None:
        nvml: Optional[Nvml] = None
        if on_gpus:
            try:
                nvml = Nvml()
            except NvmlError:
                pass  # Slurm may let this process see no device: then the figures are left out.
        self._meter = Meter(agent, nvml)
        self._node = node
        self._send = send
        # Trial → its attempt, what was seen of it, and when the agent was last informed.
        self._trials: Dict[str, Tuple[int, Peaks]] = {}
        self._sent: Dict[str, float] = {}
        self._next = 0.0

    def begin(self, attempt: int, trial: str, has_ranks: bool) -> None:
        """An attempt begins, or its next stage does."""
        if self._trials.get(trial, (-1, None))[0] != attempt:
            self._meter.forget(trial)
            self._trials[trial] = attempt, Peaks()
        self._meter.watch(trial, 0, has_ranks=has_ranks)
        self._next = time.monotonic() + _FIRST_S

    def end(self, attempt: int) -> None:
        """An attempt has ended: send what there is, for the last time."""
        for trial, (number, _) in list(self._trials.items()):
            if number == attempt:
                self._report(trial)
                self._meter.forget(trial)
                del self._trials[trial]
                self._sent.pop(trial, None)

    def wait_s(self) -> Optional[float]:
        """Seconds until the next look; None while there is nothing to look at."""
        return max(0.0, self._next - time.monotonic()) if self._trials else None

    def look(self) -> None:
        """Look at all trials, if it is time."""
        now = time.monotonic()
        if not self._trials or now < self._next:
            return
        began_s = time.thread_time()
        for trial, sample in self._meter.sample().items():
            _, peaks = self._trials[trial]
            if not sample.processes:
                continue  # it has not begun here, or it is over
            is_first = peaks.last is None
            peaks.add(sample)
            if is_first or now >= self._sent.get(trial, 0.0) + _SEND_S:
                self._report(trial)
        self._next = now + max(_EVERY_S, (time.thread_time() - began_s) / _SHARE)

    def _report(self, trial: str) -> None:
        attempt, peaks = self._trials[trial]
        if peaks.last is None:
            return
        self._sent[trial] = time.monotonic()
        used = render_node_use(node_use_of(peaks, on_this_node=False))
        message = {"attempt": attempt, "node": self._node, "used": used}
        self._send(json.dumps(message, separators=(",", ":")).encode())
