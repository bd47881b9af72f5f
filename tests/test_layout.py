"""Blocks of rows and columns: every row sees its path and nothing else, whatever the tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninegrid.tree import layout
from ninegrid.tree.layout import lay_out
from ninegrid.tree.token_tree import ROOT, TokenTree

TREES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=30)


def tree_of(sequences):
    tree = TokenTree()
    for sequence in sequences:
        tree.add(sequence)
    return tree


def seen(found, row):
    """The columns that a row sees, read out of the blocks."""
    block, place = divmod(int(found.slot_L[row]), found.sees_BMC.shape[1])
    assert found.row_BM[block, place] == row
    return sorted(found.column_BC[block][found.sees_BMC[block, place]].tolist())


def test_two_boards_by_hand():
    # Nodes: 1 -> 0, 2 -> 1, 3 -> 2 (path 0 1 2), and 4 -> 3, 5 -> 4 on a branch of their own.
    paths = tree_of([[1, 2, 3], [4, 5]]).paths()
    found = lay_out(paths, 0)
    assert [seen(found, row) for row in range(5)] == [[0], [0, 1], [0, 1, 2], [3], [3, 4]]
    # After a trunk of two tokens, columns 0 and 1, node n is column n + 2.
    found = lay_out(paths[1:], 2)
    assert [seen(found, row) for row in range(4)] == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 5], [0, 1, 5, 6]]


@pytest.mark.parametrize("height", [1, 2, 3, 64])
def test_every_height_shows_every_row_its_path(monkeypatch, height):
    monkeypatch.setattr(layout, "HEIGHTS", (height,))

    @given(TREES, st.integers(0, 10), st.integers(0, 3))
    def check(sequences, start, trunk):
        tree = tree_of(sequences)
        paths = tree.paths(min(start, len(tree) - 1))
        found = lay_out(paths, trunk)
        assert len(set(found.slot_L.tolist())) == len(paths)
        for row, path in enumerate(paths):
            assert seen(found, row) == [*range(trunk), *(path[path != ROOT] + trunk)]

    check()


def test_a_window_by_hand():
    # As above after a trunk of two: positions 0 1 | 2 3 4 on one branch and 2 3 on the other.
    found = lay_out(tree_of([[1, 2, 3], [4, 5]]).paths(), 2, window=3)
    # A node at position p sees p - 2 to p.
    assert [seen(found, row) for row in range(5)] == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 1, 5], [1, 5, 6]]
    # Of a trunk of ten, whose nodes stand at 10 to 12, nothing before position 8 is fetched.
    found = lay_out(tree_of([[1, 2, 3], [4, 5]]).paths(), 10, window=3)
    assert found.column_BC.min() == 8


@given(TREES, st.integers(0, 10), st.integers(0, 5), st.integers(1, 12))
def test_a_window_shows_the_last_positions_of_what_is_seen_without(sequences, start, trunk, window):
    tree = tree_of(sequences)
    paths = tree.paths(min(start, len(tree) - 1))
    whole, found = lay_out(paths, trunk), lay_out(paths, trunk, window)
    for row in range(len(paths)):
        # Columns of a path are in the order of their positions: a parent comes before its children.
        assert seen(found, row) == seen(whole, row)[-window:]
    assert found.sees_BMC.any(axis=2).all()


@given(TREES)
def test_slots_without_a_row_see_something(sequences):
    found = lay_out(tree_of(sequences).paths(), 0)
    assert found.sees_BMC.any(axis=2).all()


def test_unrelated_branches_are_not_compared():
    """32 boards of 20 tokens that share nothing: far fewer comparisons than 640 rows by 640 columns."""
    found = lay_out(tree_of([[board * 100 + i for i in range(20)] for board in range(32)]).paths(), 0)
    assert found.sees_BMC.size < 640 * 640 / 8


def test_a_long_single_branch_is_not_torn_into_little_pieces():
    found = lay_out(tree_of([range(40)]).paths(), 0)
    assert found.sees_BMC.size <= 2 * 40 * 40
    assert np.asarray(found.column_BC).shape[0] <= 2
