"""The policy of a finished loop as a version of a model in MLflow's registry, with what its retest found.

A command of its own (``python -m ninegrid.tracking register``) and no part of the loop: a policy may have
half a gigabyte.
"""
