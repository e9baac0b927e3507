"""Promises as the API and the settings give them, made into promises that can be planned."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError
from fairsync.windows import Promise, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.groups import Grouped, Label
    from fairsync.service.records import PromiseRecord

# A plan looks at every hour of it.
_LONGEST_CAMPAIGN = timedelta(days=400)


def promises_of(records: Sequence[PromiseRecord], groups: Grouped) -> list[Promise]:
    """Return what the settings promise; two promises to one group for the same windows are refused.

    Only the larger could ever matter, and one of them is most likely a slip.
    """
    promises = [promise_of(record, groups) for record in records]
    first: dict[tuple[Label, Window], int] = {}
    for place, promise in enumerate(promises, start=1):
        other = first.setdefault((promise.group, promise.window), place)
        if other != place:
            raise InvalidInputError(
                f"promises {other} and {place} of the settings are for the same windows: {promises[other - 1]}, and"
                f" {promise}. Keep one of them."
            )
    return promises


def promise_of(record: PromiseRecord, groups: Grouped) -> Promise:
    """Return what is promised, to a group that there is and in a window that makes sense."""
    groups.code_of(record.group)
    given = record.window
    if given.every == "campaign" and (given.start is None or given.end is None):
        raise InvalidInputError("a campaign needs a start and an end.")
    window = Window(given.every, given.zone, given.start, given.end)
    if window.start is not None and window.end is not None and window.end - window.start > _LONGEST_CAMPAIGN:
        raise InvalidInputError(f"a campaign lasts {_LONGEST_CAMPAIGN.days} days at most: make several.")
    return Promise(record.group, record.floor, window)
