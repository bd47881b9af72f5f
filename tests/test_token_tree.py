"""The tree of distinct tokens: sharing, depths and visibility, by hand and by property."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ninegrid.tree.token_tree import ROOT, TokenTree

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=8)


def test_shared_beginnings_are_one_path():
    tree = TokenTree()
    # 7 8 9 and 7 8 5 share "7 8": nodes 0 1 2 and 0 1 3; 8 alone starts a second root, node 4.
    assert tree.add([7, 8, 9]) == [0, 1, 2]
    assert tree.add([7, 8, 5]) == [0, 1, 3]
    assert tree.add([8]) == [4]
    assert tree.tokens.tolist() == [7, 8, 9, 5, 8]
    assert tree.parents.tolist() == [ROOT, 0, 1, 1, ROOT]
    assert tree.depths.tolist() == [0, 1, 2, 2, 0]


def test_paths_run_from_the_root_to_the_node():
    tree = TokenTree()
    tree.add([7, 8, 9])
    first = tree.paths().tolist()
    assert first == [[0, ROOT, ROOT], [0, 1, ROOT], [0, 1, 2]]
    tree.add([7, 8, 5, 6])
    # Asked for again, from the new nodes on: 7 8 5 is 0 1 3, and 6 below it is node 4.
    assert tree.paths(3).tolist() == [[0, 1, 3, ROOT], [0, 1, 3, 4]]


@given(SEQUENCES)
def test_size_is_the_number_of_distinct_prefixes(sequences):
    prefixes = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    tree = TokenTree()
    for sequence in sequences:
        tree.add(sequence)
    assert len(tree) == len(prefixes)


@given(SEQUENCES)
def test_every_path_reads_back_its_sequence(sequences):
    tree = TokenTree()
    paths = [tree.add(s) for s in sequences]
    found = tree.paths()
    for sequence, path in zip(sequences, paths, strict=True):
        assert tree.tokens[path].tolist() == sequence
        assert tree.depths[path].tolist() == list(range(len(sequence)))
        row = found[path[-1]]
        assert row[row != ROOT].tolist() == path


@given(SEQUENCES)
def test_paths_do_not_depend_on_when_they_were_asked_for(sequences):
    at_once, bit_by_bit = TokenTree(), TokenTree()
    for sequence in sequences:
        at_once.add(sequence)
        bit_by_bit.add(sequence)
        bit_by_bit.paths()
    np.testing.assert_array_equal(at_once.paths(), bit_by_bit.paths())
