r"""The usual week of traffic, and how far the present departs from it.

**The usual.** Requests per second for each hour of the week, by the clock of a zone: the mean of what was seen in that
hour, where what lies :math:`a` days back weighs :math:`2^{-a/21}`. An hour of the week that was seen little leans on
the same hour of other days, and that on the mean of all; where nothing was seen at all, it is a given rate.

**The level.** Requests of the last hours over what is usual for them, :math:`L = (A + s) / (U + s)`, recent ones
weighing more. A moment :math:`h` hours ahead is expected at :math:`1 + (L - 1) \, 2^{-h/24}` of the usual: if today
runs at 70 %, so does the next hour, nearly, and the day after tomorrow hardly.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools: TypeAlias = NDArray[np.bool_]
    Floats: TypeAlias = NDArray[np.float64]
    Ints: TypeAlias = NDArray[np.int64]

HOUR, DAY = 3600, 86_400

_HOURS_IN_WEEK = 168
# So many hours are looked up in a calendar at once.
_BLOCK = 256
_HALF_LIFE = 21 * DAY
# What an hour of the week leans on before it was seen weighs as much as a tenth of an hour of seeing it.
_LEANING = HOUR / 10
_RECENT = 6 * HOUR
# The level leans on 1 as if an hour and a half of average traffic had been seen at the usual level.
_STEADY = 1.5 * HOUR
_FADE = DAY
# A burst or an outage of a few hours says little beyond this about the hours to come.
_LEAST_LEVEL, _MOST_LEVEL = 0.25, 4.0


@dataclass(frozen=True)
class SeasonalProfile:
    """What is expected, as far as it was known at a moment.

    Attributes
    ----------
    rates : numpy.ndarray
        (168,) requests per second in each hour of the week, from Monday 0:00.
    level : float
        Of the present, in multiples of the usual.
    at : int
        The moment, unix seconds.
    """

    rates: Floats
    level: float
    at: int

    def requests(self, cells: Ints, starts: Ints, seconds: Floats) -> Floats:
        """Return expected requests of stretches in these hours of the week, by their start and length."""
        ahead = np.maximum(starts - self.at, 0)
        return self.rates[cells] * seconds * (1 + (self.level - 1) * np.exp2(-ahead / _FADE))


def fit_profile(starts: Ints, requests: Ints, cells: Ints, seconds: int, at: int, default: float) -> SeasonalProfile:
    """Return what is usual and the level, from what was seen before a moment.

    Parameters
    ----------
    starts, requests, cells
        (n,) of each time slot seen: unix seconds, requests in it, hour of the week.
    seconds
        Length of a slot.
    at
        The moment, unix seconds.
    default
        Requests per second, if nothing was seen.

    Examples
    --------
    A week of one request per second, and then an hour without any.

    >>> starts = np.arange(0, 7 * DAY + HOUR, HOUR)
    >>> requests = np.where(starts < 7 * DAY, 3600, 0)
    >>> usual = fit_profile(starts, requests, hours_of_week(starts, "UTC"), HOUR, 7 * DAY + HOUR, default=0.1)
    >>> round(float(usual.rates[5]), 2), 0.5 < usual.level < 1
    (1.0, True)
    """
    if len(starts) == 0:
        return SeasonalProfile(np.full(_HOURS_IN_WEEK, default), 1.0, at)
    age = (at - starts).astype(np.float64)
    weight = np.exp2(-age / _HALF_LIFE) * seconds
    seen = np.bincount(cells, weight, _HOURS_IN_WEEK)
    came = np.bincount(cells, weight * requests / seconds, _HOURS_IN_WEEK)
    mean = came.sum() / seen.sum()
    leaning = _LEANING * weight[-1] / seconds
    by_hour = came.reshape(7, 24).sum(axis=0) + leaning * mean
    by_hour /= seen.reshape(7, 24).sum(axis=0) + leaning
    rates = (came + leaning * np.tile(by_hour, 7)) / (seen + leaning)
    recent = np.exp2(-age / _RECENT)
    steady = mean * _STEADY
    if steady == 0:
        return SeasonalProfile(rates, 1.0, at)
    level = (recent @ requests + steady) / (recent @ rates[cells] * seconds + steady)
    return SeasonalProfile(rates, float(np.clip(level, _LEAST_LEVEL, _MOST_LEVEL)), at)


def hours_of_week(starts: Ints, zone: str) -> Ints:
    """Return the hour of the week, 0 to 167, on the clocks of a zone at these unix seconds.

    Examples
    --------
    >>> hours_of_week(np.array([0, 3600]), "UTC").tolist()  # 1 January 1970 was a Thursday
    [72, 73]
    """
    blocks, place = np.unique(starts // (HOUR * _BLOCK), return_inverse=True)
    if not len(blocks):
        return np.zeros(0, dtype=np.int64)
    known: Ints = np.stack([_hours_of_block(block, zone) for block in blocks.tolist()])
    return known[place, starts // HOUR % _BLOCK]


@lru_cache(maxsize=1 << 10)
def _hours_of_block(block: int, zone: str) -> Ints:
    """Return (_BLOCK,) the hours of the week of hours that follow each other."""
    moments = [datetime.fromtimestamp(hour * HOUR, UTC) for hour in range(block * _BLOCK, (block + 1) * _BLOCK)]
    local = [moment.astimezone(ZoneInfo(zone)) for moment in moments]
    return np.array([moment.weekday() * 24 + moment.hour for moment in local], dtype=np.int64)
