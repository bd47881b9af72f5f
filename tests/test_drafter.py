"""What the drafter proposes, by hand."""

from ninegrid.tree.drafter import KEEP, ORDER, Drafter

PROMPT = list(range(100, 100 + ORDER))


def test_proposes_what_followed_most_often():
    drafter = Drafter()
    drafter.learn([(PROMPT, [1, 2, 3])])
    for _ in range(9):
        drafter.learn([(PROMPT, [1, 2, 4])])
    assert drafter.guess(PROMPT, 10) == [1, 2, 4]
    assert drafter.guess(PROMPT, 2) == [1, 2]
    # After 1 the context is the last five tokens of the prompt and 1.
    assert drafter.guess([*PROMPT, 1], 10) == [2, 4]


def test_stays_silent_where_nothing_is_likely():
    drafter = Drafter()
    for token in (1, 2, 3):
        drafter.learn([(PROMPT, [9, token])])
    assert drafter.guess(PROMPT, 10) == [9]  # then three ways, a third each
    assert drafter.guess([77, 78, 79], 10) == []
    assert drafter.guess(PROMPT, 0) == []


def test_a_guess_is_as_sure_as_all_of_it():
    drafter = Drafter()
    for first, second in [(1, 1), *[(2, 1)] * 2, *[(2, 2)] * 17]:
        drafter.learn([(PROMPT, [9, first, second])])
    # 2 follows in 19 of 20 cases, and then 2 in 17 of 19: together 17 of 20, more than 0.8.
    assert drafter.guess(PROMPT, 10) == [9, 2, 2]
    drafter.learn([(PROMPT, [9, 1, 1])])
    drafter.learn([(PROMPT, [9, 1, 1])])
    # Now 19 of 22 and 17 of 22, the second less than 0.8.
    assert drafter.guess(PROMPT, 10) == [9, 2]


def test_forgets_the_oldest():
    drafter = Drafter()
    drafter.learn([(PROMPT, [1])])
    for _ in range(KEEP):
        drafter.learn([(PROMPT, [2])])
    assert len(drafter.state()) == KEEP
    assert drafter.guess(PROMPT, 5) == [2]
    drafter.load(drafter.state()[:3])
    assert drafter.guess(PROMPT, 5) == [2]
    drafter.load([])
    assert drafter.guess(PROMPT, 5) == []


def test_a_shorter_context_stands_in_for_one_never_seen():
    drafter = Drafter()
    drafter.learn([(PROMPT, [1, 2, 3, 4, 5, 6, 7])] * 3)
    assert drafter.guess([50, 51, 52, 53, 54, 5], 10) == []  # three times is too little to go by
    drafter.learn([(PROMPT, [1, 2, 3, 4, 5, 6, 7])] * 17)
    # The last six were never seen together, nor the last three; after 5 came 6, and then 7.
    assert drafter.guess([50, 51, 52, 53, 54, 5], 10) == [6, 7]


def test_a_square_never_played_is_followed_by_what_follows_others():
    drafter = Drafter()
    drafter.learn([(PROMPT, [1, 2, 3, square, 8, 9, 10]) for square in (21, 22, 23) * 10])
    assert drafter.guess([*PROMPT, 1, 2, 3, 29], 10) == [8, 9, 10]


def test_at_once_or_one_by_one_is_the_same():
    at_once, one_by_one = Drafter(), Drafter()
    sampled = [(PROMPT, [i % 3, i % 2, 7]) for i in range(KEEP + 40)]
    at_once.learn(sampled)
    for pair in sampled:
        one_by_one.learn([pair])
    assert at_once.state() == one_by_one.state()
    reloaded = Drafter()
    reloaded.load(at_once.state())
    for context in (PROMPT, [*PROMPT, 0], [*PROMPT, 1, 1], [3, 2]):
        assert at_once.guess(context, 5) == one_by_one.guess(context, 5) == reloaded.guess(context, 5)
    assert at_once._next == reloaded._next  # what was forgotten has left nothing behind
