"""What kind of times a column holds is told by its first piece."""

import polars as pl
import pytest

from fairsync.data.times import Clock, guess_ticks


@pytest.mark.parametrize("second", [100_000_000, 1_511_658_000, 4_000_000_000])  # 1973, 2017, 2096
def test_units_are_told_by_size(second: int) -> None:
    assert [guess_ticks(second * ticks) for ticks in (1, 10**3, 10**6, 10**9)] == [1, 10**3, 10**6, 10**9]


def test_one_odd_time_does_not_decide() -> None:
    clock = Clock(None)
    clock.read(pl.Series([1_511_658_000, 1_511_658_001, 9 * 10**17]))
    assert (clock.has_clock, clock.ticks) == (True, 1)


def test_later_pieces_are_read_like_the_first() -> None:
    clock = Clock(None)
    assert clock.read(pl.Series([None, None], dtype=pl.String)).to_list() == [None, None]  # tells nothing
    assert clock.read(pl.Series(["1970-01-02", None])).to_list() == [86_400_000_000, None]
    assert clock.read(pl.Series(["5", "1970-01-01 00:00:01"])).to_list() == [None, 1_000_000]
    assert (clock.has_clock, clock.ticks) == (True, 10**6)


def test_what_is_given_holds() -> None:
    places = pl.Series([0, 1, 2])
    for given in (True, False, None):
        clock = Clock(given)
        clock.read(places)
        assert clock.has_clock is (given is True)
        assert clock.ticks == 1
