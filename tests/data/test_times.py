"""The first block of a column decides the kind of its times."""

from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.data.times import OUT_OF_RANGE, TimeReader, guess_units


@pytest.mark.parametrize("second", [100_000_000, 1_511_658_000, 4_000_000_000])  # 1973, 2017, 2096
def test_units_are_told_by_size(second: int) -> None:
    assert [guess_units(second * units) for units in (1, 10**3, 10**6, 10**9)] == [1, 10**3, 10**6, 10**9]


def test_one_odd_time_does_not_decide() -> None:
    clock = TimeReader(None)
    clock.read(pl.Series([1_511_658_000, 1_511_658_001, 9 * 10**17]))
    assert (clock.has_clock, clock.units_per_second) == (True, 1)


def test_later_pieces_are_read_like_the_first() -> None:
    clock = TimeReader(None)
    assert clock.read(pl.Series([None, None], dtype=pl.String)).to_list() == [None, None]  # tells nothing
    assert clock.read(pl.Series(["1970-01-02", None])).to_list() == [86_400_000_000, None]
    assert clock.read(pl.Series(["5", "1970-01-01 00:00:01"])).to_list() == [None, 1_000_000]
    assert (clock.has_clock, clock.units_per_second) == (True, 10**6)


def test_what_is_given_holds() -> None:
    places = pl.Series([0, 1, 2])
    for clock_times in (True, False, None):
        clock = TimeReader(clock_times)
        clock.read(places)
        assert clock.has_clock is (clock_times is True)
        assert clock.units_per_second == 1


@given(st.lists(st.floats(1e8, 4.1e9), min_size=2, max_size=20))
def test_floats_keep_their_order_and_tie_only_if_equal(seconds: list[float]) -> None:
    clock = TimeReader(None)
    read = clock.read(pl.Series(seconds)).to_list()
    assert (clock.has_clock, clock.units_per_second) == (True, 10**9)
    for one, time in zip(seconds, read, strict=True):
        assert abs(Fraction(time, clock.units_per_second) - Fraction(one)) <= Fraction(1, 10**6)
        assert [time < other for other in read] == [one < other for other in seconds]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_text_is_read_to_the_billionth_of_a_second(unit: int) -> None:
    exact = [1_511_658_000_123_456_789, 1_511_658_000_123_456_788, 1_511_658_000_000_000_000]
    clock = TimeReader(None)
    digits = len(str(10**9 // unit)) - 1
    texts = [str(one) if unit == 10**9 else f"{one // 10**digits}.{one % 10**digits:0{digits}}" for one in exact]
    assert clock.read(pl.Series([*texts, "9" * 40, "soon"])).to_list() == [*exact, None, None]
    assert clock.units_per_second == 10**9


def test_a_fraction_after_whole_numbers_counts() -> None:
    clock = TimeReader(None)
    assert clock.read(pl.Series(["1511658000"])).to_list() == [1_511_658_000 * 10**9]
    assert clock.read(pl.Series(["1511658000.5", "1.511658e9"])).to_list() == [
        1_511_658_000_500_000_000,
        1_511_658_000 * 10**9,
    ]


def test_places_between_places() -> None:
    clock = TimeReader(None)
    assert clock.read(pl.Series([1.5, 1.25, 2.0])).to_list() == [1_500_000_000, 1_250_000_000, 2_000_000_000]
    assert (clock.has_clock, clock.units_per_second) == (False, 10**9)


NOW = 1_700_179_400


@pytest.mark.parametrize("most", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("other", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("kind", [int, str, float])
def test_a_time_in_another_unit_than_most_is_read_by_its_size(most: int, other: int, kind: type) -> None:
    clock = TimeReader(None)
    read = clock.read(pl.Series([kind(one) for one in (NOW * most, (NOW + 1) * most, (NOW + 2) * other)]))
    assert [time // clock.units_per_second for time in read] == [NOW, NOW + 1, NOW + 2]
    assert clock.other_units == (most != other)
    later = clock.read(pl.Series([kind((NOW + 3) * other)]))  # of a block whose times are all in the other unit
    assert later.to_list() == [(NOW + 3) * clock.units_per_second]


@pytest.mark.parametrize("kind", [int, str, float])
def test_times_out_of_range_do_not_overflow(kind: type) -> None:
    good = [kind(NOW)] * 3
    for late in (9_999_999_999, 99_999_999_999, 9_999_999_999_999, 9_200_000_000_000_000_000):
        assert TimeReader(None).read(pl.Series([*good, kind(late)]))[3] == OUT_OF_RANGE
    assert TimeReader(None).read(pl.Series([*good, kind(-1)]))[3] < 0
    places = TimeReader(None).read(pl.Series([kind(1), kind(2), kind(9 * 10**18)]))
    assert places[2] == (9 * 10**18 if kind is int else OUT_OF_RANGE)


def test_dates_out_of_range() -> None:
    assert TimeReader(None).read(pl.Series(["2020-01-01", "9999-12-31", "2099-12-31"])).to_list() == [
        1_577_836_800 * 10**6,
        OUT_OF_RANGE,
        4_102_358_400 * 10**6,
    ]
