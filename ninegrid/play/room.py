"""What all tabs share: the players, the one thread in which models run, the tally, the recorded replies.

Models are loaded in the background, the trained policy first; who asks before waits.  One thread does all
work with models, so no two replies are ever made at once, and the event loop is never held up.
"""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from ninegrid.errors import NinegridError
from ninegrid.play.game import Answer, Decoding, Game
from ninegrid.play.recorded import read_pairs
from ninegrid.play.reference import REFERENCE, ReferencePlayer
from ninegrid.play.settings import PlaySettings
from ninegrid.play.talk import single_moves
from ninegrid.play.tally import FILE, Tally
from ninegrid.tasks.protocol import Example
from ninegrid.tasks.tictactoe import TicTacToe

if TYPE_CHECKING:
    from ninegrid.evaluation.compare import Pair
    from ninegrid.play.checks import PromptCheck
    from ninegrid.play.policies import PolicyPlayer

T = TypeVar("T")

POLICIES = {"trained": "policy", "baseline": "model"}
"""Players that are policies -> their folders among the paths, in the order in which they are loaded."""

STATE = "play"
"""The folder of the page's own state, in the project's."""


@dataclass(frozen=True)
class Seat:
    """How far a policy is: ``problem`` is why it failed, ``check`` what is known of its prompts."""

    status: Literal["waiting", "loading", "ready", "failed"] = "waiting"
    problem: str = ""
    check: PromptCheck | None = None


class Room:
    """The server's side of all games.  Its methods belong to one event loop.

    Args:
        settings, task: as for the stages.

    Attributes:
        moves: the task by which single moves are judged and counted.
    """

    def __init__(self, settings: PlaySettings, task: TicTacToe) -> None:
        self.settings, self.task = settings, task
        self.moves = single_moves(task)
        self.folder = settings.paths.state_folder(STATE)
        self.tally = Tally(self.folder / FILE, self.moves)
        self.seats = {name: Seat() for name in POLICIES}
        self.pairs: list[Pair] = []
        self.no_pairs = "They are read once the trained policy is loaded."
        self.listeners: set[Callable[[], None]] = set()
        self._references = {name: ReferencePlayer(self.moves, player) for name, player in REFERENCE.items()}
        self._policies: dict[str, PolicyPlayer] = {}
        self._settled = {name: asyncio.Event() for name in POLICIES}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def open(self) -> None:
        """Load and check the policies, and read the recorded replies; returns when all is done.

        The first policy comes before everything else: whoever opens the page waits for its move.
        """
        first, *others = POLICIES
        await self._load(first)
        try:
            self.pairs = await self._run(read_pairs, self.settings.paths, self.task)
            self.no_pairs = ""
        except Exception as error:
            self.no_pairs = _told(error)
        self._tell()
        for name in others:
            await self._load(name)

    def close(self) -> None:
        """Start no more work."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def answer(self, game: Game, decoding: Decoding) -> Answer:
        """What the game's opponent makes of the present board; a policy's reply is counted.

        Raises:
            NinegridError: the policy could not be loaded, or cannot reply.
        """
        if game.opponent in self._references:
            return self._references[game.opponent].answer(game, decoding)
        player = await self._policy(game.opponent)
        answer, episode = await self._run(player.ask, game, decoding)
        self.tally.add(game.opponent, episode)
        self._tell()
        return answer

    async def chances(self, game: Game) -> tuple[float, ...]:
        """The probability that a policy's reply to the game's board is the call of each square.

        Raises:
            NinegridError: the policy could not be loaded.
        """
        player = await self._policy(game.opponent)
        return await self._run(player.chances, game)

    async def prompt(self, example: Example) -> str | None:
        """The prompt of an example, by the first policy that is there."""
        player = next(iter(self._policies.values()), None)
        return None if player is None else await self._run(player.agent.chat.render, example)

    async def _policy(self, name: str) -> PolicyPlayer:
        await self._settled[name].wait()
        if name not in self._policies:
            raise NinegridError(
                self.seats[name].problem or f"loading {name} failed; see what the server printed"
            )
        return self._policies[name]

    async def _load(self, name: str) -> None:
        self._set(name, Seat("loading"))
        try:
            player = await self._run(_load_player, name, self.settings, self.task)
            self.tally.open(name, player.under)
            self._policies[name] = player
            self._set(name, Seat("ready"))
        except Exception as error:
            self._set(name, Seat("failed", _told(error)))
            return
        finally:
            self._settled[name].set()
        try:
            check = await self._run(_check, player, self.settings, self.task)
        except Exception as error:
            check = _unchecked(_told(error))
        self._set(name, Seat("ready", check=check))

    async def _run(self, work: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, functools.partial(work, *arguments))

    def _set(self, name: str, seat: Seat) -> None:
        self.seats[name] = seat
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self.listeners):
            listener()


def _told(error: Exception) -> str:
    """The error in words; one that nobody has foreseen is printed too, and stops nothing else."""
    if isinstance(error, NinegridError):
        return str(error)
    traceback.print_exception(error)
    return f"{type(error).__name__}: {error} (the server printed where)"


def _unchecked(problem: str) -> PromptCheck:
    from ninegrid.play.checks import PromptCheck

    return PromptCheck(missing=(problem,))


def _load_player(name: str, settings: PlaySettings, task: TicTacToe) -> PolicyPlayer:
    from ninegrid.play.policies import load_player  # brings torch, in the thread that waits for it

    return load_player(name, settings.paths.folder(POLICIES[name]), task, settings)


def _check(player: PolicyPlayer, settings: PlaySettings, task: TicTacToe) -> PromptCheck:
    from ninegrid.play.checks import check_prompts

    return check_prompts(player, task, settings)
