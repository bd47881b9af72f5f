"""Settings of the perturbed retests."""

from __future__ import annotations

from dataclasses import dataclass

from ninegrid.config import require


@dataclass(frozen=True)
class PerturbSettings:
    """Section ``perturb``.

    Attributes:
        names: perturbations to measure, among those that the task offers; with none, no model is loaded.
        boards: at most so many examples for each, spread evenly over the file; None for all.
    """

    names: tuple[str, ...] = ()
    boards: int | None = None

    def __post_init__(self) -> None:
        require(len(set(self.names)) == len(self.names), "names", list(self.names), "each name once")
        require(self.boards is None or self.boards >= 1, "boards", self.boards, ">= 1, or null for all")
