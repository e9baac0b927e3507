"""How one of several coordinators that share a ledger grants leases: by one statement, or in an exclusive transaction.

:mod:`fairsync.coordination.shared_state` says why both are safe.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.coordination.lease import Lease
from fairsync.coordination.shared_certificate import new_number

if TYPE_CHECKING:
    from fairsync.coordination.shared_view import SharedView
    from fairsync.ledger.database import Transaction
    from fairsync.loop.batch import Batch


def grant_lease(view: SharedView, n: int, seconds: float) -> Lease | None:
    """Lease up to n requests, to expire after these seconds; None if it has to wait for open leases.

    If the connection breaks, the caller repeats the grant: then the first one, of which nobody knows, is taken back.
    """
    rows, batch, number = view.rows, None, view.rows.retried
    if not number:
        number = rows.retried = new_number()
        batch = _grant_at_once(view, number, n, seconds)
    if batch is None:
        batch = view.ledger.database.run(lambda tx: _grant(tx, view, number, n, seconds), "exclusive", durable=False)
    rows.retried = 0
    if batch is None:
        return None
    rows.keep(number, batch.requests)
    return Lease(number, view.prices.priced(view.terms, rows.progress, rows.horizon, batch))


def _grant_at_once(view: SharedView, number: int, n: int, seconds: float) -> Batch | None:
    """Lease up to n requests by one statement; None if that is not possible, or may not be."""
    rows, most, mine = view.rows, _most_granted(view), view.rows.own_requests
    batch = _next_batch(view, n, max(rows.granted - rows.progress.totals.requests, mine), mine)
    if (
        not batch.requests
        or rows.granted + batch.requests > most
        or not rows.can_grant_at_once
        or not view.certificate.forecast_allows(batch)
    ):
        return None
    before = rows.grant_at_once(number, batch.requests, seconds, view.key, most, len(view.groups.labels))
    if before is None:
        return None
    batch = _next_batch(view, batch.requests, before - rows.progress.totals.requests, mine)
    return batch if view.terms.membership is None else view.certificate.under_quota(batch)


def _grant(transaction: Transaction, view: SharedView, number: int, n: int, seconds: float) -> Batch | None:
    """Lease up to n requests with all other leases known; None if they have to be waited for."""
    found = view.expire(transaction, view.read_alone(transaction))
    rows, leases = view.rows, found.leases
    if not leases.open and rows.progress.is_over(view.terms):
        # A horizon that others have seen end must not continue after a crash.
        transaction.execute("SET LOCAL synchronous_commit = on")
        latest = view.ledger.open_horizon(transaction, 0.0)
        rows.begin(latest, len(latest.totals.exposures))
        view.certificate.close_quota(transaction, view.terms, leases.open)
    batch = _next_batch(view, n, leases.requests, found.mine)
    if view.terms.membership is None:
        granted = replace(leases, issued=number - 1).grant(batch)
        lease = None if granted is None else granted[1].batch
    else:
        affordable = view.prices.spending.affordable(view.terms)
        lease = view.certificate.grant(transaction, number, batch, rows.progress, leases.open, affordable)
    if lease is not None:
        rows.grant(transaction, number, batch.requests, seconds, view.key)
    return lease


def _most_granted(view: SharedView) -> int:
    """Return how many requests of this horizon may be leased, whatever those that are open deliver."""
    terms = view.terms
    if terms.membership is not None:
        return view.certificate.quota.most
    missing = view.rows.progress.missing(terms)
    if not view.policy.keeps_floors or not missing.any():
        return terms.horizon if terms.auto_restart else 1 << 62
    if (missing[terms.capacities == 0] > 0).any():
        return 0
    each = -(-missing // np.maximum(terms.capacities, 1))
    return terms.horizon - max(int(each.max()), -(-int(missing.sum()) // terms.k))


def _next_batch(view: SharedView, n: int, leased: int, mine: int) -> Batch:
    rows = view.rows
    return view.prices.next_batch(view.terms, rows.progress, rows.horizon, n, leased=leased, mine=mine)
