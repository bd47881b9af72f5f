"""Other ways to tell the same game: what a policy that learned to play should not mind.

Each changes one thing of a `Wording` and leaves the rest, so that what is lost can be told apart.  Not
here: boards that the generator never draws (``task``), and how any of it is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ninegrid.tasks.tictactoe.board import SQUARES, SYMMETRIES, transform
from ninegrid.tasks.tictactoe.views import VIEWS
from ninegrid.tasks.tictactoe.wording import Wording

QUARTER_TURN = SYMMETRIES[1]
"""Entry i is the square that moves to square i + 1."""


@dataclass(frozen=True)
class Rewording:
    """One sentence for readers, and the change of the wording."""

    description: str
    change: Callable[[Wording], Wording]


def _turned_examples(wording: Wording) -> Wording:
    """The worked examples last first, each turned by a quarter: other boards and answers, best all the same.

    They stay in their symmetry classes, which are never held out.
    """
    turned = tuple(
        (transform(board, QUARTER_TURN), QUARTER_TURN.index(square) + 1)
        for board, square in reversed(wording.worked)
    )
    return replace(wording, worked=turned)


REWORDINGS: Mapping[str, Rewording] = {
    "numbers_reversed": Rewording(
        "Squares are numbered 9 to 1 instead of 1 to 9.",
        lambda wording: replace(wording, labels=tuple(reversed(SQUARES))),
    ),
    "numbers_from_zero": Rewording(
        "Squares are numbered 0 to 8 instead of 1 to 9.",
        lambda wording: replace(wording, labels=tuple(range(9))),
    ),
    "letters": Rewording(
        "Squares are called A to I instead of 1 to 9.",
        lambda wording: replace(wording, labels=tuple("ABCDEFGHI"), noun="letter"),
    ),
    "notation": Rewording(
        "Bars instead of spaces stand between the parts of a row.",
        lambda wording: replace(wording, between="|"),
    ),
    "view_changed": Rewording(
        "The board is shown as its lines instead of three rows, or as three rows instead of anything else.",
        lambda wording: replace(wording, view="lines" if wording.view == "grid" else "grid"),
    ),
    "tool_renamed": Rewording(
        "The tool is called place_mark.",
        lambda wording: replace(wording, tool="place_mark"),
    ),
    "argument_renamed": Rewording(
        "The tool's argument is called position.",
        lambda wording: replace(wording, argument="position"),
    ),
    "schema_reordered": Rewording(
        "The fields of the tool's schema stand in reverse order.",
        lambda wording: replace(wording, reversed_schema=True),
    ),
    "instructions_reworded": Rewording(
        "Instructions and descriptions say the same in other words.",
        lambda wording: replace(
            wording,
            instructions=VIEWS[wording.view].reworded,
            tool_text="Make your move: write {mark} into a square that nobody has taken.",
            argument_text="Which square: its {noun}.",
        ),
    ),
    "examples_replaced": Rewording(
        "The worked examples are other boards with other answers.",
        _turned_examples,
    ),
    "plays_o": Rewording(
        "The marks are swapped: the policy plays O against X.",
        lambda wording: replace(wording, marks=(wording.marks[1], wording.marks[0])),
    ),
}
"""Name -> rewording.  Each applies to any wording."""
