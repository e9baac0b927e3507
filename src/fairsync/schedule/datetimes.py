"""Validation and parsing of aware datetimes."""

from __future__ import annotations

from datetime import UTC, datetime

from fairsync.errors import InvalidInputError


def check_aware(moment: object, what: str) -> datetime:
    """Return an aware datetime in UTC, or raise an error that says why it is not one.

    A naive datetime is refused, because it means another moment on every machine.

    Examples
    --------
    >>> from datetime import timedelta, timezone
    >>> check_aware(datetime(2026, 3, 1, 1, tzinfo=timezone(timedelta(hours=1))), "now").isoformat()
    '2026-03-01T00:00:00+00:00'
    """
    if not isinstance(moment, datetime):
        raise InvalidInputError(f"{what} must be a datetime with a time zone, got {moment!r}.")
    if moment.utcoffset() is None:
        raise InvalidInputError(
            f"{what} is {moment.isoformat()} without a time zone, which could be many moments: add one, such as"
            " tzinfo=UTC or tzinfo=ZoneInfo('Europe/Berlin')."
        )
    if not 1900 <= moment.year <= 9000:
        raise InvalidInputError(f"{what} is in the year {moment.year}: give one from 1900 to 9000.")
    return moment.astimezone(UTC)


def parse_aware(text: object, what: str) -> datetime:
    """Parse an aware datetime in ISO 8601 format, as written by ``isoformat``.

    Examples
    --------
    >>> parse_aware("2026-03-01T00:00:00+00:00", "now").day
    1
    """
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise InvalidInputError(f"{what} is {text!r}: write it like 2026-03-01T00:00:00+00:00.") from None
    return check_aware(moment, what)
