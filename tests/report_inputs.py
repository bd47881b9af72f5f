"""Synthetic inputs for the report: plausible retests of several shapes, consistent in themselves.

`build` makes up a policy before and after training as outcome probabilities, draws replies from
them and computes metrics and comparison from those replies, so that tables, flips and episodes agree
with one another.  The numbers are made up; only their form is that of the stages' files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import binomtest

from ninegrid.report.inputs import ReportInputs
from ninegrid.tasks.protocol import ToolCall

OUTCOMES = (
    "no_tool_call",
    "wrong_tool",
    "multiple_calls",
    "invalid_arguments",
    "occupied",
    "legal",
    "optimal",
    "win",
)
SCORE = dict.fromkeys(OUTCOMES[:5], -1.0) | {"legal": 0.0, "optimal": 0.8, "win": 1.0}
MILESTONES = {
    "legal": frozenset({"legal", "optimal", "win"}),
    "optimal": frozenset({"optimal", "win"}),
}
PLAYERS = {
    "centre": {
        "label": "Always the centre",
        "description": "Plays square 5, taken or not.",
        "expected": -0.296,
    },
    "first_empty": {
        "label": "First empty square",
        "description": "Plays the lowest-numbered empty square.",
        "expected": 0.412,
    },
    "random_legal": {
        "label": "Random legal move",
        "description": "Plays an empty square chosen at random; needs the rules, but no skill.",
        "expected": 0.483,
    },
    "minimax": {"label": "Perfect play", "description": "Plays a best move every time.", "expected": 0.923},
}
WEAK = (0.3, 0.04, 0.06, 0.14, 0.16, 0.15, 0.1, 0.05)
BETTER = (0.0, 0.0, 0.002, 0.006, 0.012, 0.33, 0.4, 0.25)
WEAK_GREEDY = (0.22, 0.0, 0.02, 0.1, 0.3, 0.16, 0.12, 0.08)
BETTER_GREEDY = (0.0, 0.0, 0.0, 0.0, 0.01, 0.27, 0.42, 0.3)
PROMPT = """<|im_start|>system
You play tic-tac-toe as X. Call the tool choose_square.<|im_end|>
<|im_start|>user
X . O
. . .
X O .<|im_end|>
<|im_start|>assistant
"""
SHAPES: dict[str, tuple[tuple[float, ...], ...]] = {
    # before sampled, before greedy, after sampled, after greedy
    "improved": (WEAK, WEAK_GREEDY, BETTER, BETTER_GREEDY),
    "worse": (BETTER, BETTER_GREEDY, WEAK, WEAK_GREEDY),
    "noise": (BETTER, BETTER_GREEDY, BETTER, BETTER_GREEDY),
    "disagree": (WEAK, BETTER_GREEDY, BETTER, WEAK_GREEDY),
    "unchanged": (BETTER, BETTER_GREEDY, BETTER, BETTER_GREEDY),
}


def build(
    shape: str = "improved", *, boards: int = 120, steps: int = 60, seed: int = 0, **changes: Any
) -> ReportInputs:
    """Inputs of the given shape; ``changes`` replace fields of the result."""
    rng = np.random.default_rng(seed)
    examples = _examples(boards, rng)
    weights = dict(
        zip(
            (("before", "sampled"), ("before", "greedy"), ("after", "sampled"), ("after", "greedy")),
            SHAPES[shape],
            strict=True,
        )
    )
    before = [e for d in ("sampled", "greedy") for e in episodes(examples, weights["before", d], d, rng)]
    after = [e for d in ("sampled", "greedy") for e in episodes(examples, weights["after", d], d, rng)]
    inputs = ReportInputs(
        model="SmolLM2-135M-Instruct",
        task="tictactoe",
        algorithm="GSPO (branch credit)",
        n_train=1769,
        n_heldout=boards,
        seeds={"boards": 2026, "eval": 11, "train": 7},
        score_table=SCORE,
        reward_table=SCORE,
        outcomes=OUTCOMES,
        milestones=MILESTONES,
        players=PLAYERS,
        prompt=PROMPT,
        draw=drawer(examples),
        baseline_metrics={},
        retest_metrics={},
        comparison={},
        baseline_episodes=before,
        retest_episodes=before if shape == "unchanged" else after,
        steps=step_rows(steps, rng),
        facts={
            "decoding": "temperature 1.0, at most 48 new tokens",
            "precision": "float32",
            "model revision": "b179c952",
        },
    )
    return recompute(replace(inputs, **changes))


def recompute(inputs: ReportInputs) -> ReportInputs:
    """The same inputs with metrics and comparison that follow from their episodes."""
    return replace(
        inputs,
        baseline_metrics=metrics(inputs.baseline_episodes),
        retest_metrics=metrics(inputs.retest_episodes),
        comparison={
            **{
                d: compare(inputs.baseline_episodes, inputs.retest_episodes, d) for d in ("sampled", "greedy")
            },
            "players": {name: p["expected"] for name, p in PLAYERS.items()},
            "bootstrap": {"resamples": 1000, "seed": 5, "unit": "group", "confidence": 0.95},
        },
    )


# --- boards and replies -----------------------------------------------------------------------


def _examples(n: int, rng: np.random.Generator) -> list[tuple[str, str, list[list[str]]]]:
    """(id, group, board); about seven boards share a group."""
    found = []
    for i in range(n):
        cells = ["X", "X", "O", "O", ".", ".", ".", ".", "."]
        rng.shuffle(cells)
        found.append((f"generated-{i:05d}", f"class-{i // 7:03d}", [cells[0:3], cells[3:6], cells[6:9]]))
    return found


def episodes(
    examples: Sequence[tuple[str, str, list[list[str]]]],
    weights: Sequence[float],
    decoding: str,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """One reply a board, outcomes drawn with the given weights."""
    share = np.asarray(weights) / sum(weights)
    return [_episode(example, str(rng.choice(OUTCOMES, p=share)), decoding, rng) for example in examples]


def _episode(
    example: tuple[str, str, list[list[str]]], outcome: str, decoding: str, rng: np.random.Generator
) -> dict[str, Any]:
    name, group, board = example
    call, reply = _reply(board, outcome, rng)
    n_tokens = 28 if SCORE[outcome] >= 0 else int(rng.integers(18, 49))
    return {
        "example": {"id": name, "board": board},
        "group": group,
        "decoding": decoding,
        "sample": 0,
        "reply": reply,
        "n_tokens": n_tokens,
        "finish": "stop" if n_tokens < 48 else "length",
        "outcome": outcome,
        "truncated": n_tokens == 48,
        "call": call,
        "facts": {},
        "score": SCORE[outcome],
        "reward": SCORE[outcome],
    }


def _reply(
    board: list[list[str]], outcome: str, rng: np.random.Generator
) -> tuple[dict[str, Any] | None, str]:
    flat = [c for row in board for c in row]
    empty = [i + 1 for i, c in enumerate(flat) if c == "."]
    taken = [i + 1 for i, c in enumerate(flat) if c != "."]
    if outcome == "no_tool_call":
        return None, "The best move for X is the centre square, because it blocks O and opens two lines."
    if outcome == "invalid_arguments":
        return None, '<tool_call>\n{"name": "choose_square", "arguments": {"square": "middle"}}\n</tool_call>'
    square = int(rng.choice(taken if outcome == "occupied" else empty))
    tool = "play_move" if outcome == "wrong_tool" else "choose_square"
    text = f'<tool_call>\n{{"name": "{tool}", "arguments": {{"square": {square}}}}}\n</tool_call>'
    if outcome == "multiple_calls":
        return None, f"{text}\n{text}"
    return {"name": tool, "arguments": {"square": square}}, text


def drawer(examples: Sequence[tuple[str, str, list[list[str]]]]) -> Any:
    """A draw function as a task offers it: marks, and a ring around each called square."""
    boards = {name: board for name, _, board in examples}

    def draw(episodes: Mapping[str, Any]) -> str:
        example_id = episodes["before"]["example"]["id"]
        calls = {name: _call_of(episode) for name, episode in episodes.items()}
        lines = "M34 4V98M66 4V98M2 36H98M2 68H98"
        parts = [f'<path d="{lines}" stroke="currentColor" fill="none" opacity="0.5"/>']
        cells = [cell for row in boards[example_id] for cell in row]
        style = 'text-anchor="middle" font-size="24" fill="currentColor"'
        parts += [
            f'<text x="{18 + 32 * (i % 3)}" y="{26 + 32 * (i // 3)}" {style}>{mark}</text>'
            for i, mark in enumerate(cells)
            if mark != "."
        ]
        parts += [_ring(name, call) for name, call in calls.items()]
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 102">{"".join(parts)}</svg>'

    return draw


def _call_of(episode: Any) -> ToolCall | None:
    call = episode["call"]
    return None if call is None else ToolCall(call["name"], call["arguments"])


def _ring(name: str, call: ToolCall | None) -> str:
    square = call.arguments.get("square") if call else None
    if not isinstance(square, int) or not 1 <= square <= 9:
        return ""
    x, y = 18 + 32 * ((square - 1) % 3), 18 + 32 * ((square - 1) // 3)
    look = {
        "before": 'r="14" style="stroke: var(--call-before, currentColor)" stroke-dasharray="4 3"',
        "after": 'r="11" style="stroke: var(--call-after, currentColor)"',
    }[name]
    return f'<circle cx="{x}" cy="{y}" fill="none" stroke-width="3" {look}/>'


# --- metrics and comparison -------------------------------------------------------------------


def metrics(replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """As a stage's metrics.json."""
    sides: dict[str, Any] = {}
    for decoding in ("sampled", "greedy"):
        chosen = [e for e in replies if e["decoding"] == decoding]
        lengths = [e["n_tokens"] for e in chosen]
        sides[decoding] = {
            "n": len(chosen),
            "boards": len({e["example"]["id"] for e in chosen}),
            "score_mean": _mean([e["score"] for e in chosen]),
            "reward_mean": _mean([e["reward"] for e in chosen]),
            "outcomes": {o: _rate([e["outcome"] == o for e in chosen]) for o in OUTCOMES},
            "milestones": {m: _rate([e["outcome"] in s for e in chosen]) for m, s in MILESTONES.items()},
            "response_len_mean": _mean(lengths),
            "response_len_p95": float(np.percentile(lengths, 95)),
            "truncated_rate": _mean([e["truncated"] for e in chosen]),
        }
    return {**sides, "players": {name: p["expected"] for name, p in PLAYERS.items()}}


