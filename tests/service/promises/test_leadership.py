"""Leader election, seen from one replica."""

from fairsync.service.promises.leadership import Leadership


class Votes:
    """A coordinator whose elections have outcomes that the test chooses."""

    def __init__(self, *outcomes: bool) -> None:
        self.outcomes = list(outcomes)
        self.taken: list[bool] = []

    def lead(self, *, take: bool = False) -> bool:
        self.taken.append(take)
        return self.outcomes.pop(0)


def test_only_a_new_leader_was_elected() -> None:
    leadership = Leadership(Votes(False, False, True, True, False, True))
    seen = [(leadership.was_elected(), leadership.is_leader) for _ in range(5)]
    assert seen == [(False, False), (True, True), (False, True), (False, False), (True, True)]


def test_the_lead_can_be_taken() -> None:
    votes = Votes(False, True)
    assert Leadership(votes).was_elected(take=True)
    assert votes.taken == [False, True]


def test_a_follower_waits_for_the_first_state() -> None:
    saved = iter([False, True])
    leadership = Leadership(Votes(False, False))
    leadership.wait_for_state(lambda: next(saved))
    assert not leadership.is_leader


def test_a_follower_that_becomes_the_leader_does_not_wait() -> None:
    leadership = Leadership(Votes(False, True))
    leadership.wait_for_state(lambda: False)
    assert leadership.is_leader
