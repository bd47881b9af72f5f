"""The call's format, forced: which tokens can still become one valid call of an offered tool.

The format is the chat template's, found by letting it write a call; argument values are what the tool's JSON
schema allows.  Masks over the vocabulary come from llguidance.  It also keeps a text that is already decided
to the tokens by which the tokenizer itself writes it, which is what the policy saw in its prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from numpy.typing import NDArray

from ninegrid.errors import CannotForceError
from ninegrid.tasks.protocol import Json, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEPARATORS = ((",", ":"), (", ", ": "))
"""Between the members of a JSON object and after a key: the ways in which templates write them."""

PROBE = {"first": 5, "second": 6}
"""Arguments by which a template is asked how it writes a call."""

KEPT = 1024
"""Masks that are remembered, one byte for each token of the vocabulary."""

HINT = "leave what forces the call out of alternatives.names"


@dataclass(frozen=True)
class CallForm:
    """How a call of one tool is written.

    Attributes:
        name: the tool's.
        before, after: the text around the arguments, markers included.
        item_separator, key_separator: of the arguments' JSON.
        schema: JSON schema of the arguments.
    """

    name: str
    before: str
    after: str
    item_separator: str
    key_separator: str
    schema: Json


def call_form(tool: Json, write: Callable[[ToolCall], str]) -> CallForm:
    """Find how calls of ``tool`` are written.

    Args:
        tool: in the OpenAI function format.
        write: a call as the chat template writes it, markers included.

    Raises:
        CannotForceError: its arguments are in none of the known ways.
    """
    function = tool["function"]
    text = write(ToolCall(function["name"], PROBE))
    for separators in SEPARATORS:
        before, found, after = text.partition(json.dumps(PROBE, separators=separators))
        if found:
            return CallForm(function["name"], before, after, *separators, function.get("parameters", {}))
    raise CannotForceError(f"the chat template writes a call in an unknown way: {text!r}", hint=HINT)


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
        lines.append(f"call_{i}: {json.dumps(form.before)} arguments_{i} {json.dumps(form.after)}")
        lines.append(f"arguments_{i}: %json {json.dumps(_arguments(form))}")
    return "\n".join(lines)


def _arguments(form: CallForm) -> dict[str, Any]:
    """The schema of the arguments, which are always an object, and how they are written."""
    style = {
        "item_separator": form.item_separator,
        "key_separator": form.key_separator,
        "whitespace_flexible": False,
    }
    return {"type": "object", **form.schema, "x-guidance": style}


def _first_line(error: str) -> str:
    return error.strip().splitlines()[0] if error.strip() else "no token is left"
