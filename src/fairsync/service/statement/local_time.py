"""Times of a statement, by the clock of a window's time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo


def local(moment: object, zone: str) -> datetime | None:
    """Return a moment by the clock of a time zone; None if there is none.

    Examples
    --------
    >>> from datetime import UTC
    >>> local(datetime(2026, 11, 30, 23, tzinfo=UTC), "Europe/Berlin").isoformat()
    '2026-12-01T00:00:00+01:00'
    """
    return moment.astimezone(ZoneInfo(zone)) if isinstance(moment, datetime) else None
