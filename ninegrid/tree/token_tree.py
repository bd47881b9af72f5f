"""The distinct tokens of a batch of sequences, as a tree.

A node is a token together with everything before it; sequences that begin alike share nodes.
The tree knows no model and no torch: it answers which nodes there are, where each stands, and
which nodes each may attend to.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

ROOT = -1
"""Parent of the nodes at depth 0."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class TokenTree:
    """An append-only tree of tokens; a parent always has a smaller index than its children."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._depths: list[int] = []
        self._children: dict[tuple[int, int], int] = {}
        self._sees: Bools = np.zeros((0, 0), dtype=np.bool_)
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

    def attends(self, start: int = 0) -> Bools:
        """Which nodes the nodes from ``start`` on see: themselves and their ancestors.

        [N - start, N], row sees column.  The caller must not write to it.
        """
        n = len(self)
        if n > len(self._sees):
            grown = np.zeros((2 * n, 2 * n), dtype=np.bool_)
            grown[: self._filled, : self._filled] = self._sees[: self._filled, : self._filled]
            self._sees = grown
        for node in range(self._filled, n):
            parent = self._parents[node]
            if parent != ROOT:
                self._sees[node, : parent + 1] = self._sees[parent, : parent + 1]
            self._sees[node, node] = True
        self._filled = n
        return self._sees[start:n, :n]
