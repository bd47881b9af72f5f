"""What is live when: the phases of a run, each as lines of bytes with the arithmetic that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ninegrid.plan.dry_run import Cached, Kept
from ninegrid.plan.line import Line, Phase
from ninegrid.plan.weights import Weights
from ninegrid.plan.workload import Workload
from ninegrid.tree.engine import HEAD_CHUNK
from ninegrid.tree.sampling import LOGITS_AT_ONCE

LOGIT_COPIES = 4
"""Tensors as large as the logits of a chunk that are live at once in the head's backward pass and in a draw:
counted in `ninegrid.tree.engine.target_logprobs` (scaled logits, their gradient twice, probabilities)."""

CUT_UP = 0.1
"""Of what is live on the CPU, so much lies unused between it from the second step on: blocks of one step's
sizes do not fit where the next one's go.  Measured with glibc on trainings of SmolLM2: what is live adds up
to the count, and resident memory is 0 to 18% above it, with more passes in a step 30%."""

CHANGE_ROWS = 16
"""One row in so many of the weights is copied to see how far a step went; see `ninegrid.gspo.optimizer`."""


@dataclass(frozen=True)
class Counted:
    """What a dry run counted, and for which work.

    Attributes:
        path: ``tree`` or ``padded``.
        load: the tokens.
        kept: by one scoring pass; None where nothing is trained.
        cached: by sampling.
        checkpointing: layers keep their inputs alone.
    """

    path: str
    load: Workload
    kept: Kept | None
    cached: Cached
    checkpointing: bool = False


def loading(weights: Weights) -> Phase:
    """Reading the files."""
    lines = [weights.libraries, weights.stored]
    if weights.file:
        lines.append(Line("file", weights.file, "read while it is cast or packed"))
    return _phase("loading the model", lines)


def sampling(weights: Weights, counted: Counted, *, training: bool) -> Phase:
    """Drawing replies."""
    lines = [weights.libraries, weights.stored, *weights.state]
    if training:
        lines.append(weights.gradients)
        lines += _trunk_graph(counted)
    lines += [_cache(counted), _working_set(counted)]
    rows = min(LOGITS_AT_ONCE, counted.load.boards * counted.load.samples)
    lines.append(_logits(weights, rows))
    return _phase("sampling", [*lines, *(_between(weights, lines) if training else [])])


def backward(weights: Weights, counted: Counted) -> Phase:
    """The largest forward and backward pass."""
    load, path = counted.load, counted.path
    lines = [weights.libraries, weights.stored, *weights.state]
    if load.several_passes(path):
        lines.append(weights.gradients)
    lines += [*_activations(counted), _logits(weights, min(HEAD_CHUNK, load.at_once(path)))]
    if weights.head_gradient:
        lines.append(
            Line("head", weights.head_gradient, "gradient of the output head, before it is added up")
        )
    if weights.adapted and not counted.checkpointing:
        # An adapted layer makes its output three times (own, the adapter's, the sum) and keeps one, with a
        # thin tensor between them; about one of the two that it frees is then too short for the next layer's.
        # Measured on SmolLM2: 0.5 to 1.2 MB a token, with 0.62 MB of outputs.
        tokens = load.at_once(path)
        said = f"freed beside thin tensors that stay: {tokens:,} tokens x {weights.adapted:,} B"
        lines.append(Line("cut-up heap", tokens * weights.adapted, said))
    if weights.scratch:
        lines.append(
            Line("scratch", weights.scratch, "of the optimiser's step, beside what the pass has freed")
        )
    return _phase("backward pass", [*lines, *_between(weights, lines)])


def step(weights: Weights) -> Phase:
    """The optimiser's step."""
    rows = Line(
        "rows",
        weights.trained_bytes // CHANGE_ROWS,
        f"one row in {CHANGE_ROWS} of the trained weights, before the step",
    )
    lines = [weights.libraries, weights.stored, *weights.state, weights.gradients, *weights.step, rows]
    return _phase("optimiser step", [*lines, *_between(weights, lines)])


