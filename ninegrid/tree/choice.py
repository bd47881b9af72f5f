"""Which engine a model can use, told from its configuration.

The tree needs attention in every layer that obeys a mask given from outside, and positions that are told by
``position_ids``.  Recurrent (linear-attention) layers have no mask at all.
"""

from __future__ import annotations

from typing import Any

from ninegrid.errors import SettingsError
from ninegrid.tree.attention import IMPLEMENTATION
from ninegrid.tree.engine import Engine
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.scan import sum_in_order
from ninegrid.tree.settings import EngineSettings
from ninegrid.tree.tree_engine import TreeEngine

TREE_ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3", "mistral", "smollm3", "gemma3_text"})
"""Model types whose layers are known to take a tree mask, and to say which window they have."""

TREE_LAYERS = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers that can run on the tree."""

MASKED_ATTENTION = frozenset({"sdpa", "eager", IMPLEMENTATION})


def obstacle(config: Any) -> str | None:
    """Why the architecture cannot run on the tree, or None when it can."""
    others = set(getattr(config, "layer_types", None) or []) - TREE_LAYERS
    if others:
        return f"it has layers of type {', '.join(sorted(others))}"
    if config.model_type not in TREE_ARCHITECTURES:
        return f"architecture {config.model_type} is not known to take a tree mask"
    if getattr(config, "use_bidirectional_attention", False):
        return "its tokens see those after them"
    if config._attn_implementation not in MASKED_ATTENTION:
        return f"attention implementation {config._attn_implementation} takes no mask from outside"
    return None


def choose_engine(model: Any, settings: EngineSettings, *, checkpoint_layers: bool = False) -> Engine:
    """The engine that ``settings.path`` asks for.

    Args:
        model: a transformers model.
        settings: of the engine.
        checkpoint_layers: recompute the layers in the backward pass; see `ninegrid.tree.recompute`.

    Raises:
        SettingsError: the tree is forced for a model that cannot run on it.
    """
    why_not = obstacle(model.config)
    if settings.path == "tree" and why_not is not None:
        raise SettingsError(f"engine.path = 'tree', but {why_not}", hint="use engine.path=auto")
    if model.device.type == "cuda":
        sum_in_order(model)  # or linear attention would not run under deterministic algorithms
    use_tree = settings.path == "tree" or (settings.path == "auto" and why_not is None)
    engine = TreeEngine if use_tree else PaddedEngine
    return engine(model, checkpoint_layers=checkpoint_layers)
