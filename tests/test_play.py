"""Play without its page: games, replies, probabilities, the tally, recorded replies, sessions."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ninegrid.errors import DataError, SettingsError
from ninegrid.evaluation.episodes import read_episodes
from ninegrid.play.checks import check_prompts
from ninegrid.play.game import Answer, Game, from_json, prompt_hash, to_json
from ninegrid.play.policies import PolicyPlayer, load_player, move_chances
from ninegrid.play.recorded import Filter, count_changes, is_flip, next_flip, read_pairs, select
from ninegrid.play.reference import REFERENCE, ReferencePlayer
from ninegrid.play.room import Room
from ninegrid.play.session import OPPONENTS, Session
from ninegrid.play.settings import PlaySettings, play_task, read_settings
from ninegrid.play.tabs import KEPT, Tabs
from ninegrid.play.talk import follows_in_training, question, single_moves
from ninegrid.play.tally import Tally
from ninegrid.play.words import OUTCOMES, PLAYERS
from ninegrid.policy.agent import Agent, open_agent
from ninegrid.policy.loading import weights_sha256
from ninegrid.policy.rollout import Rollout
from ninegrid.reward import RewardTable
from ninegrid.tasks.dataset import read_examples
from ninegrid.tasks.tictactoe import TicTacToe, TicTacToeGame
from ninegrid.tasks.tictactoe.board import EMPTY_BOARD, best_squares, free_squares
from tests.conftest import ROOT, made_once
from tests.playing import CENTRE, WRITTEN, loop_settings, make_loop, overrides


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small finished loop; not to be changed."""
    return made_once(tmp_path_factory, "played_loop", make_loop)


@pytest.fixture
def settings(loop: Path, tmp_path: Path) -> PlaySettings:
    return read_settings([*overrides(loop), f"paths.state={tmp_path / 'state'}"])


@pytest.fixture
def task(settings: PlaySettings) -> TicTacToe:
    return play_task(settings)


@pytest.fixture(scope="module")
def trained(loop: Path) -> PolicyPlayer:
    settings = read_settings(overrides(loop))
    return load_player("trained", loop / "policy", play_task(settings), settings)


def answer(board: str, square: int | None, outcome: str = "legal", tokens: tuple[int, ...] = ()) -> Answer:
    """A reply as a player would give it."""
    chances = (1 / 9,) * 9
    return Answer(
        board, "greedy", 0, outcome, None, None, (5,), square, 0.1, chances, reply="…", tokens=tokens
    )


# --- games -----------------------------------------------------------------------------------------------


def test_a_game_goes_back_and_forth_until_a_line() -> None:
    game = Game("trained")
    for mine, yours in ((1, 5), (2, 9)):
        game = game.answered(answer(game.board, mine)).human(yours)
    assert (game.board, game.turn, game.winner) == ("XX..O...O", "X", None)
    game = game.answered(answer(game.board, 3, "win"))
    assert (game.turn, game.winner, game.line) == (None, "X", (1, 2, 3))
    assert [move.by for move in game.moves] == ["reply", "you", "reply", "you", "reply"]


def test_a_reply_without_a_move_leaves_the_turn_and_is_kept() -> None:
    game = Game("trained").answered(answer(EMPTY_BOARD, None, "no_tool_call"))
    assert game.turn == "X" and game.failed == game.answers[0] and game.attempts == 1
    moved = game.substituted(5)
    assert moved.board == "....X...." and moved.failed is None and moved.moves[0].by == "random"
    assert len(moved.answers) == 1 and moved.attempts == 0


def test_moves_out_of_turn_or_on_taken_squares_are_refused() -> None:
    with pytest.raises(ValueError, match="O is not to move"):
        Game("trained").human(1)
    with pytest.raises(ValueError, match="is taken"):
        Game("trained", first="O").human(5).substituted(5)
    with pytest.raises(ValueError, match="a reply to X"):
        Game("trained").answered(answer("X........", 2))


def test_a_game_begun_by_you_and_one_from_a_board() -> None:
    assert Game("trained", first="O").turn == "O"
    assert Game("trained", start="X...O....").turn == "X"
    assert Game("trained", start="XOXXOXO.O").answered(answer("XOXXOXO.O", 8)).winner is None


