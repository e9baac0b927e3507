"""The loop: batches, price steps and horizons follow from a small state, and from nothing else."""

import logging
from typing import Any

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users
from fairsync.ledger import Entry, MemoryLedger, Totals
from fairsync.loop.batch import Outcome
from fairsync.loop.loop_state import LoopState
from fairsync.loop.progress import Progress
from fairsync.loop.serving import serve
from fairsync.policies import Feedback, NoPolicy, Terms, make_policy
from fairsync.promises.floors import make_terms
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from worlds import make_world

TWO = Catalog(np.eye(2), ["a", "b"])
A = Entry(np.array([1, 0]), 1, 1.0, 0.0)


def opened(terms: Terms, requests: int = 0) -> LoopState:
    return LoopState.open(terms, NoPolicy(), Totals(np.zeros(2, dtype=np.int64), requests))


def test_it_is_the_whole_retriever() -> None:
    """The four steps by hand give the answers of a retriever, and the entries of its ledger."""
    world = make_world(3, items=60, horizon=60, tightness=0.5)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=40, batch_size=7)
    expected = retriever.retrieve(world.users)
    terms, policy, ledger = retriever.terms, make_policy("guaranteed"), MemoryLedger(4)
    vectors, index = check_users(world.users, world.catalog), ExactIndex(world.catalog)
    state, start, found = LoopState.open(terms, policy, ledger.totals()), 0, []
    while start < len(vectors):
        state = state.begin(terms, policy)
        batch = state.next_batch(terms, policy, 5)
        served = serve(batch, world.catalog, index, vectors[start : start + batch.requests])
        state, entry = state.record(policy, served)
        ledger.record([entry])
        found += served.hits.rows.tolist()
        start += batch.requests
    assert [set(rows) for rows in found] == [set(rows) for rows in expected.rows.tolist()]
    assert ledger.totals().exposures.tolist() == retriever.ledger.totals().exposures.tolist()
    assert len(ledger.past()) == len(retriever.ledger.past()) == 1
    prices = dict(zip(world.catalog.labels, state.prices_in_force(terms, policy).tolist(), strict=True))
    assert prices == retriever.report().prices


@pytest.mark.parametrize(
    ("n", "recorded", "leased", "requests", "left"),
    [
        (3, 0, 0, 3, 10),  # fewer than the price batch
        (9, 0, 0, 4, 10),  # no more than the price batch
        (9, 3, 0, 1, 7),  # what is left of it
        (9, 3, 1, 4, 6),  # the next one, once the rest is leased
        (9, 8, 0, 2, 2),  # what is left of the horizon
        (9, 8, 1, 1, 1),
        (9, 8, 2, 0, 0),  # all of it is leased
    ],
)
def test_a_batch_stays_within_price_batch_and_horizon(
    n: int, recorded: int, leased: int, requests: int, left: int
) -> None:
    terms, policy = make_terms(TWO, 1, 0, 10, 4), NoPolicy()
    state = opened(terms)
    for _ in range(recorded):
        state, _entry = state.begin(terms, policy).record(policy, Outcome(A))
    batch = state.begin(terms, policy).next_batch(terms, policy, n, leased=leased)
    assert (batch.requests, batch.left) == (requests, left)


def test_a_horizon_that_ends_by_the_clock_serves_all_requests() -> None:
    terms, policy = make_terms(TWO, 1, 0, 10, 4, auto_restart=False), NoPolicy()
    state = opened(terms, requests=9)
    batch = state.begin(terms, policy).next_batch(terms, policy, 9, leased=3)
    assert (batch.requests, batch.left) == (4, 4)
    assert state.begin(terms, policy) is state


def test_a_new_horizon_waits_for_leases() -> None:
    terms, policy = make_terms(TWO, 1, 0, 10, 4), NoPolicy()
    state = opened(terms, requests=10)
    assert state.begin(terms, policy, leased=1) is state
    begun = state.begin(terms, policy)
    assert (begun.progress.totals.requests, begun.progress.opens_horizon) == (0, True)
    _, entry = begun.record(policy, Outcome(A))
    assert entry.opens_horizon


def test_a_state_is_immutable() -> None:
    terms, policy = make_terms(TWO, 1, 0, 10, 1), make_policy("fairsync")
    state = LoopState.open(terms, policy, Totals.zero(2))
    first, second = (state.record(policy, Outcome(A))[0].begin(terms, policy) for _ in range(2))
    assert state.progress.totals.requests == 0
    assert first.price_state.prices.tolist() == second.price_state.prices.tolist()
    assert first.price_state.version == state.price_state.version + 1


def test_an_entry_made_before_groups_were_added_counts() -> None:
    progress, entry = Progress(Totals.zero(3, began=5.0)).record(A)
    assert (progress.totals.exposures.tolist(), entry.counts.tolist(), entry.began) == ([1, 0, 0], [1, 0, 0], 5.0)


