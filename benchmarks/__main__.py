"""``python -m benchmarks [NAME ...] [--quick] [--save]``: tables on standard output, progress beside it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import evaluation, gpu, machine, matmul, memory, overhead, results, scaling, step
from benchmarks.subject import Subject, of_project, tiny
from ninegrid.errors import NinegridError, SettingsError
from ninegrid.progress import say

BENCHMARKS = {
    "step": step,
    "scaling": scaling,
    "matmul": matmul,
    "overhead": overhead,
    "evaluation": evaluation,
    "memory": memory,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named benchmarks, or all; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given[:1] == ["gpu"]:
        return gpu.main(given[1:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what the project costs.",
        epilog="On a GPU: python -m benchmarks gpu --help",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke run on a tiny model; figures mean nothing"
    )
    parser.add_argument("--save", action="store_true", help=f"also write {results.FILE.name}")
    options = parser.parse_args(given)
    if options.quick and options.save:
        parser.error("--save keeps figures, and those of --quick mean nothing")
    try:
        names = _chosen(options.names)
        with tempfile.TemporaryDirectory() as folder:
            run(names, _tiny(Path(folder)) if options.quick else of_project(), options.save)
    except NinegridError as error:
        say(f"benchmarks: {error}")
        return 2
    except KeyboardInterrupt:
        say("benchmarks: stopped")
        return 130
    return 0


def run(names: Sequence[str], subject: Subject, save: bool) -> None:
    """Run benchmarks one after the other, printing and saving each when it is done."""
    described = machine.describe()
    print(f"Machine: {described}.\n", flush=True)
    expected = {name: BENCHMARKS[name].MINUTES for name in names}
    begin, done = time.monotonic(), 0
    for number, name in enumerate(names, start=1):
        about = "" if subject.quick else f", about {expected[name]} minutes on two slow cores"
        say(f"benchmarks: {name}, {number} of {len(names)}{about}")
        section = BENCHMARKS[name].measure(subject).text(name)
        print(section, flush=True)
        if save:
            results.save(results.FILE, described, [*BENCHMARKS, "gpu"], name, section)
        done += expected[name]
        pace = (time.monotonic() - begin) / done
        left = pace * (sum(expected.values()) - done) / 60
        say(f"benchmarks: {name} is done, {number} of {len(names)}; ETA {left:.0f} minutes")


def _chosen(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in BENCHMARKS:
            raise SettingsError(f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}")
    return [name for name in BENCHMARKS if name in names or not names]


def _tiny(folder: Path) -> Subject:
    from benchmarks.isolated import run_piece

    subject = tiny(folder)
    run_piece("tiny:prepare", subject)
    return subject


if __name__ == "__main__":
    sys.exit(main())
