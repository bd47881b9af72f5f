"""Training and held-out examples of any task: draw, split, check, describe, write, read back.

Not here: which groups are held out (``split``), and what an example holds, which is the task's own affair.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ninegrid.config import require
from ninegrid.errors import DataError, SettingsError
from ninegrid.tasks.protocol import Example, Json, Task
from ninegrid.tasks.split import heldout_groups

TRAIN_FILE, HELDOUT_FILE, MANIFEST_FILE = "train.jsonl", "heldout.jsonl", "manifest.json"


@dataclass(frozen=True)
class BoardSettings:
    """Section ``boards``.

    Attributes:
        count: distinct examples to draw.
        seed: of the draw and of the split.
        heldout_share: part of the examples to hold out, met to within one group.
    """

    count: int = 2048
    seed: int = 2026
    heldout_share: float = 0.2

    def __post_init__(self) -> None:
        require(self.count >= 2, "count", self.count, ">= 2, one to train on and one to hold out")
        require(0 <= self.seed < 2**32, "seed", self.seed, "0 .. 2^32 - 1")
        require(
            0 < self.heldout_share < 1, "heldout_share", self.heldout_share, "between 0 and 1, both excluded"
        )


@dataclass(frozen=True)
class Dataset:
    """Examples to learn from and examples to be measured on; they share no group."""

    train: Sequence[Example]
    heldout: Sequence[Example]

    @property
    def total(self) -> list[Example]:
        """All examples, training first."""
        return [*self.train, *self.heldout]


def build_dataset(task: Task, settings: BoardSettings) -> Dataset:
    """Draw the examples and split them.

    Raises:
        SettingsError: more examples are asked for than exist, or one side of the split is empty.
    """
    check_enough(task, settings)
    examples = task.generate(settings.count, settings.seed)
    pinned = frozenset(_worked_groups(task))
    held = heldout_groups(examples, settings.heldout_share, settings.seed, pinned, task.stratum)
    dataset = Dataset(
        train=[example for example in examples if example.group not in held],
        heldout=[example for example in examples if example.group in held],
    )
    _check_sides(dataset, settings)
    return dataset


def check_enough(task: Task, settings: BoardSettings) -> None:
    """Refuse to ask for more examples than there are.

    Raises:
        SettingsError: with the number that exists.
    """
    available = task.available()
    if settings.count > available:
        raise SettingsError(
            f"boards.count = {settings.count}, but only {available} distinct examples exist "
            f"under the settings of task {task.name}",
            hint=f"boards.count={available}",
        )


def _check_sides(dataset: Dataset, settings: BoardSettings) -> None:
    for side, examples in (("training", dataset.train), ("held-out", dataset.heldout)):
        if not examples:
            raise SettingsError(
                f"boards.count = {settings.count} with boards.heldout_share = {settings.heldout_share} "
                f"leaves no {side} examples: groups are not divided",
                hint="ask for more examples or another share",
            )


def _worked_groups(task: Task) -> list[str]:
    shown = [one for worked in task.worked_examples() for one in (worked, *worked.after)]
    return sorted({worked.example.group for worked in shown})


def check_leaks(task: Task, dataset: Dataset) -> None:
    """Make sure that nothing of the held-out side is known from the training side or the prompt.

    Groups are worked out again from the data of each example, not taken from the split.

    Raises:
        DataError: naming the first example that leaks.
    """
    origin = {worked.example.group: worked.example.id for worked in task.worked_examples()}
    origin |= {_group_again(task, example): example.id for example in dataset.train}
    for example in dataset.heldout:
        group = _group_again(task, example)
        if group in origin:
            raise DataError(
                f"held-out example {example.id} is of the same group as {origin[group]}, "
                f"which training sees ({group})"
            )
    _check_distinct(dataset.total)


def _group_again(task: Task, example: Example) -> str:
    return task.parse(example.line()).group


def _check_distinct(examples: Iterable[Example]) -> None:
    ids: set[str] = set()
    holder: dict[str, str] = {}
    for example in examples:
        if example.id in ids:
            raise DataError(f"two examples have the id {example.id}")
        ids.add(example.id)
        first = holder.setdefault(json.dumps(example.data, sort_keys=True), example.id)
        if first != example.id:
            raise DataError(f"examples {first} and {example.id} hold the same data")


def is_flat(task: Task, example: Example) -> bool:
    """Whether every legal action on ``example`` scores the same: it teaches legality and no more."""
    return len({task.score[outcome] for outcome in task.legal_outcomes(example)}) == 1


def expected_score(task: Task, player: str, example: Example) -> float:
    """Mean score of a reference player on ``example``."""
    return math.fsum(
        p * task.score[outcome] for outcome, p in task.expected_outcomes(player, example).items()
    )


def manifest(task: Task, dataset: Dataset, settings: BoardSettings) -> Json:
    """What the data set holds, in numbers; equal data give an equal manifest."""
    return {
        "task": task.name,
        "settings": asdict(settings),
        "available": task.available(),
        "examples": _by_side(dataset, len),
        "groups": _by_side(dataset, lambda examples: len({example.group for example in examples})),
        "strata": _strata(task, dataset),
        "flat": _by_side(dataset, lambda examples: sum(is_flat(task, example) for example in examples)),
        "worked_example_groups": _worked_groups(task),
        "players": {
            player: _by_side(dataset, partial(_mean_score, task, player)) for player in task.players()
        },
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in _contents(dataset).items()},
    }


def _by_side(dataset: Dataset, measure: Callable[[Sequence[Example]], Any]) -> Json:
    return {
        "train": measure(dataset.train),
        "heldout": measure(dataset.heldout),
        "total": measure(dataset.total),
    }


def _strata(task: Task, dataset: Dataset) -> Json:
    counts = _by_side(dataset, lambda examples: Counter(task.stratum(example) for example in examples))
    return {label: {side: counts[side][label] for side in counts} for label in sorted(counts["total"])}


def _mean_score(task: Task, player: str, examples: Sequence[Example]) -> float:
    return round(math.fsum(expected_score(task, player, example) for example in examples) / len(examples), 6)


def write_dataset(task: Task, dataset: Dataset, settings: BoardSettings, folder: Path) -> Json:
    """Write ``train.jsonl``, ``heldout.jsonl`` and ``manifest.json`` to ``folder``, which must exist.

    Returns:
        the manifest.

    Raises:
        DataError: held-out examples are known from training; nothing is written then.
        OSError: a file cannot be written.
    """
    check_leaks(task, dataset)
    described = manifest(task, dataset, settings)
    text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    for name, content in {**_contents(dataset), MANIFEST_FILE: text.encode()}.items():
        (folder / name).write_bytes(content)
    return described


def _contents(dataset: Dataset) -> Mapping[str, bytes]:
    return {TRAIN_FILE: _lines(dataset.train), HELDOUT_FILE: _lines(dataset.heldout)}


def _lines(examples: Iterable[Example]) -> bytes:
    lines = (json.dumps(example.line(), separators=(",", ":"), ensure_ascii=False) for example in examples)
    return "".join(f"{line}\n" for line in lines).encode()


def read_examples(task: Task, path: Path) -> list[Example]:
    """Read a file of examples, one JSON object a line.

    Raises:
        DataError: naming the file and the line that is not an example of the task.
    """
    examples = [_read_line(task, path, number, line) for number, line in enumerate(_text(path), start=1)]
    if not examples:
        raise DataError(f"{path} holds no examples", hint="dvc repro generate_boards")
    first: dict[str, int] = {}
    for number, example in enumerate(examples, start=1):
        if first.setdefault(example.id, number) != number:
            raise DataError(f"{path}, line {number}: id {example.id} is that of line {first[example.id]} too")
    return examples


def _text(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing", hint="dvc repro generate_boards") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    return text.removesuffix("\n").split("\n") if text else []


def _read_line(task: Task, path: Path, number: int, line: str) -> Example:
    where = f"{path}, line {number}"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object, found {line[:80]}")
    try:
        return task.parse(value)
    except DataError as error:
        raise DataError(f"{where}: {error.message}", hint=error.hint) from error
