"""What the page calls things: outcomes, players and results, as a reader would say them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ninegrid.play.game import Answer, Game


@dataclass(frozen=True)
class OutcomeText:
    """A short name, and one sentence."""

    name: str
    text: str


OUTCOMES: Mapping[str, OutcomeText] = {
    "no_tool_call": OutcomeText("no tool call", "It wrote text and called no tool."),
    "wrong_tool": OutcomeText("wrong tool", "It called a tool that was not offered."),
    "multiple_calls": OutcomeText("several calls", "It made more than one call; one was asked for."),
    "invalid_arguments": OutcomeText("invalid call", "The call cannot be read, or breaks the tool's schema."),
    "occupied": OutcomeText("occupied", "The call is well-formed, but that square is taken."),
    "legal": OutcomeText("legal, not best", "A free square that gives away what perfect play could reach."),
    "optimal": OutcomeText("optimal", "A free square that keeps what perfect play could reach."),
    "win": OutcomeText("win", "A free square that completes a line."),
    "loss": OutcomeText("loss", "The opponent completed a line."),
    "draw": OutcomeText("draw", "The board is full and nobody has a line."),
}


@dataclass(frozen=True)
class PlayerText:
    """How a player is called: alone, in a sentence, and in one line that says what it is."""

    name: str
    subject: str
    text: str


PLAYERS: Mapping[str, PlayerText] = {
    "trained": PlayerText("Trained", "the trained policy", "what train_gspo made of the model"),
    "baseline": PlayerText("Untrained", "the untrained model", "the model as it was before training"),
    "perfect": PlayerText("Perfect", "the perfect player", "minimax: wins at once, or keeps the result"),
    "random": PlayerText("Random", "the random player", "any free square, each as likely"),
}


def outcome_text(outcome: str) -> OutcomeText:
    """The texts of an outcome; a task of one's own may have others."""
    return OUTCOMES.get(outcome, OutcomeText(outcome.replace("_", " "), ""))


def call_text(answer: Answer) -> str:
    """The parsed call as one would write it, or that there is none."""
    if answer.call is None:
        return "none"
    arguments = ", ".join(f"{key}={value!r}" for key, value in answer.call["arguments"].items())
    return f"{answer.call['name']}({arguments})"


def status_text(game: Game) -> str:
    """Where the game stands, when nobody is being waited for."""
    subject = PLAYERS[game.opponent].subject
    if game.winner == "O":
        return "You win."
    if game.winner == "X":
        return f"{subject.capitalize()} wins."
    if game.turn is None:
        return "A draw."
    if game.turn == "O":
        return "Your turn: you are O."
    return f"{subject.capitalize()} {'made no move' if game.failed else 'is to move'}."
