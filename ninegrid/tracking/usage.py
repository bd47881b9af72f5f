"""What a run costs: time and memory.  These go to MLflow alone; what DVC tracks must not depend on them."""

from __future__ import annotations

import resource
import sys
import time

GB = 1e9


class Stopwatch:
    """Seconds since it was made, and since it was last asked for a lap."""

    def __init__(self) -> None:
        self._start = self._lap = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        before, self._lap = self._lap, time.perf_counter()
        return self._lap - before

    def total(self) -> float:
        return time.perf_counter() - self._start


def peak_memory() -> dict[str, float]:
    """The most memory this process has held so far, in GB: of the machine, and of the GPU if it uses one."""
    unit = 1 if sys.platform == "darwin" else 1024
    usage = {"memory/peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GB}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        usage["memory/gpu_peak_gb"] = torch.cuda.max_memory_allocated() / GB
    return usage
