"""What is measured: each perturbation with the examples that it is measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ninegrid.tasks.protocol import Example, Perturbation


@dataclass(frozen=True)
class Case:
    """One perturbation with its examples.

    Attributes:
        name: of the perturbation.
        perturbation: what is different.
        examples: held-out ones, or the perturbation's own.
    """

    name: str
    perturbation: Perturbation
    examples: Sequence[Example]

    @property
    def paired(self) -> bool:
        """Whether the unperturbed measurements hold a reply to each example."""
        return self.perturbation.examples is None


def make_cases(
    chosen: Mapping[str, Perturbation], heldout: Sequence[Example], limit: int | None
) -> list[Case]:
    """A case for each perturbation, with at most ``limit`` examples."""
    return [
        Case(name, found, spread(heldout if found.examples is None else found.examples, limit))
        for name, found in chosen.items()
    ]


def spread(examples: Sequence[Example], limit: int | None) -> list[Example]:
    """At most ``limit`` of ``examples``, in order: the middle one of each of so many equal parts."""
    n = len(examples)
    if limit is None or limit >= n:
        return list(examples)
    return [examples[(2 * i + 1) * n // (2 * limit)] for i in range(limit)]
