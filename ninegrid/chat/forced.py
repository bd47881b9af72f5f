"""The call's format, forced: which tokens can still become one valid call of an offered tool.

The format is the chat template's (`ninegrid.chat.forms`); argument values are what the tool's JSON schema
allows.  Masks over the vocabulary come from llguidance.  It also keeps a text that is already decided
to the tokens by which the tokenizer itself writes it, which is what the policy saw in its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from numpy.typing import NDArray

from ninegrid.chat.forms import HINT, CallForm
from ninegrid.errors import CannotForceError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KEPT = 1024
"""Masks that are remembered, one byte for each token of the vocabulary."""


class ForcedCall:
    """A `ninegrid.tree.constraint.Constraint`: one call, then a token that stops the reply.

    Args:
        tokenizer: a fast one.
        forms: of the tools that may be called.
        stop_ids: tokens that end a reply.

    Raises:
        CannotForceError: the library cannot express a schema, or the tokenizer cannot write a call.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, forms: Sequence[CallForm], stop_ids: frozenset[int]
    ) -> None:
        vocabulary = _vocabulary(tokenizer, stop_ids)
        for form in forms:
            _check(form, vocabulary)
        self._start = _matcher(vocabulary, forms)
        self._remembered = lru_cache(KEPT)(self._mask)

    def allowed(self, sampled: Sequence[int]) -> NDArray[np.bool_]:
        """Tokens of the tokenizer's vocabulary that may follow ``sampled``, [V]; not to be written to.

        Raises:
            ValueError: ``sampled`` is no beginning of a call.
        """
        return self._remembered(tuple(sampled))

    def _mask(self, sampled: tuple[int, ...]) -> NDArray[np.bool_]:
        matcher = self._start.deep_copy()
        if not matcher.consume_tokens(list(sampled)):
            raise ValueError(f"the tokens {list(sampled)} are no beginning of a call")
        mask = np.frombuffer(matcher.compute_logit_bias(), dtype=np.uint8) > 0
        if matcher.is_error() or not mask.any():
            raise CannotForceError(
                f"a forced call cannot go on: {_first_line(matcher.get_error())}", hint=HINT
            )
        return mask


def _vocabulary(tokenizer: PreTrainedTokenizerBase, stop_ids: frozenset[int]) -> LLTokenizer:
    """The tokenizer as the library reads it."""
    try:
        return from_tokenizer(cast(Any, tokenizer), eos_token=sorted(stop_ids))
    except ValueError as error:
        raise CannotForceError(
            f"the grammar library cannot read the tokenizer: {error}", hint=HINT
        ) from error


def _check(form: CallForm, vocabulary: LLTokenizer) -> None:
    """Make sure that calls of one tool can be forced."""
    error = _matcher(vocabulary, [form]).get_error()
    if error:
        raise CannotForceError(
            f"the schema of tool {form.name!r} cannot be forced: {_first_line(error)}", hint=HINT
        )
    text = form.before + form.after
    if vocabulary.decode_bytes(vocabulary.tokenize_str(text)) != text.encode():
        raise CannotForceError(f"the tokenizer cannot write {text!r}", hint=HINT)


def _matcher(vocabulary: LLTokenizer, forms: Sequence[CallForm]) -> LLMatcher:
    return LLMatcher(vocabulary, LLMatcher.grammar_from_lark(_grammar(forms)), log_level=0)


def _grammar(forms: Sequence[CallForm]) -> str:
    """All calls in the library's dialect of Lark, whose strings are JSON's."""
    lines = ["start: " + " | ".join(f"call_{i}" for i in range(len(forms)))]
    for i, form in enumerate(forms):
        lines += form.grammar(f"call_{i}")
    return "\n".join(lines)


def _first_line(error: str) -> str:
    return error.strip().splitlines()[0] if error.strip() else "no token is left"
