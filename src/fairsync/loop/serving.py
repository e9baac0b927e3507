"""Serving a batch: search, guard, counts, and what the policy learns from."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from fairsync import guard
from fairsync.eligibility.eligible_slots import EligibleSlots
from fairsync.eligibility.own_sizes import OwnSizes
from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.explain.trace import BatchTrace
from fairsync.guard.price_limits import PriceLimits
from fairsync.ledger import Entry
from fairsync.loop.batch import Batch, ServedBatch
from fairsync.loop.limited_lists import LimitedLists
from fairsync.loop.plain_lists import last_relevance, plain_relevance, plain_sums
from fairsync.loop.promise_costs import PromiseCosts, given_up_by_group, given_up_by_promise
from fairsync.loop.samples import priced_sample
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
    from fairsync.policies import Terms
    from fairsync.search import Index
    from fairsync.search.eligibility import Eligibility

_T = TypeVar("_T", bound=np.generic)


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
    k, terms, searched = batch.k, batch.terms, 1.0
    is_priced = bool(batch.prices_by_promise.any())
    with span("search"):
        hits = _search(batch, catalog, index, users, eligible, is_priced=is_priced)
    if fixed is not None:
        hits = fixed.put_first(hits, k, catalog, users, eligible)
    if hits.reached is not None:
        terms = replace(terms, capacities=np.minimum(terms.capacities, terms.at_home(hits.reached)))
        searched = float(hits.reached.sum() / len(catalog))
    replaced: Replaced | None = {} if explain else None
    groups = catalog.group_of.take(hits.rows)
    kept = _keep_promises(batch, terms, catalog, index, users, hits, groups, eligible, fixed, replaced)
    chosen = kept.hits
    relevance = float(_filled_places(chosen.relevance, chosen, eligible).sum())
    # What the policy learns and what the floors cost is known from full lists. A short one has every eligible item at
    # any prices, so that it costs nothing.
    whole = None if eligible is None else _full_lists(hits, k)
    full = _of_requests(hits, whole)
    fixed_here = None if fixed is None else fixed.requests if whole is None else fixed.requests[whole]
    groups = groups if whole is None else groups[whole]
    best = plain_relevance(k, len(catalog), batch.prices, full, groups) if is_priced else full.relevance[:, :k]
    if fixed_here is not None and best is not None:  # what a fixed list gives up is no cost of the floors
        best = np.where(fixed_here[:, None], full.relevance[:, :k], best)
    plain, cost = None, float("nan")
    if best is not None:
        plain, total = plain_sums(best, hits, whole)
        cost = max(total - relevance, 0.0)  # rounding can make it slightly negative
    if kept.forced or is_priced or batch.terms.list_limits is not None:
        costs = _costs(batch, catalog, full, _of_requests(chosen, whole), kept.counts, best)
    else:
        costs = PromiseCosts.zero(len(kept.counts))
    sample = None
    if batch.watched and full.rows.shape[1] > k and len(full.rows):
        sample = priced_sample(k, groups, full, batch.prices_by_promise, fixed_here)
    slots = None if eligible is None else _eligible_slots(batch, catalog, eligible, hits.reached)
    trace = None
    if replaced is not None:
        trace = BatchTrace.of(
            catalog, index, users, eligible, chosen, replaced, batch.prices, batch.missing, batch.terms,
            depth=min(k + batch.lookahead, len(catalog)), keeps_floors=batch.keeps_floors, fixed=fixed,
            promise_prices=batch.promise_prices,
        )  # fmt: skip
    entry = Entry(kept.counts, len(users), relevance, cost, kept.forced)
    return ServedBatch(
        entry, sample, costs, slots, kept.certified, hits.reached, last_relevance(terms, best),
        hits=chosen, searched=searched, limited=0 if slots is None else slots.limited, trace=trace, plain=plain,
    )  # fmt: skip


def _search(
    batch: Batch,
    catalog: Catalog,
    index: Index,
    users: NDArray[np.floating[Any]],
    eligible: Eligibility | None,
    *,
    is_priced: bool,
) -> Hits:
    """Return the lists under the prices, as long as the policy and the guard need them."""
    k, width = batch.k, min(len(catalog), batch.k + batch.lookahead)
    hits = search_eligible(index, users, batch.prices if is_priced else None, width, eligible)
    if eligible is not None:
        return hits if hits.reached is not None else _filled(hits, index, users, batch.prices, k, eligible)
    if hits.rows[:, k - 1].min() < 0:
        raise _too_few(hits, k, len(catalog))
    return hits


class _Kept(NamedTuple):
    """The candidates after the guard, with (P,) exposures of each promise, forced slots, and the certificate."""

    hits: Hits
    counts: NDArray[np.int64]
    forced: int
    certified: Certified | None


def _keep_promises(
    batch: Batch,
    terms: Terms,
    catalog: Catalog,
    index: Index,
    users: NDArray[np.floating[Any]],
    hits: Hits,
    groups: NDArray[np.int32],
    eligible: Eligibility | None,
    fixed: FixedList | None,
    replaced: Replaced | None,
) -> _Kept:
    """Return the first k of the hits, or what the guard makes of them."""

    def search_one(i: int, prices: NDArray[np.float64], n: int) -> Hits:
        own = None if eligible is None else eligible.take(np.array([i]))
        return search_eligible(index, users[i : i + 1], prices, n, own)

    chosen, forced = Hits(hits.rows[:, : batch.k], hits.relevance[:, : batch.k]), 0
    shown, counts = _count(_filled_places(groups[:, : batch.k], chosen, eligible), terms, catalog.n_groups)
    certificate = batch.certificate
    limits = None if batch.highest is None else PriceLimits.of(batch.highest)
    if batch.keeps_floors:
        with span("guard"):
            needs_guard, certificate = _needs_guard(batch, terms, shown, counts, len(users))
            if needs_guard:
                chosen, forced, certificate = guard.keep_promises(
                    search_one, catalog, terms, batch.prices, hits, batch.missing, batch.left, batch.k, eligible,
                    batch.forecast, replaced, None if fixed is None else fixed.requests, batch.promise_prices,
                    certificate, batch.room, limits,
                )  # fmt: skip
                rows = _filled_places(chosen.rows, chosen, eligible)
                shown, counts = _count(catalog.group_of.take(rows), terms, catalog.n_groups)
            elif certificate is not None and shown is not None:
                certificate = shown.taken_from(certificate)
    if certificate is None:
        return _Kept(chosen, counts, forced, None)
    shown = Shown.in_all(counts) if shown is None else shown
    return _Kept(chosen, counts, forced, Certified(certificate, shown, None if limits is None else limits.refused))


def _count(atoms: NDArray[np.integer], terms: Terms, n_atoms: int) -> tuple[Shown | None, NDArray[np.int64]]:
    """Return the atoms of the candidates of some requests, and (P,) the exposures of each promise.

    There can be a thousand times as many atoms as candidates: those without any are left out. If promise p is atom p,
    None stands for the atoms.
    """
    if terms.membership is None:
        return None, np.bincount(atoms.ravel(), minlength=n_atoms)
    shown = Shown.of_atoms(atoms)
    return shown, shown.exposures(terms.membership)


def _filled_places(values: NDArray[_T], chosen: Hits, eligible: Eligibility | None) -> NDArray[_T]:
    """Return the values of all candidates, without the empty places that short lists have at their ends."""
    return values if eligible is None else values[chosen.rows >= 0]


def _full_lists(hits: Hits, k: int) -> NDArray[np.bool_] | None:
    """Return (n,) which requests have k candidates; None if all have."""
    whole: NDArray[np.bool_] = hits.rows[:, k - 1] >= 0
    return None if whole.all() else whole


def _of_requests(hits: Hits, requests: NDArray[np.bool_] | None) -> Hits:
    """Return the lists of some of the requests; of all for None."""
    return hits if requests is None else Hits(hits.rows[requests], hits.relevance[requests])


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
    own = OwnSizes.of(eligible.take(limited), catalog, batch.terms.home)
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
    found = np.count_nonzero(hits.rows[:, :k] >= 0, axis=1)
    short = np.flatnonzero(found < k)
    if not len(short):  # as a rule: to count what is eligible takes time
        return hits
    lacking = short[found[short] < eligible.take(short).counts]
    if not len(lacking):
        return hits
    last = np.where(np.isinf(prices), LARGEST_PRICE, prices)
    again = search_eligible(index, users[lacking], last, hits.rows.shape[1], eligible.take(lacking))
    if ((again.rows[:, :k] >= 0).sum(axis=1) < np.minimum(eligible.counts[lacking], k)).any():
        raise FairSyncError(
            f"The index found fewer than k = {k} of the eligible items though there are more. 'exact' finds all."
        )
    rows, relevance = hits.rows.copy(), hits.relevance.copy()
    rows[lacking], relevance[lacking] = again.rows, again.relevance
    return Hits(rows, relevance)


def _too_few(hits: Hits, k: int, n_items: int) -> FairSyncError:
    if hits.reached is not None:
        return BackendUnavailableError(
            f"Only {int(hits.reached.sum()):,} of {n_items:,} items are within reach, too few for k = {k} candidates:"
            " ask again when more of the shards are up."
        )
    return FairSyncError(f"The policy masked too many groups: fewer than k = {k} items were left.")


def _costs(
    batch: Batch,
    catalog: Catalog,
    hits: Hits,
    chosen: Hits,
    counts: NDArray[np.int64],
    best: NDArray[np.float64] | None,
) -> PromiseCosts:
    """Return the subsidies and costs of each promise, from its exposures."""
    prices = batch.prices_by_promise
    subsidised: NDArray[np.int64] = np.minimum(counts, batch.missing) if batch.keeps_floors else counts
    members, limits, for_limits = batch.terms.membership, batch.terms.limits_of_any_list, None
    if best is None:
        given_up = np.full(len(counts), np.nan)
    elif members is None:
        atoms = catalog.group_of.take(chosen.rows)
        given_up = given_up_by_group(best, chosen.relevance, atoms, catalog.n_groups)
    else:
        atoms, limited = catalog.group_of.take(chosen.rows), None
        if limits is not None:
            limited = LimitedLists.of(hits, chosen, catalog.group_of, members, limits, catalog.group_sizes)
        given_up, for_limits = given_up_by_promise(best, chosen.relevance, atoms, prices, members, limited)
    subsidies: NDArray[np.float64] = np.maximum(-prices, 0.0) * subsidised
    if batch.terms.caps is not None:
        subsidies -= np.where(batch.terms.caps < NO_CAP, np.maximum(prices, 0.0) * counts, 0.0)
    return PromiseCosts(subsidies, given_up, for_limits)
