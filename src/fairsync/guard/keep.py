"""The two functions that the loop calls: may a batch need the guard, and its candidates if so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairsync.guard.disjoint import due_exposures, keep_floors
from fairsync.guard.live_certificate import LiveCertificate
from fairsync.guard.overlapping import OverlapGuard
from fairsync.promises.floors import can_be_met
from fairsync.promises.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.eligibility.eligible_slots import SlotForecast
    from fairsync.guard.price_limits import PriceLimits
    from fairsync.policies.base import Counts, Floats, Terms
    from fairsync.search.base import Hits
    from fairsync.search.eligibility import Eligibility


def needs_guard(
    terms: Terms,
    missing: Counts,
    promise_prices: Floats,
    given: Counts,
    requests: int,
    left: int,
    forecast: SlotForecast | None = None,
    certificate: Counts | None = None,
    room: Counts | None = None,
    shown: Shown | None = None,
) -> bool:
    """Return whether some requests with these total counts could need the guard.

    Parameters
    ----------
    terms, missing, promise_prices
        The promises, (P,) the exposures missing before the requests, and the prices they were searched under.
    given
        (P,) exposures of each promise in all the requests together, from prices alone.
    requests, left
        Number of the requests, and of all requests left in the horizon, these included.
    forecast
        What can be counted on in requests to come; None for what was declared.
    certificate, room
        (A,) the certificate and (P,) what caps have left before the requests; None for the missing exposures, and for
        no caps.
    shown
        The atoms in the requests; None if promise p is atom p: then these are ``given``.
    """
    plan = missing if certificate is None else certificate
    if overshoots(missing, promise_prices, given):
        return True
    if forecast is not None and not forecast.counted(left - requests).suffice(plan):
        return True
    if _is_disjoint(terms):
        # If all that is missing can still be delivered, it is due; if not, only what an outage left deliverable is.
        return not (
            can_be_met(plan, left - requests, terms)
            or can_be_met(due_exposures(plan, left, terms), left - requests, terms)
        )
    limits = terms.limits_of_any_list
    if limits is not None and (given > limits).any():
        return True
    # If even lists that serve nothing of the certificate leave it one, no list can break it but by its caps.
    if room is None and limits is None:
        return not can_be_met(plan, left - requests, terms)
    live = LiveCertificate(terms, plan, missing, room)
    if not live.is_deliverable(left - requests):
        return True
    return room is not None and bool(len(live.over_cap(Shown.in_all(given) if shown is None else shown)))


def overshoots(missing: Counts, promise_prices: Floats, given: Counts) -> bool:
    """Return whether a promise with a subsidy gets more than its floor misses: then a subsidy has to end."""
    return bool(((given > missing) & (promise_prices < 0)).any())


def keep_promises(
    search: Callable[[int, Floats, int], Hits],
    catalog: Catalog,
    terms: Terms,
    prices: Floats,
    hits: Hits,
    missing: Counts,
    left: int,
    k: int,
    eligible: Eligibility | None = None,
    forecast: SlotForecast | None = None,
    replaced: dict[int, tuple[NDArray[np.int64], Floats]] | None = None,
    fixed: NDArray[np.bool_] | None = None,
    promise_prices: Floats | None = None,
    certificate: Counts | None = None,
    room: Counts | None = None,
    limits: PriceLimits | None = None,
) -> tuple[Hits, int, Counts]:
    """Choose the candidates of requests one after another, by the two rules of the guard.

    Parameters
    ----------
    search
        (position of a request, prices, k) -> hits. Searches again for one request, among the items that are eligible
        for it.
    catalog, terms, prices
        The items with atoms as their groups, the promises, and (A,) the prices of the search.
    hits
        (n, width) lists found under the prices.
    missing
        (P,) exposures missing before the first of the requests.
    left
        Requests left in the horizon, these included.
    k
        Candidates of each of these requests. Later requests are assumed to have ``terms.k``.
    eligible
        The items that each of the requests may get; None for all items.
    forecast
        What can be counted on in requests to come; None for what was declared.
    replaced
        Receives, for each request that the second rule changed, what it would have got without that rule: rows and
        relevance, best score first.
    fixed
        (n,) the requests whose lists prices did not make, so that the first rule says nothing about them.
    promise_prices
        (P,) the prices of promises, of which ``prices`` are the sums; None if promise p is atom p.
    certificate
        (A,) the certificate before the first of the requests; None if promise p is atom p: then it is ``missing``.
    room
        (P,) the exposures that caps have left; None if there are no caps.
    limits
        What slots of each promise may cost. It receives the floors that would cost more.

    Returns
    -------
    Hits
        (n, k) candidates; fewer only for requests with fewer eligible items.
    int
        Forced slots: how many of them the second rule put there.
    numpy.ndarray
        (A,) the certificate after the requests.
    """
    if _is_disjoint(terms):
        return keep_floors(
            search, catalog, terms, prices, hits, missing, left, k, eligible, forecast, replaced, fixed
        )  # fmt: skip
    live = LiveCertificate(terms, missing if certificate is None else certificate, missing, room)
    guard = OverlapGuard(
        search, catalog, terms, prices, prices if promise_prices is None else promise_prices, hits, k, live, left,
        eligible, forecast, replaced, fixed, limits=limits,
    )  # fmt: skip
    return guard.keep(), guard.forced, guard.certificate.plan


def _is_disjoint(terms: Terms) -> bool:
    """Return whether every item belongs to one promise at most, and promises are floors only."""
    return terms.membership is None and terms.caps is None and terms.list_limits is None
