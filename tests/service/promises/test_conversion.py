"""Conversion of records: promises of the settings and the API."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fairsync.errors import InvalidInputError, UnknownGroupError
from fairsync.service.promises.conversion import (
    promise_from_record,
    promises_from_records,
    window_from_record,
    window_record,
)
from fairsync.service.schema import PromiseRecord, WindowRecord
from service.running import small_catalog


def made(group: str, floor: int, **window: str) -> PromiseRecord:
    return msgspec.convert({"group": group, "floor": floor, "window": window}, PromiseRecord)


def test_two_promises_for_the_same_windows_are_refused_by_name() -> None:
    records = [
        made("toys", 5, every="day"),
        made("wine", 5, every="day"),
        made("toys", 5, every="day", zone="Asia/Tokyo"),
        made("toys", 5, every="hour"),
    ]
    assert [promise.group for promise in promises_from_records(records, small_catalog())] == [
        "toys",
        "wine",
        "toys",
        "toys",
    ]
    for floor in (5, 6):
        with pytest.raises(
            InvalidInputError, match=r"promises 1 and 5 .* 5 exposures of group=toys .*each day.* Keep one"
        ):
            promises_from_records([*records, made("toys", floor, every="day")], small_catalog())
    first, second = made("toys", 5, every="day", end="2026-03-01"), made("toys", 9, every="day", start="2026-03-02")
    assert len(promises_from_records([first, second], small_catalog())) == 2, "one after the other"
    with pytest.raises(InvalidInputError, match="promises 1 and 2"):
        promises_from_records([first, made("toys", 9, every="day", start="2026-03-01")], small_catalog())


def test_promises_that_make_no_sense_are_refused() -> None:
    catalog, day = small_catalog(), WindowRecord(every="day")
    with pytest.raises(UnknownGroupError, match="pink"):
        promise_from_record(PromiseRecord(group="pink", floor=1, window=day), catalog)
    with pytest.raises(InvalidInputError, match="start and an end"):
        promise_from_record(made("toys", 1, every="campaign"), catalog)
    with pytest.raises(InvalidInputError, match="without its offset"):
        promise_from_record(made("toys", 1, every="campaign", start="2026-03-02T00:00", end="2026-03-04"), catalog)
    with pytest.raises(InvalidInputError, match="write a day"):
        promise_from_record(made("toys", 1, every="day", start="soon"), catalog)
    campaign = WindowRecord(every="campaign", start="2026-03-04", end="2027-07-17")
    with pytest.raises(InvalidInputError, match="400 days"):
        promise_from_record(PromiseRecord(group="toys", floor=1, window=campaign), catalog)


def test_a_window_converts_both_ways() -> None:
    record = WindowRecord(every="week", zone="Europe/Berlin")
    promise = promise_from_record(PromiseRecord(group="toys", floor=1, window=record), small_catalog())
    assert window_record(promise.window) == record


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
    window = window_from_record(WindowRecord(every="campaign", zone="Europe/Berlin", start=start, end=end))
    assert window.start is not None
    assert window.end is not None
    assert window.end - window.start == timedelta(hours=hours)
    assert window_from_record(window_record(window)) == window


def test_the_short_form_means_the_same() -> None:
    day = WindowRecord(every="day", zone="UTC")
    short = promise_from_record(PromiseRecord(group="toys", floor=5, window=day), small_catalog())
    long = promise_from_record(PromiseRecord(where={"group": "toys"}, at_least=5, window=day), small_catalog())
    assert short == long


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"group": "toys"}, "both 'group' and 'floor'"),
        ({"group": "toys", "floor": 5, "at_most": 9}, "give either these or those"),
        ({"at_least": 5}, "needs 'where'"),
        ({"where": {"group": "toys"}}, "needs a bound"),
        ({"where": {"group": "toys"}, "at_least": -1}, "at_least"),
        ({"where": {"group": "toys"}, "at_least": 1.5}, "at_least"),
        ({"where": {"group": "toys"}, "at_least": 5, "priority": 0}, "priority"),
    ],
)
def test_bodies_that_make_no_sense_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert({**given, "window": {"every": "day"}}, PromiseRecord)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"where": {"group": "toy"}, "at_least": 5}, "no item has 'toy' as its 'group'. Did you mean 'toys'"),
        ({"where": {"group": ["toys", "wne"]}, "at_least": 5}, "no item has 'wne' .* mean 'wine'"),
        ({"where": {"id": 9_999}, "at_least": 5}, "no item has the id 9999"),
        ({"where": {"id": [1, "a"]}, "at_least": 5}, "no item has the id 'a'"),
        ({"where": {"id": {"at_most": 1}}, "at_least": 5}, "has no numbers"),
        ({"where": {"id": [[1]]}, "at_most": 5}, "must be an id or a list of ids"),
        ({"where": {"grop": "toys"}, "at_least": 5}, "no attribute 'grop'. Did you mean 'group'"),
        ({"where": {"group": 7}, "at_least": 5}, "convert it"),
        ({"each": "grop", "at_least": 5}, "no attribute 'grop'"),
    ],
)
def test_selections_of_nothing_are_refused(given: dict[str, Any], words: str) -> None:
    record = PromiseRecord(window=WindowRecord(every="day", zone="UTC"), **given)
    with pytest.raises(InvalidInputError, match=words):
        promise_from_record(record, small_catalog())


def test_items_are_selected_by_their_ids() -> None:
    day, catalog = WindowRecord(every="day", zone="UTC"), small_catalog()
    both = {"id": [1, 0], "group": catalog.labels[int(catalog.group_of[0])]}
    records = [PromiseRecord(where=where, at_least=5, window=day) for where in ({"id": 0}, both)]
    assert [one.promise.where for one in promises_from_records(records, catalog)] == [{"id": 0}, both]
    assert promise_from_record(records[0], catalog).promise.where == {"id": 0}


def test_a_cap_may_wait_for_its_items() -> None:
    record = PromiseRecord(where={"group": "games"}, at_most=5, window=WindowRecord(every="day", zone="UTC"))
    assert promise_from_record(record, small_catalog()).promise.at_most == 5
