"""The benchmarks' own arithmetic by hand, and a smoke run of all of them.  No duration is judged."""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict

import pytest

from benchmarks import machine, matmul, overhead, results, scaling, step, subject
from benchmarks.isolated import run_piece
from benchmarks.pieces.counting import count, teaching_share
from benchmarks.stats import Spread, ratio
from benchmarks.tables import Report, Table
from ninegrid.errors import DataError, NinegridError
from tests.conftest import ROOT


def test_a_spread_is_median_smallest_and_largest():
    assert Spread.of([3.0, 1.0, 8.0]) == Spread(3.0, 1.0, 8.0, 3)
    assert Spread.of([4.0, 1.0, 2.0, 9.0]).median == 3.0  # (2 + 4) / 2
    assert Spread.of(iter([2, 4])).text(1) == "3.0 (2.0–4.0)"
    assert Spread.of([2.5]).text() == "2.50"
    with pytest.raises(ValueError, match="nothing was measured"):
        Spread.of([])


def test_a_ratio_is_of_positive_numbers():
    assert ratio(30.0, 4.0) == 7.5
    for over, under in ((1, 0), (0, 1), (-1, 2), (float("nan"), 1)):
        with pytest.raises(ValueError, match="must be positive"):
            ratio(over, under)


def test_tables_are_markdown_and_rows_fit():
    assert Table(["a", "b"], [["x", "1"]]).text() == "| a | b |\n| --- | ---: |\n| x | 1 |"
    with pytest.raises(ValueError, match="3 cells under 2 columns"):
        Table(["a", "b"], [["x", "1", "2"]]).text()
    text = Report("title", "said\nhere", [Table(["a"], [["x"]])], ["one", "two"]).text("name")
    assert text == "## name: title\n\nsaid here\n\n| a |\n| --- |\n| x |\n\n* one\n* two\n"


def test_tokens_are_counted_once_where_beginnings_are_shared():
    prompts, completions = [(1, 2, 3), (1, 2, 3), (1, 9)], [(5, 6), (5, 7, 8), (5,)]
    tokens = count(prompts, completions)
    # Three sequences of 3 + 3 slots; 1 2 3, then 5, 6, 7, 8 below it; 9 below 1, then another 5.
    assert tokens.padded == 18
    assert tokens.distinct == 9
    # Predicting: 3 (the 5), the 5 (6 and 7), 7 (the 8), 9 (the other 5).
    assert tokens.logits == 4


def test_a_board_teaches_when_its_replies_differ_in_reward():
    assert teaching_share([1, 1, 0, 1, -1, -1], ["a", "a", "b", "b", "c", "c"]) == pytest.approx(1 / 3)


def test_flops_by_hand():
    scored = {
        "parameters": {"all": 130, "body": 100, "head": 30},
        "tokens": {"distinct": 7, "logits": 2, "padded": 99},
    }
    # 6 x 100 x 7 + 6 x 30 x 2 = 4560; 6 x 130 x 7 = 5460
    assert matmul.flops(scored) == (4560, 5460)


def test_the_step_table_compares_medians_and_peaks():
    def run(trainer, seconds, gib):
        records = [
            {"seconds": s, "sampling": s / 4, "reward": 0.5, "length": 20, "teaching": 0.5}
            | {"padded": 100, "distinct": 40, "scored": 30}
            for s in seconds
        ]
        return step.Run("learned", trainer, records, gib * 2**30)

    compared, phases = step.tables([run("ours", [2, 4, 3], 3), run("TRL", [60, 90], 4)])
    # 75 / 3 = 25 times, 3 / 4 of the memory
    assert compared.rows[0][3:7] == ["3.00 (2.00–4.00)", "–", "3.00", "–"]
    assert compared.rows[1][3:7] == ["75.00 (60.00–90.00)", "25.0 times", "4.00", "75%"]
    assert compared.rows[1][7:] == ["+0.500", "20.0", "50%"]
    assert phases.rows[0][2:] == ["0.75 (0.50–1.00)", "2.25 (1.50–3.00)", "100", "40", "30"]
    assert phases.rows[1][4:] == ["–", "–", "–"]


