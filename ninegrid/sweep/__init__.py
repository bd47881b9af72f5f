"""Many settings of the pipeline, each as one DVC experiment, and the table and picture of what they gave.

The command is ``python -m stages.sweep``; Hydra says which cells there are and where they run.
"""
