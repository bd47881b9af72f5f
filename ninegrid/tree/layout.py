"""Which keys the nodes of one pass must be compared with, cut into small dense blocks.

A full mask of N rows by N columns is nearly empty when a batch holds many boards: a node sees the
trunk and its own path, and no other branch.  Rows that stand close together in the tree see nearly
the same nodes.  So the rows are put in depth-first order and cut into blocks of equal height, and a
block is compared with the trunk and the union of its rows' paths only.  Numpy alone; no model is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninegrid.tree.token_tree import ROOT, Ints

HEIGHTS = (16, 32, 64, 128, 256)
"""Block heights that are considered."""

COLUMN_COST = 24
"""What fetching a column costs, in comparisons of one row with it."""


@dataclass(frozen=True)
class Layout:
    """L rows in B blocks of M slots, each block with C columns.

    Attributes:
        row_BM: the row in each slot; slots beyond the last row hold a row again, which nobody reads.
        slot_L: the slot, block · M + place in it, of each row.
        column_BC: the columns each block is compared with: first the trunk's P tokens (with a window, those
            that some row sees), then nodes, node n as column P + n; where a block has fewer, one of its own
            again, unseen.
        sees_BMC: whether the row in a slot sees a column.
    """

    row_BM: Ints
    slot_L: Ints
    column_BC: Ints
    sees_BMC: NDArray[np.bool_]


def lay_out(paths_LD: Ints, trunk: int, window: int | None = None) -> Layout:
    """Lay out L > 0 rows with the given paths (see `TokenTree.paths`) after a trunk of so many tokens.

    Args:
        paths_LD: of the rows.
        trunk: tokens before them.
        window: positions that a row sees, its own among them; None for all.
    """
    n_rows = len(paths_LD)
    order = np.lexsort(paths_LD.T[::-1])  # by the first node of the path, then the second: depth first
    sorted_LD = paths_LD[order]
    begin_L = _first_seen(paths_LD, trunk, window)
    start = min(int(begin_L.min()), trunk)
    height = _best_height(sorted_LD, trunk - start)
    starts = range(0, n_rows, height)
    row_BM = np.resize(order, (len(starts), height))  # beyond the end it begins again
    slot_L = np.empty(n_rows, dtype=np.int64)
    slot_L[order] = np.arange(n_rows)
    blocks = [_columns(paths_LD[rows]) for rows in row_BM]
    width = max(map(len, blocks))
    column_BC = np.stack([np.resize(nodes, width) for nodes in blocks]) + trunk
    trunk_P = np.arange(start, trunk)
    sees_BMC = np.zeros((len(starts), height, len(trunk_P) + width), dtype=np.bool_)
    sees_BMC[:, :, : len(trunk_P)] = trunk_P >= begin_L[row_BM][..., None]
    for index, (rows, nodes) in enumerate(zip(row_BM, blocks, strict=True)):
        near = (paths_LD[rows] != ROOT) & (trunk + np.arange(paths_LD.shape[1]) >= begin_L[rows][:, None])
        place, depth = np.nonzero(near)
        sees_BMC[index, place, len(trunk_P) + np.searchsorted(nodes, paths_LD[rows][place, depth])] = True
    before = np.broadcast_to(trunk_P, (len(starts), len(trunk_P)))
    return Layout(row_BM, slot_L, np.concatenate([before, column_BC], axis=1), sees_BMC)


def _first_seen(paths_LD: Ints, trunk: int, window: int | None) -> Ints:
    """The first position that each row sees, [L]."""
    if window is None:
        return np.zeros(len(paths_LD), dtype=np.int64)
    own_L = trunk + (paths_LD != ROOT).sum(axis=1) - 1
    return np.maximum(own_L - window + 1, 0)


def _best_height(sorted_LD: Ints, trunk: int) -> int:
    """The height whose blocks cost least."""
    n_rows = len(sorted_LD)
    length_L = (sorted_LD != ROOT).sum(axis=1)
    common_L = np.zeros(n_rows, dtype=np.int64)  # nodes shared with the row before
    same = (sorted_LD[1:] == sorted_LD[:-1]) & (sorted_LD[1:] != ROOT)
    common_L[1:] = np.cumprod(same, axis=1).sum(axis=1)
    # In depth-first order a row adds to its block's union what it does not share with the row before.
    added = np.cumsum(length_L - common_L)

    def cost(height: int) -> int:
        first = np.arange(0, n_rows, height)
        last = np.minimum(first + height, n_rows) - 1
        widest = trunk + int((added[last] - added[first] + length_L[first]).max())
        return len(first) * widest * (height + COLUMN_COST)

    return min((min(h, n_rows) for h in HEIGHTS), key=cost)


def _columns(paths_MD: Ints) -> Ints:
    """The distinct nodes on some paths, sorted."""
    nodes: Ints = np.unique(paths_MD)
    return nodes[nodes != ROOT]
