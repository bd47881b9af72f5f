"""Several loops on one page: what was set differently, what came of it, and what is within noise.

The command is ``python -m stages.compare``.  Not here: before and after within one loop (`ninegrid.report`).
"""
