"""Promises about any selection in a service of two replicas that share a ledger in Postgres."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InfeasibleFloorsError
from fairsync.schedule import Forecast
from fairsync.service.promises.promise_service import PromiseService
from service.promises.test_selections import K, Shop, promised

if TYPE_CHECKING:
    from postgres_server import PostgresServer

NEW_TOYS, BIG, MAKER = {"category": "toys", "new": True}, {"category": "big"}, {"maker": "m3"}


class Replicated(Shop):
    """The shop, answered by two replicas in turn; the second one takes over in the middle of the day."""

    def __init__(self, promises: list[Any], url: str, **options: Any) -> None:
        self._url, self.replicas = url, list[PromiseService]()
        super().__init__(promises, **options)

    def start(self) -> None:
        for _ in range(2):
            coordinator = Coordinator(
                self.catalog, k=K, floors=0, horizon=1, ledger=self._url, auto_restart=False, if_differs="follow"
            )
            forecast = Forecast(rate=100 / 3600, slot=3600)
            front = FrontEnd(self.catalog, coordinator)
            self.replicas.append(
                PromiseService(front, coordinator, self.promises, forecast, clock=self.clock, **self.options)
            )
        self.service = self.replicas[0]

    def pass_hours(self, hours: int, per_hour: int = 100) -> np.ndarray[Any, Any]:
        rows = []
        for _ in range(2 * hours):
            for replica in self.replicas:
                replica.refresh()
                found = replica.retrieve(self.rng.normal(size=(per_hour // 2 // len(self.replicas), 8)) + 1.0)
                rows.append(found.ids)
            self.clock.go_on(minutes=30)
        for replica in self.replicas:
            replica.refresh()
        return np.concatenate(rows)


def test_two_replicas_keep_caps_conjunctions_and_highest_prices(postgres: PostgresServer) -> None:
    dear = {"category": "books", "maker": "m2"}
    shop = Replicated(
        [promised(NEW_TOYS, at_least=600), promised(BIG, at_most=0.5), promised(dear, at_least=900, max_price=0.001)],
        postgres.schema(f"shared_{secrets.token_hex(6)}"),
    )
    shown = [shop.pass_hours(12)]
    first, second = shop.replicas
    assert {one.name: one.exposures for one in second.promises()} == {
        name: shop.number(shown[0], where)
        for name, where in (
            ("category=toys, new=True", NEW_TOYS),
            ("category=big", BIG),
            ("category=books, maker=m2", dear),
        )
    }
    first.close()
    first.coordinator.close()
    shop.replicas, shop.service = [second], second
    second.scheduler.take_lead()
    shown.append(shop.pass_hours(12))
    past = {one.name: one for one in second.past()}
    every = np.concatenate(shown)
    assert past["category=toys, new=True"].kept
    assert past["category=big"].kept
    assert past["category=big"].cap == every.size // 2
    assert not past["category=books, maker=m2"].kept, "it gives up rather than pay more"
    for name, where in (("category=toys, new=True", NEW_TOYS), ("category=big", BIG)):
        assert past[name].exposures == shop.number(every, where)
    second.close()
    second.coordinator.close()


def test_replicas_know_what_gave_way_to_the_budget(postgres: PostgresServer) -> None:
    first, second = promised({"category": "toys"}, at_least=400), promised({"new": True}, at_least=7_500, priority=2)
    shop = Replicated([first, second], postgres.schema(f"shared_{secrets.token_hex(6)}"), budget=0.05)
    shop.pass_hours(4)
    leader, follower = shop.replicas
    overviews = [replica.overview() for replica in shop.replicas]
    assert "floors of priority 2 and after give way" in overviews[0].gave_way
    assert overviews[1].gave_way == overviews[0].gave_way
    assert {one.name: (one.state, one.reason) for one in overviews[1].promises} == {
        one.name: (one.state, one.reason) for one in overviews[0].promises
    }
    assert [one.message for one in overviews[1].alerts if one.kind == "budget"] == [overviews[0].gave_way]
    with pytest.raises(InfeasibleFloorsError, match="the budget is 5 %"):  # it takes the lead for it
        follower.editor.set_promise(promised({"maker": "m1"}, at_least=10, priority=3))
    leader.refresh()  # it learns that it has lost the lead
    for replica in (leader, follower):
        replica.close()
        replica.coordinator.close()
