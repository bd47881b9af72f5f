"""The machine in general terms: enough to compare figures, not enough to find it."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

VECTOR_UNITS = ("avx512f", "avx2", "avx", "sve", "asimd")
PACKAGES = ("torch", "transformers", "trl")


def describe() -> str:
    """Cores, processor family, memory, and the versions that matter."""
    parts = [f"{_cores()} cores", _processor(), f"{_memory_gib()} GiB of memory"]
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in PACKAGES)]
    return f"{', '.join(parts)}; {', '.join(versions)}"


def version(package: str) -> str:
    """The installed version of a package, which is not imported for it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def family(model_name: str) -> str:
    """The words before the first one with a digit: ``Intel Xeon Platinum`` of ``… 8275CL CPU @ 3.00GHz``."""
    words = re.sub(r"\((R|TM)\)", "", model_name, flags=re.IGNORECASE).split()
    numbered = [index for index, word in enumerate(words) if re.search(r"\d", word)]
    return " ".join(words[: numbered[0]] if numbered else words)


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    fields = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))
    name = family(fields.get("model name", "")) or platform.machine()
    has = f"{fields.get('flags', '')} {fields.get('Features', '')}".split()
    unit = next((unit for unit in VECTOR_UNITS if unit in has), None)
    return name if unit is None else f"{name}, {unit.removesuffix('f').upper()}"


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _memory_gib() -> int:
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)
