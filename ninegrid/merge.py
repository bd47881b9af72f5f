"""``python -m ninegrid.merge SOURCE TARGET``: a policy that was saved as an adapter, as a plain model.

Servers, and training that is to go on from it, need a whole model.  Nothing is trained, and SOURCE stays.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ninegrid.errors import DataError, NinegridError
from ninegrid.outputs import check_writable, output_folder
from ninegrid.policy.needs import DECODING, Needs, find_policy_problem, read_needs, write_needs
from ninegrid.progress import say

_OTHER = "name another folder to write"


def main() -> None:
    """Merge the adapter in one folder into a whole model in another."""
    parser = argparse.ArgumentParser(prog="python -m ninegrid.merge", description=main.__doc__)
    parser.add_argument("source", type=Path, help="folder of a policy saved with adapter.merge=false")
    parser.add_argument("target", type=Path, help="folder to write; an earlier merge is replaced")
    arguments = parser.parse_args()
    try:
        merge_policy(arguments.source, arguments.target)
    except NinegridError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    say(f"merge: {arguments.target} holds a whole model")


def merge_policy(source: Path, target: Path) -> None:
    """Write the adapter in ``source``, merged with its model, into the folder ``target``.

    Raises:
        DataError: ``source`` holds no whole adapter, or ``target`` cannot be written.
    """
    needs = _needs(source)
    _refuse_target(target, [source, needs.base_folder(source)])
    check_writable(target)
    from ninegrid.policy.adapters import merge
    from ninegrid.policy.loading import load_weights, write_model
    from ninegrid.policy.quantization import unpack

    policy = load_weights(source, needs)
    unpack(policy.model)
    merge(policy.model)
    with output_folder(target) as draft:
        write_model(policy.model, policy.tokenizer, draft)
        shutil.copyfile(source / DECODING, draft / DECODING)
        write_needs(draft, Needs(needs.dtype))


def _refuse_target(target: Path, read: Sequence[Path]) -> None:
    """Nothing may be replaced but what an earlier merge wrote."""
    place = target.resolve()
    for folder in read:
        if folder.resolve().is_relative_to(place):
            raise DataError(
                f"{target} is, or holds, what is read: {folder}", hint="name another folder to write"
            )
    ours = not target.exists() or (target.is_dir() and (not any(target.iterdir()) or _was_merged(target)))
    if not ours:
        raise DataError(f"{target} is there and holds no merged policy", hint=_OTHER)


def _was_merged(folder: Path) -> bool:
    needs = read_needs(folder)
    return needs is not None and not needs.adapter


def _needs(source: Path) -> Needs:
    problem = find_policy_problem(source)
    if problem is not None:
        raise DataError(problem, hint="get it back with dvc checkout, or train again: make repro")
    needs = read_needs(source)
    if needs is None or not needs.adapter:
        raise DataError(f"{source} is a whole model already", hint="use it as it is")
    return needs


if __name__ == "__main__":
    main()
