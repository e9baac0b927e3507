"""Windows: the spans of time that promises are made for, by the calendar of a time zone.

A window is each hour, each day, each week, or one campaign ("from 1 March to 14 March"). Days follow the local clock of
the zone. So a day has 23 or 25 hours when daylight saving time begins or ends, an hour that is skipped has no span, and
an hour that repeats has two. The spans of a window follow each other without gaps or overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

from fairsync.errors import InvalidInputError
from fairsync.schedule.datetimes import check_aware, parse_aware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KINDS = ("hour", "day", "week", "campaign")

_SECOND, _HOUR, _DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


@dataclass(frozen=True, order=True)
class Span:
    """The time from ``start`` up to, not including, ``end``, both in UTC."""

    start: datetime
    end: datetime

    def __contains__(self, moment: datetime) -> bool:
        return self.start <= moment < self.end

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end - self.start).total_seconds()

    def to_dict(self) -> dict[str, str]:
        """Return a JSON-serialisable dictionary."""
        return {"start": self.start.isoformat(), "end": self.end.isoformat()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Span:
        """Return the object that :meth:`to_dict` describes."""
        return cls(parse_aware(values["start"], "start"), parse_aware(values["end"], "end"))


@dataclass(frozen=True)
class Window:
    """Each hour, day or week in a time zone, or one campaign. Use the class methods of these names to make one.

    Attributes
    ----------
    kind : str
        ``"hour"``, ``"day"``, ``"week"`` (from Monday) or ``"campaign"``.
    zone : str
        IANA name of the time zone.
    start, end : datetime or None
        Start and end in UTC. A campaign needs both. For hours, days and weeks they are optional bounds: spans that do
        not lie wholly between them are left out.

    Examples
    --------
    The day on which daylight saving time begins in Berlin has 23 hours.

    >>> from datetime import UTC, date, datetime
    >>> span = Window.day("Europe/Berlin").at(datetime(2026, 3, 29, 12, tzinfo=UTC))
    >>> span.start.isoformat(), span.seconds / 3600
    ('2026-03-28T23:00:00+00:00', 23.0)
    >>> campaign = Window.campaign(date(2026, 3, 1), date(2026, 3, 14), "Europe/Berlin")
    >>> campaign.at(datetime(2026, 3, 1, tzinfo=UTC)).seconds / 86_400, campaign.at(span.start)
    (14.0, None)

    A day that begins before ``start``, or ends after ``end``, is left out.

    >>> later = Window("day", "UTC", start=datetime(2026, 3, 1, 9, tzinfo=UTC))
    >>> later.at(datetime(2026, 3, 1, 12, tzinfo=UTC)), later.after(datetime(2026, 2, 1, tzinfo=UTC)).start.isoformat()
    (None, '2026-03-02T00:00:00+00:00')
    """

    kind: str
    zone: str
    start: datetime | None = None
    end: datetime | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInputError(f"there is no window {self.kind!r}: choose one of {', '.join(KINDS)}.")
        check_zone(self.zone)
        if self.recurs:
            for name, edge in (("start", self.start), ("end", self.end)):
                object.__setattr__(self, name, None if edge is None else check_aware(edge, name))
        else:
            object.__setattr__(self, "start", check_aware(self.start, "start"))
            object.__setattr__(self, "end", check_aware(self.end, "end"))
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise InvalidInputError(
                f"the {self.kind} ends at {self.end.isoformat()}, not after its start at {self.start.isoformat()}: swap"
                " the two, or choose a later end."
            )

    @classmethod
    def hour(cls, zone: str) -> Window:
        """Return the window of each hour by the local clock of a zone."""
        return cls("hour", zone)

    @classmethod
    def day(cls, zone: str) -> Window:
        """Return the window of each day, from midnight to midnight."""
        return cls("day", zone)

    @classmethod
    def week(cls, zone: str) -> Window:
        """Return the window of each week, from Monday to Sunday."""
        return cls("week", zone)

    @classmethod
    def campaign(cls, start: date, end: date, zone: str) -> Window:
        """Return a window with a single span.

        Parameters
        ----------
        start, end
            Dates in the zone's calendar, with the end date included, or aware datetimes, with the end excluded.
        zone
            IANA name of the time zone.
        """
        return cls("campaign", zone, boundary_of(start, "start", zone), boundary_of(end, "end", zone))

    @property
    def recurs(self) -> bool:
        """Whether another span follows when one ends."""
        return self.kind != "campaign"

    def overlaps(self, other: Window) -> bool:
        """Return whether the two windows have a span in common."""
        if not self.recurs or (self.kind, self.zone) != (other.kind, other.zone):
            return self == other
        starts, ends = ([one for one in edges if one] for edges in ((self.start, other.start), (self.end, other.end)))
        return not starts or not ends or max(starts) < min(ends)

    def at(self, moment: datetime) -> Span | None:
        """Return the span that contains a moment, or None before the first span and after the last."""
        moment = check_aware(moment, "moment")
        if self.kind == "campaign":
            assert self.start is not None
            assert self.end is not None
            span = Span(self.start, self.end)
            return span if moment in span else None
        return self._within_bounds(self._calendar_span(moment))

    def after(self, moment: datetime) -> Span | None:
        """Return the first span that begins at a moment or later, or None if the last one began before."""
        moment = check_aware(moment, "moment")
        if self.kind == "campaign":
            assert self.start is not None
            return self.at(self.start) if moment <= self.start else None
        first = moment if self.start is None else max(moment, self.start)
        here = self._calendar_span(first)
        return self._within_bounds(here if here.start == first else self._calendar_span(here.end))

    def between(self, start: datetime, end: datetime) -> Iterator[Span]:
        """Yield the spans that lie wholly between two moments, in order.

        Examples
        --------
        >>> from datetime import UTC, datetime
        >>> night = datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC)
        >>> [span.seconds / 3600 for span in Window.day("Europe/Berlin").between(*night)]
        [25.0]
        """
        span = self.after(start)
        while span is not None and span.end <= end:
            yield span
            span = self.after(span.end)

    def local(self, moment: datetime) -> str:
        """Return a moment as text in the zone's local time."""
        return f"{moment.astimezone(ZoneInfo(self.zone)):%Y-%m-%d %H:%M}"

    def __str__(self) -> str:
        start, end = (moment and self.local(moment) for moment in (self.start, self.end))
        if self.kind == "campaign":
            return f"campaign from {start} to {end}, {self.zone}"
        return f"each {self.kind}{f' from {start} on' if start else ''}{f' until {end}' if end else ''}, {self.zone}"

    def to_dict(self) -> dict[str, str]:
        """Return a JSON-serialisable dictionary."""
        edges = {"start": self.start, "end": self.end}
        plain = {"every": self.kind, "zone": self.zone}
        return plain | {name: moment.isoformat() for name, moment in edges.items() if moment is not None}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Window:
        """Return the object that :meth:`to_dict` describes."""
        edges = {name: parse_aware(values[name], name) for name in ("start", "end") if name in values}
        return cls(values.get("every") or values["kind"], values["zone"], **edges)  # "kind" in earlier versions

    def _within_bounds(self, span: Span) -> Span | None:
        begins = self.start is None or self.start <= span.start
        return span if begins and (self.end is None or span.end <= self.end) else None

    def _calendar_span(self, moment: datetime) -> Span:
        """Return the hour, day or week of the calendar that contains a moment."""
        if self.kind == "hour":
            return _hour_at(moment, ZoneInfo(self.zone))
        return _days_at(moment, self.zone, 1 if self.kind == "day" else 7)


