"""Conversion between records of the API and promises of the schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal, cast

from fairsync.errors import InvalidInputError
from fairsync.schedule import Promise, Window
from fairsync.service.promises.promise_changes import share_windows
from fairsync.service.schema import WindowRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.groups import Grouped
    from fairsync.service.schema import PromiseRecord

# A plan considers every hour of a campaign.
_LONGEST_CAMPAIGN = timedelta(days=400)


def promises_from_records(records: Sequence[PromiseRecord], groups: Grouped) -> list[Promise]:
    """Return the promises of the settings; two promises to one group for the same windows are refused.

    Only the larger could ever matter, and one of them is most likely a slip.
    """
    promises = [promise_from_record(record, groups) for record in records]
    for place, promise in enumerate(promises):
        for before, other in enumerate(promises[:place]):
            if share_windows(promise, other):
                raise InvalidInputError(
                    f"promises {before + 1} and {place + 1} of the settings are for the same windows: {other}, and"
                    f" {promise}. Keep one of them."
                )
    return promises


def promise_from_record(record: PromiseRecord, groups: Grouped) -> Promise:
    """Return a promise; an unknown group, and a window that makes no sense, are refused."""
    groups.code_of(record.group)
    given = record.window
    if given.every == "campaign" and (given.start is None or given.end is None):
        raise InvalidInputError("a campaign needs a start and an end.")
    window = Window(given.every, given.zone, given.start, given.end)
    if not window.recurs and window.end - window.start > _LONGEST_CAMPAIGN:  # type: ignore[operator]
        raise InvalidInputError(f"a campaign lasts {_LONGEST_CAMPAIGN.days} days at most: make several.")
    return Promise(record.group, record.floor, window)


def window_record(window: Window) -> WindowRecord:
    """Return the record of a window."""
    every = cast('Literal["hour", "day", "week", "campaign"]', window.kind)
    return WindowRecord(every=every, zone=window.zone, start=window.start, end=window.end)
