"""The replies of live play by outcome, as they are drawn, and their export."""

from __future__ import annotations

from collections.abc import Mapping

from nicegui import ui

from ninegrid.play.elements import box, button, text
from ninegrid.play.room import POLICIES, Room
from ninegrid.play.words import PLAYERS, outcome_text
from ninegrid.report.palette import readable_on

FILE = "play-episodes.jsonl"


class TallyView:
    """Draws the tally of all tabs, and draws it again when a reply is added."""

    def __init__(self, room: Room, colours: Mapping[str, str]) -> None:
        self._room, self._colours = room, colours
        self._shown: object = None
        with box("section", "tally"):
            text("h2", "Replies by outcome")
            text("p", ABOUT, "muted small")
            self._table = box(classes="tables")
            self._problem = text("p", classes="bad small")
            button("Export as episodes", self._export).tooltip("JSON lines, as data/*/episodes.jsonl")
        self.update()

    def update(self) -> None:
        """Draw the counts as they are now."""
        counts = self._room.tally.counts()
        self._problem.set_text(self._room.tally.problem)
        if counts == self._shown:
            return
        self._shown = counts
        self._table.clear()
        players = [name for name in POLICIES if name in counts]
        with self._table:
            for name in players:
                self._bar(name, counts[name])
            if players:
                self._rows({name: counts[name] for name in players})

    def _bar(self, player: str, counted: Mapping[str, int]) -> None:
        total = sum(counted.values())
        with box(classes="bar-row"):
            text("span", f"{PLAYERS[player].name}, {total:,}", "bar-name")
            with box(classes="bar", aria_hidden="true"):
                for outcome, n in counted.items():
                    if n:
                        colour = self._colours[outcome]
                        part = text("span", str(n) if n / total > 0.05 else "")
                        part.style(f"flex-grow: {n}; background: {colour}; color: {readable_on(colour)}")

    def _rows(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        with box("table"):
            with box("thead"), box("tr"):
                text("th", "Outcome", scope="col")
                for player in counts:
                    text("th", PLAYERS[player].name, scope="col")
            with box("tbody"):
                for outcome in self._room.moves.outcomes:
                    with box("tr"):
                        with box("th", scope="row"):
                            text("span", classes="swatch").style(f"background: {self._colours[outcome]}")
                            text("span", outcome_text(outcome).name)
                        for counted in counts.values():
                            text("td", _share(counted[outcome], sum(counted.values())))

    def _export(self) -> None:
        ui.download.content(self._room.tally.export(), FILE, "application/jsonl")


ABOUT = (
    "Every reply of a policy in live play, in any tab, judged as in training and evaluation. Random moves in "
    "place of a reply, and players that write none, do not count."
)


def _share(n: int, total: int) -> str:
    return f"{n:,} ({n / total:.0%})" if n else "–"
