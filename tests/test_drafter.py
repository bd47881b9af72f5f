"""What the drafter proposes, by hand."""

from ninegrid.tree.drafter import KEEP, ORDER, Drafter

PROMPT = list(range(100, 100 + ORDER))


def test_proposes_what_followed_most_often():
    drafter = Drafter()
    drafter.learn(PROMPT, [1, 2, 3])
    for _ in range(9):
        drafter.learn(PROMPT, [1, 2, 4])
    assert drafter.guess(PROMPT, 10) == [1, 2, 4]
    assert drafter.guess(PROMPT, 2) == [1, 2]
    # After 1 the context is the last five tokens of the prompt and 1.
    assert drafter.guess([*PROMPT, 1], 10) == [2, 4]


def test_stays_silent_where_nothing_is_likely():
    drafter = Drafter()
    for token in (1, 2, 3):
        drafter.learn(PROMPT, [9, token])
    assert drafter.guess(PROMPT, 10) == [9]  # then three ways, a third each
    assert drafter.guess([1, 2, 3], 10) == []
    assert drafter.guess(PROMPT, 0) == []


def test_a_guess_is_as_sure_as_all_of_it():
    drafter = Drafter()
    for first, second in [(1, 1), *[(2, 1)] * 2, *[(2, 2)] * 17]:
        drafter.learn(PROMPT, [9, first, second])
    # 2 follows in 19 of 20 cases, and then 2 in 17 of 19: together 17 of 20, more than 0.8.
    assert drafter.guess(PROMPT, 10) == [9, 2, 2]
    drafter.learn(PROMPT, [9, 1, 1])
    drafter.learn(PROMPT, [9, 1, 1])
    # Now 19 of 22 and 17 of 22, the second less than 0.8.
    assert drafter.guess(PROMPT, 10) == [9, 2]


def test_forgets_the_oldest():
    drafter = Drafter()
    drafter.learn(PROMPT, [1])
    for _ in range(KEEP):
        drafter.learn(PROMPT, [2])
    assert len(drafter.state()) == KEEP
    assert drafter.guess(PROMPT, 5) == [2]
    drafter.load(drafter.state()[:3])
    assert drafter.guess(PROMPT, 5) == [2]
    drafter.load([])
    assert drafter.guess(PROMPT, 5) == []
