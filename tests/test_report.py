"""The report: what it says follows the data, and what models wrote cannot harm the page."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ninegrid.errors import DataError
from ninegrid.report.canvas import row_major, spread
from ninegrid.report.drawing import safe_drawing
from ninegrid.report.gallery import cards, choose
from ninegrid.report.inputs import ReportInputs, read_steps
from ninegrid.report.page import write_report
from ninegrid.report.palette import ROLES, outcome_colours, readable_on
from ninegrid.report.stats import Direction, clustered_mean, direction, smooth
from ninegrid.report.tables import headline, step_rows, transitions
from ninegrid.report.text import number, p_value, percent, points, signed, visible
from ninegrid.report.verdict import judge
from tests.report_inputs import OUTCOMES, PLAYERS, SCORE, build, recompute

FIGURES = ("reward", "outcomes", "length", "health")
VOID = {"meta", "br", "link", "img", "input", "hr"}
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</pre></article></main><h1>owned</h1>",
    "{{ 7 * 7 }} {% raw %}",
    '"><svg onload=alert(1)>',
    "bell\x07 escape\x1b[31m null\x00 backwards \u202eabc",
    "lone \ud800 surrogate",
)


class Page(HTMLParser):
    """Parses a page and keeps what the tests ask for; fails on tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, list[str]] = {}
        self._table: list[list[str]] | None = None
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self._table = self.tables.setdefault(dict(attrs).get("id") or "", [])
        if tag == "tr" and self._table is not None:
            self._table.append([])
        if tag in ("td", "th") and self._table is not None:
            self._table[-1].append("")
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag == "table":
            self._table = None

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data
        if self._table and self._table[-1]:
            self._table[-1][-1] += " " + data.strip() if data.strip() else ""

    def table(self, name: str) -> list[list[str]]:
        return [[" ".join(cell.split()) for cell in row] for row in self.tables[name]]


