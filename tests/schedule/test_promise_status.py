"""Warnings of a promise: when it becomes at risk, when it becomes impossible, and that the moments are kept."""

from fairsync.schedule import ScheduledPromise, Supply, Window, make_plan
from schedule.traffic import HOUR, START, Hours, floors_of

SUPPLY = Supply.of_groups({"toys": 4, "books": 4}, k=4)


def test_an_early_warning_while_it_is_still_possible() -> None:
    promise = ScheduledPromise.of_group("toys", 360, Window.hour("UTC"))
    plan = make_plan([promise], {}, Hours([100], [80]), START, SUPPLY)
    assert (floors_of(plan), plan.horizon) == ({"toys": 320}, 80)
    assert plan.statuses[0].possible
    assert plan.statuses[0].at_risk
    assert plan.statuses[0].certain == 320


def test_the_first_moment_of_impossibility_is_kept() -> None:
    promise = ScheduledPromise.of_group("toys", 1000, Window.campaign(START, START + 4 * HOUR, "UTC"))
    good, bad = Hours([100] * 4, [80] * 4), Hours([10] * 4, [5] * 4)
    plan = make_plan([promise], {promise: 0}, good, START, SUPPLY)
    assert plan.statuses[0].impossible_since is None
    assert (plan.statuses[0].reachable, plan.statuses[0].certain) == (1000, 1000)
    plan = make_plan([promise], {promise: 100}, bad, START + HOUR, SUPPLY, plan)
    found = plan.statuses[0]
    assert (found.possible, found.impossible_since, found.reachable, found.certain) == (False, START + HOUR, 220, 160)
    assert found.shortfall == 780
    assert found.at_pace == 100 + round(100 / 10 * 30)
    for forecast, possible in ((bad, False), (good, True)):  # it is kept, even if traffic recovers
        again = make_plan([promise], {promise: 800}, forecast, START + 2 * HOUR, SUPPLY, plan)
        assert again.statuses[0].possible is possible
        assert again.statuses[0].impossible_since == START + HOUR
    hourly = ScheduledPromise.of_group("toys", 200, Window.hour("UTC"))
    failed = make_plan([hourly], {}, bad, START, SUPPLY)
    assert failed.statuses[0].impossible_since == START
    assert make_plan([hourly], {}, good, START + HOUR, SUPPLY, failed).statuses[0].impossible_since is None


def test_the_pace_is_that_of_the_requests_that_came() -> None:
    """The forecast has 100 requests for the hour before; the service was new then, and 4 came."""
    promise = ScheduledPromise.of_group("toys", 10, Window.campaign(START, START + 4 * HOUR, "UTC"))
    plan = make_plan([promise], {promise: 8}, Hours([100] * 4, [80] * 4), START + HOUR, SUPPLY, requests={promise: 4})
    assert plan.statuses[0].at_pace == 8 + 2 * 300
