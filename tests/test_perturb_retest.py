"""Perturbed retests: the record by hand, what is said of it, and the stage on a tiny model."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ninegrid.chat.format import ChatFormat, ChatSettings
from ninegrid.chat.judging import judge_reply
from ninegrid.config import TaskSettings
from ninegrid.errors import SettingsError
from ninegrid.evaluation.episodes import Episode
from ninegrid.evaluation.settings import EvalSettings
from ninegrid.perturb.cases import Case, make_cases, spread
from ninegrid.perturb.findings import Carry, carry, findings, summary, warnings
from ninegrid.perturb.measure import Asked, Replies, describe
from ninegrid.perturb.outputs import write_nothing, write_perturbed
from ninegrid.perturb.record import Measured, Recorder, headline_metrics, unperturbed
from ninegrid.tasks.loading import load_task
from ninegrid.tasks.protocol import Example, Perturbation
from ninegrid.tasks.tictactoe import TicTacToe
from tests.conftest import Project, make_project

TASK = TicTacToe()
BOARDS = [Example(f"b{i}", f"class {i}", e.data) for i, e in enumerate(TASK.generate(4, seed=0))]
TRAINING = {"model": "some model", "algorithm": "gspo", "steps": 3, "seed": 1, "weights_sha256": "0"}
ASKED = Asked("same\nusual", "same\nother <b>", 120.0, 28)


def replies(*outcomes: str, boards: list[Example] = BOARDS) -> list[Episode]:
    """One reply of each decoding to each board; the score follows from the outcome."""
    return [
        Episode(
            example={"id": board.id}, group=board.group, decoding=decoding, sample=0, reply="text",
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
ASK = f"perturb.names=[{','.join(NAMES)}]"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory, talker_dir: Path) -> Project:
    """A project copy in which the smoke loop has run with two perturbations on 8 boards."""
    project = make_project(tmp_path_factory.mktemp("perturbed"), talker_dir)
    smoke = ("experiment=smoke", "tracking=disabled", "model=talker", "train.learning_rate=0.01")
    project.params(*smoke, ASK, "perturb.boards=8")
    project.dvc("repro")
    return project


def stage(project: Project, *overrides: str, check: bool = True, **environment: str) -> Any:
    return project.python("-m", "stages.perturb_retest", *overrides, check=check, **environment)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_every_reply_is_there_judged_in_its_own_words_and_paired(ready: Project) -> None:
    perturbed = load_task(TaskSettings("ninegrid.tasks.tictactoe.TicTacToe", {})).perturbations()  # type: ignore[attr-defined]
    found = lines_of(ready.root / "data/perturbed/episodes.jsonl")
    counts = {(e["perturbation"], e["policy"], e["decoding"]) for e in found}
    assert len(found) == 2 * 2 * 2 * 8 and len(counts) == 8
    for e in found:
        task = perturbed[e["perturbation"]].task
        assert judge_reply(task, task.parse(e["example"]), e["reply"]).outcome == e["outcome"]
    usual = {e["example"]["id"]: e for e in lines_of(ready.root / "data/retest/episodes.jsonl")}
    record = json.loads((ready.root / "data/perturbed/perturbed.json").read_text())
    wanted = (NAMES[0], "trained", "sampled")
    mine = [e for e in found if (e["perturbation"], e["policy"], e["decoding"]) == wanted]
    assert {e["example"]["id"] for e in mine} <= set(usual)
    changes = record["perturbations"][NAMES[0]]["sampled"]["by_perturbation"]["score"]
    assert changes["after"] == pytest.approx(sum(e["score"] for e in mine) / 8)
    plain = [
        e["score"]
        for e in lines_of(ready.root / "data/retest/episodes.jsonl")
        if e["decoding"] == "sampled" and e["example"]["id"] in {m["example"]["id"] for m in mine}
    ]
    assert changes["before"] == pytest.approx(sum(plain) / 8)
    other = [e["example"]["id"] for e in found if e["perturbation"] == "eight_marks"]
    assert all(name.startswith("eight-marks-") for name in other)


@pytest.mark.slow
def test_a_measurement_depends_on_no_other_and_is_mirrored(ready: Project, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    first = json.loads((ready.root / "data/perturbed/perturbed.json").read_text())
    backwards = f"perturb.names=[{','.join(reversed(NAMES))}]"
    stage(
        ready, backwards, f"paths.perturbed={tmp_path}/out", "tracking.enabled=true", MLFLOW_TRACKING_URI=""
    )
    second = json.loads((tmp_path / "out/perturbed.json").read_text())
    assert second["perturbations"] == first["perturbations"]
    client = MlflowClient(f"sqlite:///{ready.root}/.ninegrid/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "ninegrid"]
    (run,) = client.search_runs([experiment.experiment_id])
    headline = json.loads((tmp_path / "out/metrics.json").read_text())
    for name in NAMES:
        score = headline[name]["sampled"]["score"]
        assert run.data.metrics[f"perturbed/{name}/sampled/score"] == pytest.approx(score)
    assert "perturbed/report.html" in {a.path for a in client.list_artifacts(run.info.run_id, "perturbed")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["perturb.names=[leters]"], "did you mean letters?"),
        ([ASK, "eval.seed=99"], "seed: baseline 7, perturbed retest 99"),
        ([ASK, "decoding.temperature=0.5"], "temperature"),
    ],
)
def test_what_would_not_be_comparable_is_refused(ready: Project, overrides: list[str], message: str) -> None:
    result = stage(ready, *overrides, check=False)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_weights_that_training_did_not_end_with_are_refused(ready: Project, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = ready.root / "data/policy/model.safetensors"
    whole = path.read_bytes()
    try:
        weights = load_file(path)
        weights["model.norm.weight"][0] += 1e-3
        save_file(weights, path, metadata={"format": "pt"})
        result = stage(ready, f"paths.perturbed={tmp_path}/out", check=False)
    finally:
        path.write_bytes(whole)
    assert result.returncode == 2
    assert "training ended with" in result.stderr
