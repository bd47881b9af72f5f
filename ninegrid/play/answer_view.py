"""What a player replied, as it is drawn: judgement, parsed call, raw reply, exact prompt."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui.elements.mixins.text_element import TextElement

from ninegrid.play.elements import badge, box, percent, set_badge, squares_text, text
from ninegrid.play.game import Answer, Game
from ninegrid.play.room import Room
from ninegrid.play.words import call_text, outcome_text
from ninegrid.report.text import number, visible


class AnswerView:
    """Draws the last reply in a game."""

    def __init__(self, room: Room, colours: Mapping[str, str]) -> None:
        self._room, self._colours = room, colours
        self._whole = box(classes="answer")
        with self._whole:
            text("h3", "Last reply")
            self._nothing = text("p", classes="muted")
            self._filled = box()
            with self._filled:
                with box("p", "judged"):
                    self._badge = badge(next(iter(colours)), colours)
                    self._meaning = text("span")
                with box("dl", "facts"):
                    self._call = _row("Parsed call", "code")
                    self._reply = _row("Raw reply", "pre")
                    self._judged = _row("Judgement")
                    self._chances = _row("Probability")
                    self._cost = _row("Cost")
                with box("details", "prompt"):
                    self._summary = text("summary")
                    text("p", "What the policy read, byte for byte:", "muted small")
                    self._prompt = text("pre")
                    self._sha = text("p", classes="sha small")
                self._check = PromptCheckView(room)
            self._earlier = box(classes="earlier")

    def update(self, game: Game) -> None:
        """Draw the game's last reply."""
        answer = game.last
        written = answer is not None and answer.reply is not None
        self._nothing.set_visibility(not written)
        self._nothing.set_text("None yet." if answer is None else "This player works its moves out.")
        self._filled.set_visibility(written)
        if answer is not None and written:
            self._update(game, answer)
        self._update_earlier(game)

    def _update(self, game: Game, answer: Answer) -> None:
        set_badge(self._badge, answer.outcome, self._colours)
        self._meaning.set_text(outcome_text(answer.outcome).text)
        self._call.set_text(call_text(answer))
        self._reply.set_text(visible(answer.reply or ""))
        score = number(self._room.moves.score[answer.outcome], 1)
        why = f"{answer.why}. " if answer.why else ""
        self._judged.set_text(f"{why}Best: {squares_text(answer.best)}. Score {score}.")
        self._chances.set_text(_chances(answer))
        self._cost.set_text(_cost(answer, self._room.settings.decoding.temperature))
        self._summary.set_text(f"Exact prompt, {answer.prompt_tokens} tokens")
        self._prompt.set_text(visible(answer.prompt or ""))
        self._sha.set_text(f"sha256 {answer.prompt_sha256}")
        self._check.update(game.opponent)

    def _update_earlier(self, game: Game) -> None:
        """The outcomes of all replies in this game, in order, once there are several."""
        self._earlier.clear()
        replies = [answer for answer in game.answers if answer.reply is not None]
        self._earlier.set_visibility(len(replies) > 1)
        with self._earlier:
            text("span", "In this game:", "muted small")
            for answer in replies:
                badge(answer.outcome, self._colours)


class PromptCheckView:
    """Says whether a player's prompts are those of training and evaluation."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._shown: object = None
        self._whole = box(classes="check")

    def update(self, player: str) -> None:
        """Draw what is known by now."""
        seat = self._room.seats.get(player)
        check = None if seat is None else seat.check
        if self._whole.default_slot.children and check is self._shown:
            return
        self._shown = check
        self._whole.clear()
        with self._whole:
            if check is None:
                text("p", "Comparing this prompt with those of training and evaluation…", "muted small")
                return
            for line in check.differs:
                text("p", f"✗ not as in the evaluation: {line}", "bad small")
            verified = "✓ Verified: asked as in training and evaluation"
            summary = verified if check.verified else "What was compared"
            with box("details"):
                text("summary", summary, "small")
                with box("ul", "small"):
                    for line in (*check.same, *(f"not compared: {line}" for line in check.missing)):
                        text("li", line)


def _row(name: str, tag: str = "span") -> TextElement:
    text("dt", name)
    with box("dd"):
        return text(tag)


def _chances(answer: Answer) -> str:
    if answer.chances is None:
        return "being worked out…"
    named, rest = percent(sum(answer.chances)), percent(answer.anything_else)
    return f"{named} for the nine calls, {rest} for anything else"


def _cost(answer: Answer, temperature: float) -> str:
    how = "greedy" if answer.decoding == "greedy" else f"sampled at temperature {temperature:g}"
    ended = "" if answer.finish == "stop" else ", cut at the limit"
    again = f", attempt {answer.attempt + 1}" if answer.attempt else ""
    return f"{answer.n_tokens} tokens{ended}, {how}{again}, {answer.seconds:.2f} s"
