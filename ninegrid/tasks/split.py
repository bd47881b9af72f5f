"""Which groups of examples are held out.

A group is never divided, so that no held-out example is a training example seen through a symmetry.
Not here: examples that leak although their groups differ (``dataset.check_leaks``).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence

from ninegrid.tasks.protocol import Example


def heldout_groups(
    examples: Sequence[Example],
    share: float,
    seed: int,
    pinned: frozenset[str],
    stratum: Callable[[Example], str],
) -> frozenset[str]:
    """Hold out groups, at least one and never a ``pinned`` one, until they come nearest to the share.

    Strata give alike: groups are shuffled within theirs and taken in the order of the part of the
    stratum that is used up by then.  Equal arguments give an equal choice.

    Args:
        share: part of the examples (not of the groups) to hold out, between 0 and 1.
        stratum: label of an example; a group belongs to the stratum of its last example.
    """
    members = Counter(example.group for example in examples)
    wanted = share * len(examples)
    chosen: set[str] = set()
    held = 0
    for group in _order_of_holding_out(examples, seed, pinned, stratum):
        if chosen and abs(held + members[group] - wanted) >= abs(held - wanted):
            break
        chosen.add(group)
        held += members[group]
    return frozenset(chosen)


def _order_of_holding_out(
    examples: Sequence[Example], seed: int, pinned: frozenset[str], stratum: Callable[[Example], str]
) -> list[str]:
    """The groups that may be held out, each placed by the middle of its part of the stratum."""
    members = Counter(example.group for example in examples)
    stratum_of = {example.group: stratum(example) for example in examples}
    capacity = Counter(stratum_of[example.group] for example in examples)
    used = Counter[str]()
    place: dict[str, float] = {}
    shuffled = sorted(members.keys() - pinned, key=lambda group: _shuffle_key(seed, group))
    for group in shuffled:
        label = stratum_of[group]
        place[group] = (used[label] + members[group] / 2) / capacity[label]
        used[label] += members[group]
    return sorted(shuffled, key=lambda group: place[group])


def _shuffle_key(seed: int, group: str) -> bytes:
    return hashlib.sha256(f"{seed}:{group}".encode()).digest()