def compare(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], decoding: str
) -> dict[str, Any]:
    """One decoding of comparison.json."""
    first, second = ([e for e in side if e["decoding"] == decoding] for side in (before, after))
    pairs = list(zip(first, second, strict=True))
    groups = [b["group"] for b in first]

    def part(chosen: list[int]) -> dict[str, Any]:
        scores = ([side[i]["score"] for i in chosen] for side in (first, second))
        return {"n": len(chosen), "score": _change(*scores, [groups[i] for i in chosen])}

    parts = {
        "decisive": [i for i in range(len(pairs)) if i % 8],
        "flat": [i for i in range(len(pairs)) if i % 8 == 0],
    }
    return {
        "n": len(pairs),
        "boards": len(pairs),
        "groups": len(set(groups)),
        "score": _change([b["score"] for b in first], [a["score"] for a in second], groups),
        "reward": _change([b["reward"] for b in first], [a["reward"] for a in second], groups),
        "milestones": {
            m: _change([b["outcome"] in s for b in first], [a["outcome"] in s for a in second], groups)
            for m, s in MILESTONES.items()
        },
        "outcomes": {
            o: _change([b["outcome"] == o for b in first], [a["outcome"] == o for a in second], groups)
            for o in OUTCOMES
        },
        "mcnemar": {m: _mcnemar(pairs, s) for m, s in MILESTONES.items()},
        "transitions": _transitions(pairs),
        "response_len": {
            "before": _mean([b["n_tokens"] for b in first]),
            "after": _mean([a["n_tokens"] for a in second]),
        },
        "flips": {
            "improved": [_flip(b, a) for b, a in pairs if a["score"] > b["score"]],
            "worsened": [_flip(b, a) for b, a in pairs if a["score"] < b["score"]],
        },
        "subsets": {name: part(chosen) for name, chosen in parts.items() if chosen},
        "kinds": {
            name: {**part(chosen), "players": KIND_PLAYERS[name]}
            for name, chosen in _kinds(pairs).items()
            if chosen
        },
    }


