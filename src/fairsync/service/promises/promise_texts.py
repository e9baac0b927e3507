"""Texts of promises, as explanations show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.service.promises.columns import column_of, group_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.promises import Promise
    from fairsync.schedule import ScheduledPromise


def promise_texts(promises: Iterable[ScheduledPromise], now: datetime, attribute: str = "group") -> dict[Label, str]:
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
        column, group = column_of(promise, attribute), group_of(promise, attribute)
        text = f"{promise.promise.name if group is None else group} {bounds_text(promise.promise)} {when}"
        texts[column] = f"{texts[column]}, {text}" if column in texts else text
    return texts


def bounds_text(promise: Promise) -> str:
    """Return the bounds of a promise in a few signs.

    Examples
    --------
    >>> from fairsync.promises import Promise
    >>> bounds_text(Promise({}, at_least=500)), bounds_text(Promise({}, at_least=0.05, at_most=0.3))
    ('≥ 500', '≥ 5 %, ≤ 30 %')
    """
    bounds = (("≥", promise.at_least, ""), ("≤", promise.at_most, ""), ("≤", promise.at_most_per_list, " per list"))
    return ", ".join(
        f"{sign} {bound if isinstance(bound, int) else f'{100 * bound:g} %'}{what}"
        for sign, bound, what in bounds
        if bound is not None
    )
