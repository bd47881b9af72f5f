"""The memory plan: what a run will hold at its peak, worked out before any weight is loaded.

`python -m ninegrid.plan` prints it with its arithmetic; the stage ``train_gspo`` asks it before it begins.
It knows the sizes of things and when they are live.  It does not measure: ``python -m benchmarks memory``
does.
"""
