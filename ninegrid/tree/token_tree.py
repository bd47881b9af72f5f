"""The tree of distinct tokens of a batch of sequences.  Knows neither a model nor a tokenizer.

Sequences that begin alike share nodes, so the number of nodes is the number of distinct prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

ROOT = -1
"""Parent of the nodes at depth 0."""

Ints = NDArray[np.int64]


def common_length(sequences: Sequence[Sequence[int]]) -> int:
    """Length of the longest beginning that all sequences share."""
    plain = [tuple(sequence) for sequence in sequences]
    first, last = min(plain), max(plain)  # in lexical order: what these two share, all share
    pairs = enumerate(zip(first, last, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(last)))


class TokenTree:
    """An append-only tree of tokens; a parent always has a smaller index than its children."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._depths: list[int] = []
        self._children: dict[tuple[int, int], int] = {}
        self._paths: Ints = np.full((0, 0), ROOT, dtype=np.int64)
        self._filled = 0

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Ints:
        """Token of each node, [N]."""
        return np.asarray(self._tokens, dtype=np.int64)

    @property
    def parents(self) -> Ints:
        """Parent of each node, `ROOT` at depth 0, [N]."""
        return np.asarray(self._parents, dtype=np.int64)

    @property
    def depths(self) -> Ints:
        """Position of each node in its sequence, counted from 0, [N]."""
        return np.asarray(self._depths, dtype=np.int64)

    def child(self, parent: int, token: int) -> int:
        """The node for ``token`` after ``parent``, made if it is new."""
        node = self._children.get((parent, token))
        if node is None:
            node = len(self._tokens)
            self._children[parent, token] = node
            self._tokens.append(token)
            self._parents.append(parent)
            self._depths.append(0 if parent == ROOT else self._depths[parent] + 1)
        return node

    def add(self, tokens: Iterable[int], under: int = ROOT) -> list[int]:
        """Insert a sequence below ``under`` and return the node of each of its tokens."""
        path = []
        for token in tokens:
            under = self.child(under, token)
            path.append(under)
        return path

    def paths(self, start: int = 0) -> Ints:
        """The path from the root to each node from ``start`` on: what that node sees.

        [N - start, D], where D is one more than the greatest depth; column d holds the node at depth
        d of the path, `ROOT` beyond its end.  The caller must not write to it.
        """
        self._fill_paths()
        return self._paths[start : len(self), : max(self._depths, default=-1) + 1]

    def _fill_paths(self) -> None:
        new = np.arange(self._filled, len(self))
        if not len(new):
            return
        parents, depths = np.asarray(self._parents[self._filled :]), np.asarray(self._depths[self._filled :])
        self._make_room(len(self), int(depths.max()) + 1)
        for depth in np.unique(depths):  # a level at a time: the parents' paths are there by then
            nodes = new[depths == depth]
            if depth > 0:
                self._paths[nodes, :depth] = self._paths[parents[depths == depth], :depth]
            self._paths[nodes, depth] = nodes
        self._filled = len(self)

    def _make_room(self, nodes: int, depth: int) -> None:
        rows, columns = self._paths.shape
        if nodes > rows or depth > columns:
            grown = np.full((max(rows, 2 * nodes), max(columns, depth + 16)), ROOT, dtype=np.int64)
            grown[:rows, :columns] = self._paths
            self._paths = grown
