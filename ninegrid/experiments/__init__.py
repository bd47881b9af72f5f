"""One setting of the pipeline as one DVC experiment: named by what it depends on, run aside, read back.

Seeds (`ninegrid.seeds`) and sweeps (`ninegrid.sweep`) are many of these.
"""
