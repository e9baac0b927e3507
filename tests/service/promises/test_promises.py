"""Promises as the settings give them."""

from datetime import timedelta

import msgspec
import pytest

from fairsync.errors import InvalidInputError
from fairsync.service.promises.projections import window_record
from fairsync.service.promises.promises import promises_of, window_of
from fairsync.service.schema import PromiseRecord, WindowRecord
from service.running import small_catalog


def made(group: str, floor: int, **window: str) -> PromiseRecord:
    return PromiseRecord(group=group, floor=floor, window=msgspec.convert(window, WindowRecord))


def test_two_promises_for_the_same_windows_are_refused_by_name() -> None:
    records = [
        made("toys", 5, every="day"),
        made("wine", 5, every="day"),
        made("toys", 5, every="day", zone="Asia/Tokyo"),
        made("toys", 5, every="hour"),
    ]
    assert [promise.group for promise in promises_of(records, small_catalog())] == ["toys", "wine", "toys", "toys"]
    for floor in (5, 6):
        with pytest.raises(InvalidInputError, match=r"promises 1 and 5 .* 5 exposures of 'toys' .*each day.* Keep one"):
            promises_of([*records, made("toys", floor, every="day")], small_catalog())
    first, second = made("toys", 5, every="day", end="2026-03-01"), made("toys", 9, every="day", start="2026-03-02")
    assert len(promises_of([first, second], small_catalog())) == 2, "one after the other"
    with pytest.raises(InvalidInputError, match="promises 1 and 2"):
        promises_of([first, made("toys", 9, every="day", start="2026-03-01")], small_catalog())


@pytest.mark.parametrize(
    ("start", "end", "hours"),
    [
        ("2026-03-29", "2026-03-29", 23),  # the clock goes forward
        ("2026-10-24", "2026-10-25", 49),  # and back
        ("2026-03-01T12:00:00+01:00", "2026-03-01", 12),
        ("2026-03-01", "2026-03-01T12:00:00Z", 13),
    ],
)
def test_the_last_day_of_a_campaign_is_part_of_it(start: str, end: str, hours: int) -> None:
    window = window_of(WindowRecord(every="campaign", zone="Europe/Berlin", start=start, end=end))
    assert window.start is not None
    assert window.end is not None
    assert window.end - window.start == timedelta(hours=hours)
    assert window_of(window_record(window)) == window
