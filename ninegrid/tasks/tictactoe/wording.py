"""In which words and marks the game is told, and how a call in those words is read.

Every perturbation of the prompt or the tool is another `Wording`; the game stays what it is.  Not here:
how a board is laid out (``views``), and what a move is worth (``task``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ninegrid.tasks.protocol import Json, ToolCall
from ninegrid.tasks.tictactoe.board import FREE, SQUARES, Board, O, X
from ninegrid.tasks.tictactoe.views import VIEWS

Label = int | str

WORKED = (
    ("...OO.XX.", 9),  # wins at once, though O threatens too
    ("O..XO.OXX", 3),  # the only move that does not lose: it blocks
    ("...O..X..", 5),  # wins by force, not at once
    ("OX....O.X", 4),  # blocks
)
"""The worked examples: boards of 4, 6, 2 and 4 marks, with four different answers."""


@dataclass(frozen=True)
class Wording:
    """How the game is told.

    The texts may hold ``{mark}``, ``{other}``, ``{tool}`` and ``{noun}``.

    Attributes:
        view: how a board is laid out, one of `VIEWS`.
        instructions: the system message; None for the view's own.
        tool: the tool's name.
        tool_text: its description.
        argument: the name of its argument.
        argument_text: the argument's description.
        labels: what the squares 1 to 9 are called: whole numbers without a gap, or texts.
        noun: what a label is.
        marks: how the mark of the player to move and that of the other one are shown.
        between: stands between two parts of a row.
        reversed_schema: whether the fields of the tool's schema stand in reverse order.
        worked: the worked examples: board, and the square that answers it.
    """

    view: str = "grid"
    instructions: str | None = None
    tool: str = "choose_square"
    tool_text: str = "Put {mark} on a free square."
    argument: str = "square"
    argument_text: str = "The {noun} of the square."
    labels: tuple[Label, ...] = tuple(SQUARES)
    noun: str = "number"
    marks: tuple[str, str] = (X, O)
    between: str = " "
    reversed_schema: bool = False
    worked: tuple[tuple[Board, int], ...] = WORKED

    def system(self) -> str:
        """The system message."""
        return self._filled(self.instructions or VIEWS[self.view].instructions)

    def tools(self) -> Sequence[Json]:
        """The one tool, in the OpenAI function format."""
        parameters = {
            "type": "object",
            "properties": {self.argument: self._argument_schema()},
            "required": [self.argument],
            "additionalProperties": False,
        }
        function = {
            "name": self.tool,
            "description": self._filled(self.tool_text),
            "parameters": parameters,
        }
        tool = {"type": "function", "function": function}
        return (_reversed(tool) if self.reversed_schema else tool,)

    def cells(self, board: Board) -> list[str]:
        """What stands in each of the squares 1 to 9: a mark, or the label of a free one."""
        shown = {X: self.marks[0], O: self.marks[1]}
        return [
            str(label) if mark == FREE else shown[mark]
            for mark, label in zip(board, self.labels, strict=True)
        ]

    def show(self, board: Board) -> str:
        """The board as the text that the policy reads."""
        rows = VIEWS[self.view].rows(board, self.cells(board))
        return "\n".join(self.between.join(row) for row in rows)

    def call(self, square: int) -> ToolCall:
        """The call that chooses ``square``, 1 to 9."""
        return ToolCall(self.tool, {self.argument: self.labels[square - 1]})

    def square(self, call: ToolCall) -> int:
        """The square, 1 to 9, that a call chooses which fits the tool's schema."""
        return self.labels.index(call.arguments[self.argument]) + 1

    def is_valid(self, call: ToolCall) -> bool:
        """Whether a call fits the tool's schema."""
        label = call.arguments.get(self.argument)
        return call.name == self.tool and type(label) is type(self.labels[0]) and label in self.labels

    def _argument_schema(self) -> Json:
        text = {"description": self._filled(self.argument_text)}
        numbers = [label for label in self.labels if isinstance(label, int)]
        if numbers:
            return {"type": "integer", "minimum": min(numbers), "maximum": max(numbers), **text}
        return {"type": "string", "enum": list(self.labels), **text}

    def _filled(self, text: str) -> str:
        return text.format(mark=self.marks[0], other=self.marks[1], tool=self.tool, noun=self.noun)


def _reversed(value: Json) -> Json:
    """The same object with the fields of it and of all objects in it in reverse order."""
    return {
        key: _reversed(value[key]) if isinstance(value[key], dict) else value[key] for key in reversed(value)
    }