def read(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def said(inputs: ReportInputs) -> str:
    """Status, summary and findings as one text."""
    verdict = judge(inputs, read_steps(inputs.steps))
    return "\n".join([verdict.status, verdict.summary, *(f.text for f in verdict.findings)])


def change(low: float, high: float, before: float = 0.2) -> dict[str, float]:
    middle = (low + high) / 2
    return {"before": before, "after": before + middle, "change": middle, "low": low, "high": high}


def with_score(inputs: ReportInputs, **scores: dict[str, float]) -> ReportInputs:
    """The inputs with the score change of each named decoding replaced."""
    sides = {d: {**inputs.comparison[d], "score": score} for d, score in scores.items()}
    return replace(inputs, comparison={**inputs.comparison, **sides})


@pytest.fixture(scope="module")
def inputs() -> ReportInputs:
    return build("improved")


@pytest.fixture(scope="module")
def folder(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(tmp_path_factory.mktemp("report"), inputs).parent


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(read(folder))


# --- the verdict ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampled", "greedy", "status", "tone"),
    [
        ((0.1, 0.3), (0.2, 0.4), "Better", "up"),
        ((-0.3, -0.1), (-0.4, -0.2), "Worse", "down"),
        ((-0.1, 0.3), (-0.2, 0.1), "No clear change", "flat"),
        ((0.0, 0.0), (0.0, 0.0), "Unchanged", "flat"),
        ((0.0, 0.0), (-0.1, 0.1), "No clear change", "flat"),
        ((0.1, 0.3), (-0.1, 0.2), "Better in part", "up"),
        ((-0.1, 0.2), (0.1, 0.3), "Better in part", "up"),
        ((-0.1, 0.2), (-0.3, -0.1), "Worse in part", "down"),
        ((0.1, 0.3), (-0.3, -0.1), "Mixed", "note"),
        ((0.0, 0.3), (0.1, 0.3), "Better in part", "up"),  # an end that touches 0 does not exclude it
    ],
)
def test_status_follows_the_intervals(
    inputs: ReportInputs, sampled: tuple[float, float], greedy: tuple[float, float], status: str, tone: str
) -> None:
    changed = with_score(inputs, sampled=change(*sampled), greedy=change(*greedy))
    verdict = judge(changed, read_steps(inputs.steps))
    assert (verdict.status, verdict.tone) == (status, tone)


def test_summary_of_a_rise_names_both_values_and_the_interval(inputs: ReportInputs) -> None:
    # change(0.1, 0.3, before=0.2): middle 0.2, after 0.4
    changed = with_score(inputs, sampled=change(0.1, 0.3), greedy=change(-0.3, -0.1))
    summary = judge(changed, read_steps(inputs.steps)).summary
    assert "sampled replies rose from 0.200 to 0.400 (+0.200, 95% interval +0.100 to +0.300)" in summary
    assert "greedy replies fell from 0.200 to 0.000 (−0.200, 95% interval −0.300 to −0.100)" in summary


def test_part_names_the_decoding_that_moved(inputs: ReportInputs) -> None:
    changed = with_score(inputs, sampled=change(-0.1, 0.2), greedy=change(0.1, 0.3))
    assert "only in greedy replies" in said(changed)


def test_improved(inputs: ReportInputs) -> None:
    text = said(inputs)
    assert text.startswith("Better\n")
    assert "Replies counted as legal rose from" in text
    assert "McNemar p < 0.001" in text
    assert "within noise" not in text
    assert "No training step" not in text


def test_worse() -> None:
    text = said(build("worse"))
    assert text.startswith("Worse\n")
    assert "Replies counted as legal fell from" in text
    assert "sampled replies after training are worse than it" in text
    assert "rose" not in text


def test_noise_is_called_noise() -> None:
    text = said(build("noise", seed=1))
    assert text.startswith("No clear change\n")
    assert "within noise, the interval includes 0" in text
    assert "rose from" not in text
    assert "fell from" not in text


def test_unchanged_replies() -> None:
    text = said(build("unchanged"))
    assert text.startswith("Unchanged\n")
    assert "not one of 120 sampled replies changed its score" in text
    assert "No reply crossed that line in either direction." in text
    assert "McNemar p" not in text


def test_greedy_and_sampled_disagree() -> None:
    text = said(build("disagree"))
    assert text.startswith("Mixed\n")
    assert "The two ways of decoding disagree." in text
    assert "the opposite way" in text


def test_zero_steps_are_said_first() -> None:
    verdict = judge(build("noise", steps=0), [])
    assert verdict.status == "Not trained"
    assert verdict.summary.startswith("No training step was taken")


def test_zero_steps_after_a_warm_start_are_a_measurement_of_it(tmp_path: Path) -> None:
    inputs = replace(build("improved", steps=0), warm_start="SFT")
    verdict = judge(inputs, [])
    assert verdict.status == "Better"
    assert "No step was taken after the warm start by SFT, so this measures it alone." in verdict.summary
    write_report(tmp_path, inputs)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "before and after a warm start by SFT and 0 steps of GSPO" in page


def test_no_group_ever_carried_a_signal(inputs: ReportInputs) -> None:
    silent = [{**row, "train/informative_groups": 0.0} for row in read_steps(inputs.steps)]
    assert "In none of the 60 training steps did" in said(replace(inputs, steps=silent))
    some = [silent[0], *read_steps(inputs.steps)[1:]]
    assert "In 1 of 60 training steps no group carried a signal" in said(replace(inputs, steps=some))
    assert "carried a signal" not in said(inputs)


def test_yardstick_is_told_with_an_interval() -> None:
    # 2 groups; scores 1, 1 | 0.8, 0.8: mean 0.9, residual sums +0.2 and -0.2,
    # variance (0.04 + 0.04) / 4**2 * 2 / 1 = 0.01, half width 1.95996 * 0.1 = 0.196
    base = build("improved")
    replies = [
        {**e, "group": g, "score": s, "decoding": d}
        for d in ("sampled", "greedy")
        for e, g, s in zip(base.retest_episodes, "aabb", (1, 1, 0.8, 0.8), strict=False)
    ]
    text = said(replace(base, retest_episodes=replies))
    assert "sampled replies after training are better than it at 0.900 (0.704 to 1.096)" in text
    players = {**PLAYERS, "random_legal": {**PLAYERS["random_legal"], "expected": 0.8}}
    text = said(replace(base, retest_episodes=replies, players=players))
    assert "are not to be told from it at 0.900" in text


def test_no_yardstick_no_claim(inputs: ReportInputs) -> None:
    others = {"minimax": PLAYERS["minimax"]}
    assert "reference player" not in said(replace(inputs, players=others))


def test_what_is_still_missing_is_told_by_what_boards_ask_for(inputs: ReportInputs) -> None:
    def with_kinds(*figures: tuple[int, float, float]) -> ReportInputs:
        kinds = {
            name: {"n": n, "score": change(0.1, 0.2) | {"after": after}, "players": {"a": 0.1, "b": best}}
            for name, (n, after, best) in zip(("win at once", "win by force"), figures, strict=False)
        }
        sampled = {**inputs.comparison["sampled"], "kinds": kinds}
        return replace(inputs, comparison={**inputs.comparison, "sampled": sampled})

    # Missing: 100 * 0.01 = 1 and 10 * 0.3 = 3, so three quarters of it on the second kind.
    text = said(with_kinds((100, 0.99, 1.0), (10, 0.5, 0.8)))
    assert "Most of what is still missing, 75.0% of it, is on boards that ask for “win by force”" in text
    assert "there 10 sampled replies score 0.500 where 0.800 is possible" in text
    assert "still missing" not in said(with_kinds((100, 1.0, 1.0), (10, 0.8, 0.8)))
    assert "still missing" not in said(with_kinds((100, 0.9, 1.0)))


def test_mcnemar_that_contradicts_the_interval_is_named(inputs: ReportInputs) -> None:
    def with_legal(rate: dict[str, float], p: float) -> ReportInputs:
        sampled = inputs.comparison["sampled"]
        sampled = {
            **sampled,
            "milestones": {**sampled["milestones"], "legal": rate},
            "mcnemar": {**sampled["mcnemar"], "legal": {"gained": 9, "lost": 3, "p": p}},
        }
        return replace(inputs, comparison={**inputs.comparison, "sampled": sampled})

    assert "does not confirm the interval" in said(with_legal(change(0.01, 0.1), 0.146))
    assert "that test alone sees a change" in said(with_legal(change(-0.01, 0.1), 0.04))
    assert "that test alone" not in said(with_legal(change(0.01, 0.1), 0.04))


def test_reward_that_rises_without_the_score(inputs: ReportInputs) -> None:
    assert "reward of its own" not in said(inputs)
    paid = replace(inputs, reward_table={**SCORE, "legal": 2.0})
    assert "reward of its own" in said(paid)
    assert "learned what was paid" not in said(paid)
    assert "learned what was paid" in said(with_score(paid, sampled=change(-0.2, -0.1)))


def test_cut_replies_are_mentioned(inputs: ReportInputs) -> None:
    assert "cut at the length limit" not in said(inputs)
    cut = {**inputs.retest_metrics, "sampled": {**inputs.retest_metrics["sampled"], "truncated_rate": 0.25}}
    assert "25.0% of the sampled replies" in said(replace(inputs, retest_metrics=cut))


# --- the page ---------------------------------------------------------------------------------


def test_page_is_well_formed_and_asks_for_nothing(folder: Path, page: Page) -> None:
    assert "://" not in read(folder)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset")], tag
        assert (attributes.get("href") or "#").startswith("#")
    policy = dict(page.tags[[t for t, _ in page.tags].index("meta") + 1][1])
    assert "default-src 'none'" in str(policy["content"])


def test_ids_are_unique_and_links_lead_somewhere(page: Page) -> None:
    ids = [str(a["id"]) for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    for _, attributes in page.tags:
        for name in ("href", "aria-labelledby", "aria-describedby"):
            if attributes.get(name):
                assert str(attributes[name]).removeprefix("#") in ids


def test_every_figure_is_there_in_both_layouts_with_a_name(folder: Path, page: Page) -> None:
    labels = [a["aria-label"] for tag, a in page.tags if tag == "svg" and "stroke-linejoin" in a]
    assert len(labels) == 2 * len(FIGURES)
    assert all(label and len(label) > 40 for label in labels)
    assert sorted(p.name for p in (folder / "figures").iterdir()) == sorted(
        f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")
    )


@pytest.mark.parametrize("name", FIGURES)
def test_figure_files(folder: Path, name: str) -> None:
    root = ET.parse(folder / "figures" / f"{name}.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    with Image.open(folder / "figures" / f"{name}.png") as picture:
        assert picture.width == 1504  # 9.4 inches at 160 dots
        assert "Software" not in picture.info
        low, high = picture.convert("L").getextrema()
        assert low < 100
        assert high == 255


def test_figures_take_their_colours_from_the_page(folder: Path) -> None:
    text = (folder / "figures" / "reward.svg").read_text(encoding="utf-8")
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text))
    assert not used & {light for light, _ in ROLES.values()}
    for role in ("ink", "muted", "before", "after"):
        assert f"var(--{role}, {ROLES[role][0]})" in text
        assert f"--{role}: {ROLES[role][1]}" in read(folder)


def test_player_labels_and_values_stand_in_the_figure(folder: Path) -> None:
    text = (folder / "figures" / "reward.svg").read_text(encoding="utf-8")
    for label in ("Random legal move 0.48", "Perfect play 0.92", "Always the centre −0.30"):
        assert label in text


def test_headline_numbers_equal_the_inputs(inputs: ReportInputs, page: Page) -> None:
    rows = [row for row in page.table("headline") if len(row) > 1][1:]
    expected = []
    for decoding in ("sampled", "greedy"):
        side = inputs.comparison[decoding]
        s = side["score"]
        expected.append(
            [
                "score",
                f"{s['before']:.3f}",
                f"{s['after']:.3f}",
                f"{s['change']:+.3f} {s['low']:+.3f} to {s['high']:+.3f}",
            ]
        )
        for name in ("legal", "optimal"):
            m = {k: 100 * v for k, v in side["milestones"][name].items()}
            expected.append(
                [
                    f"{name} rate",
                    f"{m['before']:.1f}%",
                    f"{m['after']:.1f}%",
                    f"{m['change']:+.1f} {m['low']:+.1f} to {m['high']:+.1f}",
                ]
            )
    assert [[c.replace("−", "-") for c in row[:4]] for row in rows] == expected


def test_transition_table_equals_the_inputs(inputs: ReportInputs, page: Page) -> None:
    for decoding in ("sampled", "greedy"):
        header, *rows = page.table(f"transitions-{decoding}")
        counts = inputs.comparison[decoding]["transitions"]
        for row in rows[:-1]:
            before = row[0].replace(" ", "_")
            for after, cell in zip(header[1:-1], row[1:-1], strict=True):
                found = counts.get(before, {}).get(after.replace(" ", "_"), 0)
                assert cell == (str(found) if found else "·")
            assert int(row[-1]) == sum(counts.get(before, {}).values())
        assert int(rows[-1][-1]) == inputs.comparison[decoding]["n"]


def test_outcome_tables_equal_the_inputs(inputs: ReportInputs, page: Page) -> None:
    for decoding in ("sampled", "greedy"):
        rows = page.table(f"outcomes-{decoding}")[1:]
        assert [row[0].replace(" ", "_") for row in rows] == list(OUTCOMES)
        for outcome, row in zip(OUTCOMES, rows, strict=True):
            before = inputs.baseline_metrics[decoding]["outcomes"][outcome]
            after = inputs.retest_metrics[decoding]["outcomes"][outcome]
            assert row[1:5] == [
                f"{100 * before['rate']:.1f}%",
                f"{100 * before['low']:.1f}% to {100 * before['high']:.1f}%",
                f"{100 * after['rate']:.1f}%",
                f"{100 * after['low']:.1f}% to {100 * after['high']:.1f}%",
            ]


def test_other_tables_equal_the_inputs(inputs: ReportInputs, page: Page) -> None:
    sampled = inputs.comparison["sampled"]
    legal = sampled["mcnemar"]["legal"]
    assert page.table("mcnemar")[1][:4] == ["legal", "sampled", str(legal["gained"]), str(legal["lost"])]
    assert [row[1] for row in page.table("players")[1:]] == ["−0.296", "0.412", "0.483", "0.923"]
    assert page.table("lengths")[1][1] == f"{sampled['response_len']['before']:.1f}"
    assert [int(row[2]) for row in page.table("subsets")[1:]] == [105, 15, 105, 15]
    kinds = sampled["kinds"]
    rows = {row[0]: row[1:] for row in reversed(page.table("kinds")[1:3])}
    assert rows["win at once"][:2] == ["sampled", str(kinds["win at once"]["n"])]
    assert rows["other"][-4:] == ["−0.400", "0.350", "0.460", "0.800"]
    steps = read_steps(inputs.steps)
    first = [f"{steps[0]['step']:.0f}", f"{steps[0]['rollout/score_mean']:.3f}".replace("-", "−")]
    assert page.table("steps")[1][:2] == first
    assert page.table("steps")[-1][0] == "60"


def test_reward_in_force_is_shown_when_it_differs(inputs: ReportInputs, page: Page, tmp_path: Path) -> None:
    assert "tables" not in page.tables
    paid = replace(inputs, reward_table={**SCORE, "win": 2.0}, length_penalty=0.01)
    html = read(write_report(tmp_path, paid).parent)
    tables = Page(html)
    assert tables.table("tables")[2] == ["reward in force", *["−1.00"] * 5, "0.00", "0.80", "2.00"]
    assert "less 0.01 for each token" in html
    assert [row[0] for row in tables.table("headline")].count("reward in force") == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: build("worse"),
        lambda: build("unchanged"),
        lambda: build("noise", steps=0),
        lambda: build("improved", boards=1, steps=1),
        lambda: replace(
            build("improved"), steps=[{"step": 1.0, "rollout/score_mean": float("nan"), "train/loss": ""}]
        ),
        lambda: build("improved", players={}, milestones={}),
    ],
    ids=["worse", "unchanged", "no steps", "one board", "empty cells", "no players or milestones"],
)
def test_pages_of_other_shapes_are_whole(make: Callable[[], ReportInputs], tmp_path: Path) -> None:
    html = read(write_report(tmp_path, make()).parent)
    page = Page(html)
    assert len([1 for tag, a in page.tags if tag == "svg" and "stroke-linejoin" in a]) == 2 * len(FIGURES)
    text = re.sub(r"<[^>]*>", " ", html.split("<body>")[1])
    assert not re.search(r"\b(nan|inf|None)\b", text, re.IGNORECASE)


