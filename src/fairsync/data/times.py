"""Parse times of tables: dates, Unix seconds or finer, or positions in a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from polars import Series

# The size of a number decides its unit: below the first limit it is a position in a sequence (as Unix seconds it would
# be before March 1973), then seconds, milliseconds and microseconds (past the year 5000 in the previous unit).
_LIMITS = {1e8: None, 1e11: 1, 1e14: 10**3, 1e17: 10**6}
_DATE_UNITS = 10**6
# Numbers with fractions are stored in billionths of a second, or of a position, which keeps their order.
_FINEST = 10**9
_FRACTION = pl.Decimal(28, 9)  # holds 10**19 with nine decimals
_DATE_TYPES = (pl.Date, pl.Datetime)
_DATES = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_DATE_WITH_ZONE = "%Y-%m-%d %H:%M:%S%.f%z"


def guess_units(time: float) -> int | None:
    """Return the units per second of a time by its size, or None if it looks like a position in a sequence.

    Examples
    --------
    >>> guess_units(1_511_658_000), guess_units(1_511_658_000_123), guess_units(17)
    (1, 1000, None)
    """
    return next((units for limit, units in _LIMITS.items() if time < limit), 10**9)


class TimeReader:
    """Parses a column of times block by block. The first block decides their kind.

    Parameters
    ----------
    given
        Whether they are clock times. If None, dates are, and numbers are if the median of the first block is at least
        100,000,000.

    Examples
    --------
    >>> clock = TimeReader(None)
    >>> clock.read(pl.Series(["2017-11-26 01:00:00", "soon", None])).to_list()
    [1511658000000000, None, None]
    >>> clock.has_clock, clock.units_per_second
    (True, 1000000)
    >>> TimeReader(None).read(pl.Series([1511658000.25, 1511658000.125])).to_list()
    [1511658000250000000, 1511658000125000000]
    """

    def __init__(self, given: bool | None) -> None:
        self._given = given
        self._dates: bool | None = None
        self._units: int | None = None
        self._finer = 1

    @property
    def has_clock(self) -> bool:
        """Whether times are clock times. If not, only their order is known."""
        return self._units is not None if self._given is None else self._given

    @property
    def units_per_second(self) -> int:
        """Units of time per second or, without a clock, per position."""
        return ((self._units or 1) if self.has_clock else 1) * self._finer

    def read(self, column: Series) -> Series:
        """Return the times as integers, null if they cannot be parsed."""
        numbers = _read_numbers(column)
        if self._dates is None and column.null_count() < len(column):
            self._dates = numbers.null_count() == len(column)
            typical = numbers.median()
            self._units = _DATE_UNITS if self._dates else guess_units(float(typical or 0))  # type: ignore[arg-type]
            self._finer = _FINEST // (self._units or 1) if numbers.dtype == _FRACTION and not self._dates else 1
        return _read_dates(column) if self._dates else (numbers * self._finer).cast(pl.Int64, strict=False)


def _read_numbers(column: Series) -> Series:
    """Return exact numbers, null if they cannot be parsed."""
    if column.dtype in _DATE_TYPES:
        return pl.Series(column.name, [None], dtype=pl.Int64).new_from_index(0, len(column))
    if column.dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    # Floats are converted through their text, because rounding could make two different times equal.
    return column.cast(pl.String).cast(_FRACTION, strict=False)


def _read_dates(column: Series) -> Series:
    if column.dtype in _DATE_TYPES:
        return column.dt.epoch("us")
    text = pl.col(column.name).str.replace("T", " ", literal=True).str.strip_suffix("Z")
    read = [
        text.str.to_datetime(one, time_unit="us", strict=False).dt.epoch("us") for one in (*_DATES, _DATE_WITH_ZONE)
    ]
    return column.to_frame().select(pl.coalesce(read)).to_series()