def test_growth_is_of_the_largest_size_over_the_base():
    plan = scaling.Plan((2, 4), (4, 16), (2, 8), {"learned": (0, 1)})
    assert plan.sizes == [(2, 4), (2, 16), (8, 4)]
    taken = {(2, 4): 2.0, (2, 16): 3.0, (8, 4): 7.0}
    found = {
        size: [{"seconds": s, "sampling": s / 2, "padded": 90, "distinct": 30, "scored": 20}]
        for size, s in taken.items()
    }
    sizes, growth = scaling.tables({"learned": found}, plan)
    assert sizes.rows[1] == ["learned", "2 x 16", "3.00", "1.50", "90", "30", "20", "3.0"]
    assert growth.rows[0] == [
        "learned",
        "2 x 4",
        "2 x 16",
        "4 times",
        "1.50 times",
        "1.50 times",
        "at most 1.6",
    ]
    assert growth.rows[1] == ["learned", "2 x 4", "8 x 4", "4 times", "3.50 times", "3.50 times", "–"]


def test_growth_is_also_told_for_the_steps_in_which_both_sizes_trained():
    def step(seconds, scored):
        return {"seconds": seconds, "scored": scored}

    base = [step(1.0, 0), step(2.0, 300), step(4.0, 300)]
    larger = [step(4.0, 400), step(3.0, 400), step(5.0, 400)]
    # The first step taught nothing at the base size: (3 + 5) / 2 over (2 + 4) / 2.
    assert scaling._where_both_trained(base, larger) == pytest.approx(4 / 3)
    assert scaling._where_both_trained(base[:1], larger[:1]) is None


def test_the_overhead_of_a_cell_is_the_difference_of_each_pair():
    # 10 - 4, 12 - 5, 11 - 9: median 6
    (row,) = overhead.cell_table([10, 12, 11], [4, 5, 9]).rows
    assert row == ["3", "11.00 (10.00–12.00)", "5.00 (4.00–9.00)", "6.00 (2.00–7.00)"]


def test_heavy_imports_are_read_from_pythons_own_record():
    record = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:       100 |        200 |   torch._C\n"
        "import time:       100 |        900 | torch\n"
        "mlflow: | a line of something else\n"
    )
    assert overhead.imported(record) == "torch"
    assert overhead.imported("") == ""


def test_the_machine_is_described_in_general_terms():
    assert machine.family("Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz") == "Intel Xeon Platinum"
    assert machine.family("AMD EPYC") == "AMD EPYC"
    assert machine.version("no-such-package-as-this") == "(not installed)"
    text = machine.describe()
    assert re.match(r"\d+ cores, .+, \d+ GiB of memory; Python ", text)
    assert os.uname().nodename not in text


def test_saving_replaces_a_section_and_mixes_no_machines():
    order = ["a", "b"]
    first = results.merge("", "here", order, "b", "## b: one\n\ntext\n")
    both = results.merge(first, "here", order, "a", "## a: two\n")
    assert both.index("## a: two") < both.index("## b: one")
    again = results.merge(both, "here", order, "b", "## b: three\n")
    assert "## a: two" in again and "## b: three" in again and "## b: one" not in again
    assert "Machine: here." in again
    elsewhere = results.merge(again, "there", order, "b", "## b: four\n")
    assert "## a" not in elsewhere and "Machine: there." in elsewhere


def test_what_is_missing_is_named_with_the_command_that_makes_it(monkeypatch, tmp_path):
    monkeypatch.setattr(subject, "read_params", lambda: subject.compose([]))
    monkeypatch.setattr(subject.PathSettings, "folder", lambda self, name: tmp_path / name)
    with pytest.raises(DataError, match=r"model/model.safetensors is missing[^\n]*\n  -> make repro"):
        subject.of_project()


def test_subjects_go_through_json():
    given = subject.tiny(ROOT)
    assert subject.Subject.from_json(json.loads(json.dumps(asdict(given)))) == given


