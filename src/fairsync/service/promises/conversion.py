"""Conversion between records of the API and promises of the schedule."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal, cast
from zoneinfo import ZoneInfo

from fairsync.errors import InvalidInputError
from fairsync.schedule import ScheduledPromise, Window
from fairsync.schedule.window import boundary_of, check_zone
from fairsync.service.promises.promise_changes import share_windows
from fairsync.service.schema import WindowRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.service.schema import PromiseRecord

# A plan considers every hour of a campaign.
_LONGEST_CAMPAIGN = timedelta(days=400)


def promises_from_records(records: Sequence[PromiseRecord], catalog: Catalog) -> list[ScheduledPromise]:
    """Return the promises of the settings; two promises to one group for the same windows are refused.

    Only the larger could ever matter, and one of them is most likely a slip.
    """
    promises = [promise_from_record(record, catalog) for record in records]
    of_group: dict[Label, list[int]] = {}
    for place, promise in enumerate(promises):
        for before in of_group.setdefault(promise.group, []):
            other = promises[before]
            if share_windows(promise, other):
                raise InvalidInputError(
                    f"promises {before + 1} and {place + 1} of the settings are for the same windows: {other}, and"
                    f" {promise}. Keep one of them."
                )
        of_group[promise.group].append(place)
    return promises


def promise_from_record(record: PromiseRecord, catalog: Catalog) -> ScheduledPromise:
    """Return a promise; an unknown group, and a window that makes no sense, are refused."""
    catalog.code_of(record.group)
    window = window_from_record(record.window)
    if not window.recurs and window.end - window.start > _LONGEST_CAMPAIGN:  # type: ignore[operator]
        raise InvalidInputError(f"a campaign lasts {_LONGEST_CAMPAIGN.days} days at most: make several.")
    return ScheduledPromise.of_group(record.group, record.floor, window, catalog.group_attribute)


def window_from_record(record: WindowRecord) -> Window:
    """Return the window of a record. A day starts at its first moment in the zone and ends with its last.

    Examples
    --------
    >>> from fairsync.service.schema import WindowRecord
    >>> record = WindowRecord(every="campaign", zone="Europe/Berlin", start="2026-03-01", end="2026-03-14")
    >>> window = window_from_record(record)
    >>> window.start.isoformat(), window.end.isoformat()
    ('2026-02-28T23:00:00+00:00', '2026-03-14T23:00:00+00:00')
    """
    if record.every == "campaign" and (record.start is None or record.end is None):
        raise InvalidInputError("a campaign needs a start and an end.")
    start, end = (_boundary(name, getattr(record, name), record.zone) for name in ("start", "end"))
    return Window(record.every, record.zone, start, end)


def _boundary(name: str, text: str | None, zone: str) -> datetime | None:
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
        return boundary_of(moment, name, zone)
    except OverflowError:
        raise InvalidInputError("start and end must lie in the years 1900 to 9000") from None


def window_record(window: Window) -> WindowRecord:
    """Return the record of a window."""
    every = cast('Literal["hour", "day", "week", "campaign"]', window.kind)
    start, end = (None if moment is None else moment.isoformat() for moment in (window.start, window.end))
    return WindowRecord(every=every, zone=window.zone, start=start, end=end)
