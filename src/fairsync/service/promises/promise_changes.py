"""Changes of promises: which promises exclude each other, and when a change takes effect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError, UnknownPromiseError
from fairsync.promises.list_limits import tree_of
from fairsync.promises.resolve import find_atoms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from fairsync.catalog import Catalog
    from fairsync.promises import Promise
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


def check_unique_all(promises: Mapping[str, ScheduledPromise], others: Mapping[str, ScheduledPromise]) -> None:
    """Refuse new promises that repeat others, or each other."""
    by_selection: dict[str, dict[str, ScheduledPromise]] = {}
    for name, other in others.items():
        by_selection.setdefault(other.selection, {})[name] = other
    for name, promise in promises.items():
        same = by_selection.setdefault(promise.selection, {})
        check_unique(promise, same)
        same[name] = promise


def check_unique(promise: ScheduledPromise, others: Mapping[str, ScheduledPromise]) -> None:
    """Refuse a second promise of the same kind for the same items and windows: only the stricter one would matter."""
    for name, other in others.items():
        if repeats(promise, other):
            raise InvalidInputError(
                f"there is a promise about {promise.promise.name} for this window already: change that one, whose id is"
                f" {name!r}."
            )


def check_list_limits(catalog: Catalog, asked: Iterable[ScheduledPromise], others: Iterable[ScheduledPromise]) -> None:
    """Refuse a promise that limits its items per list, if its items cross those of another one that does.

    Parameters
    ----------
    catalog
        The items.
    asked, others
        The promises that are asked for, and those that are made.
    """
    asked = list(asked)
    if all(one.promise.at_most_per_list is None for one in asked):
        return
    limited = {one.selection: one.promise for one in (*asked, *others) if one.promise.at_most_per_list is not None}
    atoms = find_atoms(catalog, tuple(limited.values()))
    names = [promise.name for promise in limited.values()]
    tree_of(atoms.membership, np.arange(len(names)), atoms.sizes, names)


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
    has_begun = before is not None and (before.window.start is None or before.window.start < moment)
    if before is None or not has_begun or before.window.at(now) is None:
        return [later]
    if is_easier(promise.promise, before.promise) or not before.window.recurs:
        return [promise]
    until = replace(before, window=replace(before.window, end=moment))
    return [later, until] if until.window.at(now) else [promise]


def is_easier(promise: Promise, before: Promise) -> bool:
    """Return whether a promise asks for nothing that another one did not ask for.

    Examples
    --------
    >>> from fairsync.promises import Promise
    >>> before = Promise({}, at_least=0.2, at_most=0.5)
    >>> [is_easier(Promise({}, at_least=low, at_most=0.5), before) for low in (0.1, 0.3)]
    [True, False]
    """
    low = not promise.at_least or _no_more(promise.at_least, before.at_least)
    highs = ((promise.at_most, before.at_most), (promise.at_most_per_list, before.at_most_per_list))
    return low and all(new is None or _no_more(old, new) for new, old in highs)


def _no_more(one: float | None, other: float | None) -> bool:
    """Return whether a bound is at most another one; a number of exposures cannot be compared with a share."""
    return one is not None and other is not None and isinstance(one, int) == isinstance(other, int) and one <= other


def repeats(one: ScheduledPromise, other: ScheduledPromise) -> bool:
    """Return whether two promises bound the exposures of the same items in the same way, for some of the same windows.

    Those of several priorities do not repeat each other: "500 if possible, 300 in any case".
    """
    if one.selection != other.selection or one.promise.priority != other.promise.priority:
        return False
    kinds = [(one.promise.at_least, other.promise.at_least), (one.promise.at_most, other.promise.at_most)]
    kinds.append((one.promise.at_most_per_list, other.promise.at_most_per_list))
    return any(None not in pair for pair in kinds) and one.window.overlaps(other.window)