def test_what_starts_pieces_is_light():
    # A process begins with the peak memory of the one that started it.
    code = "import sys, benchmarks.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_piece_that_fails_is_one_message():
    nothing = subject.Subject({}, "no-file", "no-file")
    with pytest.raises(NinegridError, match="the piece counting:count ended with status 1"):
        run_piece("counting:count", nothing, surprise=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "no benchmark is called 'nonsense'; there are step, scaling"),
        (["--quick", "--save"], "those of --quick mean nothing"),
    ],
)
def test_wrong_arguments_get_one_message(arguments, message):
    result = command(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def quick():
    """Tables of a quick run: benchmark -> tables -> rows, each a mapping from the column's name."""
    names = list(EXPECTED)
    before = _state(results.FILE)
    result = command("--quick", *names)
    assert result.returncode == 0, result.stderr
    assert _state(results.FILE) == before
    for name in names:
        assert f"benchmarks: {name} is done" in result.stderr
    return {name: _tables(part) for name, part in _sections(result.stdout).items()}


# Rows of each table of a quick run.
EXPECTED = {
    "step": [2, 2],
    "scaling": [4, 2],
    "matmul": [2, 1, 1],
    "overhead": [2, 1, 1],
    "evaluation": [1],
    "memory": [1],
}


@pytest.mark.slow
def test_a_quick_run_prints_every_table_with_sane_figures(quick):
    wanted = {name: EXPECTED[name] for name in quick}
    assert set(EXPECTED) - set(quick) <= {"step"}
    assert {name: [len(table) for table in tables] for name, tables in quick.items()} == wanted
    signed = ("mean reward", "mean score", "overhead s")
    for tables in quick.values():
        for column, cell in (item for table in tables for row in table for item in row.items()):
            number = _number(cell)
            assert number is None or column.startswith(signed) or number >= 0, (column, cell)


@pytest.mark.slow
def test_the_ratios_of_a_quick_run_are_those_of_its_figures(quick):
    ours, trl = quick["step"][0]
    assert _near(_number(trl["ours is faster"]), trl["s a step"], ours["s a step"])
    assert _near(_number(trl["ours needs of it"]) / 100, ours["peak GiB"], trl["peak GiB"])
    assert -1 <= _number(ours["mean reward"]) <= 1
    assert -1 <= _number(trl["mean reward"]) <= 1


@pytest.mark.slow
def test_the_growth_of_a_quick_run_is_that_of_its_sizes(quick):
    sizes, growth = quick["scaling"]
    seconds = {row["boards x samples"]: row["s a step"] for row in sizes}
    for row in growth:
        assert _near(_number(row["cost grows"]), seconds[row["to"]], seconds[row["from"]])
    for row in sizes:
        assert _number(row["scored"]) <= _number(row["distinct"]) < _number(row["tokens of a padded batch"])


@pytest.mark.slow
def test_the_light_commands_of_a_quick_run_import_nothing_heavy(quick):
    commands, stages, _ = quick["overhead"]
    assert {row["imports"] for row in commands} == {"none"}
    assert {row["imports: `--help`"] for row in stages} == {"none"}


def _near(shown, over, under):
    """``shown``, known to 0.05, may be the ratio of figures that are known to half of their last digit."""
    (a, a_off), (b, b_off) = _known(over), _known(under)
    return (a - a_off) / (b + b_off) - 0.06 <= shown <= (a + a_off) / max(b - b_off, 1e-9) + 0.06


def _known(cell):
    digits = re.match(r"\d+\.?(\d*)", cell)
    return float(digits[0]), 0.51 * 10 ** -len(digits[1])


def _number(cell):
    found = re.match(r"[+-]?\d+(\.\d+)?", cell)
    return float(found[0]) if found else None


def _sections(text):
    parts = re.split(r"^## (\w+): ", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _tables(text):
    tables = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines())
        tables.append([dict(zip(head, row, strict=True)) for row in rows])
    return tables


def _state(path):
    return (path.stat().st_mtime_ns, path.read_bytes()) if path.exists() else None
