"""ninegrid: check, on one machine, that post-training really changed what an agent does.

The library behind the pipeline in ``stages/``.  It imports nothing heavy by itself:
torch, transformers and mlflow are loaded by the modules that compute with them.
"""

__version__ = "0.1.0"
