"""A batch: requests that are answered under the same prices. Search, guard, counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync import guard
from fairsync.eligible_slots import EligibleSlots
from fairsync.errors import BackendUnavailableError, FairSyncError
from fairsync.explain.trace import BatchTrace
from fairsync.guard.price_limits import PriceLimits
from fairsync.ledger import Entry
from fairsync.policies import Sample, Terms
from fairsync.promise_costs import PromiseCosts, given_up_by_group, given_up_by_promise
from fairsync.promises.certificate import Certified, prune
from fairsync.promises.shown import Shown
from fairsync.search import Hits
from fairsync.search.base import LARGEST_PRICE
from fairsync.search.filtering import search_eligible
from fairsync.spans import span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.eligible_slots import SlotForecast
    from fairsync.explain.trace import Replaced
    from fairsync.fixed_list import FixedList
    from fairsync.search import Index
    from fairsync.search.eligibility import Eligibility


@dataclass(frozen=True)
class Batch:
    """Requests to be answered under the same prices, and everything that is needed to answer them.

    It holds no item and no user, so that it can be sent to the process that searches.

    Attributes
    ----------
    requests : int
        Number of requests.
    prices : numpy.ndarray
        (A,) prices to search under, by atom.
    version : int
        Version of the prices: the number of times they have changed.
    missing : numpy.ndarray
        (P,) exposures that each floor still misses, from the counts known so far.
    left : int
        Requests left in the horizon, this batch included, without those leased to others.
    lookahead : int
        Items to find per request beyond k.
    watched : bool
        Whether the policy wants a sample of the lists.
    keeps_floors : bool
        Whether the guard enforces the floors.
    terms : Terms
        The promise.
    k : int
        Candidates of each of these requests. Later requests are assumed to have ``terms.k``.
    forecast : SlotForecast or None
        What the guard counts on in requests to come; None for what was declared.
    promise_prices : numpy.ndarray or None
        (P,) prices by promise; None if promises do not overlap, so that they are ``prices``.
    certificate : numpy.ndarray or None
        (A,) exposures of each atom that would keep all promises (:mod:`fairsync.promises.certificate`), before these
        requests; None if promises do not overlap, so that it is ``missing``.
    room : numpy.ndarray or None
        (P,) exposures that the cap of each promise still allows; None if there are no caps.
    highest : numpy.ndarray or None
        (P,) the most relevance that the guard gives up for a slot of each promise, inf where there is no limit; None if
        no promise has one.
    """

    requests: int
    prices: NDArray[np.float64]
    version: int
    missing: NDArray[np.int64]
    left: int
    lookahead: int
    watched: bool
    keeps_floors: bool
    terms: Terms
    k: int
    forecast: SlotForecast | None = None
    promise_prices: NDArray[np.float64] | None = None
    certificate: NDArray[np.int64] | None = None
    room: NDArray[np.int64] | None = None
    highest: NDArray[np.float64] | None = None

    @property
    def prices_by_promise(self) -> NDArray[np.float64]:
        """(P,) the price of each promise."""
        return self.prices if self.promise_prices is None else self.promise_prices


@dataclass(frozen=True)
class ServedBatch:
    """The candidates of a batch, and what the ledger and the policy have to know of them.

    Attributes
    ----------
    hits : Hits
        (n, k) candidates.
    entry : Entry
        Counts for the ledger.
    sample : Sample or None
        Lists for the policy, if it watches.
    searched : float
        Share of the catalog that was searched.
    costs : PromiseCosts or None
        Subsidies and costs of each group; None if they were not measured.
    limited : int
        Requests that excluded more than was declared, or had a condition: the floors could not count on them.
    trace : BatchTrace or None
        What the requests can be explained from, if that was asked for.
    slots : EligibleSlots or None
        What the requests could show; None if that is what was declared.
    certified : Certified or None
        The certificate after these requests; None if promises do not overlap.
    reached : numpy.ndarray or None
        (A,) the items of each atom that were within reach; None for all.
    last_relevance : float or None
        The relevance of the last candidates of plain retrieval in total, or an upper bound; None if no promise has a
        highest price.
    """

    hits: Hits
    entry: Entry
    sample: Sample | None
    searched: float = 1.0
    costs: PromiseCosts | None = None
    limited: int = 0
    trace: BatchTrace | None = None
    slots: EligibleSlots | None = None
    certified: Certified | None = None
    reached: NDArray[np.int64] | None = None
    last_relevance: float | None = None


def uncounted_batch(requests: int, k: int, catalog: Catalog) -> Batch:
    """Return a batch of requests that do not count: without prices, promises and a place in the horizon."""
    none = np.zeros(catalog.n_groups, dtype=np.int64)
    return Batch(
        requests=requests,
        prices=np.zeros(catalog.n_groups),
        version=0,
        missing=none,
        left=requests,
        lookahead=0,
        watched=False,
        keeps_floors=False,
        terms=Terms(none, none, k, requests, requests),
        k=k,
    )


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
    with span("search"):
        hits = index.search(users, prices, width)
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
    is_priced = bool(batch.prices_by_promise.any())
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
    if forced or is_priced:
        costs = _costs(batch, catalog, chosen, counts, best)
    sample = None
    if batch.watched and width > k:
        sample = _priced_sample(k, groups, hits, batch.prices_by_promise, None if fixed is None else fixed.requests)
    entry = Entry(counts, len(users), relevance, cost, forced)
    return ServedBatch(
        chosen, entry, sample, searched, costs,
        certified=certified, reached=hits.reached, last_relevance=_last_relevance(terms, best),
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
    cost = float("nan")
    if best is not None:
        short = hits.relevance[~whole]  # every eligible item is in these lists, at any prices
        cost = max(float(best.sum()) + float(short[np.isfinite(short)].sum()) - relevance, 0.0)
    certified = None
    if certificate is not None:
        given = Shown.in_all(counts) if shown is None else shown
        certified = Certified(certificate, given, None if limits is None else limits.refused)
    costs = PromiseCosts.zero(len(counts))
    if forced or is_priced:  # a short list has no alternative: it costs nothing
        costs = _costs(batch, catalog, Hits(chosen.rows[whole], chosen.relevance[whole]), counts, best)
    sample = None
    if batch.watched and width > k and whole.any():
        by_promise = batch.prices_by_promise
        sample = _priced_sample(k, groups, full, by_promise, None if fixed is None else fixed.requests[whole])
    entry = Entry(counts, len(users), relevance, cost, forced)
    slots = _eligible_slots(batch, catalog, eligible)
    limited = 0 if slots is None else slots.limited
    return ServedBatch(
        chosen, entry, sample, searched, costs, limited,
        slots=slots, certified=certified, reached=hits.reached, last_relevance=_last_relevance(terms, best),
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


def _eligible_slots(batch: Batch, catalog: Catalog, eligible: Eligibility) -> EligibleSlots | None:
    """Return what the requests could show, if some of them are limited."""
    limited = np.flatnonzero(guard.is_limited(eligible, batch.terms))
    if not len(limited):
        return None
    sizes = [eligible.group_sizes(i, catalog.group_of, catalog.group_sizes) for i in limited.tolist()]
    return EligibleSlots.of(np.array(sizes), len(eligible), batch.terms)


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
    return FairSyncError(f"The policy masked so many groups that fewer than k = {k} items were left.")


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


def _last_relevance(terms: Terms, best: NDArray[np.float64] | None) -> float | None:
    """Return the relevance of the last candidates of plain retrieval, if some promise has a highest price."""
    if terms.max_prices is None or best is None:
        return None
    return float(best.min(axis=1).sum()) if best.size else None


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
            else given_up_by_promise(best, chosen.relevance, atoms, prices, members)
        )
    subsidies: NDArray[np.float64] = np.maximum(-prices, 0.0) * subsidised
    return PromiseCosts(subsidies, given_up)