def check_zone(zone: str) -> None:
    """Raise an error unless ``zone`` is the IANA name of a time zone, which means the same on every machine.

    Examples
    --------
    >>> check_zone("localtime")
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: there is no time zone 'localtime'. Give an IANA name, ...
    """
    names = _zone_names()
    if not isinstance(zone, str) or zone not in names:
        close = get_close_matches(str(zone), names, n=2, cutoff=0.6)
        hint = f"Did you mean {' or '.join(close)}?" if close else "Give an IANA name, such as Europe/Berlin or UTC."
        raise InvalidInputError(f"there is no time zone {zone!r}. {hint}")


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    """Return the names in the time zone database, without those that each machine gives another meaning."""
    return frozenset(available_timezones()) - {"localtime", "posixrules", "Factory"}


def boundary_of(edge: date, which: str, zone: str) -> datetime:
    """Return the moment at which a date begins (``which="start"``) or is over (``which="end"``) in a zone.

    Examples
    --------
    >>> boundary_of(date(2026, 3, 14), "end", "Europe/Berlin").isoformat()
    '2026-03-14T23:00:00+00:00'
    """
    check_zone(zone)
    if isinstance(edge, datetime):
        return check_aware(edge, which)
    if not isinstance(edge, date):
        raise InvalidInputError(f"{which} must be a date or a datetime with a time zone, got {edge!r}.")
    return _start_of_day(edge + _DAY if which == "end" else edge, zone)


def _hour_at(moment: datetime, zone: ZoneInfo) -> Span:
    """Return the longest span around a moment in which neither the local hour nor its UTC offset changes."""
    local = moment.astimezone(zone)
    full = moment - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
    start, end = full, full + _HOUR

    def has_same_offset(other: datetime) -> bool:
        return other.astimezone(zone).utcoffset() == local.utcoffset()

    second = moment.replace(microsecond=0)
    if not has_same_offset(start):  # the UTC offset changed within the hour
        start = _first_second(start, second, has_same_offset)
    if not has_same_offset(end - _SECOND):
        end = _first_second(second, end - _SECOND, lambda other: not has_same_offset(other))
    return Span(start, end)


def _days_at(moment: datetime, zone: str, days: int) -> Span:
    local = moment.astimezone(ZoneInfo(zone)).date()
    first = local if days == 1 else local - timedelta(days=local.weekday())
    start, end = _start_of_day(first, zone), _start_of_day(first + days * _DAY, zone)
    # Where midnight comes twice, the local date can be the day before; and a calendar can skip a whole day.
    while end <= moment:
        first += days * _DAY
        start, end = end, _start_of_day(first + days * _DAY, zone)
    return Span(start, end)


@lru_cache(maxsize=4096)
def _start_of_day(day: date, zone: str) -> datetime:
    """Return the first moment at which the local date of a zone is this day or a later one."""
    midnight, place = datetime.combine(day, time()), ZoneInfo(zone)
    first, last = sorted(midnight.replace(tzinfo=place, fold=fold).astimezone(UTC) for fold in (0, 1))

    def has_come(moment: datetime) -> bool:
        return moment.astimezone(place).replace(tzinfo=None) >= midnight

    return first if has_come(first) else _first_second(first, last, has_come)  # midnight itself was skipped


def _first_second(before: datetime, after: datetime, holds: Callable[[datetime], bool]) -> datetime:
    """Find by bisection the first second at which ``holds``, given that it is false before and true after."""
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(before + middle * _SECOND) else (middle, high)
    return before + high * _SECOND
