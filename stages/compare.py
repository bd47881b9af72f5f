"""Set finished loops side by side on one page: what was changed, what came of it, what is within noise.

Not a stage of the pipeline but a command over it: ``python -m stages.compare workspace NAME [NAME ...]``.
A NAME is a DVC experiment (of a sweep, of seeds, of ``dvc exp run``) or a git revision whose loop has run;
``workspace`` is what lies in data/ now.  The first is what the others are set beside.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ninegrid.errors import NinegridError, SettingsError
from ninegrid.progress import Progress, say


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 for loops that cannot be compared."""
    parser = argparse.ArgumentParser(
        prog="python -m stages.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="experiments, revisions, or workspace")
    parser.add_argument("--out", help="folder of the page (default: .ninegrid/compare)")
    options = parser.parse_args(arguments)
    try:
        return _compare(options.names, options.out)
    except NinegridError as error:
        say(f"compare: {error}")
        return 2


def _compare(names: Sequence[str], out: str | None) -> int:
    if len(set(names)) < max(2, len(names)) or not all(names):
        raise SettingsError(f"{' '.join(names)}: expected two or more different loops", hint="dvc exp list")
    from pathlib import Path

    from ninegrid.compare.loop import read_loop
    from ninegrid.compare.page import write_comparison
    from ninegrid.project import store_root

    root = store_root()
    progress, loops = Progress("compare: loop", len(names)), []
    for name in names:
        loops.append(read_loop(root, name))
        progress.advance(name)
    say(f"compare: {write_comparison(Path(out) if out else root / '.ninegrid' / 'compare', loops)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
