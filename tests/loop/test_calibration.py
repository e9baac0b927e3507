"""Calibration: prices learnt from past requests, at any time, without counting anything."""

import numpy as np
import pytest

from fairsync.errors import InvalidInputError
from fairsync.ledger import Totals
from fairsync.loop.calibration import calibrate
from fairsync.loop.loop_state import LoopState
from fairsync.policies import make_policy
from fairsync.promises.floors import make_terms
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from worlds import make_world


def test_calibration_counts_nothing_and_sets_prices() -> None:
    world = make_world(8, groups=5, items=200, horizon=300, k=5, tightness=0.7, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=300)
    assert retriever.calibrate(world.users) is retriever
    report = retriever.report()
    assert report.requests == 0
    assert min(report.prices.values()) < 0
    with pytest.raises(InvalidInputError, match="nothing to calibrate"):
        FairRetriever(world.catalog, policy="none", k=2).calibrate(world.users)
    with pytest.raises(InvalidInputError, match="empty"):
        retriever.calibrate(world.users[:0])


@pytest.mark.parametrize("at", [5, 2400, 2405, 2416, 2431])
def test_calibration_may_come_at_any_time(at: int) -> None:
    world = make_world(19, groups=6, items=300, horizon=3000, k=5, tightness=0.4, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=3000)
    retriever.retrieve(world.users[:at])
    retriever.calibrate(world.users[:100])
    retriever.retrieve(world.users[at:])
    assert retriever.report().esp == 1.0


def test_it_changes_prices_and_nothing_else() -> None:
    world = make_world(8, groups=5, items=200, horizon=300, k=5, tightness=0.7, dim=8)
    policy, terms = make_policy("guaranteed"), make_terms(world.catalog, world.k, world.floors, 300, 16)
    before = LoopState.open(terms, policy, Totals.zero(5))
    after = calibrate(before, terms, policy, world.catalog, ExactIndex(world.catalog), world.users)
    assert after.progress is before.progress
    assert after.price_state.requests == 0
    assert after.price_state.version > before.price_state.version
    assert not np.array_equal(after.price_state.prices, before.price_state.prices)
