"""Alerts: what is raised, and since when."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fairsync.service.promises.alerts import Alerts
from fairsync.service.schema import PromiseView, ShardView, WindowRecord

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def view(state: str, **more: Any) -> PromiseView:
    given: dict[str, Any] = {
        "id": "p",
        "name": "group=toys",
        "where": {"group": "toys"},
        "group": "toys",
        "floor": 1000,
        "window": WindowRecord(every="day", zone="Europe/Berlin"),
        "start": NOON - timedelta(hours=13),
        "end": NOON + timedelta(hours=11),
        "exposures": 10,
        "projected": 700.0,
        "possible": state != "impossible",
        "shortfall": 300.0 if state == "impossible" else 0.0,
        "state": state,
    }
    return PromiseView(**{**given, **more})


def test_promises_at_risk_and_impossible_ones() -> None:
    alerts = Alerts().now(NOON, [view("impossible", impossible_since=NOON - MINUTE), view("at risk"), view("kept")])
    assert [(one.kind, one.promise, one.group) for one in alerts] == [
        ("impossible", "p", "toys"),
        ("at risk", "p", "toys"),
    ]
    assert alerts[0].message == (
        "The promise to toys until 2026-03-03 00:00 (Europe/Berlin) will miss 300 of 1,000 exposures."
    )
    assert [one.since for one in alerts] == [NOON - MINUTE, NOON]
    reason = "only 3 % of requests could show it; about 40 exposures will be missing"
    (alert,) = Alerts().now(NOON, [view("at risk", reason=reason)])
    assert alert.message == f"The promise to toys until 2026-03-03 00:00 (Europe/Berlin) is at risk: {reason}."
    assert Alerts().now(NOON, [view("impossible", end=NOON)]) == [], "its window is over"


def test_the_rest_of_the_service() -> None:
    lost = [ShardView(shard=shard, replica=0, items=10, up=shard > 0) for shard in range(4)]
    alerts = Alerts().now(NOON, [], degraded=0.25, shards=lost, clock_skew=-90.0)
    assert {one.kind: one.message for one in alerts} == {
        "degraded": "25.0% of recent answers lacked a part of the catalog.",
        "shard": "1 of 4 shards does not answer (0): 25.0% of the items are out of reach.",
        "clock": "The wall clock is 90 s behind the service: restart the service to adopt it.",
    }
    assert Alerts().now(NOON, [], degraded=0.0001, shards=lost[1:]) == []


def test_an_alert_that_was_not_raised_for_a_while_begins_again() -> None:
    alerts = Alerts()
    since = [alerts.now(NOON + minutes * MINUTE, [], degraded=1.0)[0].since - NOON for minutes in (0, 4, 9, 15, 16)]
    assert since == [0 * MINUTE, 0 * MINUTE, 0 * MINUTE, 15 * MINUTE, 15 * MINUTE]
