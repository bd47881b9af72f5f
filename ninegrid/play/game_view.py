"""One game as it is drawn: the board with the move probabilities, and where the game stands."""

from __future__ import annotations

from collections.abc import Mapping

from ninegrid.play.answer_view import AnswerView
from ninegrid.play.elements import box, button, percent, set_attributes, text
from ninegrid.play.game import Answer, Game
from ninegrid.play.room import POLICIES, Room
from ninegrid.play.session import Session
from ninegrid.play.talk import follows_in_training
from ninegrid.play.words import PLAYERS, outcome_text, status_text
from ninegrid.tasks.tictactoe.board import FREE, SQUARES

LOADING = {"waiting": "waits to be loaded", "loading": "is being loaded", "failed": "cannot play"}


class GameView:
    """Draws game ``index`` of a session, and changes what was drawn when the game does.

    Nothing is built anew, so focus, and what is folded open, stay as they are.
    """

    def __init__(self, room: Room, session: Session, index: int, colours: Mapping[str, str]) -> None:
        self._room, self._session, self._index = room, session, index
        player = PLAYERS[session.games[index].opponent]
        self._section = box("section", "game", aria_label=f"Game against {player.subject}")
        with self._section:
            with box(classes="side"):
                with box(classes="title"):
                    text("h2", player.name)
                    text("span", player.text, "muted")
                self._status = text("p", classes="status", role="status", aria_live="polite")
                self._board()
                self._caption = text("p", classes="muted small")
                self._ahead = text("p", AHEAD, "note small")
                self._failure()
            self._answer = AnswerView(room, colours)
        self.update()

    def update(self) -> None:
        """Draw the game as it is now."""
        game, asking = self._game, self._session.is_asking(self._game)
        several = len(self._session.games) > 1
        self._mark("active", several and self._session.active == self._index)
        self._mark("asking", asking)
        self._status.set_text(self._status_text(game, asking))
        self._update_squares(game, asking)
        self._caption.set_text(self._caption_text(game))
        unknown = game.first == "O" and not follows_in_training(self._room.task)
        self._ahead.set_visibility(unknown and game.opponent in POLICIES)
        self._update_failure(game, asking)
        self._answer.update(game)

    @property
    def _game(self) -> Game:
        return self._session.games[self._index]

    def _mark(self, name: str, on: bool) -> None:
        self._section.classes(add=name if on else "", remove="" if on else name)

    def _board(self) -> None:
        self._squares, self._numbers, self._marks, self._shares = [], [], [], []
        with box(classes="board", role="group", aria_label="Board"):
            for square in SQUARES:
                drawn = box("button", "square", type="button", data_square=str(square))
                drawn.on("click", lambda square=square: self._session.play(self._index, square))
                with drawn:
                    self._numbers.append(text("span", str(square), "number"))
                    self._marks.append(text("span", classes="mark"))
                    self._shares.append(text("span", classes="share"))
                self._squares.append(drawn)

    def _failure(self) -> None:
        self._failed = box(classes="failure", role="alert")
        with self._failed:
            self._problem = text("p")
            with box(classes="buttons"):
                button("Ask again", self._again, main=True).tooltip("A new draw")
                button("Random legal move instead", lambda: self._session.substitute(self._index))

    def _again(self) -> None:
        self._session.ask_again(self._index)

    def _status_text(self, game: Game, asking: bool) -> str:
        seat = self._room.seats.get(game.opponent)
        if game.turn == "X" and seat is not None and seat.status != "ready":
            return f"{PLAYERS[game.opponent].subject.capitalize()} {LOADING[seat.status]}."
        if asking:
            return f"{PLAYERS[game.opponent].subject.capitalize()} is asked…"
        return status_text(game)

    def _update_squares(self, game: Game, asking: bool) -> None:
        answer = shown_answer(game) if self._session.choices.heat else None
        last = game.moves[-1] if game.moves else None
        for square, drawn in zip(SQUARES, self._squares, strict=True):
            mark = game.board[square - 1]
            share = None if answer is None or answer.chances is None else answer.chances[square - 1]
            classes = ["square", *([] if mark == FREE else ["taken", mark.lower()])]
            classes += ["line"] if game.line and square in game.line else []
            classes += ["last"] if last and last.square == square else []
            classes += ["refused"] if game.failed and game.failed.named == square else []
            classes += ["open"] if mark == FREE and game.turn == "O" and not asking else []
            drawn.classes(replace=" ".join(classes))
            drawn.style(replace=f"--share: {0 if share is None else share:.4f}")
            self._marks[square - 1].set_text("" if mark == FREE else mark)
            self._shares[square - 1].set_text("" if share is None else percent(share))
            set_attributes(drawn, {"aria-label": _label(square, mark, share)})

    def _caption_text(self, game: Game) -> str:
        answer = shown_answer(game) if self._session.choices.heat else None
        if answer is None:
            return ""
        if answer.chances is None:
            return "The probabilities of its reply are being worked out…"
        if game.opponent not in POLICIES:
            return "Percentages: how likely it was to choose each square."
        whose = "Percentages: the exact probability that its reply is that call; anything else: "
        return whose + percent(answer.anything_else) + "."

    def _update_failure(self, game: Game, asking: bool) -> None:
        problem, failed = self._session.problems.get(game.id, ""), game.failed
        self._failed.set_visibility(bool(problem or failed) and not asking)
        if failed is not None and not problem:
            outcome = outcome_text(failed.outcome)
            problem = f"No move: {outcome.name}. {outcome.text}"
        self._problem.set_text(problem)


AHEAD = "You began, so its prompt shows one O more than X. No board in training had that."


def shown_answer(game: Game) -> Answer | None:
    """The last reply, until you have moved after it."""
    return None if game.moves and game.moves[-1].by == "you" and not game.failed else game.last


def _label(square: int, mark: str, share: float | None) -> str:
    held = "free" if mark == FREE else mark
    return f"Square {square}, {held}" + ("" if share is None else f", {percent(share)} in its last reply")
