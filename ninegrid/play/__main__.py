"""``python -m ninegrid.play [--port N] [KEY=VALUE ...]``: the play page, at http://127.0.0.1:8080.

Settings are those of ``params.yaml``; with ``KEY=VALUE`` they hold for this server alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ninegrid.app import share_cores
from ninegrid.errors import NinegridError
from ninegrid.play.settings import play_task, read_settings
from ninegrid.progress import say

PORT = 8080


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the page; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ninegrid.play", description="Play against the policies.")
    parser.add_argument("--port", type=int, default=PORT, help=f"where to listen (default: {PORT})")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings for this server alone")
    options = parser.parse_args(arguments)
    share_cores()
    try:
        settings = read_settings(options.overrides)
        task = play_task(settings)
        from ninegrid.play.server import serve

        serve(settings, task, options.port)
    except NinegridError as error:
        say(f"play: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