def test_one_group_gives_no_interval(tmp_path: Path) -> None:
    html = read(write_report(tmp_path, build("improved", boards=5, seed=3)).parent)
    page = Page(html)
    assert "whether by chance cannot be told" in html
    assert "within noise" not in html.split("</section>")[0]
    assert {row[3].split(" ")[-1] for row in page.table("headline") if len(row) > 1} == {"interval", "–"}
    assert "fall into only 1 group of related ones" in html


def test_no_flips_is_said(tmp_path: Path) -> None:
    html = read(write_report(tmp_path, build("unchanged")).parent)
    assert "No reply scored higher after training." in html
    assert "No reply scored lower after training." in html


def test_equal_inputs_give_equal_bytes(folder: Path, inputs: ReportInputs, tmp_path: Path) -> None:
    write_report(tmp_path, build("improved"))
    names = ["report.html", *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png"))]
    for name in names:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name
    assert str(tmp_path) not in read(tmp_path)


def test_users_matplotlib_settings_change_nothing(folder: Path, tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30, "axes.facecolor": "red"}):
        write_report(tmp_path, build("improved"))
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
    for name in FIGURES:
        assert (tmp_path / "figures" / f"{name}.svg").read_bytes() == (
            folder / "figures" / f"{name}.svg"
        ).read_bytes()


