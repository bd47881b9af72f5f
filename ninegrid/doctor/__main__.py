"""``python -m ninegrid.doctor``: each thing that a run needs: ok, warn or fail, and what to do next.

Ends with status 1 if anything fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ninegrid.doctor import checkout, installation, room
from ninegrid.doctor.findings import Check, examine, text

CHECKS: Sequence[tuple[str, Check]] = (
    ("python", installation.python),
    ("packages", installation.packages),
    ("torch", installation.torch_build),
    ("cores", installation.cores),
    ("bitsandbytes", installation.bitsandbytes),
    ("git", checkout.git),
    ("dvc", checkout.dvc),
    ("params.yaml", checkout.params),
    ("model", checkout.model),
    ("memory", room.memory),
    ("disk", room.disk),
    ("tracking", checkout.tracking),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what each check finds; returns the exit status."""
    argparse.ArgumentParser(prog="python -m ninegrid.doctor", description=__doc__).parse_args(arguments)
    failed = 0
    for name, finding in examine(CHECKS):
        print(text(name, finding), flush=True)
        failed += finding.status == "fail"
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
