"""Serving a batch: search, guard, counts, and what the policy learns from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync import guard
from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.eligibility.own_sizes import OwnSizes
from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.explain.trace import BatchTrace
from fairsync.guard.price_limits import PriceLimits
from fairsync.ledger import Entry
from fairsync.loop.batch import Batch, ServedBatch
from fairsync.loop.promise_costs import PromiseCosts, given_up_by_group, given_up_by_promise
from fairsync.policies import Sample, Terms
from fairsync.policies.base import NO_CAP
from fairsync.promises.certificate import Certified, prune
from fairsync.promises.shown import Shown
from fairsync.search import Hits
from fairsync.search.base import LARGEST_PRICE
from fairsync.search.filtering import search_eligible
from fairsync.spans import span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.cold_start.fixed_list import FixedList
    from fairsync.explain.trace import Replaced
    from fairsync.search import Index
    from fairsync.search.eligibility import Eligibility


def serve(
    batch: Batch,
    catalog: Catalog,
    index: Index,
    users: NDArray[np.floating[Any]],
    eligible: Eligibility | None = None,
    fixed: FixedList | None = None,
    *,
    explain: bool = False,
) -> ServedBatch:
    """Find the candidates of a batch: search under its prices, then let the guard enforce the floors.

    Parameters
    ----------
    batch
        The requests, their prices and the state of the promise.
    catalog, index
        The items, and the index that searches them.
    users
        (requests, interests, d) user vectors that :func:`fairsync.inputs.check_users` has returned.
    eligible
        The items that each request may get; None for all items.
    fixed
        A list that some of the requests begin with. Prices decide on the rest of theirs only.
    explain
        Whether to record what the requests can be explained from. It takes about as long as the search.
    """
    replaced: Replaced | None = {} if explain else None
    if eligible is None:
        served = _serve_all(batch, catalog, index, users, fixed, replaced)
    else:
        served = _serve_eligible(batch, catalog, index, users, eligible, fixed, replaced)
    if replaced is None:
        return served
    trace = BatchTrace.of(
        catalog, index, users, eligible, served.hits, replaced, batch.prices, batch.missing, batch.terms,
        depth=min(batch.k + batch.lookahead, len(catalog)), keeps_floors=batch.keeps_floors, fixed=fixed,
        promise_prices=batch.promise_prices,
    )  # fmt: skip
    return replace(served, trace=trace)


def _serve_all(
    batch: Batch,
    catalog: Catalog,
    index: Index,
    users: NDArray[np.floating[Any]],
    fixed: FixedList | None,
    replaced: Replaced | None,
) -> ServedBatch:
    """Do what `serve` does where every item is eligible for every request."""
    terms, prices = batch.terms, batch.prices
    k, n_groups = batch.k, catalog.n_groups
    width = min(len(catalog), k + batch.lookahead)
    is_priced = bool(batch.prices_by_promise.any())
    with span("search"):
        hits = index.search(users, prices if is_priced else None, width)
    if hits.rows[:, k - 1].min() < 0:
        raise _too_few(hits, k, len(catalog))
    if fixed is not None:
        hits = fixed.put_first(hits, k, catalog, users, None)
    searched = 1.0
    if hits.reached is not None:
        terms = replace(terms, capacities=np.minimum(terms.capacities, hits.reached))
        searched = float(hits.reached.sum() / len(catalog))
    groups = catalog.group_of.take(hits.rows)
    chosen, forced = Hits(hits.rows[:, :k], hits.relevance[:, :k]), 0
    shown, counts = _count(groups[:, :k].ravel(), terms, n_groups)
    certificate = batch.certificate
    limits = None if batch.highest is None else PriceLimits.of(batch.highest)
    if batch.keeps_floors:
        with span("guard"):
            needs_guard, certificate = _needs_guard(batch, terms, shown, counts, len(users))
            if needs_guard:
                chosen, forced, certificate = guard.keep_promises(
                    lambda i, p, n: index.search(users[i : i + 1], p, n),
                    catalog, terms, prices, hits, batch.missing, batch.left, k, None, batch.forecast, replaced,
                    None if fixed is None else fixed.requests, batch.promise_prices, certificate, batch.room,
                    limits,
                )  # fmt: skip
                shown, counts = _count(catalog.group_of.take(chosen.rows).ravel(), terms, n_groups)
            elif certificate is not None and shown is not None:
                certificate = shown.taken_from(certificate)
    relevance = float(chosen.relevance.sum())
    best = _plain_relevance(k, len(catalog), prices, hits, groups) if is_priced else hits.relevance[:, :k]
    if fixed is not None and best is not None:  # what a fixed list gives up is no cost of the floors
        best = np.where(fixed.requests[:, None], hits.relevance[:, :k], best)
    # Rounding can make the cost slightly negative.
    cost = float("nan") if best is None else max(float(best.sum()) - relevance, 0.0)
    certified = None
    if certificate is not None:
        given = Shown.in_all(counts) if shown is None else shown
        certified = Certified(certificate, given, None if limits is None else limits.refused)
    costs = PromiseCosts.zero(len(counts))
    if forced or is_priced or batch.terms.list_limits is not None:
        costs = _costs(batch, catalog, chosen, counts, best)
    sample = None
    if batch.watched and width > k:
        sample = _priced_sample(k, groups, hits, batch.prices_by_promise, None if fixed is None else fixed.requests)
    entry = Entry(counts, len(users), relevance, cost, forced)
    return ServedBatch(
        chosen, entry, sample, searched, costs,
        certified=certified, reached=hits.reached, last_relevance=_last_relevance(terms, best),
        plain=None if best is None else best.sum(axis=1),
    )  # fmt: skip


def _serve_eligible(
    batch: Batch,
    catalog: Catalog,
    index: Index,
    users: NDArray[np.floating[Any]],
    eligible: Eligibility,
    fixed: FixedList | None,
    replaced: Replaced | None,
) -> ServedBatch:
    """Do what `serve` does, with lists that are short where fewer than k items are eligible."""
    terms, prices = batch.terms, batch.prices
    k, n_groups = batch.k, catalog.n_groups
    width = min(len(catalog), k + batch.lookahead)
    with span("search"):
        hits = search_eligible(index, users, prices, width, eligible)
    if hits.reached is None:
        hits = _filled(hits, index, users, prices, k, eligible)
    if fixed is not None:
        hits = fixed.put_first(hits, k, catalog, users, eligible)
    searched = 1.0
    if hits.reached is not None:
        terms = replace(terms, capacities=np.minimum(terms.capacities, hits.reached))
        searched = float(hits.reached.sum() / len(catalog))
    chosen, forced = Hits(hits.rows[:, :k], hits.relevance[:, :k]), 0
    shown, counts = _count(catalog.group_of[chosen.rows[chosen.rows >= 0]], terms, n_groups)
    certificate = batch.certificate
    limits = None if batch.highest is None else PriceLimits.of(batch.highest)
    if batch.keeps_floors:
        with span("guard"):
            needs_guard, certificate = _needs_guard(batch, terms, shown, counts, len(users))
            if needs_guard:
                chosen, forced, certificate = guard.keep_promises(
                    lambda i, p, n: search_eligible(index, users[i : i + 1], p, n, eligible.take(np.array([i]))),
                    catalog, terms, prices, hits, batch.missing, batch.left, k, eligible, batch.forecast, replaced,
                    None if fixed is None else fixed.requests, batch.promise_prices, certificate, batch.room,
                    limits,
                )  # fmt: skip
                shown, counts = _count(catalog.group_of[chosen.rows[chosen.rows >= 0]], terms, n_groups)
            elif certificate is not None and shown is not None:
                certificate = shown.taken_from(certificate)
    relevance = float(chosen.relevance[chosen.rows >= 0].sum())
    whole = hits.rows[:, k - 1] >= 0  # the policy learns from lists of k items or more
    full = Hits(hits.rows[whole], hits.relevance[whole])
    groups = catalog.group_of[full.rows]
    is_priced = bool(batch.prices_by_promise.any())
    best = _plain_relevance(k, len(catalog), prices, full, groups) if is_priced else full.relevance[:, :k]
    if fixed is not None and best is not None:
        best = np.where(fixed.requests[whole][:, None], full.relevance[:, :k], best)
    cost, plain = float("nan"), None
    if best is not None:
        short = hits.relevance[~whole]  # every eligible item is in these lists, at any prices
        short = np.where(np.isfinite(short), short, 0.0)
        cost = max(float(best.sum()) + float(short.sum()) - relevance, 0.0)
        plain = np.empty(len(users))
        plain[whole], plain[~whole] = best.sum(axis=1), short.sum(axis=1)
    certified = None
    if certificate is not None:
        given = Shown.in_all(counts) if shown is None else shown
        certified = Certified(certificate, given, None if limits is None else limits.refused)
    costs = PromiseCosts.zero(len(counts))
    if forced or is_priced or batch.terms.list_limits is not None:  # a short list has no alternative: it costs nothing
        costs = _costs(batch, catalog, Hits(chosen.rows[whole], chosen.relevance[whole]), counts, best)
    sample = None
    if batch.watched and width > k and whole.any():
        by_promise = batch.prices_by_promise
        sample = _priced_sample(k, groups, full, by_promise, None if fixed is None else fixed.requests[whole])
    entry = Entry(counts, len(users), relevance, cost, forced)
    slots = _eligible_slots(batch, catalog, eligible, hits.reached)
    limited = 0 if slots is None else slots.limited
    return ServedBatch(
        chosen, entry, sample, searched, costs, limited,
        slots=slots, certified=certified, reached=hits.reached, last_relevance=_last_relevance(terms, best),
        plain=plain,
    )  # fmt: skip


def _count(atoms: NDArray[np.integer], terms: Terms, n_atoms: int) -> tuple[Shown | None, NDArray[np.int64]]:
    """Return the atoms of the candidates of some requests, and (P,) the exposures of each promise.

    There can be a thousand times as many atoms as candidates: those without any are left out. If promise p is atom p,
    None stands for the atoms.
    """
    if terms.membership is None:
        return None, np.bincount(atoms, minlength=n_atoms)
    shown = Shown.of_atoms(atoms)
    return shown, shown.exposures(terms.membership)


def _needs_guard(
    batch: Batch, terms: Terms, shown: Shown | None, counts: NDArray[np.int64], requests: int
) -> tuple[bool, NDArray[np.int64] | None]:
    """Return whether some requests, which prices alone would give these atoms and exposures, could need the guard.

    Returned is also the certificate. It is pruned only here, where a smaller one may save the work of the guard: many
    batches go by without.
    """

    def needs(certificate: NDArray[np.int64] | None) -> bool:
        prices = batch.prices_by_promise
        return guard.needs_guard(
            terms, batch.missing, prices, counts, requests, batch.left, batch.forecast, certificate, batch.room, shown
        )

    certificate = batch.certificate
    if not needs(certificate):
        return False, certificate
    if certificate is None or guard.overshoots(batch.missing, batch.prices_by_promise, counts):
        return True, certificate
    certificate = prune(terms, certificate, batch.missing)
    return needs(certificate), certificate


def _eligible_slots(
    batch: Batch, catalog: Catalog, eligible: Eligibility, reached: NDArray[np.int64] | None
) -> EligibleSlots | None:
    """Return what the requests could show, if some of them are limited."""
    limited = np.flatnonzero(guard.is_limited(eligible, batch.terms, catalog, reached))
    if not len(limited):
        return None
    own = OwnSizes.of(eligible.take(limited), catalog.group_of, catalog.group_sizes)
    return EligibleSlots.of(own, len(eligible), batch.terms)


def _filled(
    hits: Hits,
    index: Index,
    users: NDArray[np.floating[Any]],
    prices: NDArray[np.float64],
    k: int,
    eligible: Eligibility,
) -> Hits:
    """Return the hits with longer lists where groups that the policy masked are all that is left to show."""
    lacking = np.flatnonzero((hits.rows[:, :k] >= 0).sum(axis=1) < np.minimum(eligible.counts, k))
    if not len(lacking):
        return hits
    last = np.where(np.isinf(prices), LARGEST_PRICE, prices)
    found = search_eligible(index, users[lacking], last, hits.rows.shape[1], eligible.take(lacking))
    if ((found.rows[:, :k] >= 0).sum(axis=1) < np.minimum(eligible.counts[lacking], k)).any():
        raise FairSyncError(
            f"The index found fewer than k = {k} of the eligible items though there are more. 'exact' finds all."
        )
    rows, relevance = hits.rows.copy(), hits.relevance.copy()
    rows[lacking], relevance[lacking] = found.rows, found.relevance
    return Hits(rows, relevance)


def make_sample(k: int, groups: NDArray[np.int32], hits: Hits, prices: NDArray[np.float64] | None = None) -> Sample:
    """Return the part of the lists that a policy may see: groups and relative relevance, no items."""
    beyond_last = hits.relevance - hits.relevance[:, k - 1, None]
    within = np.minimum(np.maximum(beyond_last, -1e30), 1e30)  # the range of float32
    if hits.rows[:, -1].min(initial=0) < 0:  # there was no further item
        within[hits.rows < 0] = -np.inf
    return Sample(groups.astype(np.intp), within.astype(np.float32), prices)


def _priced_sample(
    k: int, groups: NDArray[np.int32], hits: Hits, prices: NDArray[np.float64], fixed: NDArray[np.bool_] | None
) -> Sample | None:
    """Return the sample without the requests that have a fixed list, which prices did not make."""
    if fixed is None:
        return make_sample(k, groups, hits, prices)
    if fixed.all():
        return None
    return make_sample(k, groups[~fixed], Hits(hits.rows[~fixed], hits.relevance[~fixed]), prices)


def _too_few(hits: Hits, k: int, n_items: int) -> FairSyncError:
    if hits.reached is not None:
        return BackendUnavailableError(
            f"Only {int(hits.reached.sum()):,} of {n_items:,} items are within reach, too few for k = {k} candidates:"
            " ask again when more of the shards are up."
        )
    return FairSyncError(f"The policy masked too many groups: fewer than k = {k} items were left.")


def _plain_relevance(
    k: int, n_items: int, prices: NDArray[np.float64], hits: Hits, groups: NDArray[np.int32]
) -> NDArray[np.float64] | None:
    """Return (n, k) upper bounds of the relevance that the candidates would have had without prices; None if unknown.

    The best k items may lie outside the list. An item outside has at most the list's last score plus the highest
    price, so that this value takes the place of lower ones. The bound is tight where the prices suit the data.
    """
    width = hits.rows.shape[1]
    highest = float(prices.max())
    if width == k < n_items or highest == np.inf:  # the list says nothing about masked items
        return None
    best = np.partition(hits.relevance, width - k, axis=1)[:, width - k :]
    if width < n_items:
        # -inf where the list has an empty place at its end: then there is no item outside.
        last = hits.relevance[:, -1] - prices[groups[:, -1]]
        np.maximum(best, (last + highest)[:, None], out=best)
    return best


def _last_relevance(terms: Terms, best: NDArray[np.float64] | None) -> tuple[float, int] | None:
    """Return the mean relevance of the last candidate of full lists, and their number, if some promise has a limit."""
    if terms.max_prices is None or best is None or not best.size:
        return None
    return float(best.min(axis=1).mean()), len(best)


def _costs(
    batch: Batch, catalog: Catalog, chosen: Hits, counts: NDArray[np.int64], best: NDArray[np.float64] | None
) -> PromiseCosts:
    """Return the subsidies and costs of each promise, from its exposures."""
    prices = batch.prices_by_promise
    subsidised: NDArray[np.int64] = np.minimum(counts, batch.missing) if batch.keeps_floors else counts
    if best is None:
        given_up = np.full(len(counts), np.nan)
    else:
        atoms, members = catalog.group_of.take(chosen.rows), batch.terms.membership
        given_up = (
            given_up_by_group(best, chosen.relevance, atoms, catalog.n_groups)
            if members is None
            else given_up_by_promise(best, chosen.relevance, atoms, prices, members, batch.terms.list_limits)
        )
    subsidies: NDArray[np.float64] = np.maximum(-prices, 0.0) * subsidised
    if batch.terms.caps is not None:
        subsidies -= np.where(batch.terms.caps < NO_CAP, np.maximum(prices, 0.0) * counts, 0.0)
    return PromiseCosts(subsidies, given_up)