def test_a_folder_that_cannot_be_written(inputs: ReportInputs, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DataError, match=r"cannot write the report to .*taken"):
        write_report(tmp_path / "taken", inputs)


# --- hostile text -----------------------------------------------------------------------------


def _hostile(text: str) -> ReportInputs:
    """Inputs in which every string that a model or a user chose holds ``text``."""
    base = build("improved", boards=30)
    call = {"name": text, "arguments": {text: text, "square": text}}

    def poison(e: Any) -> dict[str, Any]:
        return {**e, "reply": text, "call": call}

    return replace(
        base,
        model=text,
        prompt=text,
        facts={text: text},
        baseline_episodes=[poison(e) for e in base.baseline_episodes],
        retest_episodes=[poison(e) for e in base.retest_episodes],
        draw=lambda episodes: (
            f'<svg xmlns="http://www.w3.org/2000/svg"><text>{episodes["after"]["call"]["name"]}</text></svg>'
        ),
    )


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    html = write_report(tmp_path, _hostile("\n".join(HOSTILE))).read_bytes().decode("utf-8")
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    assert html.count("<main") == html.count("</main>") == html.count("<h1") == 1
    for text in HOSTILE:
        assert any(visible(text) in shown for shown in page.texts["pre"])
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", html)


def test_long_replies_are_cut_with_a_note(tmp_path: Path) -> None:
    html = read(write_report(tmp_path, _hostile("x" * 10_000)).parent)
    replies = [text for text in Page(html).texts["pre"] if set(text) == {"x"}]
    assert [len(text) for text in replies[:-1]] == [600] * (len(replies) - 1)
    assert len(replies[-1]) == 10_000  # the prompt is ours and shown whole
    assert html.count("9,400 more characters") == len(replies) - 1 > 1


