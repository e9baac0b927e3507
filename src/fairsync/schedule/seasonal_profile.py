r"""Seasonal profile: the weekly pattern of traffic, and the present level relative to it.

**Profile.** Requests per second for each hour of the week, in the local time of a zone. Each rate is a weighted mean of
the traffic observed in that hour; an observation :math:`a` days old has weight :math:`2^{-a/21}`. An hour of the week
with few observations is shrunk towards the same hour of other days, and that towards the overall mean. Without any
observation, a default rate is used.

**Level.** Recent traffic relative to the profile, :math:`L = (A + s) / (U + s)` with actual requests A, profile
requests U and a prior s; newer hours have more weight. The forecast for :math:`h` hours ahead is the profile times
:math:`1 + (L - 1) \, 2^{-h/24}`: if today runs at 70 %, the next hour is expected at nearly 70 %, and the day after
tomorrow close to 100 %.
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
# Hours of the calendar that are converted to local time at once.
_BLOCK = 256
_PROFILE_HALF_LIFE = 21 * DAY
# The prior of an hour of the week has the weight of a tenth of an hour of observation.
_PROFILE_PRIOR = HOUR / 10
_LEVEL_HALF_LIFE = 6 * HOUR
# The prior of the level is 1, with the weight of an hour and a half of average traffic.
_LEVEL_PRIOR = 1.5 * HOUR
_LEVEL_DECAY = DAY
# A burst or an outage of a few hours beyond these levels says little about the hours to come.
_MIN_LEVEL, _MAX_LEVEL = 0.25, 4.0


@dataclass(frozen=True)
class SeasonalProfile:
    """The weekly pattern and the level of traffic, as known at a moment.

    Attributes
    ----------
    rates : numpy.ndarray
        (168,) Requests per second in each hour of the week, from Monday 0:00.
    level : float
        Present traffic as a multiple of the weekly pattern.
    at : int
        The moment, in Unix seconds.
    recent : float
        The level without limits.
    """

    rates: Floats
    level: float
    at: int
    recent: float = 1.0

    def requests(self, cells: Ints, starts: Ints, seconds: Floats) -> Floats:
        """Return the expected requests of intervals, given their hour of the week, start and length."""
        ahead = np.maximum(starts - self.at, 0)
        return self.rates[cells] * seconds * (1 + (self.level - 1) * np.exp2(-ahead / _LEVEL_DECAY))


def fit_profile(starts: Ints, requests: Ints, cells: Ints, seconds: int, at: int, default: float) -> SeasonalProfile:
    """Fit the weekly pattern and the level to the traffic observed before a moment.

    Parameters
    ----------
    starts
        (n,) Start of each observed time slot, in Unix seconds.
    requests
        (n,) Requests in each slot.
    cells
        (n,) Hour of the week of each slot.
    seconds
        Length of a slot.
    at
        The moment, in Unix seconds.
    default
        Requests per second to expect if nothing was observed.

    Examples
    --------
    A week of one request per second, and then an hour without any.

    >>> starts = np.arange(0, 7 * DAY + HOUR, HOUR)
    >>> requests = np.where(starts < 7 * DAY, 3600, 0)
    >>> profile = fit_profile(starts, requests, hours_of_week(starts, "UTC"), HOUR, 7 * DAY + HOUR, default=0.1)
    >>> round(float(profile.rates[5]), 2), 0.5 < profile.level < 1
    (1.0, True)
    """
    if len(starts) == 0:
        return SeasonalProfile(np.full(_HOURS_IN_WEEK, default), 1.0, at)
    age = (at - starts).astype(np.float64)
    weight = np.exp2(-age / _PROFILE_HALF_LIFE) * seconds
    total_weight = np.bincount(cells, weight, _HOURS_IN_WEEK)
    weighted_requests = np.bincount(cells, weight * requests / seconds, _HOURS_IN_WEEK)
    mean = weighted_requests.sum() / total_weight.sum()
    prior = _PROFILE_PRIOR * weight[-1] / seconds
    by_hour = weighted_requests.reshape(7, 24).sum(axis=0) + prior * mean
    by_hour /= total_weight.reshape(7, 24).sum(axis=0) + prior
    rates = (weighted_requests + prior * np.tile(by_hour, 7)) / (total_weight + prior)
    recent = np.exp2(-age / _LEVEL_HALF_LIFE)
    level_prior = mean * _LEVEL_PRIOR
    if level_prior == 0:
        return SeasonalProfile(rates, 1.0, at)
    level = (recent @ requests + level_prior) / (recent @ rates[cells] * seconds + level_prior)
    return SeasonalProfile(rates, float(np.clip(level, _MIN_LEVEL, _MAX_LEVEL)), at, float(level))


def hours_of_week(starts: Ints, zone: str) -> Ints:
    """Return the hour of the week, 0 to 167, in the local time of a zone, of each moment in Unix seconds.

    Examples
    --------
    >>> hours_of_week(np.array([0, 3600]), "UTC").tolist()  # 1 January 1970 was a Thursday
    [72, 73]
    """
    blocks, block_index = np.unique(starts // (HOUR * _BLOCK), return_inverse=True)
    if not len(blocks):
        return np.zeros(0, dtype=np.int64)
    hours: Ints = np.stack([_hours_of_block(block, zone) for block in blocks.tolist()])
    return hours[block_index, starts // HOUR % _BLOCK]


@lru_cache(maxsize=1 << 10)
def _hours_of_block(block: int, zone: str) -> Ints:
    """Return (_BLOCK,) the hours of the week of a block of consecutive hours."""
    moments = [datetime.fromtimestamp(hour * HOUR, UTC) for hour in range(block * _BLOCK, (block + 1) * _BLOCK)]
    local = [moment.astimezone(ZoneInfo(zone)) for moment in moments]
    return np.array([moment.weekday() * 24 + moment.hour for moment in local], dtype=np.int64)