def test_a_game_survives_its_file() -> None:
    game = Game("trained", first="O").human(1).answered(answer("O........", 5))
    assert from_json(json.loads(json.dumps(to_json(game)))) == game


# --- asking a policy -------------------------------------------------------------------------------------


def test_the_prompt_is_that_of_the_evaluation_by_hash(loop: Path, trained: PolicyPlayer) -> None:
    """The prompt that the retest wrote down is that of the first held-out board."""
    first = read_examples(trained.agent.chat.task, loop / "boards" / "heldout.jsonl")[0]
    board = "".join(mark for row in first.data["board"] for mark in row)
    found, _ = trained.ask(Game("trained", start=board), "greedy")
    assert found.prompt is not None
    assert found.prompt_sha256 == prompt_hash((loop / "retest" / "prompt.txt").read_text())
    assert found.prompt_tokens == len(trained.agent.chat.encode(first))


def test_a_greedy_reply_is_that_of_the_retest(loop: Path, trained: PolicyPlayer, task: TicTacToe) -> None:
    for episode in read_episodes(loop / "retest" / "episodes.jsonl", task.outcomes):
        if episode.decoding == "greedy":
            board = "".join(mark for row in episode.example["board"] for mark in row)
            found, _ = trained.ask(Game("trained", start=board), "greedy")
            assert (found.reply, found.outcome) == (episode.reply, episode.outcome)


def test_prompts_are_verified_and_a_difference_is_told(
    loop: Path, settings: PlaySettings, task: TicTacToe, tmp_path: Path
) -> None:
    player = load_player("trained", loop / "policy", task, settings)
    check = check_prompts(player, task, settings)
    assert check.verified and check.prompts == 16 and not check.missing and len(check.same) == 4

    other = read_settings([*overrides(loop), "task.view=grid"])
    changed = play_task(other)
    check = check_prompts(load_player("trained", loop / "policy", changed, other), changed, other)
    assert not check.verified and check.prompts == 0
    assert any("prompt_sha256: baseline" in line for line in check.differs)
    assert any("not this page's" in line for line in check.differs)

    nowhere = replace(settings, paths=replace(settings.paths, baseline=str(tmp_path), train=str(tmp_path)))
    check = check_prompts(player, task, nowhere)
    assert check.verified and any("baseline" in line for line in check.missing)


