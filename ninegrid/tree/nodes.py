"""Passes over nodes beyond the trunk: all of them at once for scoring, or more and more while sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from ninegrid.tree.attention import Attending, Blocks, attend_to_tree
from ninegrid.tree.layout import lay_out
from ninegrid.tree.token_tree import Ints
from ninegrid.tree.trunk import Trunk


class WholeTree(Attending):
    """Runs all nodes in one pass.

    Args:
        trunk: what all nodes see.
        paths: of all nodes, in the order in which they are run.
        like: a tensor on the model's device, in its number format.
    """

    def __init__(self, trunk: Trunk, paths: Ints, like: Tensor) -> None:
        self._trunk = trunk
        self._blocks = Blocks.of(lay_out(paths, len(trunk)), like)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """See `Attending.attend`."""
        before = self._trunk.of_layer(layer, keys[0])
        every = (torch.cat([old, new], dim=1) for old, new in zip(before, (keys[0], values[0]), strict=True))
        return attend_to_tree(query[0], *every, self._blocks, scale)[None]


class GrowingTree(Attending):
    """Runs nodes in several passes and remembers their keys and values.

    Args:
        trunk: what all nodes see.
        like: a tensor on the model's device, in its number format.
    """

    def __init__(self, trunk: Trunk, like: Tensor) -> None:
        self._trunk, self._like = trunk, like
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self._blocks: Blocks | None = None
        self._start = self._end = len(trunk)

    def extend(self, paths: Ints) -> None:
        """Say what the next pass runs: the nodes after those that have been run, with these ``paths``."""
        self._blocks = Blocks.of(lay_out(paths, len(self._trunk)), self._like)
        self._start, self._end = self._end, self._end + len(paths)

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """See `Attending.attend`."""
        assert self._blocks is not None
        before = self._trunk.of_layer(layer, keys[0])
        every = (
            self._append((layer, kind), old, new[0])
            for kind, (old, new) in enumerate(zip(before, (keys, values), strict=True))
        )
        return attend_to_tree(query[0], *every, self._blocks, scale)[None]

    def _append(self, which: tuple[int, int], trunk_KPD: Tensor, new_KLD: Tensor) -> Tensor:
        """Add new nodes to a buffer that doubles, so that a pass copies no old ones."""
        buffer = self._buffers.get(which)
        if buffer is None or buffer.shape[1] < self._end:
            old = trunk_KPD if buffer is None else buffer[:, : self._start]
            buffer = new_KLD.new_empty(new_KLD.shape[0], 2 * self._end, new_KLD.shape[2])
            buffer[:, : self._start] = old
            self._buffers[which] = buffer
        buffer[:, self._start : self._end] = new_KLD
        return buffer[:, : self._end]
