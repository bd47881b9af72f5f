"""Get the model's files, checked, into data/model.

Run by DVC, or as ``python -m stages.fetch_model [KEY=VALUE ...]``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.app import stage
from ninegrid.paths import PathSettings
from ninegrid.policy.settings import ModelSettings
from ninegrid.progress import say


@dataclass(frozen=True)
class Settings:
    """What this stage reads."""

    model: ModelSettings
    paths: PathSettings


@stage
def main(settings: Settings) -> None:
    """Get the model's files, checked, into data/model."""
    from ninegrid.policy.sources import fetch

    folder = settings.paths.folder("model")
    manifest = fetch(settings.model, folder, settings.paths.state_folder("downloads"))
    for name, facts in manifest["files"].items():
        say(f"fetch_model: {name}, {facts['bytes']:,} bytes, sha256 {facts['sha256'][:12]}...")


if __name__ == "__main__":
    main()
