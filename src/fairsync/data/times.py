"""Parse times of tables: dates, Unix seconds or finer, or positions in a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.extras import polars as pl

if TYPE_CHECKING:
    from polars import Series

OUT_OF_RANGE = 2**63 - 1
"""Stands for a time after the year 2100, or a position that is too large."""

# The size of a number decides its unit: below the first limit it is a position in a sequence (as Unix seconds it would
# be before March 1973), then seconds, milliseconds and microseconds (past the year 5000 in the previous unit).
_LIMITS = {1e8: None, 1e11: 1, 1e14: 10**3, 1e17: 10**6}
_LATEST = 4_102_444_800  # Unix seconds of the year 2100
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

    A clock time in another unit than most, such as milliseconds among seconds, is read by its size.

    Parameters
    ----------
    given
        Whether they are clock times. If None, dates are, and numbers are if the median of the first block is at least
        100,000,000.

    Attributes
    ----------
    other_units : int
        Number of clock times so far that were in another unit than most.

    Examples
    --------
    >>> clock = TimeReader(None)
    >>> clock.read(pl.Series(["2017-11-26 01:00:00", "soon", None])).to_list()
    [1511658000000000, None, None]
    >>> clock.has_clock, clock.units_per_second
    (True, 1000000)
    >>> TimeReader(None).read(pl.Series([1511658000.25, 1511658000.125])).to_list()
    [1511658000250000000, 1511658000125000000]
    >>> clock = TimeReader(None)
    >>> clock.read(pl.Series([1511658000, 1511658001, 1511658002999])).to_list(), clock.other_units
    ([1511658000, 1511658001, 1511658002], 1)
    """

    def __init__(self, given: bool | None) -> None:
        self._given = given
        self._dates: bool | None = None
        self._units: int | None = None
        self._finer = 1
        self.other_units = 0

    @property
    def has_clock(self) -> bool:
        """Whether times are clock times. If not, only their order is known."""
        return self._units is not None if self._given is None else self._given

    @property
    def units_per_second(self) -> int:
        """Units of time per second or, without a clock, per position."""
        return ((self._units or 1) if self.has_clock else 1) * self._finer

    def read(self, column: Series) -> Series:
        """Return the times as integers: null if they cannot be parsed, `OUT_OF_RANGE` if they are too large."""
        numbers = _read_numbers(column)
        if self._dates is None and column.null_count() < len(column):
            self._dates = numbers.null_count() == len(column)
            typical = numbers.median()
            self._units = _DATE_UNITS if self._dates else guess_units(float(typical or 0))  # type: ignore[arg-type]
            self._finer = _FINEST // (self._units or 1) if numbers.dtype == _FRACTION and not self._dates else 1
        if self._dates:
            dates = _read_dates(column)
            return dates.set(dates > _LATEST * _DATE_UNITS, OUT_OF_RANGE)
        return self._read_clock(numbers) if self.has_clock else self._read_positions(numbers)

    def _read_positions(self, numbers: Series) -> Series:
        is_large = numbers > OUT_OF_RANGE // self._finer
        whole = (numbers.set(is_large, None) * self._finer).cast(pl.Int64, strict=False)
        return whole.set(is_large.fill_null(False), OUT_OF_RANGE)

    def _read_clock(self, numbers: Series) -> Series:
        """Return each number in the unit of most, or in billionths of a second if there are fractions."""
        usual, number = self._units or 1, pl.col("number")
        least, most = (float(edge or 0) for edge in (numbers.min(), numbers.max()))  # type: ignore[arg-type]
        if guess_units(least) == guess_units(most) == usual and most <= _LATEST * usual:
            return (numbers * self._finer).cast(pl.Int64, strict=False)
        units = pl.lit(_FINEST)
        for limit, smaller in reversed(_LIMITS.items()):
            units = pl.when(number < int(limit)).then(smaller or 1).otherwise(units)
        table = numbers.alias("number").to_frame().with_columns(units.alias("units"))
        own = pl.col("units")
        self.other_units += table.filter((own != usual) & (number >= min(_LIMITS))).height
        is_late = number > _LATEST * own
        near = pl.when(is_late).then(None).otherwise(number)
        if numbers.dtype == _FRACTION:
            exact = near * (_FINEST // own)
        else:
            exact = near * pl.max_horizontal(usual // own, 1) // pl.max_horizontal(own // usual, 1)
        read = pl.when(is_late).then(OUT_OF_RANGE).otherwise(exact.cast(pl.Int64, strict=False))
        return table.select(read.alias(numbers.name)).to_series()


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
