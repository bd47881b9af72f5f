"""One training setting over several seeds: run them as DVC experiments, and tell how much they agree.

The command is ``python -m stages.repeat_seeds``.  Not here: what one run measures (`ninegrid.evaluation`).
"""
