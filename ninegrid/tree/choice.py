"""Which engine a model can use, told from its configuration.

The tree needs attention in every layer that obeys a mask given from outside, and positions that
are told by ``position_ids``; recurrent (linear-attention) layers have no mask at all, and a sliding
window counts distance in the packed sequence, where neighbours are not neighbours in time.
"""

from __future__ import annotations

from typing import Any

from ninegrid.errors import SettingsError
from ninegrid.tree.attention import IMPLEMENTATION
from ninegrid.tree.engine import Engine
from ninegrid.tree.padded_engine import PaddedEngine
from ninegrid.tree.settings import EngineSettings
from ninegrid.tree.tree_engine import TreeEngine

TREE_ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3", "mistral", "smollm3"})
"""Model types whose layers are known to take a tree mask (rotary positions, plain logits)."""

MASKED_ATTENTION = frozenset({"sdpa", "eager", IMPLEMENTATION})


def obstacle(config: Any) -> str | None:
    """Why the architecture cannot run on the tree, or None when it can."""
    if config.model_type not in TREE_ARCHITECTURES:
        return f"architecture {config.model_type} is not known to take a tree mask"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        return f"it has layers of type {', '.join(sorted(kinds - {'full_attention'}))}"
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return "its attention has a sliding window"
    if config._attn_implementation not in MASKED_ATTENTION:
        return f"attention implementation {config._attn_implementation} takes no mask from outside"
    return None


def choose_engine(model: Any, settings: EngineSettings) -> Engine:
    """The engine that ``settings.path`` asks for.

    Raises:
        SettingsError: the tree is forced for a model that cannot run on it.
    """
    why_not = obstacle(model.config)
    if settings.path == "tree" and why_not is not None:
        raise SettingsError(f"engine.path = 'tree', but {why_not}", hint="use engine.path=auto")
    use_tree = settings.path == "tree" or (settings.path == "auto" and why_not is None)
    return TreeEngine(model) if use_tree else PaddedEngine(model)
