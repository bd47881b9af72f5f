"""Get the model's files, checked, into data/model.

Run by DVC, or as ``python -m stages.fetch_model [KEY=VALUE ...]``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.config import unbind
from ninegrid.paths import PathSettings
from ninegrid.policy.settings import ModelSettings
from ninegrid.progress import say
from ninegrid.tracking import TrackingSettings, track


@dataclass(frozen=True)
class Settings:
    """What this stage reads."""

    model: ModelSettings
    paths: PathSettings
    tracking: TrackingSettings


@stage
def main(settings: Settings) -> None:
    """Get the model's files, checked, into data/model."""
    from ninegrid.policy.sources import fetch

    paths = settings.paths
    state = paths.state_folder()
    with track(settings.tracking, "fetch_model", unbind(settings), state=state) as run:
        manifest = fetch(settings.model, paths.folder("model"), state / "downloads")
        run.artifact(paths.folder("model") / "source.json")
    for name, facts in manifest["files"].items():
        say(f"fetch_model: {name}, {facts['bytes']:,} bytes, sha256 {facts['sha256'][:12]}...")


if __name__ == "__main__":
    main()
