"""What a registered policy says of itself: numbers by name, tags and a description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ninegrid.registry.retested import Retested

DECODINGS = ("sampled", "greedy")
POLICY, COMPARISON, BASELINE = "ninegrid.policy_md5", "ninegrid.comparison_md5", "ninegrid.baseline_md5"
"""Tags with the digests of the policy, of its retest, and of the replies that it was compared with."""


def numbers(comparison: Mapping[str, Any]) -> dict[str, float]:
    """The comparison as metrics, under the names that the retest's run gives them."""
    found: dict[str, float] = {}
    for decoding in DECODINGS:
        side = comparison[decoding]
        for name, change in (("score", side["score"]), ("reward", side["reward"])):
            found |= _sides(decoding, f"{name}_mean", name, change)
        for name, change in side["milestones"].items():
            found |= _sides(decoding, f"milestone/{name}", f"milestone/{name}", change)
    return found


def _sides(decoding: str, name: str, changed: str, change: Mapping[str, Any]) -> dict[str, float]:
    stem = f"change/{decoding}/{changed}"
    ends = {f"{stem}_{end}": change[end] for end in ("low", "high") if change[end] is not None}
    return {
        f"baseline/{decoding}/{name}": change["before"],
        f"retest/{decoding}/{name}": change["after"],
        stem: change["change"],
        **ends,
    }


def version_tags(retested: Retested) -> dict[str, str]:
    """Digests, where the policy comes from, and every number of `numbers`."""
    training, digests = retested.training, retested.digests
    return {
        POLICY: digests["policy"],
        COMPARISON: digests["comparison"],
        BASELINE: digests["baseline"],
        "ninegrid.loop": retested.loop,
        "model": training["model"],
        "algorithm": training["algorithm"],
        "steps": str(training["steps"]),
        "seed": str(training["seed"]),
        **{name: f"{value:.6g}" for name, value in numbers(retested.comparison).items()},
    }


def description(retested: Retested) -> str:
    """The retest in words, as Markdown."""
    training, comparison = retested.training, retested.comparison
    confidence = comparison["bootstrap"]["confidence"]
    boards = comparison[DECODINGS[0]]["boards"]
    rows = [
        f"| {name}, {decoding} | {_change(change)} |"
        for decoding in DECODINGS
        for name, change in _rows(comparison[decoding])
    ]
    players = ", ".join(f"{name} {score:.3f}" for name, score in comparison["players"].items())
    return "\n".join(
        [
            f"`{training['model']}` after {training['steps']} steps of `{training['algorithm']}`, "
            f"seed {training['seed']}, retested on {boards} held-out boards with the prompts and draws of "
            "the untrained model.",
            "",
            f"| | untrained | trained | change, with its {confidence:.0%} interval |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Mean score of the reference players on the same boards: {players}.",
            "",
            "The files are a folder for `AutoModelForCausalLM.from_pretrained`, tokenizer included.",
        ]
    )


def _rows(side: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [("mean score", side["score"]), *((f"{name} rate", c) for name, c in side["milestones"].items())]


def _change(change: Mapping[str, Any]) -> str:
    low, high = change["low"], change["high"]
    interval = "no interval" if low is None or high is None else f"{low:+.3f} to {high:+.3f}"
    return f"{change['before']:.3f} | {change['after']:.3f} | {change['change']:+.3f} ({interval})"
