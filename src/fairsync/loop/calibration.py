"""Calibration: prices learnt from past requests, so that the first batch is already well priced."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.inputs import check_users
from fairsync.loop.samples import make_sample
from fairsync.policies import Feedback

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fairsync.catalog import Catalog
    from fairsync.loop.loop_state import LoopState
    from fairsync.policies import Policy, Terms
    from fairsync.search import Index

# The past requests are searched again while prices move. Prices settle within a few rounds.
_ROUNDS = 4


def calibrate(
    state: LoopState, terms: Terms, policy: Policy, catalog: Catalog, index: Index, past_users: ArrayLike
) -> LoopState:
    """Return the state with prices learnt from past requests, latest last. Nothing is counted."""
    learn = getattr(policy, "calibrate", None)
    if learn is None:
        raise InvalidInputError(f"The policy {policy.name!r} has nothing to calibrate; use 'guaranteed'.")
    vectors = check_users(past_users, catalog)[-policy.memory :]
    if len(vectors) == 0:
        raise InvalidInputError("past_users is empty: give at least one past request.")
    totals, price_state, spending, terms = (
        state.progress.totals,
        state.price_state,
        state.spending,
        state.in_force or terms,
    )
    zeros = np.zeros_like(totals.exposures)
    left, exposures = state.progress.left(terms), totals.exposures
    if left <= 0:  # the horizon is over: calibrate for the next one
        left, exposures = terms.horizon, zeros
    width = terms.k + policy.lookahead(policy.start(terms), terms.k)  # as wide as at a cold start
    for _ in range(_ROUNDS):
        hits = index.search(vectors, terms.atom_prices(price_state.prices), min(width, len(catalog)))
        sample = make_sample(terms.k, catalog.group_of[hits.rows], hits)
        if terms.max_prices is not None and not spending.seen:
            last = np.partition(hits.relevance, -terms.k, axis=1)[:, -terms.k]
            spending = spending.observed(float(last.mean()), len(last))
        feedback = Feedback(0, zeros, exposures, left, sample, highest=spending.highest(terms))
        learnt = learn(price_state.state, terms, feedback)
        price_state = price_state.with_state(policy, learnt, terms.n_atoms)
    return replace(state, price_state=price_state, spending=spending)
