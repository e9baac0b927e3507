"""Texts of promises, as explanations show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule import ScheduledPromise


def promise_texts(promises: Iterable[ScheduledPromise], now: datetime) -> dict[Label, str]:
    """Return the promises to each group whose windows are under way, as one text per group.

    The floors of the loop are those of the present plan, and would tell a reader nothing.

    Examples
    --------
    >>> from datetime import datetime, UTC
    >>> from fairsync.schedule import ScheduledPromise, Window
    >>> day = ScheduledPromise.of_group("toys", 500, Window.day("UTC"))
    >>> week = ScheduledPromise.of_group("toys", 2_000, Window.week("UTC"))
    >>> promise_texts([day, week], datetime(2026, 3, 1, tzinfo=UTC))
    {'toys': 'toys ≥ 500 each day, toys ≥ 2000 each week'}
    """
    texts: dict[Label, str] = {}
    for promise in promises:
        window = promise.window
        is_bounded = window.start is not None or window.end is not None  # others are always under way
        if is_bounded and window.at(now) is None:
            continue
        when = f"each {window.kind}" if window.recurs else "in a campaign"
        text = f"{promise.group} ≥ {promise.floor} {when}"
        texts[promise.group] = f"{texts[promise.group]}, {text}" if promise.group in texts else text
    return texts
