"""Windows against a search minute by minute, and on days when the UTC offset changes."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairsync.errors import InvalidInputError
from fairsync.schedule import Span, Window

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
TRICKY = [
    "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Asia/Beirut",
    "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Chatham", "Africa/Casablanca",
    "Africa/Cairo", "UTC",
]  # fmt: skip
# What these mean differs from one machine to the next.
MACHINE_ZONES = {"localtime", "posixrules", "Factory"}
zones = st.sampled_from(TRICKY) | st.sampled_from(sorted(available_timezones() - MACHINE_ZONES))
moments = st.datetimes(datetime(1973, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))


def near_changes() -> st.SearchStrategy[tuple[str, datetime]]:
    """Draw moments close to changes of the UTC offset, which random moments hardly ever are."""
    changes = []
    for zone in TRICKY:
        day = datetime(1995, 1, 1, tzinfo=UTC)
        while day.year < 2031:
            offsets = {(day + step).astimezone(ZoneInfo(zone)).utcoffset() for step in (0 * DAY, DAY)}
            changes += [(zone, day)] if len(offsets) > 1 else []
            day += DAY
    minutes = st.integers(-3 * 1440, 3 * 1440)
    return st.tuples(st.sampled_from(changes), minutes).map(
        lambda drawn: (drawn[0][0], drawn[0][1] + drawn[1] * MINUTE)
    )


def walk(kind: str, zone: str, moment: datetime) -> Span:
    """Find the span of a window by stepping through the minutes on both sides and reading the local time."""
    place = ZoneInfo(zone)

    def wall(at: datetime) -> datetime:
        return at.astimezone(place).replace(tzinfo=None)

    if kind == "hour":

        def reading(at: datetime) -> tuple[Any, ...]:
            return wall(at).date(), wall(at).hour, at.astimezone(place).utcoffset()

        start, end = moment, moment
        while reading(start - MINUTE) == reading(moment):
            start -= MINUTE
        while reading(end) == reading(moment):
            end += MINUTE
        return Span(start, end)
    # A window begins at the first minute that shows its first day or a later one.
    days, firsts = 1 if kind == "day" else 7, []
    at = moment - (days + 2) * DAY
    reached = wall(at).date()
    while at < moment + (days + 2) * DAY:
        shown = wall(at).date()
        if shown > reached:
            if kind == "day" or shown - timedelta(days=shown.weekday()) > reached:
                firsts.append(at)
            reached = shown
        at += MINUTE
    return Span(max(at for at in firsts if at <= moment), min(at for at in firsts if at > moment))


@settings(max_examples=60)
@given(near_changes(), st.sampled_from(["hour", "day"]))
@example(("America/St_Johns", datetime(2006, 10, 29, 2, 40, tzinfo=UTC)), "day")  # back at one past midnight
@example(("America/St_Johns", datetime(2006, 10, 29, 2, 30, tzinfo=UTC)), "hour")
@example(("Pacific/Apia", datetime(2011, 12, 30, 9, 59, tzinfo=UTC)), "day")  # 30 December was left out
def test_spans_equal_a_search_minute_by_minute(drawn: tuple[str, datetime], kind: str) -> None:
    zone, moment = drawn
    assert Window(kind, zone).at(moment) == walk(kind, zone, moment)


@settings(max_examples=8)
@given(near_changes())
def test_weeks_equal_a_search_minute_by_minute(drawn: tuple[str, datetime]) -> None:
    zone, moment = drawn
    assert Window.week(zone).at(moment) == walk("week", zone, moment)


@given(zones, moments, st.sampled_from(["hour", "day", "week"]))
def test_spans_have_no_gaps_and_no_overlaps(zone: str, moment: datetime, kind: str) -> None:
    window = Window(kind, zone)
    span = window.at(moment)
    assert span is not None
    assert moment in span
    assert window.at(span.start) == span == window.at(span.end - timedelta(microseconds=1))
    following = window.at(span.end)
    assert following is not None
    assert following.start == span.end
    assert window.after(span.start) == span
    assert window.after(span.start + timedelta(microseconds=1)) == following
    assert list(window.between(span.start, following.end)) == [span, following]
    assert list(window.between(span.start + MINUTE, following.end)) == [following]
    length = {"hour": HOUR, "day": DAY, "week": 7 * DAY}[kind]
    assert span.seconds == length.total_seconds() or zone not in ("UTC", "Asia/Tokyo", "Asia/Kolkata")


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),  # begins at 1:00
        ("America/Havana", date(2018, 11, 4), 25),  # midnight comes twice
        ("Australia/Lord_Howe", date(2026, 10, 4), 23.5),
        ("Asia/Tokyo", date(2026, 3, 29), 24),
    ],
)
def test_days_on_which_clocks_change(zone: str, day: date, hours: float) -> None:
    span = Window.campaign(day, day, zone)
    assert span.start is not None
    assert Window.day(zone).at(span.start) == Span(span.start, span.start + hours * HOUR)
    assert span.end == span.start + hours * HOUR


def test_hours_that_are_skipped_and_that_repeat() -> None:
    hours, place = Window.hour("Europe/Berlin"), ZoneInfo("Europe/Berlin")
    spring = list(hours.between(datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 29, 3, tzinfo=UTC)))
    assert [span.start.astimezone(place).hour for span in spring] == [1, 3, 4]
    autumn = list(hours.between(datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC)))
    assert [span.start.astimezone(place).hour for span in autumn] == [2, 2, 3]
    assert {span.seconds for span in spring + autumn} == {3600}
    half = list(Window.hour("Australia/Lord_Howe").between(
        datetime(2026, 10, 3, 14, 30, tzinfo=UTC), datetime(2026, 10, 3, 17, tzinfo=UTC)))  # fmt: skip
    assert [span.seconds for span in half] == [3600, 1800, 3600]


def test_weeks_begin_on_monday() -> None:
    span = Window.week("Europe/Berlin").at(datetime(2026, 3, 29, 12, tzinfo=UTC))  # a Sunday
    assert span is not None
    assert span.start.astimezone(ZoneInfo("Europe/Berlin")).isoformat() == "2026-03-23T00:00:00+01:00"
    assert span.seconds == 167 * 3600


def test_campaigns() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start, end = datetime(2026, 3, 1, tzinfo=berlin), datetime(2026, 3, 15, tzinfo=berlin)
    window = Window.campaign(start, end, "Europe/Berlin")
    assert window == Window.campaign(date(2026, 3, 1), date(2026, 3, 14), "Europe/Berlin")
    assert hash(window) == hash(Window.campaign(start.astimezone(UTC), end, "Europe/Berlin"))
    assert window.at(start) == window.at(end - MINUTE) == window.after(start) == Span(start, end)
    assert window.at(start - MINUTE) is window.at(end) is window.after(start + MINUTE) is None
    assert str(window) == "campaign from 2026-03-01 00:00 to 2026-03-15 00:00, Europe/Berlin"
    assert not window.recurs
    later = Window("week", "Europe/Berlin", NOON, NOON + 14 * DAY)
    assert str(later) == "each week from 2026-03-01 13:00 on until 2026-03-15 13:00, Europe/Berlin"


@given(zones, st.lists(moments, min_size=3, max_size=3, unique=True), st.sampled_from(["hour", "day", "week"]))
def test_spans_outside_start_and_end_are_left_out(zone: str, drawn: list[datetime], kind: str) -> None:
    moment, start, end = drawn[0], *sorted(drawn[1:])
    every, later, sooner = Window(kind, zone), Window(kind, zone, start), Window(kind, zone, end=end)
    both = Window(kind, zone, start, end)
    span, following = every.at(moment), every.after(moment)
    assert span is not None
    assert following is not None
    assert later.at(moment) == (span if span.start >= start else None)
    assert sooner.at(moment) == (span if span.end <= end else None)
    assert both.at(moment) == (later.at(moment) and sooner.at(moment))
    assert later.after(moment) == every.after(max(moment, start))
    assert sooner.after(moment) == (following if following.end <= end else None)
    for window in (later, sooner, both):
        assert Window.from_dict(json.loads(json.dumps(window.to_dict()))) == window
        assert window.overlaps(every)
        assert every.overlaps(window)
    assert not later.overlaps(Window(kind, zone, end=start)), "one after the other"
    assert not every.overlaps(Window("campaign", zone, start, end))


@given(zones, moments, st.sampled_from(["hour", "day", "week", "campaign"]))
def test_json(zone: str, moment: datetime, kind: str) -> None:
    window = Window.campaign(moment, moment + DAY, zone) if kind == "campaign" else Window(kind, zone)
    assert Window.from_dict(json.loads(json.dumps(window.to_dict()))) == window
    span = window.at(moment)
    assert span is not None
    assert Span.from_dict(json.loads(json.dumps(span.to_dict()))) == span


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "zone", ["Europe/Berln", "", "Europe", "../etc/passwd", "/etc/localtime", "x" * 300, None, 3, []]
)
def test_bad_zones(zone: Any) -> None:
    with pytest.raises(InvalidInputError, match="no time zone"):
        Window.day(zone)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Window.day("Europe/Berln"), "Did you mean Europe/Berlin"),
        (lambda: Window("month", "UTC"), "choose one of hour, day, week, campaign"),
        (lambda: Window("day", "UTC", NOON, NOON), "not after its start"),
        (lambda: Window("day", "UTC", datetime(2026, 3, 1)), "start is 2026-03-01.* without a time zone"),
        (lambda: Window.campaign(NOON, NOON, "UTC"), "not after its start"),
        (lambda: Window.campaign(date(2026, 3, 2), date(2026, 3, 1), "UTC"), "not after its start"),
        (lambda: Window.campaign(datetime(2026, 3, 1), NOON, "UTC"), "start is 2026-03-01.* without a time zone"),
        (lambda: Window.campaign("2026-03-01", NOON, "UTC"), "start must be a date or a datetime"),  # type: ignore[arg-type]
        (lambda: Window("campaign", "UTC", NOON), "end must be a datetime"),
        (lambda: Window.day("UTC").at(datetime(2026, 3, 1)), "without a time zone, .*add one"),
        (lambda: Window.day("UTC").at(datetime.max.replace(tzinfo=UTC)), "give one from 1900 to 9000"),
        (
            lambda: Window.from_dict({"every": "campaign", "zone": "UTC", "start": "soon", "end": "later"}),
            "start is 'soon'",
        ),
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize(
    "zone",
    ["localtime", "posixrules", "Factory", "posix/UTC", "right/UTC", "../UTC", "/usr/share/zoneinfo/UTC", "utc ", 7],
)
def test_a_zone_must_mean_the_same_on_every_machine(zone: Any) -> None:
    with pytest.raises(InvalidInputError, match="there is no time zone"):
        Window.day(zone)
