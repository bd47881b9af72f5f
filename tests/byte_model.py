"""A tiny random Llama that reads and writes single bytes: any text, a small vocabulary, quick steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.model_files import vocabulary
from tests.talker import teach_to_stop

STOP = "<|im_end|>"


def write_byte_model(folder: Path, seed: int = 0, replies: Sequence[str] = ()) -> Path:
    """Write the model into ``folder`` as a transformers folder.

    Each of ``replies`` becomes a token, and if there are any, the model is taught to say one and stop.
    """
    byte_tokens = [token for token in vocabulary() if len(token) == 1]
    raw = Tokenizer(BPE({token: index for index, token in enumerate(byte_tokens)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_tokens([AddedToken(reply, normalized=False) for reply in replies])
    raw.add_special_tokens(["<|im_start|>", STOP])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=STOP, pad_token=STOP)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    if replies:
        teach_to_stop(model, tokenizer, replies)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