@given(st.text(st.characters(codec=None), max_size=60))
def test_visible_text_always_encodes_and_hides_nothing(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", shown)
    if text.isascii() and text.isprintable():
        assert shown == text


def test_drawings_are_reduced_to_shapes() -> None:
    drawing = safe_drawing(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink" '
        'onload="a()" viewBox="0 0 9 9">'
        "<script>alert(1)</script><style>*{display:none}</style><image x:href='http://a/b'/>"
        '<a x:href="javascript:a()"><text>gone</text></a><foreignObject><p>gone</p></foreignObject>'
        '<rect id="r" class="c" width="3" fill="url(http://a/b)" style="stroke:var(--call-before, red)"/>'
        '<circle r="1" style="background:url(//a)" fill="red" onclick="a()"/>'
        "<text>kept &lt;b&gt;</text></svg>",
        "a board",
    )
    assert drawing is not None
    parsed = Page(drawing)
    assert parsed.tags == [
        ("svg", {"viewbox": "0 0 9 9", "role": "img", "aria-label": "a board"}),
        ("rect", {"width": "3", "style": "stroke:var(--call-before, red)"}),
        ("circle", {"r": "1", "fill": "red"}),
        ("text", {}),
    ]
    assert parsed.texts["text"] == ["kept <b>"]


@pytest.mark.parametrize(
    "text",
    ["", "no markup", "<svg>", "<p>not svg</p>", "<svg>\x00</svg>", "<svg>\ud800</svg>",
     '<!DOCTYPE svg [<!ENTITY a "b">]><svg>&a;</svg>'],
)  # fmt: skip
def test_what_is_no_drawing_is_left_out(text: str, tmp_path: Path) -> None:
    assert safe_drawing(text, "a board") is None


def test_a_page_without_its_drawings_says_so(inputs: ReportInputs, tmp_path: Path) -> None:
    html = read(write_report(tmp_path, replace(inputs, draw=lambda *_: "<svg>")).parent)
    assert "drawing of this board is not well-formed SVG" in html


# --- the gallery ------------------------------------------------------------------------------


def _pairs(*kinds: tuple[str, str, bool]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        ({"outcome": b, "call": {} if both else None, "i": i}, {"outcome": a, "call": {}})
        for i, (b, a, both) in enumerate(kinds)
    ]


def test_gallery_mixes_kinds_and_prefers_two_calls() -> None:
    pairs = _pairs(
        ("none", "win", False), ("none", "win", False), ("none", "win", False),
        ("legal", "win", True), ("legal", "win", True), ("legal", "optimal", True),
    )  # fmt: skip
    # Of 3 places, one third (1) goes to flips without two calls; the others take turns by kind.
    assert [(p[0]["i"], n) for p, n in choose(pairs, 3)] == [(3, 2), (5, 1), (0, 3)]
    # Of 6 places, 3 are all that two-call flips can fill; the rest go to the other half.
    assert [p[0]["i"] for p, _ in choose(pairs, 6)] == [3, 5, 4, 0, 1, 2]
    assert [p[0]["i"] for p, _ in choose(pairs[:3], 6)] == [0, 1, 2]


def test_cards_show_the_replies_of_the_flip(inputs: ReportInputs) -> None:
    replies = {
        (when, e["example"]["id"]): e
        for when, episodes in (("before", inputs.baseline_episodes), ("after", inputs.retest_episodes))
        for e in episodes
        if e["decoding"] == "sampled"
    }
    for way in ("improved", "worsened"):
        shown = cards(inputs, way)
        assert shown
        for card in shown:
            assert card.drawing is not None
            for side in card.sides:
                episode = replies[side.when, card.example_id]
                assert (side.outcome, side.reply) == (episode["outcome"], episode["reply"])
            scores = [SCORE[side.outcome] for side in card.sides]
            assert scores[0] != scores[1]
            assert (scores[1] > scores[0]) == (way == "improved")


def test_greedy_flips_stand_in_when_no_sampled_reply_flipped(inputs: ReportInputs) -> None:
    sampled = {**inputs.comparison["sampled"], "flips": {"improved": [], "worsened": []}}
    only_greedy = replace(inputs, comparison={**inputs.comparison, "sampled": sampled})
    assert {card.decoding for card in cards(only_greedy, "improved")} == {"greedy"}


def test_a_flip_without_its_reply_is_an_error(inputs: ReportInputs) -> None:
    flip = inputs.comparison["sampled"]["flips"]["improved"][0]
    lacking = [e for e in inputs.retest_episodes if e["example"]["id"] != flip["id"]]
    with pytest.raises(DataError, match=rf"{flip['id']}, the retest episodes lack it"):
        cards(replace(inputs, retest_episodes=lacking), "improved")


# --- the pieces -------------------------------------------------------------------------------


def test_numbers_as_text() -> None:
    assert [number(v) for v in (-0.5, 0.0, -0.0001, 1234.5, None, float("nan"))] == [
        "−0.500", "0.000", "0.000", "1,234.500", "–", "–",
    ]  # fmt: skip
    assert [signed(v, 2) for v in (0.25, -0.25, 0.0, 0.001, -0.001, None)] == [
        "+0.25", "−0.25", "0.00", "+0.00", "−0.00", "–",
    ]  # fmt: skip
    assert (percent(0.1234), points(-0.05), p_value(0.0001), p_value(0.0421)) == (
        "12.3%", "−5.0", "p < 0.001", "p = 0.042",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 0.2, Direction.UP),
        (-0.2, -0.1, Direction.DOWN),
        (0.0, 0.2, Direction.UNCLEAR),
        (-0.2, 0.0, Direction.UNCLEAR),
        (0.0, 0.0, Direction.SAME),
        (float("nan"), float("nan"), Direction.UNCLEAR),
        (None, None, Direction.UNCLEAR),
    ],
)
def test_direction(low: float | None, high: float | None, expected: Direction) -> None:
    assert direction({"change": 0.0, "low": low, "high": high}) is expected


