"""Every new item gets its first exposures within its first days: each promise begins and ends for itself."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.ledger import Ledger, SqlLedger
from fairsync.promises import Promise
from fairsync.schedule import ScheduledPromise
from fairsync.service.promises import saved_state
from fairsync.service.promises.conversion import promise_from_record
from fairsync.service.promises.promise_series import first_days
from fairsync.service.schema import PromiseRecord, WindowRecord
from service.promises.test_promise_service import START
from service.promises.test_selections import Shop

EACH = ScheduledPromise(Promise({"new": True}, at_least=30, each="id"), first_days(2))


class Newcomers(Shop):
    """A shop of which four items are new."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        super().__init__([], ledger)
        old = [int(one) for one in self.catalog.ids if one % 4 == 0 and one not in (40, 44, 80, 84)]
        self.service.items.upsert(None, {"new": [False] * len(old)}, old)

    def counted(self, rows: np.ndarray[Any, Any], item: int) -> int:
        return int((rows == item).sum())


def test_every_new_item_gets_its_first_exposures_and_each_ends_for_itself(tmp_path: Path) -> None:
    with SqlLedger(tmp_path / "a.db", 3) as ledger:
        shop = Newcomers(ledger)
        made = shop.service.editor.make_promises([EACH])
        assert {one.where["id"] for one in made} == {40, 44, 80, 84}
        assert {(one.start, one.end, one.window.days) for one in made} == {(START, START + timedelta(days=2), 2)}
        (series,) = {one.series for one in made}
        shown = shop.pass_hours(6)
        vector = shop.rng.normal(size=(1, 8)) - 1.0  # nobody likes it
        shop.service.items.upsert(vector, {"category": ["toys"], "maker": ["m0"], "new": [True]}, [500])
        (late,) = [one for one in shop.service.promises() if one.where["id"] == 500]
        assert (late.start, late.end) == (START + timedelta(hours=6), START + timedelta(hours=54))
        shop.service.items.upsert(None, {"new": [False]}, [84])
        assert 84 not in {one.where["id"] for one in shop.service.promises()}
        shop.catalog = shop.service.catalog
        shop.service.close()
        shop.start()
        assert {one.series for one in shop.service.promises()} == {series}
        shown = np.concatenate([shown, shop.pass_hours(48)])
        past = {one.name: one for one in shop.service.past()}
        for item in (40, 44, 80, 500):
            window = past[f"id={item}, new=True"]
            assert window.kept
            assert 30 <= window.exposures <= shop.counted(shown, item)
            assert window.end <= window.start + timedelta(days=2)
        assert past["id=40, new=True"].end < START + timedelta(days=2), "it had them before its days were over"
        shop.service.items.upsert(vector, {"category": ["toys"], "maker": ["m0"], "new": [True]}, [501])
        states = {one.where["id"]: one.state for one in shop.service.promises()}
        assert states[500] == states[40] == "kept", "they had their first days"
        assert states[501] != "kept"
        more = ScheduledPromise(Promise({"new": True}, at_least=35, each="id"), first_days(3))
        assert shop.service.editor.preview(more, series).feasible
        shop.service.editor.set_promise(more, series)
        ends = {one.where["id"]: (one.floor, one.end - one.start) for one in shop.service.promises()}
        assert ends[501] == (35, timedelta(days=3))
        assert ends[40][1] < timedelta(days=2), "what is over stays over"
        shop.service.editor.delete_promise(series or "")
        assert shop.service.promises() == []


def test_items_that_have_ended_are_counted_on_until_they_are_many_and_never_shown_as_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saved_state, "MOST_PAST", 3)
    shop = Shop([EACH])
    new, counted, ended = len(shop.service.promises()), set[int](), 0
    for _ in range(52):
        shop.pass_hours(1, per_hour=40)
        views = shop.service.promises()
        assert {one.state for one in views} <= {"kept", "on track", "at risk"}
        under_way = [one for one in shop.service.scheduler.plan.statuses if one.exposures < one.floor]
        counted.add(len(shop.service.coordinator.selections))
        ended = new - len(under_way)
    assert ended == new, "all have had their exposures"
    assert len(views) <= 3, "those that ended before the past windows begin are no longer listed"
    assert max(counted) == new
    assert 1 < len(counted) < new, "not every end changes what is counted"


def test_bad_input() -> None:
    shop = Newcomers()
    record = PromiseRecord(window=WindowRecord(every="campaign", days=2), where={"new": True}, at_least=3)
    with pytest.raises(InvalidInputError, match="give each, or a start"):
        promise_from_record(record, shop.catalog)
    record = PromiseRecord(window=WindowRecord(every="day", days=2), where={"new": True}, each="id", at_least=3)
    with pytest.raises(InvalidInputError, match="length of a campaign without a start"):
        promise_from_record(record, shop.catalog)
    record = PromiseRecord(window=WindowRecord(every="campaign", days=2), where={"new": True}, each="id", at_least=30)
    assert promise_from_record(record, shop.catalog) == EACH
    shop.service.items.upsert(None, {"new": [False] * 4}, [40, 44, 80, 84])
    with pytest.raises(InvalidInputError, match="add items first"):
        shop.service.editor.make_promises([EACH])
