"""Promises as the API and the settings give them, made into promises that can be planned."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from fairsync.errors import InvalidInputError
from fairsync.schedule import Promise, Window
from fairsync.schedule.window import check_zone, edge_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Grouped
    from fairsync.service.schema import PromiseRecord, WindowRecord

# A plan looks at every hour of it.
_LONGEST_CAMPAIGN = timedelta(days=400)


def promises_of(records: Sequence[PromiseRecord], groups: Grouped) -> list[Promise]:
    """Return what the settings promise; two promises to one group for the same windows are refused.

    Only the larger could ever matter, and one of them is most likely a slip.
    """
    promises = [promise_of(record, groups) for record in records]
    for place, promise in enumerate(promises):
        for before, other in enumerate(promises[:place]):
            if _meet(promise, other):
                raise InvalidInputError(
                    f"promises {before + 1} and {place + 1} of the settings are for the same windows: {other}, and"
                    f" {promise}. Keep one of them."
                )
    return promises


def promise_of(record: PromiseRecord, groups: Grouped) -> Promise:
    """Return what is promised, to a group that there is and in a window that makes sense."""
    groups.code_of(record.group)
    window = window_of(record.window)
    if not window.recurs and window.end - window.start > _LONGEST_CAMPAIGN:  # type: ignore[operator]
        raise InvalidInputError(f"a campaign lasts {_LONGEST_CAMPAIGN.days} days at most: make several.")
    return Promise(record.group, record.floor, window)


def window_of(record: WindowRecord) -> Window:
    """Return the window of a record. A day starts at its first moment in the zone and ends with its last.

    Examples
    --------
    >>> from fairsync.service.schema import WindowRecord
    >>> record = WindowRecord(every="campaign", zone="Europe/Berlin", start="2026-03-01", end="2026-03-14")
    >>> window = window_of(record)
    >>> window.start.isoformat(), window.end.isoformat()
    ('2026-02-28T23:00:00+00:00', '2026-03-14T23:00:00+00:00')
    """
    if record.every == "campaign" and (record.start is None or record.end is None):
        raise InvalidInputError("a campaign needs a start and an end.")
    start, end = (_edge(name, getattr(record, name), record.zone) for name in ("start", "end"))
    return Window(record.every, record.zone, start, end)


def _edge(name: str, text: str | None, zone: str) -> datetime | None:
    """Return the moment that a text means as a start or an end: a day of the zone, or a moment with its offset."""
    if text is None:
        return None
    check_zone(zone)
    try:
        is_day = re.fullmatch(r"\d{4}-\d\d-\d\d", text)
        moment = date.fromisoformat(text) if is_day else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"{name} is {text!r:.50}: write a day, such as 2026-03-01, or a moment, such as 2026-03-01T08:00:00+01:00."
        ) from None
    if isinstance(moment, datetime) and moment.utcoffset() is None:
        meant, day = moment.replace(tzinfo=ZoneInfo(zone)).isoformat(), moment.date().isoformat()
        raise InvalidInputError(f"{name} is {text} without its offset from UTC: write {meant}, or the day alone, {day}")
    try:
        return edge_of(moment, name, zone)
    except OverflowError:
        raise InvalidInputError("start and end must lie in the years 1900 to 9000") from None


def check_alone(promise: Promise, others: Mapping[str, Promise]) -> None:
    """Refuse a second promise to a group for the same windows: only the larger one would matter."""
    for name, other in others.items():
        if _meet(promise, other):
            raise InvalidInputError(
                f"there is a promise for group {promise.group!r} and this window already: change {name!r}."
            )


def as_before(promise: Promise, before: Promise | None) -> Promise:
    """Return a promise that begins when the one that it changes does, unless it says when."""
    window = promise.window
    if (
        before is None
        or window.start is not None
        or (before.window.kind, before.window.zone) != (window.kind, window.zone)
    ):
        return promise
    return replace(promise, window=replace(window, start=before.window.start))


def split_at(before: Promise | None, promise: Promise, moment: datetime, now: datetime) -> list[Promise]:
    """Return a promise that holds from a moment on, and before it what it replaces, if that is asked for less.

    What is lowered is lowered at once.

    Examples
    --------
    At eight in the evening a floor is raised, for which the rest of the day is too short.

    >>> from datetime import UTC, datetime
    >>> before, raised = (Promise("toys", floor, Window.day("UTC")) for floor in (100, 900))
    >>> evening, midnight = datetime(2026, 3, 2, 20, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)
    >>> for promise in split_at(before, raised, midnight, evening):
    ...     print(promise)
    900 exposures of 'toys' (each day from 2026-03-03 00:00 on, UTC)
    100 exposures of 'toys' (each day until 2026-03-03 00:00, UTC)
    """
    window = promise.window
    if not window.recurs or window.at(moment) != window.after(moment):
        return [promise]  # what is left of the present window is enough
    later = replace(promise, window=replace(window, start=moment))
    if before is None or before.window.at(now) is None:
        return [later]
    if promise.floor <= before.floor or not before.window.recurs:
        return [promise]
    until = replace(before, window=replace(before.window, end=moment))
    return [later, until] if until.window.at(now) else [promise]


def _meet(one: Promise, other: Promise) -> bool:
    """Return whether two promises are to one group, for some of the same windows."""
    return one.group == other.group and one.window.overlaps(other.window)