KIND_PLAYERS = {
    "win at once": {
        "uniform": -0.35,
        "centre": -0.2,
        "first_empty": 0.45,
        "random_legal": 0.5,
        "minimax": 1.0,
    },
    "other": {"uniform": -0.4, "centre": -0.4, "first_empty": 0.35, "random_legal": 0.46, "minimax": 0.8},
}


def _kinds(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, list[int]]:
    """Two kinds of boards, told apart by hand: by the last digit of the example's number."""
    odd = [int(b["example"]["id"][-1]) % 2 == 1 for b, _ in pairs]
    return {
        "win at once": [i for i, is_odd in enumerate(odd) if is_odd],
        "other": [i for i, is_odd in enumerate(odd) if not is_odd],
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _rate(hits: Sequence[bool]) -> dict[str, float]:
    """Share with its Wilson interval."""
    n, p, z = len(hits), sum(hits) / len(hits), 1.959964
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return {"rate": p, "low": max(0.0, centre - half), "high": min(1.0, centre + half)}


def _change(before: Sequence[float], after: Sequence[float], groups: Sequence[str]) -> dict[str, float]:
    difference = np.asarray(after, float) - np.asarray(before, float)
    names = sorted(set(groups))
    sums = np.array([sum(d for d, g in zip(difference, groups, strict=True) if g == name) for name in names])
    counts = np.array([groups.count(name) for name in names])
    drawn = np.random.default_rng(5).integers(0, len(names), (1000, len(names)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {
        "before": _mean(before),
        "after": _mean(after),
        "change": float(difference.mean()),
        "low": float(low),
        "high": float(high),
    }


def _mcnemar(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], good: frozenset[str]
) -> dict[str, Any]:
    gained = sum(b["outcome"] not in good and a["outcome"] in good for b, a in pairs)
    lost = sum(b["outcome"] in good and a["outcome"] not in good for b, a in pairs)
    p = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return {"gained": gained, "lost": lost, "p": p}


def _transitions(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, dict[str, int]]:
    counts = Counter((b["outcome"], a["outcome"]) for b, a in pairs)
    return {
        b: {a: counts[b, a] for a in OUTCOMES if counts[b, a]}
        for b in OUTCOMES
        if any(counts[b, a] for a in OUTCOMES)
    }


def _flip(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": before["example"]["id"],
        "sample": before["sample"],
        "before": before["outcome"],
        "after": after["outcome"],
    }


# --- training log -----------------------------------------------------------------------------


def step_rows(n: int, rng: np.random.Generator) -> list[dict[str, float]]:
    """Rows of steps.csv for a run that learns form within ten steps and play after that."""
    rows = []
    for i in range(n):
        form = 1 - math.exp(-i / 4)
        score = -0.62 + 1.05 * form + 0.15 * (i / max(n, 1)) + float(rng.normal(0, 0.07))
        rows.append(
            {
                "step": i + 1,
                "rollout/rewards_mean": score,
                "rollout/rewards_std": 0.4,
                "rollout/score_mean": score,
                "rollout/response_len_mean": 33 - 5 * form + float(rng.normal(0, 0.6)),
                "rollout/truncated_rate": 0.1 * (1 - form),
                "rollout/decision_entropy": 0.85
                - 0.3 * form
                + 0.2 * i / max(n, 1)
                + float(rng.normal(0, 0.05)),
                "train/informative_groups": float(rng.integers(6, 13)) / 12 if i else 1.0,
                "train/grad_norm": 0.9 + 1.6 * (1 - form) + abs(float(rng.normal(0, 0.25))),
                "train/clip_fraction": max(0.0, 0.12 * form + float(rng.normal(0, 0.03))),
            }
        )
    return rows
