"""Traffic forecast: the expected number of requests in a span of time, and a lower bound for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.schedule.datetimes import check_aware
from fairsync.schedule.seasonal_profile import DAY, HOUR, SeasonalProfile, fit_profile, hours_of_week
from fairsync.schedule.window import check_zone

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fairsync.schedule.seasonal_profile import Bools, Floats, Ints

_HISTORY = 84 * DAY
# Traffic falls below the lower bound about once in twenty times.
_QUANTILE = 0.05
_MAX_SAMPLES = 39
_CACHE_SIZE = 1000
# A past span is compared only if at least this fraction of it was observed.
_MIN_COVERAGE = 0.8


class TrafficForecast(Protocol):
    """The interface of a forecast that plans need."""

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the expected requests between two moments."""
        ...

    def lower_bound(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return a lower bound (5 % quantile) of the requests between two moments."""
        ...

    def sustained(self, end: datetime, now: datetime) -> float:
        """Return the requests from now to a moment if the present level lasts; at most the usual ones."""
        ...


def _nothing() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Forecast:
    """A traffic forecast, learnt from requests per time slot. Immutable: observing returns a new forecast.

    The state is the counts of the last twelve weeks and nothing else. So a slot may be observed late, more than once
    (the last count replaces earlier ones) or never (it is unknown, which is not 0), and a clock that jumps spoils only
    the slots that it names.

    Parameters
    ----------
    rate
        Requests per second to expect as long as nothing was observed.
    zone
        IANA name of the time zone whose local time shapes the traffic.
    slot
        Length of a time slot in seconds. It must divide an hour.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    >>> forecast = Forecast(rate=2.0)
    >>> forecast.expected(noon, noon + timedelta(hours=1)), forecast.lower_bound(noon, noon + timedelta(hours=1))
    (7200.0, 3600.0)
    >>> forecast = forecast.observe(noon, 900)  # in a quarter of an hour
    >>> forecast.expected(noon + timedelta(hours=1), noon + timedelta(hours=2))
    3600.0
    """

    rate: float
    zone: str = "UTC"
    slot: int = 900
    slots: Ints = field(default_factory=_nothing, repr=False)
    counts: Ints = field(default_factory=_nothing, repr=False)
    _profiles: dict[int, SeasonalProfile] = field(default_factory=dict, init=False, repr=False)
    _lower_ratios: dict[tuple[int, int, int], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.rate, bool) or not isinstance(self.rate, Real) or not 0 <= self.rate < math.inf:
            raise InvalidInputError(f"rate must be a number of requests per second, 0 or more, got {self.rate!r}.")
        check_zone(self.zone)
        if isinstance(self.slot, bool) or not isinstance(self.slot, int) or self.slot < 60 or HOUR % self.slot:
            raise InvalidInputError(f"slot must be 60 seconds or more and divide an hour, got {self.slot!r}: try 900.")
        for values in (self.slots, self.counts):
            values.setflags(write=False)

    def observe(self, slot: datetime, requests: int) -> Forecast:
        """Return a forecast that includes the number of requests in the slot that contains a moment.

        A slot that is not over yet may be observed too. It is used once it is over.
        """
        if isinstance(requests, bool) or not isinstance(requests, Integral) or not 0 <= requests < 2**53:
            raise InvalidInputError(f"requests must be a whole number, 0 or more, got {requests!r}.")
        return self._merge(np.array([int(_seconds(slot, "slot")) // self.slot]), np.array([int(requests)]))

    def learn(self, times: ArrayLike, start: datetime, end: datetime) -> Forecast:
        """Return a forecast that includes a log of past requests.

        Parameters
        ----------
        times
            Unix seconds of the requests, in any order. Requests outside ``start`` and ``end`` are ignored.
        start, end
            The log is complete between these moments: a slot without a request had 0 requests.
        """
        first, last = (int(_seconds(edge, name)) // self.slot for edge, name in ((start, "start"), (end, "end")))
        if first >= last:
            raise InvalidInputError(f"from start to end is no whole slot of {self.slot} seconds: choose a later end.")
        slots = np.asarray(times).astype(np.int64) // self.slot - first
        counts = np.bincount(slots[(slots >= 0) & (slots < last - first)], minlength=last - first)
        return self._merge(np.arange(first, last), counts)

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the expected requests between two moments.

        Parameters
        ----------
        start, end
            Start and end of the span; the end is excluded.
        now
            Only slots that are over by this moment are used. Defaults to ``start``. Slots of the span itself that are
            over count with their actual requests.
        """
        low, high, at = self._span(start, end, now)
        slots, seconds = self._overlapping_slots(low, high)
        over = (slots + 1) * self.slot <= at
        index, observed = self._find_observed(np.where(over, slots, -1))
        starts = slots[~observed] * self.slot
        to_come = self._profile_at(at).requests(hours_of_week(starts, self.zone), starts, seconds[~observed])
        return float(self.counts[index] @ seconds[observed]) / self.slot + float(to_come.sum())

    def lower_bound(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        r"""Return a lower bound of the requests between two moments, which holds nineteen times in twenty.

        The forecast is backtested on the same span one day ago, two days ago, and so on, as long as a week of history
        precedes it. The bound is the expected number times the 5 % quantile of the ratios of actual to expected
        requests (the lowest one if there are fewer than 39), at most 1, times :math:`1 - \frac{1}{2 (n + 1)}` for n
        spans that do not overlap. Without history it is half of the expected number.

        Parameters
        ----------
        start, end, now
            As for :meth:`expected`. Requests that came before ``now`` are certain.
        """
        low, high, at = self._span(start, end, now)
        if low < at:
            boundary = min(_moment(at), check_aware(end, "end"))
            actual = self.expected(start, boundary, now)
            return actual + (self.lower_bound(boundary, end, now) if high > at else 0.0)
        return self.expected(start, end, now) * self._lower_ratio(low, high, at)

    def sustained(self, end: datetime, now: datetime) -> float:
        """Return the requests from now to a moment if the present level lasts; at most the usual ones.

        The expected requests return to the usual level within days. Nobody knows whether traffic will.

        Parameters
        ----------
        end
            End of the span.
        now
            Start of the span. Only slots that are over by this moment are used.
        """
        low, high, _ = self._span(now, end, None)
        slots, seconds = self._overlapping_slots(low, high)
        profile = self._profile_at(low)
        usual = profile.rates[hours_of_week(slots * self.slot, self.zone)] @ seconds
        return float(usual) * min(profile.recent, 1.0)

    def coverage(self, start: datetime, end: datetime) -> float:
        """Return the fraction of the time between two moments that was observed."""
        low, high, _ = self._span(start, end, None)
        slots, seconds = self._overlapping_slots(low, high)
        return float(seconds[self._find_observed(slots)[1]].sum() / (high - low)) if high > low else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        settings = {"rate": self.rate, "zone": self.zone, "slot": self.slot}
        return settings | {"slots": self.slots.tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Forecast:
        """Return the object that :meth:`to_dict` describes."""
        empty = cls(values["rate"], values["zone"], values["slot"])
        slots, counts = (np.array(values[name], dtype=np.int64) for name in ("slots", "counts"))
        return empty._merge(slots, counts)

    def _merge(self, slots: Ints, counts: Ints) -> Forecast:
        """Return a forecast with more slots. A new count replaces the old one of the same slot."""
        every, index = np.unique(np.concatenate([slots[::-1], self.slots[::-1]]), return_index=True)
        merged = np.concatenate([counts[::-1], self.counts[::-1]])[index]
        # Old slots are dropped by number, not by age: a clock that jumps ahead must not discard the whole history.
        most = _HISTORY // self.slot
        new = replace(self, slots=every[-most:], counts=merged[-most:].astype(np.int64))
        if len(slots) and len(every) <= most:  # profiles of moments before the first new slot are still valid
            first = int(slots.min())
            new._profiles.update({now: profile for now, profile in self._profiles.items() if now <= first})
            new._lower_ratios.update({key: ratio for key, ratio in self._lower_ratios.items() if key[0] <= first})
        return new

    def _span(self, start: datetime, end: datetime, now: datetime | None) -> tuple[float, float, float]:
        low, high = _seconds(start, "start"), _seconds(end, "end")
        if low > high:
            raise InvalidInputError(f"the span ends at {end}, before its start at {start}: swap the two.")
        return low, high, low if now is None else _seconds(now, "now")

    def _overlapping_slots(self, low: float, high: float) -> tuple[Ints, Floats]:
        """Return the slots that overlap a span, and the seconds of each that lie in it."""
        slots = np.arange(math.floor(low / self.slot), math.ceil(high / self.slot), dtype=np.int64)
        inside = np.minimum((slots + 1) * self.slot, high) - np.maximum(slots * self.slot, low)
        return slots, np.maximum(inside, 0.0)

    def _find_observed(self, slots: Ints) -> tuple[Ints, Bools]:
        """Return the indices of slots in ``self.slots``, and a mask of those that were observed."""
        index = np.searchsorted(self.slots, slots)
        inside = index < len(self.slots)
        observed = np.zeros(len(slots), dtype=np.bool_)
        observed[inside] = self.slots[index[inside]] == slots[inside]
        return index[observed], observed

    @cached_property
    def _hours(self) -> Ints:
        """The hour of the week of each observed slot."""
        return hours_of_week(self.slots * self.slot, self.zone)

    def _profile_at(self, at: float) -> SeasonalProfile:
        """Return the seasonal profile at a moment, fitted to the slots that were over by then."""
        now = math.floor(at / self.slot)
        if now not in self._profiles:
            if len(self._profiles) > _CACHE_SIZE:
                self._profiles.clear()
            first, last = np.searchsorted(self.slots, [now - _HISTORY // self.slot, now])
            starts, counts = self.slots[first:last] * self.slot, self.counts[first:last]
            cells = self._hours[first:last]
            self._profiles[now] = fit_profile(starts, counts, cells, self.slot, now * self.slot, self.rate)
        return self._profiles[now]

    def _lower_ratio(self, low: float, high: float, at: float) -> float:
        """Return the lower bound of a span as a fraction of its expected requests, rounded to whole slots."""
        key = math.floor(at / self.slot), math.floor(low / self.slot), math.ceil(high / self.slot)
        if key not in self._lower_ratios:
            if len(self._lower_ratios) > _CACHE_SIZE:
                self._lower_ratios.clear()
            at, low, high = (float(slot * self.slot) for slot in key)
            ratios = np.sort(self._past_ratios(low, high, at))
            quantile = min(float(ratios[max(int(_QUANTILE * (len(ratios) + 1)) - 1, 0)]), 1.0) if len(ratios) else 1.0
            disjoint = min(len(ratios), int(len(ratios) * DAY / (high - low))) if high > low else 0
            self._lower_ratios[key] = quantile * (1 - 0.5 / (disjoint + 1))
        return self._lower_ratios[key]

    def _past_ratios(self, low: float, high: float, at: float) -> Floats:
        """Return the ratios of actual to expected requests for the same span on earlier days, the latest first."""
        lags = np.arange(max(math.ceil((high - at) / DAY), 1) * DAY, _HISTORY, DAY)
        history = np.searchsorted(self.slots, (at - lags) // self.slot)
        lags = lags[history >= 7 * DAY // self.slot]
        if not len(lags) or high == low:
            return np.zeros(0)
        slots, seconds = self._overlapping_slots(low, high)
        slots = slots - lags[:, None] // self.slot  # (lags, slots); a day has a whole number of slots
        index = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        inside = np.where(self.slots[index] == slots, seconds, 0.0)
        covered = np.flatnonzero(inside.sum(axis=1) >= _MIN_COVERAGE * (high - low))[:_MAX_SAMPLES]
        slots, index, inside = slots[covered], index[covered], inside[covered]
        profiles = [self._profile_at(at - lag) for lag in lags[covered].tolist()]
        expected = np.array(
            [
                profile.requests(self._hours[row], starts, lengths).sum()
                for profile, row, starts, lengths in zip(profiles, index, slots * self.slot, inside, strict=True)
            ]
        )
        actual = (self.counts[index] * inside).sum(axis=1) / self.slot
        ratios: Floats = actual[expected > 0] / expected[expected > 0]
        return ratios


def _seconds(moment: datetime, what: str) -> float:
    return check_aware(moment, what).timestamp()


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
