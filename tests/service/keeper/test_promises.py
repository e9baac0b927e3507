"""Promises as the settings give them."""

import pytest

from fairsync.errors import InvalidInputError
from fairsync.service.keeper.promises import promises_of
from fairsync.service.records import PromiseRecord, WindowRecord
from service.running import small_catalog


def made(group: str, floor: int, **window: str) -> PromiseRecord:
    return PromiseRecord.model_validate({"group": group, "floor": floor, "window": WindowRecord.model_validate(window)})


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
