"""Perturbed retests: the record by hand, what is said of it, and the stage on a tiny model."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ninegrid.app import read_sections
from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.judging import judge_reply
from ninegrid.errors import DataError, NinegridError, SettingsError
from ninegrid.evaluation.episodes import Episode
from ninegrid.evaluation.measure import measure
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.outputs import write_json
from ninegrid.params import compose
from ninegrid.perturb.cases import Case, make_cases, spread
from ninegrid.perturb.findings import Carry, carry, findings, summary, warnings
from ninegrid.perturb.measure import Asked, Replies, describe
from ninegrid.perturb.outputs import write_nothing, write_perturbed
from ninegrid.perturb.record import Measured, Recorder, headline_metrics, unperturbed
from ninegrid.policy.agent import open_agent
from ninegrid.policy.loading import save_policy, weights_sha256
from ninegrid.reward import RewardTable
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.protocol import Example, Perturbation
from ninegrid.tasks.tictactoe import TicTacToe
from stages.perturb_retest import Settings
from stages.perturb_retest import main as stage

TASK = TicTacToe()
BOARDS = [Example(f"b{i}", f"class {i}", e.data) for i, e in enumerate(TASK.generate(4, seed=0))]
TRAINING = {
    **{"model": "some model", "algorithm": "gspo", "warm_start": "none"},
    **{"steps": 3, "seed": 1, "weights_sha256": "0"},
}
ASKED = Asked("same\nusual", "same\nother <b>", 120.0, 28)


def replies(*outcomes: str, boards: list[Example] = BOARDS) -> list[Episode]:
    """One reply of each decoding to each board; the score follows from the outcome."""
    return [
        Episode(
            example=board.line(), group=board.group, decoding=decoding, sample=0, reply="text",
            n_tokens=28, finish="stop", outcome=outcome, truncated=False, call=None, facts={},
            score=TASK.score[outcome], reward=TASK.score[outcome],
        )
        for decoding in ("sampled", "greedy")
        for board, outcome in zip(boards, outcomes, strict=True)
    ]  # fmt: skip


UNTRAINED = replies("occupied", "occupied", "occupied", "legal")
TRAINED = replies("win", "win", "win", "legal")


def record_of(**after: list[Episode]) -> dict[str, Any]:
    """A record whose usual score rises from -0.75 to 0.75; ``after`` gives the perturbed trained replies."""
    cases = [Case(name, Perturbation(f"{name}.", TASK), BOARDS) for name in after]
    asked = [ASKED for _ in cases]
    before = Replies(asked, [UNTRAINED for _ in cases])
    recorder = Recorder(TASK, EvalSettings(resamples=300))
    plain = Measured(BOARDS, UNTRAINED, TRAINED)
    return recorder.record(cases, before, Replies(asked, list(after.values())), plain, TRAINING)


# --- which examples --------------------------------------------------------------------------------------


def test_a_spread_takes_the_middle_of_equal_parts() -> None:
    found = [Example(str(i), "g", {}) for i in range(10)]
    assert [e.id for e in spread(found, 2)] == ["2", "7"]  # of 0-4 and 5-9
    assert [e.id for e in spread(found, 3)] == ["1", "5", "8"]  # at 10/6, 30/6 and 50/6
    assert spread(found, None) == spread(found, 10) == spread(found, 99) == found


def test_paired_cases_share_their_examples_and_others_bring_their_own() -> None:
    own = [Example("own", "g", {})]
    chosen = {"a": Perturbation("", TASK), "b": Perturbation("", TASK), "c": Perturbation("", TASK, own)}
    first, second, third = make_cases(chosen, BOARDS, 2)
    assert first.examples == second.examples == [BOARDS[1], BOARDS[3]]
    assert third.examples == own
    assert (first.paired, third.paired) == (True, False)


def test_a_perturbation_is_told_with_its_lengths(tokenizer: Any) -> None:
    case = make_cases({"letters": TASK.perturbations()["letters"]}, BOARDS, None)[0]
    usual, letters = (ChatFormat(tokenizer, ChatSettings(), t) for t in (TASK, case.perturbation.task))
    asked = describe(usual, letters, case)
    assert (asked.plain, asked.prompt) == (usual.render(BOARDS[0]), letters.render(BOARDS[0]))
    assert '"square":"' in asked.prompt and '"square":"' not in asked.plain
    assert asked.prompt_tokens == sum(len(letters.encode(e)) for e in BOARDS) / 4
    call = '<tool_call>{"name":"choose_square","arguments":{"square":"I"}}</tool_call>'
    assert asked.call_tokens == len(tokenizer(call)["input_ids"]) + 1


def test_a_perturbation_without_effect_is_refused(tokenizer: Any) -> None:
    case = make_cases({"examples_replaced": TASK.perturbations()["examples_replaced"]}, BOARDS, None)[0]
    none = ChatSettings(worked_examples=0)
    usual, replaced = (ChatFormat(tokenizer, none, t) for t in (TASK, case.perturbation.task))
    with pytest.raises(SettingsError, match=r"'examples_replaced', which changes no prompt .*examples = 0"):
        describe(usual, replaced, case)


# --- the record ------------------------------------------------------------------------------------------


def test_scores_and_changes_by_hand() -> None:
    found = record_of(other=replies("win", "optimal", "occupied", "legal"))["perturbations"]["other"]
    side = found["sampled"]
    # Untrained -1 -1 -1 0, mean -0.75.  Trained 1 0.8 -1 0, mean 0.2.  Usual trained 1 1 1 0, mean 0.75.
    assert side["untrained"]["score"]["mean"] == pytest.approx(-0.75)
    assert side["trained"]["score"]["mean"] == pytest.approx(0.2)
    assert side["by_training"]["score"]["change"] == pytest.approx(0.95)
    assert side["by_perturbation"]["score"]["change"] == pytest.approx(0.2 - 0.75)
    assert side["by_training"]["milestones"]["legal"]["change"] == pytest.approx(0.75 - 0.25)
    assert side["by_perturbation"]["milestones"]["optimal"]["change"] == pytest.approx(0.5 - 0.75)
    low, high = (side["by_training"]["score"][end] for end in ("low", "high"))
    assert low < 0.95 < high
    assert (found["boards"], found["groups"], found["paired"]) == (4, 4, True)
    assert found["greedy"]["trained"]["score"] == side["trained"]["score"]


def test_the_usual_replies_are_those_to_the_same_boards() -> None:
    found = unperturbed(BOARDS[1:3], UNTRAINED, TRAINED)
    assert [e.example["id"] for e in found.untrained] == ["b1", "b2", "b1", "b2"]
    assert {e.outcome for e in found.trained} == {"win"}


def test_a_case_with_its_own_boards_is_paired_with_training_only() -> None:
    own = [Example(f"own{i}", f"own {i}", {"board": [list("XOX"), list("XOO"), list("OX.")]}) for i in "ab"]
    case = Case("own", Perturbation("Own.", TASK, own), own)
    before, after = (replies(o, o, boards=own) for o in ("occupied", "win"))
    recorder, plain = Recorder(TASK, EvalSettings(resamples=100)), Measured(BOARDS, UNTRAINED, TRAINED)
    record = recorder.record([case], Replies([ASKED], [before]), Replies([ASKED], [after]), plain, TRAINING)
    found = record["perturbations"]["own"]
    assert found["sampled"]["by_perturbation"] is None
    assert found["sampled"]["by_training"]["score"]["change"] == 2.0
    assert "against_unperturbed" not in headline_metrics(record)["own"]["sampled"]
    assert "on 2 boards of its own (any square" in findings(record, "sampled")[0].text


def test_the_headline_holds_the_numbers_that_runs_are_compared_by() -> None:
    found = headline_metrics(record_of(other=TRAINED))["other"]["greedy"]
    assert (found["untrained_score"], found["score"], found["change"]) == (-0.75, 0.75, 1.5)
    assert (found["against_unperturbed"], found["legal_rate"], found["optimal_rate"]) == (0.0, 1.0, 0.75)


# --- what is said ----------------------------------------------------------------------------------------


def side(gain: tuple[float, float], cost: tuple[float, float] | None) -> dict[str, Any]:
    def change(ends: tuple[float, float]) -> dict[str, Any]:
        return {"score": {"change": sum(ends) / 2, "low": ends[0], "high": ends[1]}}

    return {"by_training": change(gain), "by_perturbation": cost and change(cost)}


@pytest.mark.parametrize(
    ("gain", "cost", "expected"),
    [
        ((0.1, 0.3), (-0.1, 0.1), Carry.WHOLE),
        ((0.1, 0.3), (0.1, 0.2), Carry.WHOLE),
        ((0.1, 0.3), None, Carry.WHOLE),
        ((0.1, 0.3), (-0.2, -0.1), Carry.PART),
        ((-0.1, 0.3), (-0.1, 0.1), Carry.NONE),
        ((-0.3, -0.1), (-0.9, -0.8), Carry.NONE),
    ],
)
def test_what_carries_over_follows_from_the_intervals(gain: Any, cost: Any, expected: Carry) -> None:
    assert carry(side(gain, cost)) == expected


def test_the_summary_sorts_the_perturbations() -> None:
    record = record_of(new_words=TRAINED, lost_words=UNTRAINED)
    said = summary(record, "sampled")
    assert "on 4 held-out boards went from −0.750 to 0.750: +1.500 [" in said
    assert "The gain carries over with new words." in said
    assert "No gain is seen with lost words." in said
    assert "in part" not in said


def test_without_a_gain_nothing_is_said_to_carry_over() -> None:
    record = record_of(other=TRAINED)
    record["unperturbed"]["sampled"]["by_training"]["score"]["low"] = -0.1
    assert "no clear gain" in summary(record, "sampled")
    assert "carries over" not in summary(record, "sampled")


def test_calls_that_cannot_be_complete_are_warned_of() -> None:
    record = record_of(long_words=TRAINED)
    assert warnings(record, 28) == []
    assert warnings(record, 27) == [
        "long words: a right call takes 28 tokens and decoding.max_new_tokens is 27, "
        "so no such reply can be complete."
    ]


# --- files -----------------------------------------------------------------------------------------------


def test_files_say_the_same_and_are_equal_for_equal_inputs(tmp_path: Path) -> None:
    record = record_of(new_words=TRAINED, lost_words=UNTRAINED)
    lines = [("new_words", "trained", episode) for episode in TRAINED]
    for folder in ("one", "two"):
        write_perturbed(tmp_path / folder, record, lines, 32)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert json.loads(files["perturbed.json"]) == record
    assert json.loads(files["metrics.json"]) == headline_metrics(record)
    first = json.loads(files["episodes.jsonl"].decode().splitlines()[0])
    assert (first["perturbation"], first["policy"], first["outcome"]) == ("new_words", "trained", "win")
    page, figure = files["report.html"].decode(), files["perturbed.svg"].decode()
    assert "new words" in page
    assert "same\n<mark>other &lt;b&gt;</mark>\n" in page
    assert "prefers-color-scheme: dark" in figure and "lost words" in figure
    for text in (finding.text for finding in findings(record, "sampled")):
        assert text in page
    _check_tags(page)


def test_nothing_asked_for_gives_files_of_the_same_names(tmp_path: Path) -> None:
    write_nothing(tmp_path / "none")
    write_perturbed(tmp_path / "some", record_of(other=TRAINED), [], 32)
    names, some = ({path.name for path in (tmp_path / folder).iterdir()} for folder in ("none", "some"))
    assert names == some
    assert json.loads((tmp_path / "none/perturbed.json").read_text()) == {"perturbations": {}}
    assert (tmp_path / "none/episodes.jsonl").read_text() == ""


VOID = {"meta", "br", "link"}


def _check_tags(page: str) -> None:
    """Every element is closed in order, and ids are unique."""
    open_tags: list[str] = []
    ids: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            ids.extend(value for key, value in attrs if key == "id" and value)
            if tag not in VOID:
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Checker().feed(page)
    assert open_tags == []
    assert len(set(ids)) == len(ids)


# --- the stage -------------------------------------------------------------------------------------------

NAMES = ["numbers_reversed", "eight_marks"]


class Loop:
    """The files of a loop around a tiny model; the "trained" policy is the model with other weights."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        settings = self.settings()
        self.task: Any = load_task(settings.task)
        boards = settings.paths.folder("boards")
        boards.mkdir()
        lines = [json.dumps(example.line()) for example in self.task.generate(24, seed=3)]
        (boards / "heldout.jsonl").write_text("\n".join(lines))
        trained = self._train(settings)
        for name, policy in (("baseline", model), ("retest", settings.paths.folder("policy"))):
            table = RewardTable(dict(self.task.score))
            found = measure(policy, boards / "heldout.jsonl", self.task, table, settings, label=name)
            found.write(settings.paths.folder(name))
        settings.paths.folder("train").mkdir()
        write_json(settings.paths.folder("train") / "metrics.json", trained)

    def settings(self, *overrides: str, out: str = "perturbed") -> Any:
        names = ("boards", "baseline", "policy", "train", "retest")
        folders = [f"paths.{name}={self.folder}/{name}" for name in names]
        folders += [f"paths.model={self.model}", f"paths.perturbed={self.folder}/{out}"]
        asked = [f"perturb.names=[{','.join(NAMES)}]", "perturb.boards=8"]
        base = ["experiment=smoke", "tracking=disabled", *asked, *folders]
        return read_sections(Settings, compose([*base, *overrides]))

    def run(self, *overrides: str, out: str = "perturbed") -> Path:
        """Run the stage; returns the folder of its files."""
        stage.__wrapped__(self.settings(*overrides, out=out))  # type: ignore[attr-defined]
        return self.folder / out

    def _train(self, settings: Any) -> dict[str, Any]:
        import torch

        agent = open_agent(self.model, self.task, settings)
        torch.manual_seed(0)
        with torch.no_grad():
            head = agent.policy.model.lm_head.weight
            head += 0.2 * torch.randn_like(head)
        save_policy(agent.policy, settings.paths.folder("policy"), agent.chat.saved_tokenizer())
        sizes = {"n_boards": 4, "n_samples": 4}
        return {**TRAINING, **sizes, "weights_sha256": weights_sha256(agent.policy.model)}


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory, talker_dir: Path) -> Loop:
    """A loop in which the stage has run."""
    made = Loop(tmp_path_factory.mktemp("loop"), talker_dir)
    made.run()
    return made


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_reply_is_there_and_judged_in_the_words_it_was_asked_in(loop: Loop) -> None:
    found = lines_of(loop.folder / "perturbed/episodes.jsonl")
    kinds = Counter((e["perturbation"], e["policy"], e["decoding"]) for e in found)
    assert len(kinds) == 2 * 2 * 2 and set(kinds.values()) == {8}
    offered = loop.task.perturbations()
    for e in found:
        task = offered[e["perturbation"]].task
        assert judge_reply(task, task.parse(e["example"]), e["reply"]).outcome == e["outcome"]
    other = {e["example"]["id"][:5] for e in found if e["perturbation"] == "eight_marks"}
    assert other == {"eight"}
    assert len({e["outcome"] for e in found}) > 3  # the tiny model is worth measuring


