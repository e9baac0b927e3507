"""Series: a promise for each label of an attribute, also for labels that come later.

The windows of *first days* are a number of days that begin for each label, or item, when it comes. The template of such
a series has a placeholder window: a campaign that starts on 2000-01-01, of which only the length and the zone are used.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fairsync.promises.promise import promises_of_labels
from fairsync.schedule import Window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.catalog import Catalog
    from fairsync.schedule import ScheduledPromise

_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)


def promises_of(
    series: str,
    template: ScheduledPromise,
    catalog: Catalog,
    now: datetime,
    before: Mapping[str, ScheduledPromise] | None = None,
) -> dict[str, ScheduledPromise]:
    """Return the promises of a series, one for each label that items have, by id.

    An id depends on the series and the conditions only, so that a label keeps its promise when the series is changed.

    Parameters
    ----------
    series
        Id of the series.
    template
        What is promised for each label: a promise with `each`, whose conditions all items meet.
    catalog
        The items.
    now
        When the windows of first days begin.
    before
        The promises so far by id, whose first days have begun.

    Examples
    --------
    >>> import numpy as np
    >>> from datetime import UTC, datetime
    >>> from fairsync.catalog import Catalog
    >>> from fairsync.promises import Promise
    >>> from fairsync.schedule import ScheduledPromise, Window
    >>> moment = datetime(2026, 3, 2, tzinfo=UTC)
    >>> daily = ScheduledPromise(Promise({}, at_least=20, each="maker"), Window.day("UTC"))
    >>> made = promises_of("s", daily, Catalog(np.eye(3), {"maker": ["acme", "best", "acme"]}), moment)
    >>> [str(one) for one in made.values()]
    ['20 exposures of maker=acme (each day, UTC)', '20 exposures of maker=best (each day, UTC)']
    """
    given = template.promise
    found = promises_of_labels(given, catalog)
    named = found if given.has_default_name else [replace(one, name=f"{given.name}: {one.name}") for one in found]
    made = [replace(template, promise=one) for one in named]
    by_id = {f"{series}-{hashlib.blake2s(one.selection.encode(), digest_size=5).hexdigest()}": one for one in made}
    if days_of(template.window) is None:
        return by_id
    return {
        name: replace(one, window=_first_days(template, (before or {}).get(name), now)) for name, one in by_id.items()
    }


def _first_days(template: ScheduledPromise, before: ScheduledPromise | None, now: datetime) -> Window:
    since = now if before is None or before.window.recurs or before.window.start is None else before.window.start
    window = begun(template.window, since)
    # One that is over stays over: it has had its first days, or its exposures.
    is_over = before is not None and before.window.end is not None and before.window.end <= now
    return before.window if before is not None and is_over else window


def series_of(name: str, series: Mapping[str, ScheduledPromise]) -> str | None:
    """Return the id of the series that a promise belongs to; None if it was made alone.

    Examples
    --------
    >>> series_of("s-1f", {"s": None}), series_of("s", {"s": None})
    ('s', None)
    """
    first, dash, _ = name.partition("-")
    return first if dash and first in series else None


def with_labels(
    promises: Mapping[str, ScheduledPromise],
    series: Mapping[str, ScheduledPromise],
    catalog: Catalog,
    now: datetime,
) -> dict[str, ScheduledPromise]:
    """Return the promises after a change of items: new labels get theirs, and labels without items lose it."""
    kept = dict(promises)
    for name, template in series.items():
        wanted = promises_of(name, template, catalog, now)
        selections = {one.selection for one in wanted.values()}
        mine = {one: promise for one, promise in kept.items() if series_of(one, {name: template})}
        for one, promise in mine.items():
            if promise.selection not in selections:
                del kept[one]
        have = {promise.selection for promise in mine.values()}
        kept.update({one: promise for one, promise in wanted.items() if promise.selection not in have})
    return kept


def first_days(days: int, zone: str = "UTC") -> Window:
    """Return the placeholder window of a template.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> window = first_days(7)
    >>> days_of(window), days_of(Window.day("UTC"))
    (7, None)
    >>> begun(window, datetime(2026, 3, 2, 8, tzinfo=UTC)).end.isoformat()
    '2026-03-09T08:00:00+00:00'
    """
    return Window("campaign", zone, _ORIGIN, _ORIGIN + timedelta(days=days))


def days_of(window: Window) -> int | None:
    """Return the length of a placeholder window in days; None for any other window."""
    if window.recurs or window.start != _ORIGIN or window.end is None:
        return None
    return (window.end - _ORIGIN).days


def begun(window: Window, now: datetime) -> Window:
    """Return the window of an item or label that comes now. A window that is no placeholder is returned as it is."""
    days = days_of(window)
    return window if days is None else Window("campaign", window.zone, now, now + timedelta(days=days))
