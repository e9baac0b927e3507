"""Serving a batch: counts, cost and samples of what was found under its prices."""

from dataclasses import replace

import numpy as np
import pytest

from fairsync.errors import FairSyncError
from fairsync.inputs import check_users
from fairsync.ledger import Totals
from fairsync.loop.loop_state import LoopState
from fairsync.loop.serving import serve
from fairsync.policies import NoPolicy, make_policy
from fairsync.policies.base import Floats
from fairsync.promises.floors import make_terms
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex
from worlds import make_world


def test_the_cost_is_what_plain_retrieval_would_have_had_more() -> None:
    world = make_world(6, groups=6, items=400, horizon=200, k=5, tightness=0.6, dim=8)
    plain = (
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=200, policy="none")
        .retrieve(world.users)
        .relevance.sum()
    )
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=200)
    given_up = plain - retriever.retrieve(world.users).relevance.sum()
    cost = retriever.report().cost
    assert cost is not None
    assert given_up <= cost + 1e-9 <= 1.05 * given_up + 1e-9


def test_a_cost_that_was_not_measured_is_not_zero() -> None:
    world = make_world(6, groups=6, items=400, horizon=200, k=5, tightness=0.6, dim=8)
    retriever = FairRetriever(world.catalog, k=world.k, floors=world.floors, horizon=200, policy="fairsync")
    retriever.retrieve(world.users)
    assert retriever.report().cost is None


class MasksAll(NoPolicy):
    name = "masks-all"

    def prices(self, state: int) -> Floats:
        return np.full(state, np.inf)


def test_a_policy_that_leaves_too_few_items_is_told() -> None:
    world = make_world(15)
    with pytest.raises(FairSyncError, match="fewer than k"):
        FairRetriever(world.catalog, k=world.k, floors=0, horizon=40, policy=MasksAll()).retrieve(world.users)


def test_a_batch_has_all_that_is_needed_to_serve_it() -> None:
    """Its prices, its k and the exposures that are missing decide; who serves it does not matter."""
    world = make_world(5, items=60, horizon=40, tightness=0.8)
    policy, terms = make_policy("guaranteed"), make_terms(world.catalog, world.k, world.floors, 40, 16)
    batch = LoopState.open(terms, policy, Totals.zero(4)).next_batch(terms, policy, 10)
    users, index = check_users(world.users[:10], world.catalog), ExactIndex(world.catalog)
    served = serve(batch, world.catalog, index, users)
    groups = world.catalog.group_of[served.hits.rows]
    assert served.entry.counts.tolist() == np.bincount(groups.ravel(), minlength=4).tolist()
    assert (served.entry.requests, served.entry.relevance) == (10, served.hits.relevance.sum())
    assert served.searched == 1.0
    assert served.sample is not None
    assert served.sample.groups.shape == (10, world.k + batch.lookahead)
    wider = serve(replace(batch, k=world.k + 1, watched=False), world.catalog, index, users)
    assert wider.hits.rows.shape == (10, world.k + 1)
    assert wider.sample is None