def test_clustered_mean_by_hand() -> None:
    # Groups a: 0, 2 and b: 4. Mean 2; residual sums a: -2 + 0 = -2, b: +2.
    # Variance (4 + 4) / 3**2 * 2 / 1 = 16/9, standard error 4/3; half width 1.959964 * 4/3 = 2.613285
    rows = [{"group": g, "x": x} for g, x in (("a", 0), ("a", 2), ("b", 4))]
    mean = clustered_mean(rows, "x", 0.95)
    assert mean is not None
    assert (mean.value, mean.low, mean.high) == pytest.approx((2.0, -0.613285, 4.613285), abs=1e-5)
    one = clustered_mean(rows[:2], "x", 0.95)
    assert one is not None
    assert (one.value, one.low, one.high) == (1.0, None, None)
    assert clustered_mean([], "x", 0.95) is None


def test_smoothing_skips_gaps() -> None:
    # Window 3: (1+2)/2, (1+2)/2 because the third is missing, (2+6)/2, 6
    assert smooth([1, 2, None, 6], 3) == [1.5, 1.5, 4.0, 6.0]
    assert smooth([None, None], 3) == [None, None]


@given(st.lists(st.floats(-1, 1), max_size=8), st.floats(0.01, 0.5))
def test_labels_keep_their_order_and_distance(values: list[float], gap: float) -> None:
    placed = sorted(zip(values, spread(values, gap), strict=True))
    for (_, low), (_, high) in pairwise(placed):
        assert high - low >= gap - 1e-6


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([0.9, 0.1], 0.2) == [0.9, 0.1]
    # 0.40 and 0.50 are 0.1 too close for a gap of 0.2: around their mean 0.45 at 0.35 and 0.55.
    assert spread([0.5, 0.4], 0.2) == pytest.approx([0.55, 0.35])


