"""How this process deals with its memory."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NEVER = 2**30
"""Bytes beyond which the C library would return memory to the system."""

LARGEST = 2**25
"""What older versions of the C library take at most as the size from which a buffer is fetched apart."""


def keep_freed_memory() -> None:
    """Let the process keep what it has freed, for the next tensor of that kind.

    Otherwise every large buffer of a forward pass is fetched from the system, zeroed page by page, and handed
    back right after: a tenth of a training step.  Does nothing where the C library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    # Setting either one fixes the other too: where the first is refused, the second must not stand alone.
    if mallopt(M_MMAP_THRESHOLD, NEVER) or mallopt(M_MMAP_THRESHOLD, LARGEST):
        mallopt(M_TRIM_THRESHOLD, NEVER)
