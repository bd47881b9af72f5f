"""What one browser tab plays: its choices and its games, kept in a file so that a restart loses nothing.

It asks players and tells its listeners, and knows no UI: a page draws it, and may come and go meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from ninegrid.errors import NinegridError
from ninegrid.play.game import Decoding, Game, Mark, from_json, to_json
from ninegrid.play.recorded import ANY, Change, Filter
from ninegrid.play.room import Room
from ninegrid.tasks.tictactoe.board import EMPTY_BOARD, Board, free_squares

BOTH = "both"
OPPONENTS: Mapping[str, tuple[str, ...]] = {
    "trained": ("trained",),
    "baseline": ("baseline",),
    BOTH: ("baseline", "trained"),
    "perfect": ("perfect",),
    "random": ("random",),
}
"""What can be chosen -> the players of the games that it stands for, left to right."""


@dataclass(frozen=True)
class Choices:
    """What the person has chosen.

    Attributes:
        opponent: one of `OPPONENTS`.
        first: who begins a game: X is the player, O the person.
        decoding: of policies.
        heat: whether move probabilities are drawn on the board.
        tab: "play" or "recorded".
        filter, place: of the recorded replies: which ones, and which of all is looked at.
    """

    opponent: str = "trained"
    first: Mark = "X"
    decoding: Decoding = "greedy"
    heat: bool = True
    tab: str = "play"
    filter: Filter = Filter()  # noqa: RUF009  # frozen
    place: int = 0


class Session:
    """A tab's games, one for each board that is shown.

    Args:
        room: what all tabs share.
        path: the file that holds the session; what it holds is taken up.

    Attributes:
        active: the game that the keyboard plays.
        problems: game id -> why its player could not be asked.
        unsaved: why the last change is not in the file; empty if it is.
        listeners: called after every change.
    """

    def __init__(self, room: Room, path: Path) -> None:
        self._room, self._path = room, path
        self.choices, self.games, self.active = Choices(), [Game("trained")], 0
        self.problems: dict[str, str] = {}
        self.unsaved = ""
        self.listeners: set[Callable[[], None]] = set()
        self._asking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._read()

    def choose(self, **changes: Any) -> None:
        """Change some of `Choices`; another opponent or beginner begins a new game."""
        chosen = replace(self.choices, **changes)
        if chosen == self.choices:
            return
        self.choices = chosen
        if {"opponent", "first"} & changes.keys():
            self.restart()
        else:
            self._changed()

    def restart(self, start: Board = EMPTY_BOARD, first: Mark | None = None) -> None:
        """Begin a new game on every board."""
        players = OPPONENTS[self.choices.opponent]
        self.games = [Game(player, first or self.choices.first, start) for player in players]
        self.active = min(self.active, len(players) - 1)
        self.problems.clear()
        self._changed()
        self.go()

    def play_on(self, board: Board) -> None:
        """Begin a game with X to move on ``board`` against each of the two policies."""
        self.choices = replace(self.choices, opponent=BOTH, tab="play")
        self.restart(board, "X")

    def go(self) -> None:
        """Ask the players whose turn it is and who have not replied yet."""
        for index, game in enumerate(self.games):
            if game.turn == "X" and not game.failed and game.id not in self.problems:
                self.ask(index, self.choices.decoding)

    def resume(self) -> None:
        """Go on where a page, or the server, was left."""
        self.go()
        for game in self.games:
            if not self.is_asking(game):
                self._start(self._weigh(game))

    def switch(self) -> None:
        """Let the keyboard play the other board, if there is one."""
        self.active = (self.active + 1) % len(self.games)
        self._changed()

    def play(self, index: int, square: int) -> bool:
        """Make your move, if it is your turn and the square is free; says whether it was."""
        game = self.games[index]
        self.active = index
        possible = game.turn == "O" and square in free_squares(game.board)
        if possible:
            self.games[index] = game.human(square)
        self._changed()
        self.go()
        return possible

    def ask_again(self, index: int) -> None:
        """Ask once more: a new draw, since a greedy reply would be the same."""
        self.problems.pop(self.games[index].id, None)
        self.ask(index, "sampled" if self.games[index].failed else self.choices.decoding)

    def substitute(self, index: int) -> None:
        """Let a random legal move stand in for the player's."""
        game = self.games[index]
        if game.turn == "X" and game.id not in self._asking:
            self.problems.pop(game.id, None)
            self.games[index] = game.substituted(secrets.choice(free_squares(game.board)))
            self._changed()

    def ask(self, index: int, decoding: Decoding) -> None:
        """Ask the player of a game in the background, unless it is being asked or not to move."""
        game = self.games[index]
        if game.turn == "X" and game.id not in self._asking:
            self._asking.add(game.id)
            self._start(self._ask(game, decoding))
            self._changed()

    def is_asking(self, game: Game) -> bool:
        """Whether a reply is being waited for."""
        return game.id in self._asking

    async def settled(self) -> None:
        """Wait until nothing is being waited for, neither replies nor their probabilities."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, game: Game, decoding: Decoding) -> None:
        problem, answered = "", game
        try:
            answered = game.answered(await self._room.answer(game, decoding))
        except NinegridError as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error} (a bug; the server printed where)"
            raise
        finally:
            self._asking.discard(game.id)
            self._take(answered, problem)
        await self._weigh(answered)

    async def _weigh(self, game: Game) -> None:
        """Work out the probabilities of the last reply, which is shown without them meanwhile."""
        last = game.last
        if last is None or last.chances is not None:
            return
        known = [a.chances for a in game.answers if a.board == last.board and a.chances is not None]
        chances = known[0] if known else await self._room.chances(game.back_at(last.board))
        for index, current in enumerate(self.games):
            if current.id == game.id:
                self.games[index] = current.weighed(last.board, chances)
        self._changed()

    def _take(self, game: Game, problem: str) -> None:
        """Put an answered game in the place of the one that was asked, unless another has begun meanwhile."""
        for index, current in enumerate(self.games):
            if current.id == game.id:
                self.games[index] = game
                if problem:
                    self.problems[game.id] = problem
        self._changed()

    def _changed(self) -> None:
        try:
            self._write()
            self.unsaved = ""
        except OSError as error:
            self.unsaved = f"cannot write {self._path}: {error.strerror or error}"
        for listener in tuple(self.listeners):
            listener()

    def _write(self) -> None:
        games = [to_json(game) for game in self.games]
        content = {"choices": asdict(self.choices), "active": self.active, "games": games}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(content), encoding="utf-8")
        os.replace(draft, self._path)

    def _read(self) -> None:
        """Take up what the file holds; one of another version of this page is no loss and is left."""
        try:
            raw = json.loads(self._path.read_text(encoding="utf-8"))
            choices = Choices(**{**raw["choices"], "filter": Filter(**raw["choices"]["filter"])})
            games = [from_json(game) for game in raw["games"]]
            active = int(raw["active"])
        except (OSError, ValueError, TypeError, KeyError):
            return
        if tuple(game.opponent for game in games) == OPPONENTS.get(choices.opponent) and active < len(games):
            self.choices, self.games, self.active = self._possible(choices), games, active

    def _possible(self, choices: Choices) -> Choices:
        """The choices without what the page does not offer now: another task has other outcomes."""
        outcomes = {ANY, *map(str, self._room.task.outcomes)}
        wanted = choices.filter
        fits = {wanted.before, wanted.after} <= outcomes and wanted.decoding in (ANY, "sampled", "greedy")
        fits = fits and wanted.change in get_args(Change)
        choices = choices if fits else replace(choices, filter=Filter(), place=0)
        offered = choices.tab in ("play", "recorded") and choices.first in get_args(Mark)
        return choices if offered and choices.decoding in get_args(Decoding) else Choices(choices.opponent)
