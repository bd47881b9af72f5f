"""A policy as a player: the prompt, engine and judge of training and evaluation, asked about one move.

What it is asked in a game so far is known elsewhere (``talk``).
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from ninegrid.chat.trial import call_turn
from ninegrid.evaluation.episodes import Episode, make_episode
from ninegrid.play.game import Answer, Decoding, Game, prompt_hash
from ninegrid.play.settings import PlaySettings
from ninegrid.play.talk import Question, question, single_moves
from ninegrid.policy.agent import Agent, open_agent
from ninegrid.policy.conversation import Conversation, Draws, Reader, SingleReply
from ninegrid.policy.loading import weights_sha256
from ninegrid.policy.rollout import Rollout
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example
from ninegrid.tasks.tictactoe import TicTacToe
from ninegrid.tasks.tictactoe.board import begun_by_x, best_squares, marks
from ninegrid.tree.drafter import ORDER


class PolicyPlayer:
    """A loaded policy that plays X.  Not for several threads at once.

    Args:
        name: of the player, noted in its episodes.
        agent: the policy with its prompt, engine and judge.
        moves: judges single moves; the agent's task, unless that is whole games.
        table: the reward that its episodes are given beside the score.

    Attributes:
        weights: sha256 of the policy's weights.
        under: digest of the weights and all that shapes a reply; replies under another one are not counted
            together with these.
    """

    def __init__(self, name: str, agent: Agent, moves: TicTacToe, table: RewardTable) -> None:
        self.name, self.agent, self._moves, self._table = name, agent, moves, table
        self.weights = weights_sha256(agent.policy.model)
        conditions = {**agent.chat.fingerprint(), **asdict(agent.sampler.decoding), "weights": self.weights}
        self.under = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:16]

    def ask(self, game: Game, decoding: Decoding) -> tuple[Answer, Episode]:
        """Reply to the game's board, on which X is to move.

        Raises:
            TrainingError: the policy's log-probs are not finite.
        """
        started = time.perf_counter()
        asked = self.question(game)
        rollout = self._rollout(asked, decoding, game.attempts)
        answer = self._answer(game, asked, rollout, decoding, time.perf_counter() - started)
        episode = make_episode(rollout, decoding, self._moves.score, self._table)
        noted = {**episode.facts, "player": self.name, "under": self.under}
        return answer, replace(episode, facts=noted)

    def chances(self, game: Game) -> tuple[float, ...]:
        """The probability that a reply to the game's board is the call of each square; see `move_chances`."""
        return tuple(move_chances(self.agent, self.question(game)))

    def question(self, game: Game) -> Question:
        """What the policy is asked now."""
        chat = self.agent.chat
        return question(chat, chat.task, game, self.example(game))

    def example(self, game: Game) -> Example:
        """The game's board as an example; the number of marks tells the game's boards apart."""
        return self._moves.position(f"play-{self.name}-{game.id}-{marks(game.board)}", game.board)

    def warm_up(self) -> None:
        """Spare the first replies what can be known before: what all prompts begin with, how calls go on.

        A reply to the empty board, uncounted, leaves the former with the engine; the latter are guesses,
        which change how many passes a reply takes and never what it is.
        """
        example, _ = self.example(Game(self.name)), self.ask(Game(self.name), "greedy")
        before = self.agent.chat.encode(example)[-ORDER:]
        engine = self.agent.sampler.engine
        engine.load([*engine.state(), *([*before, *call] for call in _calls(self.agent, example))])

    def _rollout(self, asked: Question, decoding: Decoding, attempt: int) -> Rollout:
        """One reply, drawn, read and judged as a `Sampler` does it."""
        sampler, chat, moves = self.agent.sampler, self.agent.chat, self._moves
        limit = sampler.decoding.max_new_tokens
        draws = Draws(("play", attempt), asked.example.id, 0, limit, greedy=decoding == "greedy")
        course = SingleReply(moves, asked.example)
        talk = Conversation(chat, Reader(chat, moves), moves, asked.example, course, draws, None)
        with torch.no_grad():
            sampler.engine.sample(
                [talk.begin(asked.ids)],
                stop=chat.stop_ids,
                max_new_tokens=limit,
                temperature=sampler.decoding.temperature,
            )
        return replace(talk.finish(), sample=attempt)

    def _answer(
        self, game: Game, asked: Question, rollout: Rollout, decoding: Decoding, seconds: float
    ) -> Answer:
        judgement, chat = rollout.judgement, self.agent.chat
        prompt = chat.template.render(chat.tokenizer, asked.messages, chat.task.tools)
        call, moved = judgement.call, judgement.outcome in self._moves.milestones["legal"]
        return Answer(
            board=game.board,
            decoding=decoding,
            attempt=rollout.sample,
            outcome=str(judgement.outcome),
            why=judgement.facts.get("why"),
            call=None if call is None else {"name": call.name, "arguments": dict(call.arguments)},
            best=best_squares(begun_by_x(game.board)),
            square=judgement.facts["square"] if moved else None,
            seconds=seconds,
            named=judgement.facts.get("square"),
            prompt=prompt,
            prompt_sha256=prompt_hash(prompt),
            prompt_tokens=len(rollout.prompt),
            reply=rollout.text,
            tokens=rollout.completion.tokens,
            n_tokens=len(rollout.completion.tokens),
            finish=rollout.completion.finish,
        )


def move_chances(agent: Agent, asked: Question) -> list[float]:
    """The probability, at the decoding temperature, that the reply is exactly the call of each square, [9].

    Exactly: in the tokens by which the template writes that call, its stop token included.  One pass scores
    all nine.
    """
    decoding, calls = agent.sampler.decoding, _calls(agent, asked.example)
    with torch.no_grad():
        logp_ST = agent.sampler.engine.logprobs([asked.ids] * len(calls), calls, decoding.temperature)
    chances_S = logp_ST.double().sum(1).exp().tolist()
    # A reply is cut before it could be a call that is longer than the limit.
    return [p if len(c) <= decoding.max_new_tokens else 0.0 for p, c in zip(chances_S, calls, strict=True)]


def _calls(agent: Agent, example: Example) -> list[list[int]]:
    """The calls of all squares in the tokens by which the template writes them."""
    task = agent.chat.task
    return [agent.chat.answer(example, call_turn(call)) for call in task.candidate_calls(example)]


def load_player(name: str, folder: Path, task: TicTacToe, settings: PlaySettings) -> PolicyPlayer:
    """Load the policy in ``folder`` and let it reply once, so that the next reply is quick.

    Raises:
        NinegridError: it cannot be loaded, or its prompt does not show the tools.
    """
    moves = single_moves(task)
    table = settings.reward if moves is task else RewardTable(dict(moves.score))
    agent = open_agent(folder, task, settings)
    _own_weights(agent)
    player = PolicyPlayer(name, agent, moves, table)
    player.warm_up()
    return player


def _own_weights(agent: Agent) -> None:
    """Let go of the file: weights stay mapped to it otherwise, and change with it while the page runs."""
    for parameter in agent.policy.model.parameters():
        parameter.data = parameter.data.clone()
