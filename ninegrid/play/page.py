"""The page: its parts put together, its keys, and how it follows what happens."""

from __future__ import annotations

from nicegui import events, ui

from ninegrid.play.elements import box, button, colours_of, style_sheet, text, toggle
from ninegrid.play.game_view import GameView
from ninegrid.play.recorded_view import RecordedView
from ninegrid.play.room import POLICIES, Room
from ninegrid.play.session import OPPONENTS, Session
from ninegrid.play.tabs import Tabs
from ninegrid.play.tally_view import TallyView
from ninegrid.play.words import PLAYERS

OPPONENT_NAMES = {name: PLAYERS[name].name if name in PLAYERS else "Both" for name in OPPONENTS}
FIRST = {"X": "It (X)", "O": "You (O)"}
REPLIES = {"greedy": "Greedy", "sampled": "Sampled"}
HEAT = {"on": "Shown", "off": "Hidden"}
TAB_NAMES = {"play": "Play", "recorded": "Recorded replies"}
STATUS = {"waiting": "waits", "loading": "loading…", "ready": "ready", "failed": "failed"}
MANNERS = (
    "Greedy takes the most probable token each time, so the same board gets the same reply; sampled draws as "
    "training did. Percentages are those of sampling."
)


async def draw(room: Room, tabs: Tabs) -> None:
    """Draw the page for the tab that opens it: the frame at once, its games when it is connected."""
    ui.add_css(style_sheet())
    ui.colors(primary="#0072b2")
    with box("header", "top"):
        text("h1", "ninegrid")
        text("span", "play against what was trained", "muted")
        seats = box(classes="seats", role="status")
    waiting = text("p", "Connecting…", "muted")
    client = ui.context.client
    await client.connected()
    if client.is_deleted or client.tab_id is None:
        return
    waiting.delete()
    page = Page(room, tabs.session(client.tab_id), seats)
    client.on_delete(page.close)


class Page:
    """A tab's page, once connected."""

    def __init__(self, room: Room, session: Session, seats: ui.element) -> None:
        self._room, self._session, self._seats = room, session, seats
        self._colours = {**colours_of(room.task), **colours_of(room.moves)}
        self._games: list[GameView] = []
        self._opponents: list[str] = []
        with box("nav", "tabs"):
            self._tabs = toggle("View", TAB_NAMES, session.choices.tab, lambda tab: session.choose(tab=tab))
        with box():
            self._play = box(classes="panel")
            with self._play:
                self._controls()
                self._boards = box()
                self._tally = TallyView(room, self._colours)
            self._recorded_panel = box(classes="panel")
            with self._recorded_panel:
                self._recorded = RecordedView(room, session, self._colours)
        self._unsaved = text("p", classes="bad small")
        text("footer", FOOT, "muted small")
        ui.keyboard(self._key, ignore=["input", "select", "textarea"], repeating=False)
        room.listeners.add(self._update)
        session.listeners.add(self._update)
        self._update()
        session.resume()

    def close(self) -> None:
        """Follow no longer what happens: the tab has gone."""
        self._room.listeners.discard(self._update)
        self._session.listeners.discard(self._update)

    def _controls(self) -> None:
        choices, choose = self._session.choices, self._session.choose
        with box(classes="controls"):
            self._opponent = toggle(
                "Opponent", OPPONENT_NAMES, choices.opponent, lambda v: choose(opponent=v)
            )
            self._first = toggle("Begins", FIRST, choices.first, lambda v: choose(first=v))
            self._decoding = toggle("Replies", REPLIES, choices.decoding, lambda v: choose(decoding=v))
            self._heat = toggle("Probabilities", HEAT, "on" if choices.heat else "off", self._show_heat)
            button("New game", self._new_game)
        text("p", f"Keys: 1–9 move, n new game, b other board. {MANNERS}", "muted small")

    def _new_game(self) -> None:
        self._session.restart()

    def _show_heat(self, value: str) -> None:
        self._session.choose(heat=value == "on")

    def _update(self) -> None:
        """Draw what has changed."""
        choices = self._session.choices
        self._tabs.set_value(choices.tab)
        self._opponent.set_value(choices.opponent)
        self._play.set_visibility(choices.tab == "play")
        self._recorded_panel.set_visibility(choices.tab == "recorded")
        self._draw_seats()
        self._draw_games()
        self._tally.update()
        self._recorded.update()
        self._unsaved.set_text(self._session.unsaved)

    def _draw_games(self) -> None:
        opponents = [game.opponent for game in self._session.games]
        if opponents != self._opponents:
            self._opponents = opponents
            self._boards.clear()
            self._boards.classes(replace="boards several" if len(opponents) > 1 else "boards")
            with self._boards:
                self._games = [
                    GameView(self._room, self._session, index, self._colours)
                    for index in range(len(opponents))
                ]
        for view in self._games:
            view.update()

    def _draw_seats(self) -> None:
        self._seats.clear()
        with self._seats:
            for name in POLICIES:
                seat = self._room.seats[name]
                text("span", f"{PLAYERS[name].name}: {STATUS[seat.status]}", f"seat {seat.status}")

    def _key(self, event: events.KeyEventArguments) -> None:
        modifiers = event.modifiers
        if not event.action.keydown or modifiers.ctrl or modifiers.alt or modifiers.meta:
            return
        if self._session.choices.tab == "recorded":
            self._recorded_key(event)
        elif event.key.number:
            self._session.play(self._session.active, event.key.number)
        elif event.key == "n":
            self._session.restart()
        elif event.key == "b":
            self._session.switch()

    def _recorded_key(self, event: events.KeyEventArguments) -> None:
        if event.key.arrow_left or event.key.arrow_right:
            self._recorded.step(1 if event.key.arrow_right else -1)
        elif event.key == "f":
            self._recorded.flip()


FOOT = (
    "Policies and recorded replies are those of the moment at which this server started; after another "
    "`make repro`, start `make play` again."
)
