"""Changes of promises: which promises exclude each other, and when a change takes effect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairsync.errors import InvalidInputError, UnknownPromiseError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from fairsync.schedule import ScheduledPromise


def check_known(name: str, promises: Mapping[str, ScheduledPromise]) -> None:
    """Refuse an id that no promise has."""
    if name not in promises:
        raise UnknownPromiseError(f"there is no promise {name!r}.")


def all_but(name: str | None, promises: Mapping[str, ScheduledPromise]) -> dict[str, ScheduledPromise]:
    """Return all promises but one; None leaves out none."""
    if name is not None:
        check_known(name, promises)
    return {other: promise for other, promise in promises.items() if other != name}


def check_unique(promise: ScheduledPromise, others: Mapping[str, ScheduledPromise]) -> None:
    """Refuse a second promise to a group for the same windows: only the larger one would matter."""
    for name, other in others.items():
        if share_windows(promise, other):
            raise InvalidInputError(
                f"there is a promise for group {promise.group!r} and this window already: change {name!r}."
            )


def with_start_of(promise: ScheduledPromise, before: ScheduledPromise | None) -> ScheduledPromise:
    """Return a promise with the start of the one that it replaces, unless it has a start or other windows."""
    window = promise.window
    if (
        before is None
        or window.start is not None
        or (before.window.kind, before.window.zone) != (window.kind, window.zone)
    ):
        return promise
    return replace(promise, window=replace(window, start=before.window.start))


def split_at(
    before: ScheduledPromise | None, promise: ScheduledPromise, moment: datetime, now: datetime
) -> list[ScheduledPromise]:
    """Return a promise that holds from a moment on, followed by the one that holds until then, if there is one.

    A raised floor takes effect with the next window if the rest of the present one is too short for it; until then the
    promise that it replaces holds. A lowered floor takes effect at once.

    Examples
    --------
    At eight in the evening a floor is raised, and the rest of the day is too short for it.

    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import ScheduledPromise, Window
    >>> before, raised = (ScheduledPromise.of_group("toys", floor, Window.day("UTC")) for floor in (100, 900))
    >>> evening, midnight = datetime(2026, 3, 2, 20, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)
    >>> for promise in split_at(before, raised, midnight, evening):
    ...     print(promise)
    900 exposures of group=toys (each day from 2026-03-03 00:00 on, UTC)
    100 exposures of group=toys (each day until 2026-03-03 00:00, UTC)
    """
    window = promise.window
    if not window.recurs or window.at(moment) != window.after(moment):
        return [promise]  # the rest of the present window is enough
    later = replace(promise, window=replace(window, start=moment))
    if before is None or before.window.at(now) is None:
        return [later]
    if promise.floor <= before.floor or not before.window.recurs:
        return [promise]
    until = replace(before, window=replace(before.window, end=moment))
    return [later, until] if until.window.at(now) else [promise]


def share_windows(one: ScheduledPromise, other: ScheduledPromise) -> bool:
    """Return whether two promises are to one group, for some of the same windows."""
    return one.group == other.group and one.window.overlaps(other.window)
