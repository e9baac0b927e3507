"""First days: windows of a number of days that begin for each item, or label, when it comes.

The template of a series has a placeholder window: a campaign that starts on 2000-01-01, of which only the length and
the zone are used. Each promise of the series gets a window of that length from the moment at which its item or label
comes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fairsync.schedule import Window

_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)


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
