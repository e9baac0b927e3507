"""Times as they stand in people's tables: dates, unix seconds or finer, or just places in a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from polars import Series

# A number is read by its size: below the first limit it is a place in a sequence (as unix seconds it would be before
# March 1973), then seconds, milliseconds and microseconds (which would be past the year 5000 in the unit before).
_LIMITS = {1e8: None, 1e11: 1, 1e14: 10**3, 1e17: 10**6}
_DATE_TICKS = 10**6
# Numbers that may have a fraction are counted in billionths of a second, or of a place: it tells the order as well.
_FINEST = 10**9
_FRACTION = pl.Decimal(28, 9)  # ten to the nineteenth, times the finest, is still a number
_DATE_TYPES = (pl.Date, pl.Datetime)
_DATES = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_DATE_WITH_ZONE = "%Y-%m-%d %H:%M:%S%.f%z"


def guess_ticks(time: float) -> int | None:
    """Return how many units of such a time make a second, or None if it looks like a place in a sequence.

    Examples
    --------
    >>> guess_ticks(1_511_658_000), guess_ticks(1_511_658_000_123), guess_ticks(17)
    (1, 1000, None)
    """
    return next((ticks for limit, ticks in _LIMITS.items() if time < limit), 10**9)


class Clock:
    """Reads a column of times, piece by piece; the first piece tells what kind of times they are.

    Parameters
    ----------
    given
        Whether they are of a clock. None: dates are, and numbers are if the middle one of the first piece is
        100,000,000 or more.

    Examples
    --------
    >>> clock = Clock(None)
    >>> clock.read(pl.Series(["2017-11-26 01:00:00", "soon", None])).to_list()
    [1511658000000000, None, None]
    >>> clock.has_clock, clock.ticks
    (True, 1000000)
    >>> Clock(None).read(pl.Series([1511658000.25, 1511658000.125])).to_list()
    [1511658000250000000, 1511658000125000000]
    """

    def __init__(self, given: bool | None) -> None:
        self._given = given
        self._dates: bool | None = None
        self._ticks: int | None = None
        self._finer = 1

    @property
    def has_clock(self) -> bool:
        """Whether times are of a clock; if not, they only tell the order."""
        return self._ticks is not None if self._given is None else self._given

    @property
    def ticks(self) -> int:
        """Units of time in a second; without a clock, in a place."""
        return ((self._ticks or 1) if self.has_clock else 1) * self._finer

    def read(self, column: Series) -> Series:
        """Return whole numbers; null where there is none to be read."""
        numbers = _read_numbers(column)
        if self._dates is None and column.null_count() < len(column):
            self._dates = numbers.null_count() == len(column)
            typical = numbers.median()
            self._ticks = _DATE_TICKS if self._dates else guess_ticks(float(typical or 0))  # type: ignore[arg-type]
            self._finer = _FINEST // (self._ticks or 1) if numbers.dtype == _FRACTION and not self._dates else 1
        return _read_dates(column) if self._dates else (numbers * self._finer).cast(pl.Int64, strict=False)


def _read_numbers(column: Series) -> Series:
    """Return numbers, exactly; null where there is none to be read."""
    if column.dtype in _DATE_TYPES:
        return pl.Series(column.name, [None], dtype=pl.Int64).new_from_index(0, len(column))
    if column.dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    # Floats as they would be printed: shorter ways round, and two times that differ could become one.
    return column.cast(pl.String).cast(_FRACTION, strict=False)


def _read_dates(column: Series) -> Series:
    if column.dtype in _DATE_TYPES:
        return column.dt.epoch("us")
    text = pl.col(column.name).str.replace("T", " ", literal=True).str.strip_suffix("Z")
    read = [
        text.str.to_datetime(one, time_unit="us", strict=False).dt.epoch("us") for one in (*_DATES, _DATE_WITH_ZONE)
    ]
    return column.to_frame().select(pl.coalesce(read)).to_series()
