"""Floors are met although traffic breaks off: what could not be met then has been brought forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.schedule import Promise, Window, make_plan
from fairsync.schedule.requirements import Requirements
from fairsync.schedule.safety_margin import bring_forward, cap_unreachable
from schedule.flows import demands
from schedule.traffic import HOUR, START, Hours, serve_floors_only

if TYPE_CHECKING:
    from fairsync.catalog.groups import Label

HOURS = 4


@settings(max_examples=40)
@given(st.data())
def test_traffic_that_halves_at_any_time_still_brings_all_that_it_can(data: st.DataObject) -> None:
    """The forecast is sure of itself and wrong. Yet nothing is missed that any way of dealing out would have kept."""
    k = data.draw(st.integers(1, 3))
    caps: dict[Label, int] = {group: data.draw(st.integers(1, k)) for group in range(data.draw(st.integers(1, 2)))}
    likely = data.draw(st.lists(st.integers(8, 30), min_size=HOURS, max_size=HOURS))
    breaks = data.draw(st.integers(0, HOURS))
    came = [count if hour < breaks else -(-count // 2) for hour, count in enumerate(likely)]
    window = Window.campaign(START, START + HOURS * HOUR, "UTC")
    promises = [
        Promise(group, data.draw(st.integers(1, max(1, 3 * k * sum(likely) // (4 * len(caps))))), window)
        for group in caps
    ]
    _, outcomes = serve_floors_only(promises, Hours(likely, likely), came, k, caps, step=1)
    requests = sum(came)
    possible = all(promise.floor <= requests * caps[promise.group] for promise in promises)
    if possible and sum(promise.floor for promise in promises) <= requests * k:
        assert all(exposures >= promise.floor for (promise, _), exposures in outcomes.items())


@given(demands(), st.integers(1, 20))
def test_what_is_brought_forward_fits(requirements: Requirements, horizon: int) -> None:
    given_ = np.zeros_like(requirements.caps)
    floors, near = bring_forward(requirements, given_, horizon)
    assert 1 <= near <= horizon
    assert floors.sum() <= near * requirements.k
    assert (floors <= requirements.caps * near).all()
    assert (floors >= 0).all()


def test_whoever_is_safe_keeps_the_pace() -> None:
    """A promise of a quarter of the slots is safe if a third of the traffic comes, and one of a half is not."""
    forecast = Hours([900], [800])
    caps: dict[Label, int] = {"toys": 1}
    for floor, horizon in ((225, 800), (450, 450)):
        plan = make_plan([Promise("toys", floor, Window.hour("UTC"))], {}, forecast, START, 1, caps)
        assert (plan.floors, plan.horizon) == ({"toys": floor}, horizon)
    trusting = make_plan(
        [Promise("toys", 450, Window.hour("UTC"))], {}, forecast, START, 1, caps, worst_case_traffic=1.0
    )
    assert trusting.horizon == 800


def test_later_windows_ask_for_no_more_than_they_can_get() -> None:
    """Both groups want a later window each; ten requests of two slots come in it, of which each could have one."""
    later = np.array([[0, 1], [0, 1]])
    requirements = Requirements(
        group=np.array([0, 1]), missing=np.array([5, 5]), floor=np.array([40, 8]), place=np.array([0, 0]),
        later=later, requests=np.array([6, 16]), caps=np.array([1, 1]), k=1,
    )  # fmt: skip
    assert cap_unreachable(requirements).floor.tolist() == [5, 4]  # 10 and 8 alone; together 10 slots for 18


@pytest.mark.parametrize(("books", "toys"), [(8, 10), (16, 20)])
def test_a_longer_promise_leans_on_later_windows_only_where_they_are_sure(books: int, toys: int) -> None:
    """A sale of two hours wants 20 toys, of which each hour brings 8; a third of the 60 requests may be all that come.

    If the second hour's floors fit into 20 requests, the first one brings half of the sale. If they do not, it is not
    known what toys will get of them, and the first hour brings all.
    """
    sale = Promise("toys", 20, Window.campaign(START, START + 2 * HOUR, "UTC"))
    hourly = [Promise("toys", 8, Window.hour("UTC")), Promise("books", books, Window.hour("UTC"))]
    _, outcomes = serve_floors_only(
        [sale, *hourly], Hours([60, 60], [60, 60]), [60], 1, {"toys": 1, "books": 1}, step=1
    )
    assert [outcomes[promise, span] for promise, span in outcomes] == [toys, books]