def test_legend_reads_row_by_row() -> None:
    # Two columns, filled column by column by matplotlib: 0 2 4 | 1 3 shows rows 01, 23, 4.
    assert row_major([0, 1, 2, 3, 4], 2) == [0, 2, 4, 1, 3]  # type: ignore[list-item]


def test_outcome_colours_are_ordered_distinct_and_no_role() -> None:
    passed = frozenset({"legal", "optimal", "win"})
    colours = outcome_colours(OUTCOMES, passed)
    assert list(colours) == list(OUTCOMES)
    assert len(set(colours.values())) == len(OUTCOMES)
    taken = {light for light, _ in ROLES.values()}
    assert not taken & {*colours.values(), *map(readable_on, colours.values())}

    def blue_minus_red(colour: str) -> int:
        return int(colour[5:], 16) - int(colour[1:3], 16)

    assert all((blue_minus_red(c) > 0) == (o in passed) for o, c in colours.items())
    assert len(outcome_colours(["bad", "good"], frozenset({"good"}))) == 2
    assert len({light for light, _ in ROLES.values()}) == len(ROLES)


def test_steps_come_from_rows_or_from_the_file(inputs: ReportInputs, tmp_path: Path) -> None:
    rows = read_steps(inputs.steps)
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    file = tmp_path / "steps.csv"
    file.write_text(out.getvalue(), encoding="utf-8")
    assert read_steps(file) == rows
    with pytest.raises(DataError, match="cannot read"):
        read_steps(tmp_path / "absent.csv")
    with pytest.raises(DataError, match=r"column train/loss: 'much' is not a number"):
        read_steps([{"train/loss": "much"}])


