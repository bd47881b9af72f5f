"""What a policy is asked in a game: single moves each by themselves, whole games as one conversation.

A policy that was trained on whole games is asked as it was there: the opening as a question, and what you
answer as the result of its call.  Where a random move stood in for one of its own, its conversation ended;
the board after it is a new opening.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ninegrid.chat.format import ChatFormat
from ninegrid.play.game import Game
from ninegrid.tasks.protocol import Example, Interactive, Json, Task
from ninegrid.tasks.tictactoe import TicTacToe, TicTacToeGame
from ninegrid.tasks.tictactoe.board import Board, X


@dataclass(frozen=True)
class Question:
    """What is asked next.

    Attributes:
        example: the board.
        messages: the conversation so far.
        ids: the same as token ids, in which earlier replies are as they were sampled.
    """

    example: Example
    messages: Sequence[Json]
    ids: tuple[int, ...]


def single_moves(task: TicTacToe) -> TicTacToe:
    """The task by which one move is judged and counted: whole games are told in the same words."""
    if not isinstance(task, Interactive):
        return task
    return TicTacToe(task.min_moves, task.max_moves, task.wording.view).worded(task.wording)


def follows_in_training(task: TicTacToe) -> bool:
    """Whether training had boards on which the policy moves second."""
    return isinstance(task, TicTacToeGame) and task.start != "first"


def question(chat: ChatFormat, task: Task, game: Game, example: Example) -> Question:
    """What the policy is asked about ``example``, the game's present board."""
    if not isinstance(task, Interactive):
        return Question(example, chat.messages(example), tuple(chat.encode(example)))
    return _Talk(chat, game.id).about(game, example)


class _Talk:
    """Follows a game as the conversation that it is to a policy."""

    def __init__(self, chat: ChatFormat, name: str) -> None:
        self._chat, self._name = chat, name
        self._asked: Question | None = None
        self._said: tuple[int, ...] = ()

    def about(self, game: Game, example: Example) -> Question:
        board = game.start
        moved = (answer for answer in game.answers if answer.square is not None)
        for move in game.moves:
            if move.by == "reply":
                self._asked, self._said = self._ask(self._example(board)), next(moved).tokens
            elif move.mark == X:
                self._asked = None
            board = board[: move.square - 1] + move.mark + board[move.square :]
        return self._ask(example)

    def _ask(self, example: Example) -> Question:
        chat, last = self._chat, self._asked
        if last is None:
            return Question(example, chat.messages(example), tuple(chat.encode(example)))
        result = {"role": "tool", "content": chat.task.user(example)}
        between = chat.follow_up(last.messages, self._said, [result])
        said = {"role": "assistant", "content": chat.decode(self._said)}
        return Question(example, [*last.messages, said, result], (*last.ids, *self._said, *between))

    def _example(self, board: Board) -> Example:
        task = self._chat.task
        assert isinstance(task, TicTacToe)
        return task.position(self._name, board)
