"""Changes of promises."""

from datetime import UTC, datetime, timedelta

import pytest

from fairsync.errors import InvalidInputError, UnknownPromiseError
from fairsync.schedule import ScheduledPromise, Window
from fairsync.service.promises.promise_changes import all_but, check_unique, split_at, with_start_of

DAY, NOON = Window.day("UTC"), datetime(2026, 3, 2, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 3, 3, tzinfo=UTC)
TOYS = ScheduledPromise.of_group("toys", 100, DAY)


def test_ids_that_no_promise_has_are_refused() -> None:
    assert all_but("a", {"a": TOYS, "b": TOYS}) == {"b": TOYS}
    assert all_but(None, {"a": TOYS}) == {"a": TOYS}
    with pytest.raises(UnknownPromiseError, match="'c'"):
        all_but("c", {"a": TOYS})


def test_one_promise_for_a_group_and_its_windows() -> None:
    check_unique(
        TOYS,
        {"a": ScheduledPromise.of_group("wine", 5, DAY), "b": ScheduledPromise.of_group("toys", 5, Window.hour("UTC"))},
    )
    with pytest.raises(InvalidInputError, match="already: change that one, whose id is 'b'"):
        check_unique(ScheduledPromise.of_group("toys", 900, DAY), {"b": TOYS})


def test_a_change_keeps_the_start_unless_it_has_one_or_other_windows() -> None:
    before = ScheduledPromise.of_group("toys", 5, Window("day", "UTC", start=MIDNIGHT))
    assert with_start_of(TOYS, before).window.start == MIDNIGHT
    assert with_start_of(TOYS, None) == TOYS
    hourly = ScheduledPromise.of_group("toys", 1, Window.hour("UTC"))
    assert with_start_of(hourly, before) == hourly
    later = ScheduledPromise.of_group("toys", 1, Window("day", "UTC", start=MIDNIGHT + timedelta(days=3)))
    assert with_start_of(later, before) == later


def test_when_a_change_takes_effect() -> None:
    raised, lowered = ScheduledPromise.of_group("toys", 900, DAY), ScheduledPromise.of_group("toys", 5, DAY)
    later = ScheduledPromise.of_group("toys", 900, Window("day", "UTC", start=MIDNIGHT))
    assert split_at(TOYS, raised, NOON, NOON) == [raised], "the rest of the day is enough"
    assert split_at(None, raised, MIDNIGHT, NOON) == [later], "nothing holds before"
    assert split_at(TOYS, lowered, MIDNIGHT, NOON) == [lowered], "at once"
    assert split_at(TOYS, raised, MIDNIGHT, NOON) == [
        later,
        ScheduledPromise.of_group("toys", 100, Window("day", "UTC", end=MIDNIGHT)),
    ]