def test_probabilities_are_those_of_scoring_each_call_by_itself(trained: PolicyPlayer) -> None:
    """The reference is transformers' own forward pass over prompt and call, one by one."""
    example = trained.example(Game("trained", start="X...O...."))
    chances = move_chances(trained.agent, trained.question(Game("trained", start="X...O....")))
    tokenizer, model = trained.agent.policy.tokenizer, trained.agent.policy.model
    prompt = trained.agent.chat.encode(example)
    for written, chance in zip(WRITTEN[:9], chances, strict=True):
        call = tokenizer(f"{written}<|im_end|>", add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            logp = torch.log_softmax(model(torch.tensor([[*prompt, *call]])).logits[0].double(), -1)
        wanted = sum(logp[len(prompt) - 1 + i, token].item() for i, token in enumerate(call))
        assert chance == pytest.approx(math.exp(wanted), abs=1e-6)
    assert 0.1 < sum(chances) <= 1


def test_samples_come_as_often_as_their_probability_says(trained: PolicyPlayer) -> None:
    """1,000 draws on one board: the share of each call lies within five standard errors."""
    example = trained.example(Game("trained", start="X...O...."))
    chances = move_chances(trained.agent, trained.question(Game("trained", start="X...O....")))
    with torch.no_grad():
        ((rollouts,),) = trained.agent.sampler.groups([example], 1000, ("test",))
    for written, chance in zip(WRITTEN[:9], chances, strict=True):
        share = sum(rollout.text == written for rollout in rollouts) / 1000
        assert abs(share - chance) <= 5 * math.sqrt(chance * (1 - chance) / 1000)


def test_a_call_that_the_limit_would_cut_has_no_probability(trained: PolicyPlayer) -> None:
    sampler = trained.agent.sampler
    short = replace(trained.agent, sampler=copy.copy(sampler))
    short.sampler.decoding = replace(sampler.decoding, max_new_tokens=1)
    assert move_chances(short, trained.question(Game("trained"))) == [0.0] * 9


def test_another_attempt_is_another_draw_and_a_greedy_one_is_not(trained: PolicyPlayer) -> None:
    game = Game("trained")
    once, _ = trained.ask(game, "greedy")
    again, episode = trained.ask(replace(game, answers=(once,)), "greedy")
    assert once.reply == again.reply and again.attempt == 1 and episode.sample == 1
    drawn = {
        trained.ask(replace(game, answers=(once,) * attempt), "sampled")[0].reply for attempt in range(12)
    }
    assert len(drawn) > 1


def test_a_reply_to_a_game_that_you_began_is_judged_for_x(loop: Path, settings: PlaySettings) -> None:
    player = load_player("baseline", loop / "model", play_task(settings), settings)
    found, episode = player.ask(Game("baseline", first="O").human(1), "greedy")
    assert (found.reply, found.outcome, found.square, found.best) == (CENTRE, "optimal", 5, (5,))
    assert episode.example["board"][0][0] == "O" and found.prompt is not None
    occupied, _ = player.ask(Game("baseline", first="O").human(5), "greedy")
    assert (occupied.outcome, occupied.square, occupied.named) == ("occupied", None, 5)


# --- players without a model -----------------------------------------------------------------------------


@hypothesis_settings(deadline=None, max_examples=40)
@given(st.booleans(), st.randoms())
def test_perfect_play_never_loses(you_begin: bool, random: Any) -> None:
    player = ReferencePlayer(TicTacToe(), REFERENCE["perfect"])
    game = Game("perfect", first="O" if you_begin else "X")
    while game.turn is not None:
        if game.turn == "X":
            game = game.answered(player.answer(game, "greedy"))
        else:
            game = game.human(random.choice(free_squares(game.board)))
    assert game.winner != "O"


def test_the_random_player_moves_legally_with_even_chances() -> None:
    player = ReferencePlayer(TicTacToe(), REFERENCE["random"])
    found = [player.answer(Game("random", start="X...O...."), "greedy") for _ in range(200)]
    assert {a.square for a in found} == set(free_squares("X...O...."))
    assert found[0].chances is not None and found[0].chances[0] == 0
    assert sum(found[0].chances) == pytest.approx(1)
    assert found[0].reply is None and found[0].best == best_squares("X...O....")


# --- the tally -------------------------------------------------------------------------------------------


def test_the_tally_counts_survives_and_exports_episodes(
    trained: PolicyPlayer, task: TicTacToe, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "episodes.jsonl"
    tally = Tally(path, task)
    tally.open("trained", trained.under)
    outcomes = []
    game = Game("trained")
    for attempt in range(20):
        found, episode = trained.ask(replace(game, answers=(answer(game.board, None),) * attempt), "sampled")
        tally.add("trained", episode)
        outcomes.append(found.outcome)
    assert {o: n for o, n in tally.counts()["trained"].items() if n} == {
        o: outcomes.count(o) for o in outcomes
    }
    assert list(tally.counts()["trained"]) == list(task.outcomes)

    exported = tmp_path / "exported.jsonl"
    exported.write_text(tally.export())
    assert exported.read_bytes() == path.read_bytes()
    episodes = read_episodes(exported, task.outcomes)
    assert [e.outcome for e in episodes] == outcomes and len({e.key for e in episodes}) == 20
    assert all(e.score == task.score[e.outcome] and e.decoding == "sampled" for e in episodes)
    assert task.parse(episodes[0].example).group == episodes[0].group

    again = Tally(path, task)
    again.open("trained", trained.under)
    assert again.counts() == tally.counts()
    other = Tally(path, task)
    other.open("trained", "other weights")
    other.open("baseline", trained.under)
    assert not any(n for counted in other.counts().values() for n in counted.values())


def test_a_line_that_is_cut_is_not_counted_and_not_lost(
    trained: PolicyPlayer, task: TicTacToe, tmp_path: Path
) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text('{"example": {"id": "pl\n')
    tally = Tally(path, task)
    tally.open("trained", trained.under)
    tally.add("trained", trained.ask(Game("trained"), "greedy")[1])
    assert sum(tally.counts()["trained"].values()) == 1 and not tally.problem
    assert path.read_text().startswith('{"example": {"id": "pl\n')


def test_a_tally_that_cannot_be_written_says_so_and_counts(
    trained: PolicyPlayer, task: TicTacToe, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    tally = Tally(tmp_path / "file" / "episodes.jsonl", task)
    tally.open("trained", trained.under)
    tally.add("trained", trained.ask(Game("trained"), "greedy")[1])
    assert "cannot write" in tally.problem and sum(tally.counts()["trained"].values()) == 1


# --- recorded replies ------------------------------------------------------------------------------------


def test_recorded_replies_are_paired_filtered_and_flips_are_those_of_the_score(
    settings: PlaySettings, task: TicTacToe
) -> None:
    pairs = read_pairs(settings.paths, task)
    assert len(pairs) == 32 and all(before.key == after.key for before, after in pairs)
    greedy = select(pairs, Filter("greedy"))
    assert len(greedy) == 16 and all(pairs[place][0].decoding == "greedy" for place in greedy)
    better = [i for i, (b, a) in enumerate(pairs) if a.score > b.score]
    worse = [i for i, (b, a) in enumerate(pairs) if a.score < b.score]
    assert better and worse, "a loop in which nothing changed would test nothing"
    assert select(pairs, Filter("any", "improved")) == better
    assert select(pairs, Filter("any", "worsened")) == worse
    assert select(pairs, Filter("any", "flips")) == sorted([*better, *worse])
    counts = count_changes(pairs, "any")
    assert (counts["all"], counts["improved"], counts["worsened"]) == (32, len(better), len(worse))
    occupied = select(pairs, Filter("any", before="occupied"))
    assert occupied and {pairs[place][0].outcome for place in occupied} == {"occupied"}
    assert select(pairs, Filter("any", after="no such outcome")) == []


def test_the_next_flip_goes_round(settings: PlaySettings, task: TicTacToe) -> None:
    pairs = read_pairs(settings.paths, task)
    places = list(range(len(pairs)))
    flips = [place for place in places if is_flip(pairs[place])]
    seen, at = [], -1
    for _ in flips:
        found = next_flip(pairs, places, at)
        assert found is not None
        seen.append(at := found)
    assert seen == flips and next_flip(pairs, places, at) == flips[0]
    same = [place for place in places if place not in flips]
    assert next_flip(pairs, same, -1) is None


def test_without_a_retest_the_reason_is_told(settings: PlaySettings, task: TicTacToe, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dvc repro retest"):
        read_pairs(replace(settings.paths, retest=str(tmp_path)), task)


# --- the room and its sessions ---------------------------------------------------------------------------


def in_room(settings: PlaySettings, task: TicTacToe, work: Any) -> None:
    """Run ``work(room)`` with a room whose policies are being loaded."""

    async def run() -> None:
        room = Room(settings, task)
        opening = asyncio.create_task(room.open())
        try:
            await work(room)
            await opening
        finally:
            room.close()

    asyncio.run(run())


def test_a_move_made_before_the_policy_is_loaded_is_answered(settings: PlaySettings, task: TicTacToe) -> None:
    async def work(room: Room) -> None:
        session = Tabs(room).session("a tab")
        session.choose(opponent="both", first="O")
        assert session.play(0, 1) and session.play(1, 9)
        assert all(session.is_asking(game) for game in session.games)
        await session.settled()
        assert [len(game.answers) for game in session.games] == [1, 1]
        assert [game.opponent for game in session.games] == ["baseline", "trained"]
        assert session.games[0].board == "O...X...."
        counts = room.tally.counts()
        assert sum(counts["baseline"].values()) + sum(counts["trained"].values()) == 2

    in_room(settings, task, work)


def test_an_illegal_reply_can_be_asked_again_or_replaced(settings: PlaySettings, task: TicTacToe) -> None:
    async def work(room: Room) -> None:
        session = Tabs(room).session("a tab")
        session.choose(opponent="baseline", first="O")
        session.play(0, 5)
        await session.settled()
        failed = session.games[0].failed
        assert failed is not None and failed.outcome == "occupied"
        assert not session.play(0, 1), "it is not your turn"
        session.ask_again(0)
        await session.settled()
        assert [a.decoding for a in session.games[0].answers] == ["greedy", "sampled"]
        session.substitute(0)
        assert session.games[0].turn == "O" and session.games[0].board.count("X") == 1
        assert room.tally.counts()["baseline"]["occupied"] == 2

    in_room(settings, task, work)


def test_a_reply_to_a_game_that_was_left_is_counted_and_not_played(
    settings: PlaySettings, task: TicTacToe
) -> None:
    async def work(room: Room) -> None:
        session = Tabs(room).session("a tab")
        session.go()
        left = session.games[0]
        session.choose(first="O")
        await session.settled()
        assert session.games[0].id != left.id and session.games[0].board == EMPTY_BOARD
        assert sum(room.tally.counts()["trained"].values()) == 1

    in_room(settings, task, work)


def test_tabs_do_not_mix_and_come_back_after_a_restart(settings: PlaySettings, task: TicTacToe) -> None:
    async def first(room: Room) -> None:
        tabs = Tabs(room)
        one, two = tabs.session("one"), tabs.session("../two")
        one.choose(opponent="perfect", first="O")
        two.choose(opponent="random", first="O", heat=False)
        one.play(0, 1)
        two.play(0, 9)
        await asyncio.gather(one.settled(), two.settled())
        assert one.games[0].board[0] == "O" and two.games[0].board[8] == "O"
        assert tabs.session("one") is one
        kept.extend([one.games, two.games, two.choices])

    async def second(room: Room) -> None:
        tabs = Tabs(room)
        assert [tabs.session("one").games, tabs.session("../two").games] == kept[:2]
        assert tabs.session("../two").choices == kept[2]
        assert tabs.session("three").games[0].moves == ()

    kept: list[Any] = []
    in_room(settings, task, first)
    in_room(settings, task, second)


def test_probabilities_that_a_restart_cut_off_are_worked_out(settings: PlaySettings, task: TicTacToe) -> None:
    async def first(room: Room) -> None:
        session = Tabs(room).session("a tab")
        session.go()
        await session.settled()
        kept.append(session.games[0])
        cut = to_json(replace(kept[0], answers=(replace(kept[0].answers[0], chances=None),)))
        path = next((room.folder / "tabs").iterdir())
        path.write_text(json.dumps({**json.loads(path.read_text()), "games": [cut]}))

    async def second(room: Room) -> None:
        session = Tabs(room).session("a tab")
        assert session.games[0].answers[0].chances is None
        session.resume()
        await session.settled()
        assert session.games[0].answers[0].chances == pytest.approx(kept[0].answers[0].chances)

    kept: list[Game] = []
    in_room(settings, task, first)
    in_room(settings, task, second)


def test_a_policy_that_cannot_be_loaded_says_why_and_the_others_play(
    settings: PlaySettings, task: TicTacToe, tmp_path: Path
) -> None:
    broken = replace(settings, paths=replace(settings.paths, policy=str(tmp_path / "nowhere")))

    async def work(room: Room) -> None:
        session = Tabs(room).session("a tab")
        session.go()
        await session.settled()
        assert "there is no folder" in session.problems[session.games[0].id]
        assert "dvc repro" in session.problems[session.games[0].id]
        session.choose(opponent="baseline")
        await session.settled()
        assert session.games[0].board == "....X...." and not session.problems
        assert room.seats["trained"].status == "failed"

    in_room(broken, task, work)


def test_play_goes_on_from_a_recorded_board(settings: PlaySettings, task: TicTacToe) -> None:
    async def work(room: Room) -> None:
        session = Tabs(room).session("a tab")
        session.choose(opponent="perfect", tab="recorded")
        session.play_on("X...O....")
        await session.settled()
        assert [game.opponent for game in session.games] == ["baseline", "trained"]
        assert {answer.board for game in session.games for answer in game.answers} == {"X...O...."}
        assert all(sum(game.answers[0].chances or ()) > 0.1 for game in session.games)
        assert session.choices.tab == "play"

    in_room(settings, task, work)


def test_a_file_that_is_no_session_is_a_new_one(settings: PlaySettings, task: TicTacToe) -> None:
    for content in ("", "{", "[]", '{"choices": {"opponent": "nobody"}}'):
        path = settings.paths.state_folder("session.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        assert Session(Room(settings, task), path).games[0].opponent == "trained"


def test_old_sessions_are_removed(settings: PlaySettings, task: TicTacToe) -> None:
    room = Room(settings, task)
    folder = room.folder / "tabs"
    folder.mkdir(parents=True)
    for i in range(KEPT + 5):
        (folder / f"{i}.json").write_text("{}")
    Tabs(room)
    assert len(list(folder.iterdir())) == KEPT


# --- settings and words ----------------------------------------------------------------------------------


def test_overrides_come_through_the_one_door(loop: Path) -> None:
    assert read_settings(["decoding.temperature=0.5"]).decoding.temperature == 0.5
    for wrong, message in (
        ("decoding.temprature=1", "did you mean decoding.temperature"),
        ("decoding.temperature=0", "decoding.temperature = 0.0, allowed: > 0"),
        ("train.steps=1", "does not read train"),
        ("nonsense", "no KEY=VALUE"),
    ):
        with pytest.raises(SettingsError, match=message):
            read_settings([wrong])


def test_another_task_is_refused_with_the_next_command(settings: PlaySettings) -> None:
    other = replace(settings, task=replace(settings.task, target="tests.larger.Larger", arguments={}))
    with pytest.raises(SettingsError, match="plays tic-tac-toe") as caught:
        play_task(other)
    assert caught.value.hint == "python -m ninegrid.params task=tictactoe"


def test_everything_has_words(task: TicTacToe) -> None:
    assert set(OUTCOMES) == {*task.outcomes, *TicTacToeGame.outcomes}
    assert {player for players in OPPONENTS.values() for player in players} == set(PLAYERS)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ninegrid.play", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_wrong_setting_and_a_taken_port_end_with_one_message() -> None:
    import socket

    wrong = run("decoding.temperature=0")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1) and "decoding.temperature" in wrong.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run("--port", str(port))
    assert refused.returncode == 2 and f"make play PORT={port + 1}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_page_does_not_wait_for_heavy_libraries(tmp_path: Path) -> None:
    heavy = ("torch", "transformers", "scipy", "pandas", "matplotlib", "mlflow")
    code = (
        "import os, sys; import ninegrid.play.settings, ninegrid.play.server; "
        "os.environ |= {'MATPLOTLIB': 'false', 'NICEGUI_STORAGE_PATH': sys.argv[1]}; "
        f"import ninegrid.play.page, ninegrid.play.tabs; print([m for m in {heavy} if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == "[]", found.stderr


# --- whole games -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def game_agent(loop: Path) -> Agent:
    settings = loop_settings(loop)
    return open_agent(loop / "policy", TicTacToeGame(view="lines"), settings)


def played(rollout: Rollout, turns: int) -> Game:
    """The same game on the page, up to the policy's move number ``turns``, which is yet to come."""
    start = "".join(mark for row in rollout.example.data["board"] for mark in row)
    game = Game("trained", "X", start)
    squares = rollout.judgement.facts["moves"]
    for index in range(turns):
        turn = rollout.turns[index]
        said = rollout.completion.tokens[turn.start : turn.stop]
        game = game.answered(answer(game.board, squares[2 * index], tokens=said))
        game = game.human(squares[2 * index + 1])
    return game


def test_a_game_is_asked_about_as_training_asks(game_agent: Agent) -> None:
    """At every move of games that were sampled as in training, the page's prompt has the very same ids."""
    task = game_agent.chat.task
    assert isinstance(task, TicTacToeGame)
    batches = game_agent.sampler.groups(task.generate(12, 5), 8, ("t",))
    rollouts = [r for batch in batches for group in batch for r in group if len(r.turns) > 1]
    assert max(len(r.turns) for r in rollouts) >= 3
    for rollout in rollouts:
        for index, turn in enumerate(rollout.turns):
            game = played(rollout, index)
            asked = question(game_agent.chat, task, game, task.position("b", game.board))
            assert [*asked.ids] == [*rollout.prompt, *rollout.completion.tokens[: turn.start]]


def test_a_random_move_in_place_of_a_reply_begins_a_new_conversation(game_agent: Agent) -> None:
    task = game_agent.chat.task
    assert isinstance(task, TicTacToeGame)
    game = Game("trained", "X").answered(answer("." * 9, 5, tokens=(1, 2, 3))).human(1)
    game = game.substituted(9).human(2)
    asked = question(game_agent.chat, task, game, task.position("b", game.board))
    assert list(asked.ids) == game_agent.chat.encode(task.position("b", "OO..X...X"))


def test_moves_of_whole_games_are_judged_and_counted_as_single_moves(game_agent: Agent) -> None:
    task = TicTacToeGame(view="lines", mark="O")
    moves = single_moves(task)
    assert type(moves) is TicTacToe
    assert (moves.system(), moves.tools, moves.outcomes) == (task.system(), task.tools, TicTacToe.outcomes)
    assert single_moves(moves) is moves
    player = PolicyPlayer(
        "trained", game_agent, single_moves(game_agent.chat.task), RewardTable(dict(moves.score))
    )
    told, episode = player.ask(Game("trained"), "sampled")
    assert told.outcome in TicTacToe.outcomes
    assert episode.outcome == told.outcome
    assert told.prompt is not None and told.prompt_sha256 == prompt_hash(told.prompt)
    assert told.tokens and sum(player.chances(Game("trained"))) <= 1 + 1e-6


def test_a_game_goes_back_to_where_a_reply_was_asked_for() -> None:
    first = answer(EMPTY_BOARD, 5)
    game = Game("trained").answered(first).human(1)
    failed = game.answered(answer(game.board, None, "occupied"))
    assert failed.back_at(EMPTY_BOARD) == Game("trained", id=game.id)
    assert failed.back_at(game.board) == game


def test_boards_that_a_policy_knows_depend_on_its_task(task: TicTacToe) -> None:
    assert not follows_in_training(task)
    assert follows_in_training(TicTacToeGame()) and follows_in_training(TicTacToeGame(start="second"))
    assert not follows_in_training(TicTacToeGame(start="first"))


def test_a_tab_of_another_task_opens_with_what_there_is_now(settings: PlaySettings, task: TicTacToe) -> None:
    """Its filter names an outcome of whole games, which single moves do not have."""

    async def tab() -> None:
        room = Room(settings, task)
        path = settings.paths.state_folder("play") / "tabs" / "a.json"
        session = Session(room, path)
        session.choose(tab="recorded", filter=Filter(before="loss"), place=3, heat=False)
        again = Session(room, path)
        assert again.choices.filter == Filter() and again.choices.place == 0
        assert again.choices.tab == "recorded" and not again.choices.heat
        raw = json.loads(path.read_text())
        path.write_text(json.dumps({**raw, "choices": {**raw["choices"], "tab": "elsewhere"}}))
        assert Session(room, path).choices.tab == "play"

    asyncio.run(tab())


def test_what_nobody_foresaw_stops_one_policy_and_nothing_else(
    settings: PlaySettings, task: TicTacToe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy whose configuration is JSON but no object, and a folder where episodes should be."""
    shutil.copytree(settings.paths.folder("policy"), tmp_path / "policy")
    (tmp_path / "policy" / "config.json").write_text("[1]")
    shutil.copytree(settings.paths.folder("retest"), tmp_path / "retest")
    (tmp_path / "retest" / "episodes.jsonl").unlink()
    (tmp_path / "retest" / "episodes.jsonl").mkdir()
    folders = {"policy": str(tmp_path / "policy"), "retest": str(tmp_path / "retest")}
    spoilt = replace(settings, paths=replace(settings.paths, **folders))

    async def opened() -> Room:
        room = Room(spoilt, task)
        await room.open()
        return room

    room = asyncio.run(opened())
    assert room.seats["trained"].status == "failed" and room.seats["trained"].problem
    assert room.seats["baseline"].status == "ready"
    assert room.no_pairs and "Traceback" in capsys.readouterr().err


def test_a_loaded_policy_does_not_change_with_its_file(settings: PlaySettings, tmp_path: Path) -> None:
    """Another policy is written over it in place, as `cp` does."""
    policy, other = tmp_path / "policy", settings.paths.folder("model") / "model.safetensors"
    shutil.copytree(settings.paths.folder("policy"), policy)
    player = load_player("trained", policy, play_task(settings), settings)
    with (policy / "model.safetensors").open("r+b") as file:
        file.write(other.read_bytes())
    assert weights_sha256(player.agent.policy.model) == player.weights
