"""The memory that there is: of the machine, or of the CUDA device that a run would use."""

from __future__ import annotations

import os
import re
import resource
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Device:
    """Where weights lie.

    Attributes:
        name: for people.
        kind: ``cpu`` or ``cuda``.
        total: bytes.
        available: bytes that a run beginning now could have, what this process itself holds included.
        holds_libraries: the libraries' own memory comes out of the same bytes.
    """

    name: str
    kind: str
    total: int
    available: int
    holds_libraries: bool


def find_device(name: str) -> Device:
    """The device that ``model.device`` names, or the machine where it is not there."""
    if name != "cpu" and name != "mps":
        import torch

        if torch.cuda.is_available():
            return _cuda(torch, name)
    return machine_memory()


def machine_memory() -> Device:
    """The machine's memory, or what a container is allowed of it."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = _meminfo("MemAvailable") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit, used = _container()
    if limit is not None and limit < total:
        total, free = limit, min(free, limit - used)
    return Device("this machine", "cpu", total, min(total, max(0, free) + held_now()), holds_libraries=True)


def held_now() -> int:
    """Bytes of memory that this process holds."""
    try:
        text = Path("/proc/self/statm").read_text(encoding="ascii")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cuda(torch: object, name: str) -> Device:
    from typing import Any

    module: Any = torch
    device = module.device("cuda" if name == "auto" else name)
    free, total = module.cuda.mem_get_info(device)
    facts = module.cuda.get_device_properties(device)
    shared = bool(getattr(facts, "is_integrated", False))
    return Device(str(facts.name), "cuda", total, free, holds_libraries=shared)


def _meminfo(field: str) -> int | None:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _container() -> tuple[int | None, int]:
    """Limit and use of this process's control group (version 2), if it has a limit."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="ascii").strip().rpartition("::")[2]
        root = Path("/sys/fs/cgroup")
        folder = root / own.lstrip("/")
        folder = folder if (folder / "memory.max").exists() else root
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        statistics = (folder / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None, 0
    # Cached files count as used there, and are given up for whoever asks.
    files = re.search(r"^inactive_file (\d+)$", statistics, re.MULTILINE)
    return (None if limit == "max" else int(limit)), used - (int(files[1]) if files else 0)
