"""Plain padded batches: the reference for the tree, and the path for models without tree masks.

Layers that carry a recurrent state (linear attention) cannot see "ancestors only".  While sampling, what
prefixes share is run once, and the state is copied where they part; no padding goes through the model,
since inside a sequence it would change the state.  While scoring, every sequence is run from its start
and padded on its right, where nothing that is read comes after it.
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
from ninegrid.tree.prefixes import Prefixes, join, repeat
from ninegrid.tree.recompute import recomputed
from ninegrid.tree.trunk import shared_beginning

PAD = 0
"""Any valid id: padding is known by the mask, never by the token."""


class PaddedEngine:
    """The `Engine` that gives each sequence a row of its own.

    Args:
        model: a transformers model.
        checkpoint_layers: recompute the layers in the backward pass; see `ninegrid.tree.recompute`.
    """

    name = "padded"

    def __init__(self, model: Any, *, checkpoint_layers: bool = False) -> None:
        self._model = model
        self._head = output_head(model)
        self._recompute = checkpoint_layers

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
        """One completion for each request, a row for each distinct prefix that is not finished."""
        prompts = [tuple(request.prompt) for request in requests]
        distinct = list(dict.fromkeys(prompts))
        prefixes = self._run_prompts(distinct)
        drafts = [Draft() for _ in requests]
        live, row_S = list(range(len(requests))), [distinct.index(prompt) for prompt in prompts]
        for position in range(max_new_tokens):
            logits, standing = restrict(
                self._head(prefixes.hidden_RH),
                row_S,
                [requests[s].constraint for s in live],
                [drafts[s].tokens for s in live],
            )
            uniform = np.asarray([requests[s].uniform(position) for s in live])
            drawn = draw_tokens(logits, standing, uniform, temperature)
            tokens = [drafts[s].take(drawn, i) for i, s in enumerate(live)]
            going = [i for i, s in enumerate(live) if not drafts[s].finished(stop, max_new_tokens)]
            if not going:
                break
            live = [live[i] for i in going]
            prefixes, row_S = self._step(prefixes, [(row_S[i], tokens[i]) for i in going])
        return [draft.done(stop) for draft in drafts]

    def _run_prompts(self, prompts: Sequence[Tokens]) -> Prefixes:
        """Run distinct prompts, what all of them share once, and those of one length together; in order."""
        shared = shared_beginning(prompts) if len(prompts) > 1 else []
        trunk = self._start([shared]) if shared else None
        lengths = np.array([len(prompt) for prompt in prompts])
        groups = [np.flatnonzero(lengths == length).tolist() for length in np.unique(lengths)]
        parts = []
        for members in groups:
            rest = [prompts[i][len(shared) :] for i in members]
            if trunk is None:
                parts.append(self._start(rest))
            else:
                cache, mask_RL = repeat(trunk.cache, len(rest)), trunk.mask_RL.expand(len(rest), -1)
                parts.append(self._extend(Prefixes(trunk.hidden_RH, cache, mask_RL), rest))
        place = np.argsort(np.concatenate(groups))
        return join(parts).choose(place.tolist())

    def _start(self, sequences: Sequence[Tokens]) -> Prefixes:
        """Run sequences of one length from their beginning."""
        nothing = torch.zeros(len(sequences), 0, dtype=torch.long, device=self._model.device)
        return self._extend(Prefixes(nothing, None, nothing), sequences)

    def _step(self, prefixes: Prefixes, steps: Sequence[tuple[int, int]]) -> tuple[Prefixes, list[int]]:
        """Run the token of each step after the row it names; equal steps once.

        Returns:
            The new prefixes, and which of them each step led to.
        """
        distinct = list(dict.fromkeys(steps))
        chosen = prefixes.choose([row for row, _ in distinct])
        return self._extend(chosen, [[token] for _, token in distinct]), [distinct.index(s) for s in steps]

    def _extend(self, prefixes: Prefixes, tokens: Sequence[Tokens]) -> Prefixes:
        """Run as many more tokens of each prefix."""
        ids = torch.tensor(tokens, device=self._model.device)
        mask_RL = torch.cat([prefixes.mask_RL, torch.ones_like(ids)], dim=1)
        positions = prefixes.lengths[:, None] + torch.arange(ids.shape[1], device=ids.device)
        output = self._model.base_model(
            input_ids=ids,
            attention_mask=mask_RL,
            position_ids=positions,
            cache=prefixes.cache,
            use_cache=True,
        )
        return Prefixes(output.last_hidden_state[:, -1], output.cache, mask_RL)

    def logprobs(
        self, prompts: Sequence[Tokens], completions: Sequence[Tokens], temperature: float
    ) -> Tensor:
        """See `Engine.logprobs`."""
        sequences = [[*p, *c] for p, c in zip(prompts, completions, strict=True)]
        length = max(map(len, sequences))
        device = self._model.device
        ids = torch.tensor([s + [PAD] * (length - len(s)) for s in sequences], device=device)
        mask = torch.tensor([[1] * len(s) + [0] * (length - len(s)) for s in sequences], device=device)
        with recomputed(self._model, self._recompute):
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