def merging(weights: Weights) -> Phase:
    """Packed weights made plain again, to be merged with the adapter and saved."""
    plain = Line("unpacked", weights.unpacked, "packed weights in the model's number format, to be saved")
    return _phase("merging", [weights.libraries, weights.stored, *weights.state, plain])


def _between(weights: Weights, lines: Sequence[Line]) -> list[Line]:
    """What lies unused on the heap; a GPU's allocator was not measured."""
    if not weights.on_heap:
        return []
    n_bytes = sum(line.n_bytes for line in lines) - weights.libraries.n_bytes
    return [
        Line("between", round(CUT_UP * n_bytes), f"{CUT_UP:.0%} of what is live, unused on a cut-up heap")
    ]


def _phase(name: str, lines: Sequence[Line]) -> Phase:
    return Phase(name, tuple(line for line in lines if line.n_bytes))


def _activations(counted: Counted) -> list[Line]:
    kept, tokens = counted.kept, counted.load.at_once(counted.path)
    assert kept is not None
    if counted.checkpointing:
        inputs, widest = _scaled(kept.inputs + kept.rest, kept, tokens), _scaled(kept.widest, kept, tokens)
        return [
            Line("layer inputs", inputs, _per_token(kept.inputs + kept.rest, kept, tokens)),
            Line("one layer", widest, _per_token(kept.widest, kept, tokens)),
        ]
    total = kept.layers + kept.rest
    return [Line("activations", _scaled(total, kept, tokens), _per_token(total, kept, tokens))]


def _trunk_graph(counted: Counted) -> list[Line]:
    """The trunk keeps its graph from sampling to the backward pass."""
    if counted.path != "tree" or counted.checkpointing:
        return []
    kept, tokens = counted.kept, counted.load.prompt.shared
    assert kept is not None
    return [Line("trunk's graph", _scaled(kept.layers, kept, tokens), _per_token(kept.layers, kept, tokens))]


def _cache(counted: Counted) -> Line:
    load, cached = counted.load, counted.cached
    tokens, sequences = load.cached(counted.path), load.boards * load.samples
    n_bytes = tokens * cached.token
    said = f"{tokens:,} tokens x {cached.token:,} B"
    if counted.path == "tree":
        room = _doubled(load.prompt.shared + load.boards * load.prompt.own, tokens)
        n_bytes, said = room * cached.token, f"room for {room:,} tokens x {cached.token:,} B"
    if cached.sequence:
        n_bytes += sequences * cached.sequence
        said += f" + {sequences:,} sequences x {cached.sequence:,} B of state"
    return Line("cache", n_bytes, said)


def _doubled(first: int, tokens: int) -> int:
    """Room of a buffer that begins with twice what it is first given and doubles when it is full."""
    room = 2 * first
    while room < tokens:
        room *= 2
    return room


def _working_set(counted: Counted) -> Line:
    """What one layer makes of the prompts that it is first given."""
    if counted.kept is None:
        return Line("one layer", 0, "")
    load = counted.load
    tokens = load.prompt.shared if counted.path == "tree" else load.boards * load.prompt.longest
    n_bytes = _scaled(counted.kept.widest, counted.kept, tokens)
    return Line(
        "one layer", n_bytes, "of the prompts: " + _per_token(counted.kept.widest, counted.kept, tokens)
    )


def most_logits(weights: Weights) -> int:
    """Bytes of the largest chunk of logits."""
    return _logits(weights, max(HEAD_CHUNK, LOGITS_AT_ONCE)).n_bytes


def _logits(weights: Weights, rows: int) -> Line:
    n_bytes = LOGIT_COPIES * rows * weights.vocabulary * 4
    return Line("logits", n_bytes, f"{LOGIT_COPIES} x {rows:,} rows x {weights.vocabulary:,} words x 4 B")


def _scaled(n_bytes: int, kept: Kept, tokens: int) -> int:
    return n_bytes * tokens // kept.tokens


def _per_token(n_bytes: int, kept: Kept, tokens: int) -> str:
    return f"{tokens:,} tokens x {n_bytes // kept.tokens:,} B"
