"""Passes over nodes beyond the trunk: all of them at once for scoring, or more and more while sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from ninegrid.tree.attention import Attending, Blocks, attend_to_tree
from ninegrid.tree.layout import lay_out
from ninegrid.tree.token_tree import Ints
from ninegrid.tree.trunk import Trunk


class _Views:
    """What the nodes of one pass see, for each window that layers of the model have.

    Args:
        paths: of the nodes, in the order in which they are run.
        trunk: tokens before them.
        groups: query heads to a key head.
        like: a tensor on the model's device, in its number format.
    """

    def __init__(self, paths: Ints, trunk: int, groups: int, like: Tensor) -> None:
        self._paths, self._trunk, self._groups, self._like = paths, trunk, groups, like
        self._made: dict[int | None, Blocks] = {}

    def of(self, window: int | None) -> Blocks:
        """The blocks for layers with this window."""
        if window is not None and window >= self._trunk + self._paths.shape[1]:
            window = None  # it reaches beyond the first token
        if window not in self._made:
            layout = lay_out(self._paths, self._trunk, window)
            self._made[window] = Blocks.of(layout, self._groups, self._like)
        return self._made[window]


class WholeTree(Attending):
    """Runs all nodes in one pass.

    Args:
        trunk: what all nodes see.
        paths: of all nodes, in the order in which they are run.
        groups: query heads to a key head.
        like: a tensor on the model's device, in its number format.
    """

    def __init__(self, trunk: Trunk, paths: Ints, groups: int, like: Tensor) -> None:
        self._trunk = trunk
        self._views = _Views(paths, len(trunk), groups, like)

    def attend(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attending.attend`."""
        trunk_keys, trunk_values = self._trunk.of_layer(layer, keys[0])
        all_keys = torch.cat([trunk_keys, keys[0]], dim=1)
        all_values = torch.cat([trunk_values, values[0]], dim=1)
        return attend_to_tree(query[0], all_keys, all_values, self._views.of(window), scale)[None]


class GrowingTree(Attending):
    """Runs nodes in several passes and remembers their keys and values.

    Args:
        trunk: what all nodes see.
        groups: query heads to a key head.
        like: a tensor on the model's device, in its number format.
    """

    def __init__(self, trunk: Trunk, groups: int, like: Tensor) -> None:
        self._trunk, self._groups, self._like = trunk, groups, like
        self._buffers: dict[tuple[int, int], Tensor] = {}
        self._views: _Views | None = None
        self._start = self._end = len(trunk)

    def extend(self, paths: Ints) -> None:
        """Say what the next pass runs: the nodes after those that have been run, with these ``paths``."""
        self._views = _Views(paths, len(self._trunk), self._groups, self._like)
        self._start, self._end = self._end, self._end + len(paths)

    def attend(
        self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None
    ) -> Tensor:
        """See `Attending.attend`."""
        assert self._views is not None
        trunk_keys, trunk_values = self._trunk.of_layer(layer, keys[0])
        all_keys = self._append((layer, 0), trunk_keys, keys[0])
        all_values = self._append((layer, 1), trunk_values, values[0])
        return attend_to_tree(query[0], all_keys, all_values, self._views.of(window), scale)[None]

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
