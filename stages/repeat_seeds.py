"""Train and retest one setting over several seeds, and tell how much they agree.

Not a stage of the pipeline but a command over it:
``python -m stages.repeat_seeds [--seeds 1,2,3] [experiment=NAME] [KEY=VALUE ...]``.  Each seed is a DVC
experiment in a copy of the project, so that the workspace stays as it is; fetching, boards and baseline come
from the shared cache.  Settings are composed from conf/ with the overrides, not taken from params.yaml.
Run again, it does what is missing: seeds that failed, that are new, or whose settings or code have changed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ninegrid.errors import NinegridError, SettingsError
from ninegrid.progress import say


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if a seed failed, 2 for wrong settings, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        return _repeat(_numbers(options.seeds), options.overrides, options.name)
    except NinegridError as error:
        say(f"repeat_seeds: {error}")
        return 2
    except KeyboardInterrupt:
        say("repeat_seeds: stopped; run it again to go on")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stages.repeat_seeds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides of conf/")
    parser.add_argument("--seeds", default="1,2,3", help="values of train.seed (default: %(default)s)")
    parser.add_argument("--name", help="of the results' folder; follows from the overrides if left out")
    return parser


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingsError(f"--seeds {text}, expected whole numbers such as 1,2,3") from error


def _repeat(seeds: Sequence[int], overrides: Sequence[str], name: str | None) -> int:
    from ninegrid.experiments.digest import tell_what_is_not_seen
    from ninegrid.project import store_root
    from ninegrid.seeds.collect import run_plan, write_outcome
    from ninegrid.seeds.plan import make_plan
    from ninegrid.tracking.signals import unwinding

    root = store_root()
    plan = make_plan(root, seeds, overrides, name)
    folder = plan.settings.paths.state_folder("seeds") / plan.name
    folder.mkdir(parents=True, exist_ok=True)
    tell_what_is_not_seen(root, "repeat_seeds")
    with unwinding():
        outcome = run_plan(root, plan, folder)
    if outcome.results:
        print(write_outcome(plan, outcome, folder))
        say(f"repeat_seeds: {len(outcome.results)} of {len(seeds)} seeds; table and picture are in {folder}")
    for seed in outcome.failed:
        say(f"repeat_seeds: seed {seed} failed; see {folder / f'seed-{seed}.log'}")
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
