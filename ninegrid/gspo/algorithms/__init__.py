"""The objectives: one file for each algorithm, all pure functions with one signature.

This file stays empty, since settings read `names` before torch is imported; `registry` has the functions.
"""
