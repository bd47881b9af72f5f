"""Rollouts of several turns: what is sampled, what is remembered of it, and what learns from it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.gspo.batch import make_batch, rollout_reward
from ninegrid.gspo.checkpoint import Checkpoints
from ninegrid.gspo.credit import turn_advantages
from ninegrid.gspo.exploration import EntropyBonus
from ninegrid.gspo.settings import TrainSettings
from ninegrid.gspo.trainer import Trainer
from ninegrid.gspo.update import Updater
from ninegrid.policy.agent import open_agent
from ninegrid.policy.rollout import Rollout, Turn, join_turns
from ninegrid.policy.settings import LocalSource, ModelSettings
from ninegrid.reward import RewardTable
from ninegrid.tasks.protocol import Example, Judgement, Observation
from ninegrid.tasks.tictactoe import TicTacToeGame
from ninegrid.tree.engine import Completion
from ninegrid.tree.settings import DecodingSettings, EngineSettings
from tests.small_tasks import Parrot


def agent_on(folder: Any, task: Any, path: str = "tree", tokens: int = 4, worked: int = 2) -> Any:
    settings = SimpleNamespace(
        model=ModelSettings(name="talker", source=LocalSource("local", str(folder)), device="cpu"),
        chat=ChatSettings(worked_examples=worked),
        decoding=DecodingSettings(max_new_tokens=tokens),
        engine=EngineSettings(path=path, threads=1),
    )
    return open_agent(folder, task, settings)


def rollouts_of(agent: Any, examples: list[Example], n: int = 8, greedy: bool = False) -> list[Rollout]:
    batches = agent.sampler.groups(examples, n, ("t", 1), greedy=greedy)
    return [rollout for batch in batches for group in batch for rollout in group]


GAME = TicTacToeGame()
TABLE = RewardTable(
    {**dict.fromkeys(GAME.outcomes, -1.0), "loss": 0.0, "draw": 0.5, "win": 1.0},
    steps={"optimal": 0.25, "win": 0.5},
)


@pytest.fixture(scope="module", params=["random", "self"])
def game(request: Any) -> TicTacToeGame:
    return TicTacToeGame(opponent=request.param)


def test_both_engines_hold_the_same_conversations(talker_dir: Any, game: TicTacToeGame) -> None:
    """The tree goes on where it is, the padded reference computes every turn from its start."""
    examples = game.generate(6, 2)
    tree = rollouts_of(agent_on(talker_dir, game), examples, greedy=True)
    padded = rollouts_of(agent_on(talker_dir, game, "padded"), examples, greedy=True)
    assert max(len(r.turns) for r in tree) >= 3  # else there were no conversations
    assert len({r.judgement.outcome for r in tree}) >= 4
    for one, other in zip(tree, padded, strict=True):
        assert one.completion.tokens == other.completion.tokens
        assert (one.turns, one.judgement, one.greedy) == (other.turns, other.judgement, other.greedy)
        np.testing.assert_allclose(one.completion.logprobs, other.completion.logprobs, atol=1e-4)
        np.testing.assert_allclose(one.completion.entropies, other.completion.entropies, atol=1e-4)


@pytest.mark.parametrize("budget", [10**6, 1])
def test_one_board_alone_is_sampled_like_among_others(
    talker_dir: Any, game: TicTacToeGame, budget: int
) -> None:
    """Alone, the whole prompt is the trunk, and what the environment asks begins otherwise: another tree."""
    examples = game.generate(4, 2)
    agent = agent_on(talker_dir, game)
    together = rollouts_of(agent, examples)
    agent.sampler.budget = budget
    alone = [r for example in examples for r in rollouts_of(agent, [example])]
    assert [(r.completion.tokens, r.judgement) for r in together] == [
        (r.completion.tokens, r.judgement) for r in alone
    ]


def test_what_was_sampled_scores_as_it_was_recorded(talker_dir: Any, game: TicTacToeGame) -> None:
    agent = agent_on(talker_dir, game)
    rollouts = rollouts_of(agent, game.generate(4, 2))
    scored = agent.sampler.engine.logprobs(
        [r.prompt for r in rollouts], [r.completion.tokens for r in rollouts], 1.0
    )
    for row, rollout in zip(scored.detach().numpy(), rollouts, strict=True):
        mask = rollout.sampled
        assert mask.sum() == rollout.n_sampled
        np.testing.assert_allclose(
            row[: len(mask)][mask], rollout.completion.logprobs[mask], atol=1e-4, rtol=0
        )
        assert not rollout.completion.logprobs[~mask].any()
        assert not rollout.completion.entropies[~mask].any()


def test_the_prompt_of_a_later_turn_is_the_templates_own(tokenizer: Any) -> None:
    """Prompt, what was sampled and what lies between are the very ids that the template writes."""
    chat = ChatFormat(tokenizer, ChatSettings(), GAME)
    example = GAME.generate(1, 0)[0]
    talk, ids = chat.messages(example), chat.encode(example)
    for text, board in (("Hm. ", "XO.......".replace(".", "?")), ("<tool_call>", "a\n\nb"), ("x" * 40, "")):
        said = tokenizer(f"{text}<|im_end|>", add_special_tokens=False)["input_ids"]
        answer = {"role": "tool", "content": board}
        ids = [*ids, *said, *chat.follow_up(talk, said, [answer])]
        talk = [*talk, {"role": "assistant", "content": chat.decode(said)}, answer]
        rendered = chat.template.render(chat.tokenizer, talk, GAME.tools)
        assert ids == chat.tokenizer(rendered, add_special_tokens=False)["input_ids"]


def test_a_reply_that_was_cut_is_closed_before_it_is_answered(tokenizer: Any) -> None:
    chat = ChatFormat(tokenizer, ChatSettings(), GAME)
    stop = next(iter(chat.stop_ids & set(tokenizer("<|im_end|>")["input_ids"])))
    talk, said = chat.messages(GAME.generate(1, 0)[0]), tokenizer("so")["input_ids"]
    answers = [{"role": "tool", "content": "next"}]
    after_cut, after_stop = chat.follow_up(talk, said, answers), chat.follow_up(talk, [*said, stop], answers)
    assert after_cut == [stop, *after_stop]
    assert tokenizer.decode(after_cut) == (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\nnext\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_rollouts_of_one_board_meet_the_same_luck(talker_dir: Any) -> None:
    """Where two samples of a board have moved alike, the opponent has answered alike."""
    answers: dict[tuple[Any, ...], int] = {}
    repeated = 0
    for rollout in rollouts_of(agent_on(talker_dir, GAME), GAME.generate(6, 2), n=16):
        moves = rollout.judgement.facts["moves"]
        for i in range(1, len(moves), 2):
            key = (rollout.example.id, *moves[:i])
            repeated += key in answers
            assert answers.setdefault(key, moves[i]) == moves[i]
    assert repeated > 5


@dataclass
class _Endless:
    """Always asks for more."""

    steps: list[str] = field(default_factory=list)

    def step(self, call: Any) -> Observation:
        return Observation("more")

    def answer(self, call: Any) -> Observation:
        return Observation("more")

    def fail(self, judgement: Judgement) -> Judgement:
        return judgement


def test_a_task_that_goes_on_beyond_its_own_limit_is_stopped(talker_dir: Any) -> None:
    class Endless(Parrot):
        max_turns, step_outcomes, environment = 2, (), {}  # type: ignore[var-annotated]
        tools = GAME.tools
        decision = None

        def __init__(self) -> None:
            pass

        def worked_examples(self) -> Any:
            return []

        def begin(self, example: Example, draws: Any) -> _Endless:
            return _Endless()

        def draw_runs(self, example: Example, runs: Any) -> str:
            return "<svg/>"

    task = Endless()
    with pytest.raises(ValueError, match="goes on after 2 replies, its max_turns"):
        rollouts_of(agent_on(talker_dir, task, worked=0), task.generate(4, 0), n=32)


# --- learning from it --------------------------------------------------------------------------------------


class _NoStep(torch.optim.SGD):
    def __init__(self, model: Any) -> None:
        super().__init__(model.parameters(), lr=0.0)


@pytest.mark.parametrize("credit", ["sequence", "branch", "turn"])
@pytest.mark.parametrize("path", ["tree", "padded"])
def test_the_gradient_leaves_out_what_was_not_sampled(talker_dir: Any, credit: str, path: str) -> None:
    """-mean over rollouts of (1 / sampled tokens) * sum over sampled tokens of A d log p, written out."""
    agent = agent_on(talker_dir, GAME, path)
    settings = TrainSettings(
        algorithm="gspo_token", credit=credit, n_boards=4, n_samples=8, max_grad_norm=1e9
    )
    groups = next(agent.sampler.groups(GAME.generate(4, 2), 8, ("t", 1)))
    batch = make_batch(groups, TABLE, settings)
    assert batch.informative.any()
    model = agent.policy.model
    updater = Updater(model, agent.sampler.engine, _NoStep(model), settings, agent.sampler.decoding)
    stats = updater.update(batch)
    assert stats.logprob_diff is not None and stats.logprob_diff < 1e-4
    found = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    credits = [c for row in batch.credit for c in row]
    for rollout, given in zip(batch.rollouts, credits, strict=True):
        tokens = [*rollout.prompt, *rollout.completion.tokens]
        logp = torch.log_softmax(model(torch.tensor([tokens])).logits[0], -1)
        weight = np.broadcast_to(given, len(rollout.completion.tokens)) * rollout.sampled
        start = len(rollout.prompt)
        total = sum(w * logp[start + t - 1, tokens[start + t]] for t, w in enumerate(weight.tolist()) if w)
        if torch.is_tensor(total):
            (-total / rollout.n_sampled / len(batch.rollouts)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-5)


def test_what_was_not_sampled_has_no_credit(talker_dir: Any) -> None:
    agent = agent_on(talker_dir, GAME)
    groups = next(agent.sampler.groups(GAME.generate(4, 2), 8, ("t", 1)))
    for credit in ("branch", "turn"):
        settings = TrainSettings(algorithm="gspo_token", credit=credit)
        batch = make_batch(groups, TABLE, settings)
        for rollout, given in zip(batch.rollouts, [c for row in batch.credit for c in row], strict=True):
            assert not given[~rollout.sampled].any()


def test_a_rollout_earns_its_outcome_and_its_steps() -> None:
    won = conversation("win", ["optimal", "win"])
    assert rollout_reward(won, TABLE) == pytest.approx(1.0 + 0.25 + 0.5)
    assert rollout_reward(won, replace(TABLE, steps={})) == 1.0
    # Four sampled tokens; the two of the observation cost nothing.
    assert rollout_reward(won, replace(TABLE, steps={}, length_penalty=0.1)) == pytest.approx(0.6)


def conversation(outcome: str, steps: list[str], logprobs: tuple[float, ...] = (-1.0, -2.0)) -> Rollout:
    """Turns of two tokens, the second of which decides, with observations of two tokens between them."""
    turns, logp = [], list[float]()
    for i, step in enumerate(steps):
        start = 4 * i
        turns.append(Turn(start, start + 2, start + 1, step))
        logp += [-0.1, logprobs[i], 0.0, 0.0]
    length = 4 * len(steps) - 2
    logp_T = np.array(logp[:length], dtype=np.float32)
    completion = Completion(tuple(range(length)), logp_T, np.zeros(length, np.float32), "stop")
    return Rollout(Example("b", "g", {}), 0, (1,), completion, "", Judgement(outcome), tuple(turns))


def test_turn_credit_by_hand() -> None:
    """Three rollouts: won with steps optimal, win; lost with legal, optimal; lost at once.

    Earned in all: 1 + 0.25 + 0.5 = 1.75, 0 + 0 + 0.25 = 0.25 (its last step was optimal), 0.
    First turns: 1.75, 0.25, 0, mean 2/3.  Second turns: 1.75 - 0.25 = 1.5 and 0.25 - 0 = 0.25, mean 0.875.
    """
    group = [
        conversation("win", ["optimal", "win"]),
        conversation("loss", ["legal", "optimal"]),
        conversation("loss", [""]),
    ]
    rewards = np.array([rollout_reward(r, TABLE) for r in group])
    assert rewards.tolist() == [1.75, 0.25, 0.0]
    found = turn_advantages(group, rewards, TABLE, scale_by_std=False)
    first, second = 1.75 - 2 / 3, 1.5 - 0.875
    np.testing.assert_allclose(found[0], [first, first, 0, 0, second, second])
    np.testing.assert_allclose(found[1], [0.25 - 2 / 3] * 2 + [0, 0] + [-second] * 2)
    np.testing.assert_allclose(found[2], [-2 / 3] * 2)
    scaled = turn_advantages(group, rewards, TABLE, scale_by_std=True)
    np.testing.assert_allclose(scaled[0][4:], [1.0, 1.0])


def test_turn_credit_compares_only_what_can_be_compared() -> None:
    """One rollout alone has a second turn: nothing to hold it against."""
    group = [conversation("win", ["optimal", "win"]), conversation("occupied", ["legal"])]
    rewards = np.array([rollout_reward(r, TABLE) for r in group])
    found = turn_advantages(group, rewards, TABLE, scale_by_std=False)
    assert not found[0][2:].any()
    assert found[0][0] == -found[1][0] > 0


def test_the_bonus_compares_turns_of_the_same_number() -> None:
    """First decisions have surprises 1, 3 and 5 (mean 3); second ones 2 and 4, which is not valid."""
    group = [
        conversation("win", ["optimal", "win"], (-1.0, -2.0)),
        conversation("occupied", ["legal", ""], (-3.0, -4.0)),
        conversation("draw", ["legal"], (-5.0,)),
    ]
    credit = [np.zeros(len(r.completion.tokens)) for r in group]
    found = EntropyBonus(0.5, GAME.milestones["legal"]).add(credit, group)
    np.testing.assert_allclose(found[0], [0, -1.0, 0, 0, 0, 0])  # alone among valid second turns: 2 - 2
    np.testing.assert_allclose(found[1], [0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(found[2], [0, 1.0])


def test_turns_that_do_not_follow_each_other_are_refused() -> None:
    said = Completion((5, 6), np.zeros(2, np.float32), np.zeros(2, np.float32), "stop")
    joined, spans = join_turns([(1, 2), (1, 2, 5, 6, 7)], [said, said])
    assert joined.tokens == (5, 6, 7, 5, 6)
    assert spans == [range(0, 2), range(3, 5)]
    with pytest.raises(ValueError, match="does not begin with the conversation so far"):
        join_turns([(1, 2), (1, 2, 5, 7, 7)], [said, said])


def test_it_learns_to_play_games(talker_dir: Any, tmp_path: Any) -> None:
    """Four openings, whose games the untrained talker ends with a taken square or without a call."""
    task = TicTacToeGame(min_moves=3, max_moves=5)
    agent = agent_on(talker_dir, task)
    settings = TrainSettings(
        algorithm="gspo_token", credit="turn", steps=25, n_boards=4, n_samples=16, learning_rate=5e-3,
        checkpoint_every=0,
    )  # fmt: skip
    trainer = Trainer(agent.policy, agent.sampler, TABLE, settings, Checkpoints(tmp_path, "run"))
    rows = trainer.run(task.generate(4, 3), lambda row, costs: None)
    first, last = (np.mean([r["rollout/rewards_mean"] for r in part]) for part in (rows[:5], rows[-5:]))
    assert first < -0.3
    assert last > first + 0.3
