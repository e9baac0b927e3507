"""Conversion between records of the API and promises of the schedule."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast
from zoneinfo import ZoneInfo

from fairsync.errors import FairSyncError, InvalidInputError
from fairsync.promises import Promise, each
from fairsync.promises.selected_rows import SelectedRows
from fairsync.schedule import ScheduledPromise, Window
from fairsync.schedule.window import boundary_of, check_zone
from fairsync.service.promises.columns import check_group, group_of
from fairsync.service.promises.promise_changes import repeats
from fairsync.service.promises.promise_series import days_of, first_days
from fairsync.service.schema import WindowRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog import Catalog
    from fairsync.service.schema import PromiseRecord

# A plan considers every hour of a campaign.
_LONGEST_CAMPAIGN = timedelta(days=400)


def promises_from_records(records: Sequence[PromiseRecord], catalog: Catalog) -> list[ScheduledPromise]:
    """Return promises that are given together; two of the same kind about the same items and windows are refused.

    Only the stricter could ever matter, and one of them is most likely a slip.
    """
    promises, rows = [], SelectedRows(catalog)
    rows.look_up(record.where or {} for record in records)
    for place, record in enumerate(records):
        try:
            promises.append(promise_from_record(record, catalog, rows))
        except FairSyncError as error:
            raise InvalidInputError(f"promise {place + 1} of {len(records)}: {error}") from error
    of_selection: dict[str, list[int]] = {}
    for place, promise in enumerate(promises):
        for before in of_selection.setdefault(promise.selection, []):
            other = promises[before]
            if repeats(promise, other):
                raise InvalidInputError(
                    f"promises {before + 1} and {place + 1} are for the same windows: {other}, and {promise}. Keep one"
                    " of them."
                )
        of_selection[promise.selection].append(place)
    return promises


def promise_from_record(record: PromiseRecord, catalog: Catalog, rows: SelectedRows | None = None) -> ScheduledPromise:
    """Return a promise; a floor whose conditions no item meets, and a window that makes no sense, are refused.

    Parameters
    ----------
    record
        The promise as the API or the settings give it.
    catalog
        The items.
    rows
        Finds items of the catalog: one for all records that are converted together is faster.
    """
    window = window_from_record(record.window)
    if not window.recurs and window.end - window.start > _LONGEST_CAMPAIGN:  # type: ignore[operator]
        raise InvalidInputError(f"a campaign lasts {_LONGEST_CAMPAIGN.days} days at most: make several.")
    if days_of(window) is not None and record.each is None:
        raise InvalidInputError("a window of first days begins for each label when it comes: give each, or a start.")
    if record.group is not None and record.floor is not None:
        check_group(record.group, catalog)
        return ScheduledPromise.of_group(record.group, record.floor, window, catalog.group_attribute)
    promise = Promise(
        record.where or {},
        record.at_least,
        record.at_most,
        record.at_most_per_list,
        record.name,
        each=record.each,
        priority=record.priority,
        max_price=record.max_price,
    )
    _check_selection(promise, catalog, SelectedRows(catalog) if rows is None else rows)
    return ScheduledPromise(promise, window)


def _check_selection(promise: Promise, catalog: Catalog, rows: SelectedRows) -> None:
    """Refuse conditions that make no sense, and a floor for items that there are none of."""
    if promise.each is not None:
        each(catalog, promise.each, at_least=1, where=promise.where)  # refuses an attribute without labels
        return
    if promise.at_least is not None:
        rows.check_labels(promise.where)
    found = rows.of(promise.where)
    if promise.at_least is not None and not rows.count(found):
        raise InvalidInputError(f"no item meets {promise.name}: add items first, or change the conditions.")


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
    if record.days is not None:
        if record.every != "campaign" or record.start is not None or record.end is not None:
            raise InvalidInputError("days are the length of a campaign without a start and an end, with each.")
        check_zone(record.zone)
        return first_days(record.days, record.zone)
    if record.every == "campaign" and (record.start is None or record.end is None):
        raise InvalidInputError("a campaign needs a start and an end, or with each a number of days.")
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


def promise_fields(promise: ScheduledPromise, attribute: str) -> dict[str, Any]:
    """Return what a view says about a promise itself.

    Parameters
    ----------
    promise
        The promise.
    attribute
        The attribute of the groups.
    """
    given = promise.promise
    return {
        "name": given.name,
        "where": dict(given.where),
        "at_least": given.at_least,
        "at_most": given.at_most,
        "at_most_per_list": given.at_most_per_list,
        "priority": given.priority,
        "max_price": given.max_price,
        "each": given.each,
        "window": window_record(promise.window),
        "group": group_of(promise, attribute),
    }


def window_record(window: Window) -> WindowRecord:
    """Return the record of a window."""
    every = cast('Literal["hour", "day", "week", "campaign"]', window.kind)
    start, end = (None if moment is None else moment.isoformat() for moment in (window.start, window.end))
    return WindowRecord(every=every, zone=window.zone, start=start, end=end)
