"""A tiny model that talks in whole tool calls, so that tests have something to learn from.

Its vocabulary holds complete replies as single tokens, and it has been taught to say one and stop: every
kind of outcome turns up at once, and a few optimiser steps visibly change which.  Everything else about it is
ordinary: a Llama of some ten thousand weights and a tokenizer in a folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def _call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


REPLIES = (
    *(_call("choose_square", square=square) for square in range(1, 10)),
    _call("choose_square", square=0),
    _call("other_tool", square=1),
    _call("pick", which="first"),
    _call("pick", which="second"),
    "I would rather not.",
)
WORDS = ("<unk>", *"123456789XO.", "system", "user", "assistant", "first", "second", ",")
STOP = "<|im_end|>"


def write_talker(
    folder: Path,
    seed: int = 0,
    replies: Sequence[str] = REPLIES,
    said: Sequence[str] | None = None,
    sharpness: float = 1.0,
) -> Path:
    """Write the model into ``folder`` as a transformers folder.

    Args:
        replies: the complete replies that are single tokens.
        said: those of them that it is taught to say, if not all.
        sharpness: multiplies its logits.
    """
    tokenizer = talker_tokenizer(replies)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    teach_to_stop(model, tokenizer, replies if said is None else said)
    with torch.no_grad():
        model.lm_head.weight.mul_(sharpness)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def talker_tokenizer(replies: Sequence[str] = REPLIES) -> PreTrainedTokenizerFast:
    """A tokenizer of some words, with complete ``replies`` as single tokens."""
    words = {word: index for index, word in enumerate(WORDS)}
    raw = Tokenizer(WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = Whitespace()
    raw.add_tokens([AddedToken(reply, normalized=False) for reply in replies])
    raw.add_special_tokens(["<|im_start|>", STOP])
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=STOP, pad_token=STOP)


def teach_to_stop(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, replies: Sequence[str]
) -> None:
    """After anything at all: some reply, then the stop token.  Which reply is left open."""
    ids = torch.tensor(tokenizer.convert_tokens_to_ids(list(replies)))
    stop = torch.full((32, 1), tokenizer.eos_token_id)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(80):
        before = torch.randint(0, len(tokenizer), (32, int(torch.randint(4, 90, ()))))
        reply = ids[torch.randint(0, len(ids), (32, 1))]
        logits = model(torch.cat([before, reply], dim=1)).logits[:, -2:]
        wanted = torch.cat([reply, stop], dim=1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        optimizer.step()
