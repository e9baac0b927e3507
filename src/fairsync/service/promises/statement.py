"""Make statements: what was promised to a label in a month, what it got, and why promises were missed."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from fairsync.catalog.attributes import NumberColumn
from fairsync.errors import InvalidInputError
from fairsync.service.promises.columns import labels_of
from fairsync.service.promises.window_archive import archive_since, archived_windows
from fairsync.service.schema.statement import Statement, StatementRow
from fairsync.text import listed

if TYPE_CHECKING:
    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.ledger.base import Saved
    from fairsync.service.promises.window_archive import ArchivedWindow
    from fairsync.service.schema import PastWindow

# Labels that a message names.
_MOST_NAMED = 5
_INSTANT = timedelta(microseconds=1)


def make_statement(
    ledger: Saved, catalog: Catalog, count: str, attribute: str, label: str, month: str, now: datetime
) -> Statement:
    """Return the statement of a label for a month.

    A window belongs to the month in which it ended, by the clock of its own time zone. A promise belongs to the label
    if its selection names it.

    Parameters
    ----------
    ledger
        Has the archive of past windows.
    catalog
        The items as they are now: an attribute or a label that neither it nor a promise knows is refused.
    count
        What an exposure is.
    attribute, label
        Such as ``"provider"`` and ``"acme"``. Labels that are whole numbers are given as text, too.
    month
        Such as ``"2026-11"``.
    now
        The time.
    """
    year, number = parse_month(month)
    first = date(year, number, 1)
    after = date(year + number // 12, number % 12 + 1, 1)
    found = [
        (name, window)
        for window in archived_windows(ledger, first - timedelta(days=1), after + timedelta(days=1))
        for name in [label_in(window.promise, attribute, label)]
        if name is not None and _last_day(window).strftime("%Y-%m") == month
    ]
    since = archive_since(ledger)
    if not found:
        _check_known(catalog, attribute, label)
        raise InvalidInputError(_no_windows(attribute, label, month, first, since, now))
    remarks = []
    if now.date() < after:
        remarks.append(f"The month is not over: the statement has the windows that ended before {_utc(now)}.")
    if since is not None and since.date() > first:
        remarks.append(f"Windows that ended before {_utc(since)} were not archived.")
    rows = [_row(window) for _, window in found]
    return Statement(
        attribute=attribute,
        label=found[0][0],
        month=month,
        made_at=now,
        count=count,
        rows=sorted(rows, key=lambda row: (row.end, row.start, row.promised)),
        remarks=remarks,
    )


def parse_month(text: str) -> tuple[int, int]:
    """Return year and month.

    Examples
    --------
    >>> parse_month("2026-11")
    (2026, 11)
    >>> parse_month("11/2026")
    Traceback (most recent call last):
    fairsync.errors.InvalidInputError: the month is '11/2026': write year and month, such as 2026-11.
    """
    if not re.fullmatch(r"(19|20|21)\d\d-(0[1-9]|1[0-2])", text, re.ASCII):
        raise InvalidInputError(f"the month is {text!r:.40}: write year and month, such as 2026-11.")
    return int(text[:4]), int(text[5:])


def label_in(promise: dict[str, Any], attribute: str, label: str) -> Label | None:
    """Return the label as a promise names it; None if its selection does not name it.

    Examples
    --------
    >>> label_in({"where": {"provider": ["acme", 7]}}, "provider", "7"), label_in({"where": {}}, "provider", "7")
    (7, None)
    """
    given = promise.get("where", {}).get(attribute)
    named = given if isinstance(given, list) else [given]
    return next((one for one in named if isinstance(one, str | int) and str(one) == label), None)


def _row(window: ArchivedWindow) -> StatementRow:
    past = window.past
    return StatementRow(
        promise=past.promise,
        promised=window.text,
        zone=window.promise["window"]["zone"],
        start=past.start,
        end=past.end,
        floor=past.floor,
        cap=past.cap,
        delivered=past.exposures,
        reached=window.reached,
        kept=past.kept,
        missing=0 if past.kept else max(past.floor - past.exposures, 0),
        exceeding=0 if past.cap is None else max(past.exposures - past.cap, 0),
        reason=reason_of(past),
    )


def reason_of(past: PastWindow) -> str:
    """Return why a window was missed, as a sentence; empty if it was kept.

    Examples
    --------
    >>> from fairsync.service.schema import PastWindow
    >>> start, end = (datetime(2026, 3, day, tzinfo=UTC) for day in (2, 3))
    >>> past = PastWindow(promise="a", start=start, end=end, floor=50, exposures=44, kept=False, requests=40)
    >>> reason_of(past)
    '40 requests came in the window. It was not foreseen that they would not suffice.'
    """
    if past.kept:
        return ""
    came = f"{past.requests:,} requests came in the window."
    if past.note:
        return f"{past.note[:1].upper()}{past.note[1:]}. {came}"
    if past.impossible_since is not None:
        lacking = f"{past.foreseen:,} exposures were expected to be missing"
        return f"The traffic could not carry it: known since {_utc(past.impossible_since)}, when {lacking}. {came}"
    return f"{came} It was not foreseen that they would not suffice."


def _last_day(window: ArchivedWindow) -> date:
    return (window.past.end - _INSTANT).astimezone(ZoneInfo(window.promise["window"]["zone"])).date()


def _check_known(catalog: Catalog, attribute: str, label: str) -> None:
    if attribute not in catalog.attributes:
        raise InvalidInputError(
            f"the catalog has no attribute {attribute!r:.80}: choose one of {', '.join(map(repr, catalog.attributes))}."
        )
    labels = labels_of(catalog, attribute)
    if isinstance(catalog.attributes[attribute], NumberColumn):
        raise InvalidInputError(f"the attribute {attribute!r} has numbers, and no labels: choose another one.")
    if label not in {str(one) for one in labels}:
        named = listed([repr(one) for one in labels], _MOST_NAMED)
        raise InvalidInputError(f"{attribute!r} has no label {label!r:.80}: its labels are {named}.")


def _no_windows(attribute: str, label: str, month: str, first: date, since: datetime | None, now: datetime) -> str:
    told = f"no window of a promise to {attribute} {label!r:.80} ended in {month}"
    if first > now.date():
        return f"{told}: it has not begun."
    if since is None:
        return f"{told}: no window has ended yet."
    return f"{told}. Windows are archived since {_utc(since)}."


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
