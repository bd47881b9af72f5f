"""Which GPU torch sees."""

from __future__ import annotations

import torch

from benchmarks.subject import Subject


def describe(subject: Subject) -> str | None:
    """The GPU in words; None where there is none."""
    if not torch.cuda.is_available():
        return None
    facts = torch.cuda.get_device_properties(0)
    memory, capability = facts.total_memory / 2**30, f"{facts.major}.{facts.minor}"
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    return f"{facts.name} (compute capability {capability}, {memory:.0f} GiB; {versions})"
