"""How many requests are still to come: what is expected, and what can be counted on."""

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

_KEPT = 84 * DAY
# Traffic falls below the cautious count about once in twenty times.
_QUANTILE = 0.05
_MOST_QUESTIONS = 39
_MOST_KNOWN = 1000
# A past span is a fair comparison if so much of it was observed.
_LEAST_SEEN = 0.8


class TrafficForecast(Protocol):
    """What plans need of a forecast."""

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the requests expected between two moments."""
        ...

    def cautious(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the requests that can be counted on between two moments."""
        ...


def _nothing() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Forecast:
    """Requests to come, learnt from requests per time slot. Never changed: observing gives a new one.

    It keeps what was observed in the last twelve weeks, and everything follows from that: so slots may come late,
    twice (the last word counts) or never (unknown, which is not 0), and a clock that jumps spoils no more than the
    slots that it names.

    Parameters
    ----------
    rate
        Requests per second to expect as long as nothing was observed.
    zone
        IANA name of the time zone by whose clock people live.
    slot
        Seconds of a time slot: a whole part of an hour.

    Examples
    --------
    >>> from datetime import UTC, datetime, timedelta
    >>> noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    >>> forecast = Forecast(rate=2.0)
    >>> forecast.expected(noon, noon + timedelta(hours=1)), forecast.cautious(noon, noon + timedelta(hours=1))
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
    _known: dict[int, SeasonalProfile] = field(default_factory=dict, init=False, repr=False)
    _sure: dict[tuple[int, int, int], float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.rate, bool) or not isinstance(self.rate, Real) or not 0 <= self.rate < math.inf:
            raise InvalidInputError(f"rate must be a number of requests per second, 0 or more, got {self.rate!r}.")
        check_zone(self.zone)
        if isinstance(self.slot, bool) or not isinstance(self.slot, int) or self.slot < 60 or HOUR % self.slot:
            raise InvalidInputError(f"slot must be 60 seconds or more and divide an hour, got {self.slot!r}: try 900.")
        for values in (self.slots, self.counts):
            values.setflags(write=False)

    def observe(self, slot: datetime, requests: int) -> Forecast:
        """Return a forecast that also knows how many requests came in a slot, named by any moment in it.

        Slots that are not over yet may be observed too; they are used when they are.
        """
        if isinstance(requests, bool) or not isinstance(requests, Integral) or not 0 <= requests < 2**53:
            raise InvalidInputError(f"requests must be a whole number, 0 or more, got {requests!r}.")
        return self._with(np.array([int(_seconds(slot, "slot")) // self.slot]), np.array([int(requests)]))

    def learn(self, times: ArrayLike, start: datetime, end: datetime) -> Forecast:
        """Return a forecast that also knows past requests: all that came in the slots from start to end.

        Parameters
        ----------
        times
            Unix seconds of requests, in any order; those outside are ignored.
        start, end
            In between, a slot without a request had none.
        """
        first, last = (int(_seconds(edge, name)) // self.slot for edge, name in ((start, "start"), (end, "end")))
        if first >= last:
            raise InvalidInputError(f"from start to end is no whole slot of {self.slot} seconds: choose a later end.")
        places = np.asarray(times).astype(np.int64) // self.slot - first
        counts = np.bincount(places[(places >= 0) & (places < last - first)], minlength=last - first)
        return self._with(np.arange(first, last), counts)

    def expected(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        """Return the requests expected between two moments.

        Parameters
        ----------
        start, end
            From, and up to.
        now
            Only what was over by then is known; by default the start. Where that covers a part of the span, what
            came is counted instead of what was to be expected.
        """
        low, high, at = self._span(start, end, now)
        slots, seconds = self._pieces(low, high)
        over = (slots + 1) * self.slot <= at
        place, known = self._places(np.where(over, slots, -1))
        starts = slots[~known] * self.slot
        to_come = self._usual(at).requests(hours_of_week(starts, self.zone), starts, seconds[~known])
        return float(self.counts[place] @ seconds[known]) / self.slot + float(to_come.sum())

    def cautious(self, start: datetime, end: datetime, now: datetime | None = None) -> float:
        r"""Return the requests that can be counted on between two moments, nineteen times in twenty.

        The same question is put to the past: one day ago, two days ago, ... as long as there was a week to learn from,
        what would have been expected, and what came? Of those ratios the 5 % quantile is taken (with fewer than 39, the
        lowest), at most 1, times
        :math:`1 - \frac{1}{2 (n + 1)}` for n spans that do not overlap: half of what is expected if nothing is known.

        Parameters
        ----------
        start, end, now
            As for :meth:`expected`. What came before ``now`` is not in doubt.
        """
        low, high, at = self._span(start, end, now)
        if low < at:
            split = min(_moment(at), check_aware(end, "end"))
            came = self.expected(start, split, now)
            return came + (self.cautious(split, end, now) if high > at else 0.0)
        return self.expected(start, end, now) * self._sure_part(low, high, at)

    def known(self, start: datetime, end: datetime) -> float:
        """Return the share of the time between two moments that was observed."""
        low, high, _ = self._span(start, end, None)
        slots, seconds = self._pieces(low, high)
        return float(seconds[self._places(slots)[1]].sum() / (high - low)) if high > low else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        settings = {"rate": self.rate, "zone": self.zone, "slot": self.slot}
        return settings | {"slots": self.slots.tolist(), "counts": self.counts.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Forecast:
        """Return what :meth:`to_dict` wrote."""
        empty = cls(values["rate"], values["zone"], values["slot"])
        slots, counts = (np.array(values[name], dtype=np.int64) for name in ("slots", "counts"))
        return empty._with(slots, counts)

    def _with(self, slots: Ints, counts: Ints) -> Forecast:
        """Return a forecast with more slots; where one is known already, the new count replaces the old one."""
        every, place = np.unique(np.concatenate([slots[::-1], self.slots[::-1]]), return_index=True)
        merged = np.concatenate([counts[::-1], self.counts[::-1]])[place]
        # By number, not by age: a clock that jumps ahead must not make all that was learnt look old.
        most = _KEPT // self.slot
        new = replace(self, slots=every[-most:], counts=merged[-most:].astype(np.int64))
        if len(slots) and len(every) <= most:  # what was usual before the first of them is what it was
            first = int(slots.min())
            new._known.update({now: usual for now, usual in self._known.items() if now <= first})
            new._sure.update({question: part for question, part in self._sure.items() if question[0] <= first})
        return new

    def _span(self, start: datetime, end: datetime, now: datetime | None) -> tuple[float, float, float]:
        low, high = _seconds(start, "start"), _seconds(end, "end")
        if low > high:
            raise InvalidInputError(f"the span ends at {end}, before its start at {start}: swap the two.")
        return low, high, low if now is None else _seconds(now, "now")

    def _pieces(self, low: float, high: float) -> tuple[Ints, Floats]:
        """Return the slots that a span touches, and the seconds of each that lie in it."""
        slots = np.arange(math.floor(low / self.slot), math.ceil(high / self.slot), dtype=np.int64)
        inside = np.minimum((slots + 1) * self.slot, high) - np.maximum(slots * self.slot, low)
        return slots, np.maximum(inside, 0.0)

    def _places(self, slots: Ints) -> tuple[Ints, Bools]:
        """Return where slots stand among those observed, and which of them do."""
        place = np.searchsorted(self.slots, slots)
        inside = place < len(self.slots)
        seen = np.zeros(len(slots), dtype=np.bool_)
        seen[inside] = self.slots[place[inside]] == slots[inside]
        return place[seen], seen

    @cached_property
    def _hours(self) -> Ints:
        """The hour of the week of each slot that was observed."""
        return hours_of_week(self.slots * self.slot, self.zone)

    def _usual(self, at: float) -> SeasonalProfile:
        """Return what was usual at a moment, from the slots that were over by then."""
        now = math.floor(at / self.slot)
        if now not in self._known:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            first, last = np.searchsorted(self.slots, [now - _KEPT // self.slot, now])
            starts, seen = self.slots[first:last] * self.slot, self.counts[first:last]
            cells = self._hours[first:last]
            self._known[now] = fit_profile(starts, seen, cells, self.slot, now * self.slot, self.rate)
        return self._known[now]

    def _sure_part(self, low: float, high: float, at: float) -> float:
        """Return which part of what is expected can be counted on, to whole slots."""
        question = math.floor(at / self.slot), math.floor(low / self.slot), math.ceil(high / self.slot)
        if question not in self._sure:
            if len(self._sure) > _MOST_KNOWN:
                self._sure.clear()
            at, low, high = (float(slot * self.slot) for slot in question)
            ratios = np.sort(self._ratios(low, high, at))
            lowest = min(float(ratios[max(int(_QUANTILE * (len(ratios) + 1)) - 1, 0)]), 1.0) if len(ratios) else 1.0
            apart = min(len(ratios), int(len(ratios) * DAY / (high - low))) if high > low else 0
            self._sure[question] = lowest * (1 - 0.5 / (apart + 1))
        return self._sure[question]

    def _ratios(self, low: float, high: float, at: float) -> Floats:
        """Return what came over what was expected, for the same question put on earlier days, the latest first."""
        backs = np.arange(max(math.ceil((high - at) / DAY), 1) * DAY, _KEPT, DAY)
        known = np.searchsorted(self.slots, (at - backs) // self.slot)
        backs = backs[known >= 7 * DAY // self.slot]
        if not len(backs) or high == low:
            return np.zeros(0)
        slots, seconds = self._pieces(low, high)
        slots = slots - backs[:, None] // self.slot  # a day has a whole number of slots: (questions, slots)
        place = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        inside = np.where(self.slots[place] == slots, seconds, 0.0)
        fair = np.flatnonzero(inside.sum(axis=1) >= _LEAST_SEEN * (high - low))[:_MOST_QUESTIONS]
        slots, place, inside = slots[fair], place[fair], inside[fair]
        usual = [self._usual(at - back) for back in backs[fair].tolist()]
        expected = np.array(
            [
                one.requests(self._hours[where], starts, lengths).sum()
                for one, where, starts, lengths in zip(usual, place, slots * self.slot, inside, strict=True)
            ]
        )
        came = (self.counts[place] * inside).sum(axis=1) / self.slot
        ratios: Floats = came[expected > 0] / expected[expected > 0]
        return ratios


def _seconds(moment: datetime, what: str) -> float:
    return check_aware(moment, what).timestamp()


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
