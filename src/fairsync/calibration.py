"""Prices learnt from past requests, so that the first batch is already well priced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users
from fairsync.policies import Feedback
from fairsync.serving import make_sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fairsync.catalog import Catalog
    from fairsync.coordination.books import LoopState
    from fairsync.policies import Policy, Terms
    from fairsync.search import Index

# Past requests are searched again while prices move; they settle within a few rounds.
_ROUNDS = 4


def calibrate(
    books: LoopState, terms: Terms, policy: Policy, catalog: Catalog, index: Index, past_users: ArrayLike
) -> LoopState:
    """Return the books with prices learnt from past requests, latest last. Nothing is counted."""
    learn = getattr(policy, "calibrate", None)
    if learn is None:
        raise InvalidInputError(f"The policy {policy.name!r} has nothing to calibrate; use 'guaranteed'.")
    vectors = check_users(past_users, catalog)[-policy.memory :]
    if len(vectors) == 0:
        raise InvalidInputError("past_users is empty: give at least one past request.")
    totals, pricing = books.accounts.totals, books.pricing
    none = np.zeros_like(totals.exposures)
    left, exposures = terms.horizon - totals.requests, totals.exposures
    if left <= 0:  # the horizon is over: these are prices for the next one
        left, exposures = terms.horizon, none
    deep = terms.k + policy.lookahead(policy.start(terms), terms.k)  # as deep as at a cold start
    for _ in range(_ROUNDS):
        hits = index.search(vectors, pricing.prices, min(deep, len(catalog)))
        sample = make_sample(terms.k, catalog.group_of[hits.rows], hits)
        state = learn(pricing.state, terms, Feedback(0, none, exposures, left, sample))
        pricing = pricing.with_state(policy, state)
    return replace(books, pricing=pricing)
