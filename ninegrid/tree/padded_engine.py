"""Plain padded batches: the reference for the tree, and the path for models without tree masks.

Layers that carry a recurrent state (linear attention) cannot see "ancestors only", but they do
handle left padding while sampling and right padding while scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ninegrid.tree.constraint import restrict
from ninegrid.tree.draw import draw_tokens
from ninegrid.tree.engine import (
    Completion,
    Draft,
    Loss,
    Pass,
    Request,
    Tokens,
    output_head,
    split,
    target_logprobs,
)

PAD = 0
"""Any valid id: padding is known by the mask, never by the token."""


class PaddedEngine:
    """The `Engine` that gives each sequence a row of its own."""

    name = "padded"

    def __init__(self, model: Any) -> None:
        self._model = model
        self._head = output_head(model)

    @torch.no_grad()
    def sample(
        self, requests: Sequence[Request], *, stop: frozenset[int], max_new_tokens: int, temperature: float
    ) -> list[Completion]:
        """See `Engine.sample`.

        What follows a completion is a row of the next batch, computed from its start.
        """
        last: dict[int, Completion] = {}
        waiting = dict(enumerate(requests))
        while waiting:
            drawn = self._sample_batch(list(waiting.values()), stop, max_new_tokens, temperature)
            last |= dict(zip(waiting, drawn, strict=True))
            following = {slot: waiting[slot].next(last[slot]) for slot in waiting}
            waiting = {slot: request for slot, request in following.items() if request is not None}
        return [last[slot] for slot in range(len(requests))]

    def _sample_batch(
        self, requests: Sequence[Request], stop: frozenset[int], max_new_tokens: int, temperature: float
    ) -> list[Completion]:
        ids_SL, mask_SL = self._left_padded([request.prompt for request in requests])
        position_S = mask_SL.sum(-1) - 1
        drafts = [Draft() for _ in requests]
        live = list(range(len(requests)))
        hidden_SH, cache = self._step(ids_SL, mask_SL, (mask_SL.cumsum(-1) - 1).clamp(min=0), None)
        for position in range(max_new_tokens):
            uniform = np.asarray([requests[s].uniform(position) for s in live])
            logits, rows = restrict(
                self._head(hidden_SH[live]),
                range(len(live)),
                [requests[s].constraint for s in live],
                [drafts[s].tokens for s in live],
            )
            drawn = draw_tokens(logits, rows, uniform, temperature)
            next_S = torch.full_like(position_S, PAD)
            for i, sample in enumerate(live):
                next_S[sample] = drafts[sample].take(drawn, i)
            live = [s for s in live if not drafts[s].finished(stop, max_new_tokens)]
            if not live:
                break
            position_S = position_S + 1
            mask_SL = torch.cat([mask_SL, torch.ones_like(mask_SL[:, :1])], dim=1)
            hidden_SH, cache = self._step(next_S[:, None], mask_SL, position_S[:, None], cache)
        return [draft.done(stop) for draft in drafts]

    def logprobs(
        self, prompts: Sequence[Tokens], completions: Sequence[Tokens], temperature: float
    ) -> Tensor:
        """See `Engine.logprobs`."""
        sequences = [[*p, *c] for p, c in zip(prompts, completions, strict=True)]
        length = max(map(len, sequences))
        device = self._model.device
        ids = torch.tensor([s + [PAD] * (length - len(s)) for s in sequences], device=device)
        mask = torch.tensor([[1] * len(s) + [0] * (length - len(s)) for s in sequences], device=device)
        hidden_SLH = self._model.base_model(
            input_ids=ids, attention_mask=mask, use_cache=False
        ).last_hidden_state
        sample_E, slot_E, source_E = _completion_positions(prompts, completions, device)
        target_E = ids[sample_E, source_E + 1]
        rows = torch.arange(len(sample_E), device=device)
        logp_E = target_logprobs(hidden_SLH[sample_E, source_E], self._head, rows, target_E, temperature)
        out = logp_E.new_zeros(len(sequences), max(map(len, completions)))
        return out.index_put((sample_E, slot_E), logp_E)

    def backward(
        self,
        prompts: Sequence[Tokens],
        completions: Sequence[Tokens],
        temperature: float,
        budget: int,
        loss: Loss,
    ) -> int:
        """See `Engine.backward`."""
        passes = self.passes(prompts, completions, budget)
        for part in passes:
            chosen = slice(part.members.start, part.members.stop)
            new_ST = self.logprobs(prompts[chosen], completions[chosen], temperature)
            loss(part.members, new_ST).backward()  # type: ignore[no-untyped-call]
        return sum(part.tokens for part in passes)

    def passes(self, prompts: Sequence[Tokens], completions: Sequence[Tokens], budget: int) -> list[Pass]:
        """See `Engine.passes`."""
        lengths = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
        passes: list[Pass] = []
        start = 0
        for stop in range(1, len(lengths) + 1):
            full = stop == len(lengths) or (stop + 1 - start) * max(lengths[start : stop + 1]) > budget
            if full:
                passes.append(Pass(range(start, stop), (stop - start) * max(lengths[start:stop])))
                start = stop
        return passes

    def batches(self, prompts: Sequence[Tokens], width: int, max_new_tokens: int, budget: int) -> list[range]:
        """See `Engine.batches`."""
        longest = max(map(len, prompts), default=0)  # shorter prompts are padded
        return split(len(prompts), lambda first, index: width * (longest + max_new_tokens), budget)

    def state(self) -> list[list[int]]:
        """See `Engine.state`: nothing is remembered."""
        return []

    def load(self, state: list[list[int]]) -> None:
        """See `Engine.load`."""

    def release(self) -> None:
        """See `Engine.release`."""

    def _left_padded(self, prompts: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
        """Ids and mask of the prompts, right-aligned, [S, L] each."""
        length = max(map(len, prompts))
        device = self._model.device
        ids = torch.tensor([[PAD] * (length - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts], device=device)
        return ids, mask

    def _step(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Run new tokens and return the last hidden state of each row [S, H], and the cache."""
        output = self._model.base_model(
            input_ids=ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True
        )
        return output.last_hidden_state[:, -1], output.cache


def _completion_positions(
    prompts: Sequence[Tokens], completions: Sequence[Tokens], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """For every completion token: its sample, its slot, and the position that predicts it, [E] each."""
    sample, slot, source = [], [], []
    for s, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        for t in range(len(completion)):
            sample.append(s)
            slot.append(t)
            source.append(len(prompt) + t - 1)
    return tuple(torch.tensor(x, device=device) for x in (sample, slot, source))  # type: ignore[return-value]