def test_floors_that_an_outage_has_cost(caplog: pytest.LogCaptureFixture) -> None:
    """They are refused unless allowed. Once allowed, a change of items is no reason to refuse them."""
    terms, policy = make_terms(TWO, 1, {"a": 5}, 10, 4), make_policy("guaranteed")
    late = Totals(np.array([0, 9]), requests=9)
    with pytest.raises(InvalidInputError, match="cannot be met"):
        LoopState.open(terms, policy, late)
    with caplog.at_level(logging.WARNING):
        state = LoopState.open(terms, policy, late, allow_infeasible=True)
    assert "cannot be met" in caplog.text
    with pytest.raises(InvalidInputError, match="another catalog"):
        LoopState.open(terms, policy, Totals.zero(3), allow_infeasible=True)
    more = make_terms(Catalog(np.eye(3), ["a", "b", "c"]), 1, {"a": 5}, 10, 4)
    assert state.under(more, policy, terms).progress.totals.exposures.tolist() == [0, 9, 0]
    with pytest.raises(InvalidInputError, match="cannot be met"):
        state.under(make_terms(TWO, 1, {"a": 4}, 10, 4), policy, terms)


def test_prices_change_every_batch_only() -> None:
    world = make_world(5, horizon=64, tightness=0.5)
    retriever = FairRetriever(
        world.catalog, k=world.k, floors=world.floors, horizon=64, policy="fairsync", batch_size=8
    )
    seen = []
    for user in world.users:
        retriever.retrieve(user[None])
        seen.append(tuple(retriever.report().prices.values()))
    # The price of a batch is made when its first request arrives.
    changes = [t for t in range(1, 64) if seen[t] != seen[t - 1]]
    assert changes == list(range(8, 64, 8))


@pytest.mark.parametrize("batch_size", [16, 200])
def test_requests_beyond_the_memory_of_the_policy(batch_size: int) -> None:
    """More than it remembers, from the past and in the horizon; calls may be cut anywhere."""
    world = make_world(18, groups=6, items=500, horizon=2600, k=5, tightness=0.4, dim=8)

    def fresh() -> FairRetriever:
        retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=2600, batch_size=batch_size)
        return retriever.calibrate(world.users)

    whole, parts = fresh(), fresh()
    expected = whole.retrieve(world.users)
    pieces = [parts.retrieve(part) for part in np.array_split(world.users, 171)]
    assert (np.concatenate([piece.ids for piece in pieces]) == expected.ids).all()
    assert whole.report().esp == 1.0


def test_a_new_horizon_counts_from_zero_and_keeps_its_prices() -> None:
    world = make_world(9, groups=5, items=200, horizon=100, k=5, tightness=0.8, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=100)
    retriever.retrieve(world.users)
    first = retriever.report()
    assert first.requests == 100  # the horizon that has just ended stays in view
    retriever.retrieve(world.users[:1])
    report = retriever.report()
    assert report.requests == 1
    assert sum(report.exposures.values()) == world.k
    assert report.completed == 1
    assert min(report.prices.values()) < 0  # a cold start would have none


def test_terms_reach_the_policy() -> None:
    seen: list[tuple[Terms, Feedback]] = []

    class Spy(NoPolicy):
        def step(self, state: int, terms: Terms, feedback: Feedback) -> int:
            seen.append((terms, feedback))
            return state

    world = make_world(17, groups=2, items=20, horizon=10, k=2)
    FairRetriever(world.catalog, k=2, floors=world.floors, horizon=10, policy=Spy(), batch_size=4).retrieve(
        np.concatenate([world.users] * 2)
    )
    # Batches of 4, 4 and 2: a batch ends with its horizon.
    assert [feedback.requests for _, feedback in seen] == [4, 4, 2, 4, 4]
    assert [feedback.remaining for _, feedback in seen] == [6, 2, 10, 6, 2]
    assert [int(feedback.exposures.sum()) for _, feedback in seen] == [8, 16, 0, 8, 16]


def test_a_ledger_that_does_not_fit_is_refused() -> None:
    world = make_world(24, groups=3, horizon=40, tightness=0.9)
    ledger = MemoryLedger(3)
    FairRetriever(world.catalog, k=world.k, floors=0, horizon=40, policy="none", ledger=ledger).retrieve(
        world.users[:39]
    )
    with pytest.raises(InvalidInputError, match="new ledger"):
        FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=40, ledger=ledger)
    with pytest.raises(InvalidInputError, match="more than 30: choose a longer horizon"):
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=30, ledger=ledger)
    with pytest.raises(InvalidInputError, match="another catalog"):
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=40, ledger=MemoryLedger(2))
    no_ledger: Any = 5
    with pytest.raises(InvalidInputError, match="ledger must be a URL"):
        FairRetriever(world.catalog, k=world.k, horizon=40, ledger=no_ledger)
    resumed = FairRetriever(world.catalog, k=world.k, floors=1, horizon=40, ledger=ledger)
    resumed.retrieve(world.users[39:])
    assert resumed.report().requests == 40
