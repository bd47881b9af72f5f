"""Recorded replies as they are drawn: one board, what was replied before and after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nicegui import background_tasks, ui

from ninegrid.evaluation.episodes import Episode, draw_replies
from ninegrid.play.elements import badge, box, button, text, toggle
from ninegrid.play.game import prompt_hash
from ninegrid.play.recorded import ANY, count_changes, is_flip, next_flip, select
from ninegrid.play.room import Room
from ninegrid.play.session import Session
from ninegrid.play.words import outcome_text
from ninegrid.report.text import number, visible

SIDES = {"before": "Before training", "after": "After training"}


class RecordedView:
    """Draws the pair that the session looks at, among those that its filter takes."""

    def __init__(self, room: Room, session: Session, colours: Mapping[str, str]) -> None:
        self._room, self._session, self._colours = room, session, colours
        self._problem = text("p", classes="note")
        self._whole = box()
        with self._whole:
            self._filters()
            self._steps()
            self._card = box(classes="record")
        self._drawn: object = None
        self.update()

    def update(self) -> None:
        """Draw what the session looks at now."""
        self._problem.set_text(self._room.no_pairs)
        self._whole.set_visibility(bool(self._room.pairs))
        choices = self._session.choices
        now = (choices.filter, choices.place, len(self._room.pairs), self._verified())
        if now == self._drawn or not self._room.pairs:
            return
        self._drawn = now
        counts = count_changes(self._room.pairs, choices.filter.decoding)
        self._changes.set_options({name: f"{label} {counts[name]}" for name, label in CHANGES.items()})
        places = select(self._room.pairs, choices.filter)
        at = places.index(choices.place) + 1 if choices.place in places else 0
        self._where.set_text(f"{at} of {len(places)}" if places else "No reply is of this kind.")
        self._card.clear()
        if at:
            with self._card:
                self._pair(choices.place)

    def step(self, way: int) -> None:
        """Look at the next pair (1) or the one before (-1), round and round."""
        places = select(self._room.pairs, self._session.choices.filter)
        if places:
            beyond = [p for p in places if (p - self._session.choices.place) * way > 0]
            near = (min(beyond) if way > 0 else max(beyond)) if beyond else places[0 if way > 0 else -1]
            self._session.choose(place=near)

    def flip(self) -> None:
        """Look at the next pair whose score changed."""
        choices = self._session.choices
        place = next_flip(self._room.pairs, select(self._room.pairs, choices.filter), choices.place)
        if place is None:
            ui.notify("There is no flip among these.")
        else:
            self._session.choose(place=place)

    def _filters(self) -> None:
        chosen = self._session.choices.filter
        outcomes = {ANY: "any", **{str(o): outcome_text(o).name for o in self._room.task.outcomes}}
        with box(classes="controls"):
            toggle("Decoding", DECODINGS, chosen.decoding, lambda v: self._filter(decoding=v))
            self._changes = toggle("Score", CHANGES, chosen.change, lambda v: self._filter(change=v))
            for side in SIDES:
                selected = ui.select(
                    outcomes,
                    value=getattr(chosen, side),
                    label=f"Outcome {side}",
                    on_change=lambda event, side=side: self._filter(**{side: event.value}),
                )
                selected.props("dense outlined options-dense").classes("outcome-select")

    def _steps(self) -> None:
        with box(classes="controls steps"):
            for label, act in (("Previous", lambda: self.step(-1)), ("Next", lambda: self.step(1))):
                button(label, act)
            button("Next flip", self.flip, main=True)
            self._where = text("span", classes="muted", role="status")
            text("span", "Keys: ← → f", "muted small keys")

    def _filter(self, **changes: Any) -> None:
        wanted = replace(self._session.choices.filter, **changes)
        places = select(self._room.pairs, wanted)
        place = self._session.choices.place
        self._session.choose(filter=wanted, place=place if place in places or not places else places[0])

    def _pair(self, place: int) -> None:
        pair = dict(zip(SIDES, self._room.pairs[place], strict=True))
        example = self._room.task.parse(pair["before"].example)
        with box(classes="drawing"):
            drawn = {side: vars(episode) for side, episode in pair.items()}
            ui.html(draw_replies(self._room.task, example, drawn), sanitize=False)
            told = [example.id, pair["before"].decoding, self._room.task.kind(example)]
            told += ["a flip" if is_flip(self._room.pairs[place]) else "same score"]
            text("p", ", ".join(told), "small")
            board = "".join(mark for row in example.data["board"] for mark in row)
            button("Play on from here", lambda: self._session.play_on(board))
        for side, episode in pair.items():
            self._side(SIDES[side], episode)
        with box("details", "prompt wide"):
            text("summary", "Exact prompt of this board")
            shown, sha = text("pre"), text("p", classes="sha small")
        background_tasks.create(self._show_prompt(example, shown, sha))

    def _side(self, title: str, episode: Episode) -> None:
        with box("section", "reply"):
            text("h3", title)
            with box("p", "judged"):
                badge(episode.outcome, self._colours)
                text("span", f"score {number(episode.score, 1)}")
            text("pre", visible(episode.reply) or "(nothing)")
            why = episode.facts.get("why")
            cut = ", cut at the limit" if episode.truncated else ""
            text("p", f"{why + '. ' if why else ''}{episode.n_tokens} tokens{cut}", "muted small")

    async def _show_prompt(self, example: Any, shown: Any, sha: Any) -> None:
        prompt = await self._room.prompt(example)
        if shown.is_deleted:
            return
        shown.set_text("It is shown once a policy is loaded." if prompt is None else visible(prompt))
        if prompt is not None:
            verified = self._verified()
            told = f"; one of the {verified} prompts whose hash is that of the evaluation" if verified else ""
            sha.set_text(f"sha256 {prompt_hash(prompt)}{told}")

    def _verified(self) -> int:
        """How many prompts are known to be those of the evaluation; 0 while no policy is loaded."""
        checks = [seat.check for seat in self._room.seats.values() if seat.check is not None]
        return min((check.prompts for check in checks), default=0)


DECODINGS = {"sampled": "Sampled", "greedy": "Greedy", ANY: "Both"}
CHANGES = {"all": "All", "flips": "Flips", "improved": "Improved", "worsened": "Worsened"}
