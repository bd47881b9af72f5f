"""The MLflow mirror: each execution of a stage as one run that describes itself.

A mirror, not a record: the files that DVC tracks are the truth, and a stage runs to its end
whether MLflow takes what it is told or not.  MLflow is imported when a run begins, not before.

``python -m ninegrid.tracking ui`` shows the runs in a browser.
"""

from ninegrid.tracking.episodes import mirror_episodes
from ninegrid.tracking.provenance import input_hashes
from ninegrid.tracking.run import Run, close_dead_runs, track
from ninegrid.tracking.settings import TrackingSettings

__all__ = ["Run", "TrackingSettings", "close_dead_runs", "input_hashes", "mirror_episodes", "track"]