def test_changes_are_paired_with_the_retest_on_the_same_boards(loop: Loop) -> None:
    record = json.loads((loop.folder / "perturbed/perturbed.json").read_text())
    found = lines_of(loop.folder / "perturbed/episodes.jsonl")
    for decoding in ("sampled", "greedy"):
        wanted = (NAMES[0], "trained", decoding)
        mine = {
            e["example"]["id"]: e["score"]
            for e in found
            if (e["perturbation"], e["policy"], e["decoding"]) == wanted
        }
        usual = {
            e["example"]["id"]: e["score"]
            for e in lines_of(loop.folder / "retest/episodes.jsonl")
            if e["decoding"] == decoding and e["example"]["id"] in mine
        }
        assert len(mine) == len(usual) == 8
        change = record["perturbations"][NAMES[0]][decoding]["by_perturbation"]["score"]
        assert change["before"] == pytest.approx(sum(usual.values()) / 8)
        assert change["after"] == pytest.approx(sum(mine.values()) / 8)


def test_a_measurement_depends_on_no_other(loop: Loop) -> None:
    first = json.loads((loop.folder / "perturbed/perturbed.json").read_text())["perturbations"]
    alone = loop.run("perturb.names=[eight_marks]", out="alone")
    second = json.loads((alone / "perturbed.json").read_text())["perturbations"]
    assert second == {"eight_marks": first["eight_marks"]}


def test_fewer_boards_are_measured_where_the_settings_say_so(loop: Loop) -> None:
    out = loop.run("perturb.names=[letters]", "perturb.boards=3", out="fewer")
    assert len(lines_of(out / "episodes.jsonl")) == 2 * 2 * 3
    record = json.loads((out / "perturbed.json").read_text())
    assert record["unperturbed"]["boards"] == record["perturbations"]["letters"]["boards"] == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("perturb.names=[leters]", r"did you mean letters\?"),
        ("eval.seed=99", r"the perturbed retest would not be .* like the baseline; seed: baseline 7, pert"),
        ("decoding.temperature=0.5", "temperature"),
        ("chat.worked_examples=1", "prompts_sha256"),
    ],
)
def test_what_would_not_be_comparable_is_refused(loop: Loop, override: str, message: str) -> None:
    with pytest.raises(NinegridError, match=message):
        loop.run(override, out="refused")
    assert not (loop.folder / "refused").exists()


def test_weights_that_training_did_not_end_with_are_refused(loop: Loop) -> None:
    with pytest.raises(DataError, match="training ended with"):
        loop.run(f"paths.policy={loop.model}", out="refused")
    assert not (loop.folder / "refused").exists()
