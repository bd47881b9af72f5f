"""Whether scoring still computes what sampling did, and one warning when it does not.

Until the first update of a step both run the same weights, so their log-probs differ by rounding alone.  A
larger difference makes every importance ratio wrong by as much.  It is measured in `ninegrid.gspo.update`;
here is where it is judged.  Training goes on in any case.

A mixture of experts adds a cause of its own: where two experts are nearly equal for a token, rounding decides
between them, and a pass that is laid out otherwise may decide otherwise.  How often that happens is not
counted: an expert's choice would have to be kept for every token and layer of every sampled pass, and led
back from rows of prefixes and trees to the tokens of each reply.  The difference holds its effect.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ninegrid.gspo.health import Row
from ninegrid.progress import say

LIMITS = {torch.float32: 0.001, torch.float16: 0.1, torch.bfloat16: 0.5}
"""The largest difference of a token's log-prob, in nats, that is put down to rounding, by number format.

Measured with SmolLM2 on the CPU, the largest of 550 tokens: 0.00002, 0.03 and 0.25.
"""


def limit_of(stated: float | None, dtype: torch.dtype) -> float:
    """The limit in force.

    Args:
        stated: ``train.max_logprob_diff``; None for the number format's own.
        dtype: of the weights.
    """
    return LIMITS.get(dtype, LIMITS[torch.bfloat16]) if stated is None else stated


def warn_beyond(rows: Sequence[Row], limit: float, *, experts: bool) -> None:
    """Say it when the newest step is the first of the run whose difference is beyond ``limit``.

    Args:
        rows: of all steps so far.
        limit: see `limit_of`.
        experts: the model has a router.
    """
    beyond = [row["step"] for row in rows if (row["train/logprob_diff"] or 0.0) > limit]
    if not beyond or beyond != [rows[-1]["step"]]:
        return
    router = "a router that picks other experts, " if experts else ""
    difference = rows[-1]["train/logprob_diff"]
    say(
        f"train_gspo: warning: at step {beyond[0]} a token's log-prob differs by {difference:.2g} between "
        f"sampling and scoring, the limit is {limit:g}; ratios are wrong by as much.  Likely causes: {router}"
        "weights of low precision or quantised, other kernels for other shapes.  Try model.dtype=float32; "
        "if it has to be so, raise train.max_logprob_diff.  This is said once"
    )


def has_router(config: object) -> bool:
    """Whether a transformers configuration is that of a mixture of experts."""
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    return any(getattr(config, name, None) for name in names)
