"""The ledger's time ascends, whatever the clock shows from start to start."""

from hypothesis import given
from hypothesis import strategies as st

from fairsync.service.promises.clock import TOLERANCE
from fairsync.service.promises.ledger_time import LedgerTime

DAY = 86_400.0


def test_without_a_clock_set_back_it_is_the_clock() -> None:
    time = LedgerTime()
    assert not time.is_ahead(last=100.0, now=100.0 - TOLERANCE)
    assert time.next_start(last=100.0, now=200.0) == 200.0 == time.to_clock(200.0)


def test_a_clock_behind_by_the_tolerance_needs_no_offset() -> None:
    """As the clocks of two replicas may be."""
    assert 100.0 < LedgerTime().next_start(last=100.0, now=99.0) < 100.001


@given(st.lists(st.floats(-400 * DAY, 400 * DAY).map(lambda seconds: round(seconds, 3)), min_size=1, max_size=20))
def test_periods_ascend_and_are_known_by_the_clock(clocks: list[float]) -> None:
    time, last, starts = LedgerTime(), 0.0, []
    for clock in clocks:
        now = 1.7e9 + clock
        if time.is_ahead(last, now):
            time = time.following(last, now)
        start = time.next_start(last, now)
        assert start > last
        last = start
        starts.append((start, now))
    for start, now in starts:
        assert 0 <= time.to_clock(start) - now <= TOLERANCE + 1e-3, "also when later offsets were added"
