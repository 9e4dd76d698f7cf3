"""Tells the agent how much GPU memory the framework in this process has reserved. Only while a study is measured.

The driver counts more than that: the CUDA context of each process, some hundreds of MB. Python 3.9, standard library.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any, Optional

from windlass.trial.log import send_line

VARIABLE = "WINDLASS_RESERVED"
_EVERY_S = 0.5
_MB = 1024 * 1024

# What a Python that is started for a measured trial runs first; the machine's own sitecustomize follows.
SITECUSTOMIZE = """\
import os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != here]
own = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = own
try:
    from windlass.trial.reserved import start
    start()
except Exception:
    pass
"""


def start() -> None:
    """Begin to tell, in a thread of its own. Does nothing outside of measured trials."""
    if os.environ.get(VARIABLE) and os.environ.get("WINDLASS_TRIAL"):
        threading.Thread(target=_tell, name="windlass-reserved", daemon=True).start()


def _tell() -> None:
    reported_mb = 0.0
    while True:
        time.sleep(_EVERY_S)
        try:
            reserved_mb = _reserved_mb()
        except Exception:
            return  # a framework of another day: then its figure cannot be had
        if reserved_mb is not None and reserved_mb > reported_mb:
            reported_mb = reserved_mb
            send_line({"reserved_mb": round(reserved_mb, 1), "pid": os.getpid()})


def _reserved_mb() -> Optional[float]:
    """The most so far; None where no framework in this process has touched a GPU."""
    found = None
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        devices = range(torch.cuda.device_count())
        found = sum(torch.cuda.max_memory_reserved(device) for device in devices) / _MB
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and getattr(bridge, "_backends", None):
        stats = [device.memory_stats() or {} for device in sys.modules["jax"].local_devices()]
        found = (found or 0.0) + sum(one.get("peak_bytes_in_use", 0) for one in stats) / _MB
    return found or None