def test_step_table_has_first_and_last() -> None:
    header, rows = step_rows([{"step": float(i), "rollout/score_mean": i / 100} for i in range(1, 101)])
    assert header == ["step", "score"]
    assert len(rows) == 12
    assert (rows[0], rows[-1]) == (["1", "0.010"], ["100", "1.000"])
    assert step_rows([]) == (["step"], [])


def test_transitions_shade_by_score_and_leave_out_the_unseen() -> None:
    base = build("improved")
    moves = {"legal": {"win": 4, "legal": 1}, "win": {"occupied": 1}}
    sampled = {**base.comparison["sampled"], "transitions": moves}
    table = transitions(replace(base, comparison={**base.comparison, "sampled": sampled}), "sampled")
    assert table.outcomes == ["occupied", "legal", "win"]
    assert table.left_out == ["no_tool_call", "wrong_tool", "multiple_calls", "invalid_arguments", "optimal"]
    tones = {name: [c.tone for c in cells] for name, cells, _ in table.rows}
    assert tones == {
        "occupied": ["empty"] * 3,
        "legal": ["empty", "same", "up"],
        "win": ["down", "empty", "empty"],
    }
    assert (table.totals, table.total) == ([1, 1, 4], 6)


def test_change_strips_share_one_scale(inputs: ReportInputs) -> None:
    scored = with_score(inputs, sampled=change(-2.0, 1.0), greedy=change(0.5, 1.0))
    rows = headline(scored)
    # The farthest end is 2.0, so -2 lies at 0%, 1 at 50 + 25 = 75%, 0.5 at 62.5%, the middle -0.5 at 37.5%.
    bar, other = rows["sampled"][0].bar, rows["greedy"][0].bar
    assert bar is not None
    assert other is not None
    assert (bar.low, bar.middle, bar.high) == (0.0, 37.5, 75.0)
    assert (other.low, other.high) == (62.5, 75.0)


def test_builder_is_consistent() -> None:
    made = build("improved")
    assert recompute(made) == made
