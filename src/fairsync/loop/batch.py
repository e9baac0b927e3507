"""A batch: requests that are answered under the same prices, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairsync.policies import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.eligibility.eligible_slots import EligibleSlots, SlotForecast
    from fairsync.explain.trace import BatchTrace
    from fairsync.ledger import Entry
    from fairsync.loop.promise_costs import PromiseCosts
    from fairsync.policies import Sample
    from fairsync.promises.certificate import Certified
    from fairsync.search import Hits


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
class Outcome:
    """What requests brought: counts for the ledger, and what policy, guard and limits on prices have to know of them.

    Attributes
    ----------
    entry : Entry
        Counts for the ledger.
    sample : Sample or None
        Lists from which the policy learns.
    costs : PromiseCosts or None
        Subsidies and costs of each group; None if they were not measured.
    slots : EligibleSlots or None
        What the requests could show, from which the guard forecasts what later ones can show; None if that is what was
        declared.
    certified : Certified or None
        The certificate after these requests; None if promises do not overlap.
    reached : numpy.ndarray or None
        (A,) the items of each atom that were within reach; None for all.
    last_relevance : tuple or None
        The mean relevance of the last candidate of plain retrieval, or an upper bound: the unit of the highest prices
        of promises. With it, the number of full lists. None if there is none, or no promise has a highest price.
    """

    entry: Entry
    sample: Sample | None = None
    costs: PromiseCosts | None = None
    slots: EligibleSlots | None = None
    certified: Certified | None = None
    reached: NDArray[np.int64] | None = None
    last_relevance: tuple[float, int] | None = None


@dataclass(frozen=True)
class ServedBatch(Outcome):
    """The candidates of a batch, and what the requests brought.

    Attributes
    ----------
    hits : Hits
        (n, k) candidates.
    searched : float
        Share of the catalog that was searched.
    limited : int
        Requests that could not show what floors count on, because of what they excluded or required.
    trace : BatchTrace or None
        What the requests can be explained from, if that was asked for.
    plain : numpy.ndarray or None
        (n,) relevance of the candidates of plain retrieval, or an upper bound; None if it is unknown.
    """

    hits: Hits = field(kw_only=True)
    searched: float = field(default=1.0, kw_only=True)
    limited: int = field(default=0, kw_only=True)
    trace: BatchTrace | None = field(default=None, kw_only=True)
    plain: NDArray[np.float64] | None = field(default=None, kw_only=True)


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
