"""The best plan that could have been made had all requests been known: what floors must cost.

No policy that decides requests as they arrive can give up less relevance than this; so the cost of a
policy is reported in multiples of the cost in hindsight.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.cold_start.cold_start import MEAN, ColdStart
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.errors import InfeasibleFloorsError, InvalidInputError
from fairsync.hindsight.best_plan import Effort, Found, find_plan
from fairsync.hindsight.priced_lists import PricedLists
from fairsync.hindsight.promised_plan import plan_promises
from fairsync.inputs import check_k, check_users
from fairsync.promises.floors import check_feasible, resolve_floors
from fairsync.promises.resolve import resolve_promises
from fairsync.search import make_index
from fairsync.search.filtering import search_eligible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.groups import Label
    from fairsync.cold_start.cold_start import Cold
    from fairsync.eligibility.rules import Exclude
    from fairsync.hindsight.priced_lists import Progress, Search
    from fairsync.promises import Promise
    from fairsync.promises.floors import Floors
    from fairsync.search.base import Index
    from fairsync.search.eligibility import Eligibility


_USUAL = Effort()


@dataclass(frozen=True, repr=False, eq=False)
class Hindsight:
    """The best plan over all requests, and bounds that prove how good it is.

    Attributes
    ----------
    relevance
        What no plan that meets the floors can exceed: the value of the dual under ``prices``.
    feasible_relevance
        The relevance of the plan in ``rows``, which meets the floors.
    unconstrained_relevance
        The relevance without floors.
    prices
        The price of each group; negative prices are subsidies. A group above its floor has price 0. Where the
        floors take (nearly) all places, only differences between prices mean something.
    floors
        What each group had to get.
    exposures
        What each group gets from the plan.
    rows
        (requests, k) the plan: rows of the catalog, best relevance first; -1 at the end of the list of a request with
        fewer than k eligible items.
    caps
        The most that each promise may get; those without a cap are not in it.

    With promises, read promise for group: prices, floors and exposures are by name, and a positive price is what a cap
    charges.
    """

    relevance: float
    feasible_relevance: float
    unconstrained_relevance: float
    prices: dict[Label, float]
    floors: dict[Label, int]
    exposures: dict[Label, int]
    rows: NDArray[np.int64]
    caps: dict[Label, int] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """The relevance that must be given up for the floors."""
        return max(0.0, self.unconstrained_relevance - self.relevance)

    @property
    def gap(self) -> float:
        """The distance between the two bounds, relative to ``relevance``; 0 if the plan is the best."""
        between = self.relevance - self.feasible_relevance
        return between / abs(self.relevance) if between and self.relevance else between

    def __repr__(self) -> str:
        share = self.cost / max(abs(self.unconstrained_relevance), 1e-300)
        subsidised = sum(price < 0 for price in self.prices.values())
        charged = sum(price > 0 for price in self.prices.values())
        prices = f"{subsidised} of {len(self.prices)} subsidised" + (f", {charged} charged" if self.caps else "")
        return (
            f"Hindsight(relevance={self.relevance:.6g}, cost={self.cost:.4g} ({share:.3%}), "
            f"gap={self.gap:.1e}, {len(self.rows)} requests, "
            f"{prices})"
        )


def hindsight(
    catalog: Catalog,
    users: ArrayLike,
    k: int,
    floors: Floors | None = None,
    *,
    promises: Sequence[Promise] | None = None,
    index: str | Index | Callable[[Catalog], Index] = "exact",
    progress: bool = False,
    exclude: Exclude | None = None,
    where: Where | Sequence[Where | None] | None = None,
    cold: Cold = MEAN,
) -> Hindsight:
    """Find the plan of greatest relevance that keeps the promises, all requests known.

    Parameters
    ----------
    catalog
        The items.
    users
        (T, d), or (T, interests, d): every request of the horizon.
    k
        Items per request.
    floors
        Least exposures over all T requests: one number for every group, or a number by label.
    promises
        Instead of floors: bounds on selections of items, which may overlap, over all T requests.
    index
        Searches the catalog: a name, a function of the catalog that builds an index, or an index over this catalog (for
        floors only). The bounds are proofs if the search is exact, up to rounding errors relative to the largest
        relevance.
    progress
        Show a progress bar.
    exclude, where
        The ids that each request must not get, and conditions on attributes; see
        :meth:`fairsync.FairRetriever.retrieve`. All conditions are held in memory at the same time.
    cold
        The vector of requests whose own vectors are all zero, as for :class:`fairsync.FairRetriever`: ``"mean"`` (of
        the latest requests before each, and of the items before the first), or a vector. A list of ids has no place in
        a plan that prices could make: leave such requests out.

    Returns
    -------
    Hindsight
        Bounds, prices and the plan. With floors the bounds are equal but for rounding, as a rule. Promises that overlap
        leave a small gap, because the best plan may have to be rounded to whole items.

    Examples
    --------
    Both requests prefer what "big" offers; "small" must be shown once, which hurts least in the second.

    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6]], groups=["big", "small"])
    >>> best = hindsight(catalog, [[1.0, 0.0], [0.0, 1.0]], k=1, floors={"small": 1})
    >>> best.exposures, round(best.relevance, 6), round(best.cost, 6)
    ({'big': 1, 'small': 1}, 1.5, 0.2)
    >>> best.prices["big"], best.prices["small"] <= -0.2  # any subsidy from 0.2 to 0.8 leads to this plan
    (0.0, True)

    Promises may overlap. A float below 1 is a share of all slots.

    >>> from fairsync.promises import Promise
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6]], {"size": ["big", "small"], "new": [True, False]})
    >>> promises = [Promise({"size": "small"}, at_least=1), Promise({"new": True}, at_most=0.5)]
    >>> best = hindsight(catalog, [[1.0, 0.0], [0.0, 1.0]], k=1, promises=promises)
    >>> best.exposures, best.floors, best.caps
    ({'size=small': 1, 'new=True': 1}, {'size=small': 1, 'new=True': 0}, {'new=True': 1})
    """
    if (floors is None) == (promises is None):
        raise InvalidInputError("give either floors or promises.")
    vectors, k = check_users(users, catalog), check_k(k, catalog)
    start = ColdStart(catalog, cold)
    if start.has_list:
        raise InvalidInputError('cold must be "mean" or a vector here: leave out the requests that get a fixed list.')
    vectors, _ = start.fill(vectors, catalog)
    if promises is not None:
        eligible, _ = make_eligibility(exclude, where, catalog, len(vectors))
        with _bar(progress) as callback:
            return solve_promises(catalog, index, vectors, k, promises, callback, eligible=eligible)
    assert floors is not None
    wanted = resolve_floors(floors, catalog)
    check_feasible(wanted, catalog, k, len(vectors))
    eligible, _ = make_eligibility(exclude, where, catalog, len(vectors))
    search: Search = partial(search_eligible, made := make_index(index, catalog))
    if eligible is None:
        search = made.search
    else:
        _check_eligible(wanted, catalog, k, eligible)
    with _bar(progress) as callback:
        return solve(catalog, search, vectors, k, wanted, callback, eligible=eligible)


def solve_promises(
    catalog: Catalog,
    index: str | Index | Callable[[Catalog], Index],
    users: NDArray[np.floating[Any]],
    k: int,
    promises: Sequence[Promise],
    progress: Progress = lambda what, done, total: None,
    effort: Effort = _USUAL,
    eligible: Eligibility | None = None,
) -> Hindsight:
    """Find the best plan that keeps promises; see :func:`solve`, which does it for floors of one attribute."""
    resolved = resolve_promises(catalog, promises, k, horizon=len(users), batch_size=1)
    by_atom = resolved.atoms.catalog(catalog)
    made = make_index(index, by_atom)
    search: Search = made.search if eligible is None else partial(search_eligible, made)
    plan = plan_promises(by_atom, search, users, resolved, progress, effort, eligible)
    names, terms = resolved.names, resolved.terms
    caps = {promise.name: promise.cap(len(users) * k) for promise in resolved.promises if not promise.is_rule}
    return Hindsight(
        plan.relevance,
        plan.feasible_relevance,
        plan.unconstrained_relevance,
        prices={name: float(price) or 0.0 for name, price in zip(names, plan.prices, strict=True)},
        floors=dict(zip(names, terms.floors.tolist(), strict=True)),
        exposures=dict(zip(names, plan.exposures.tolist(), strict=True)),
        rows=plan.rows,
        caps={name: cap for name, cap in caps.items() if cap is not None},
    )


def solve(
    catalog: Catalog,
    search: Search,
    users: NDArray[np.floating[Any]],
    k: int,
    floors: NDArray[np.int64],
    progress: Progress = lambda what, done, total: None,
    effort: Effort = _USUAL,
    eligible: Eligibility | None = None,
) -> Hindsight:
    """Approach the optimum by descent, settle it by linear programs, and search again until both bounds meet.

    Parameters
    ----------
    catalog, search, users, k, floors
        As checked by :func:`hindsight`; `floors` is (G,).
    progress
        Called as (what, done, total) while work goes on.
    effort
        How much work is put into it.
    eligible
        The items that each request may get, given to ``search`` as its fourth argument; None for all items.
    """
    lists = PricedLists(
        catalog.group_of, search, users, k, floors.astype(np.float64), effort.sizes, progress, eligible=eligible
    )
    found = find_plan(lists, effort)
    if found.rows is None:
        if eligible is not None:
            raise InvalidInputError(
                "no plan of eligible items was found that meets the floors: each of them can be met, but perhaps not"
                " all together. Lower them, or exclude less."
            )
        rows, lower = _deal(catalog, found.lists)
        found = replace(found, rows=rows, lower=lower, upper=max(found.upper, lower))
    return _result(catalog, found)


def _deal(catalog: Catalog, lists: PricedLists) -> tuple[NDArray[np.int64], float]:
    """Return a plan that surely meets the floors: deal each group's floor to the requests in turn.

    A group is never dealt to a request more often than it has items, and no request is dealt more than
    k, because the floors are feasible. The rest is filled with the best items. Only a last resort.
    """
    requests, groups, group_of = len(lists.users), lists.floors.size, catalog.group_of
    deck = np.repeat(np.arange(groups), lists.floors.astype(np.int64))
    sizes, ends = catalog.group_sizes, np.cumsum(catalog.group_sizes)
    place = np.arange(len(group_of)) - np.repeat(ends - sizes, sizes)  # 0, 1, ... in each group
    plan, total = np.empty((requests, lists.k), dtype=np.int64), 0.0
    for request in range(requests):
        hits = lists.search(lists.users[request : request + 1], None, len(group_of))
        due = np.bincount(deck[request::requests], minlength=groups)
        group = group_of[hits.rows[0]]
        by_group = np.argsort(group, kind="stable")  # the best of each group first
        taken = by_group[place < due[group[by_group]]]
        rest = np.setdiff1d(np.arange(len(group_of)), taken)[: lists.k - taken.size]
        chosen = np.sort(np.concatenate([taken, rest]))
        plan[request] = hits.rows[0, chosen]
        total += float(hits.relevance[0, chosen].sum())
        lists.progress("dealing", request + 1, requests)
    return plan, total


def _result(catalog: Catalog, found: Found) -> Hindsight:
    """Name groups by their labels, and measure in the unit of the catalog."""
    lists, rows = found.lists, found.rows
    assert rows is not None
    floors, subsidies = lists.floors[: lists.n_groups], found.subsidies[: lists.n_groups]
    there = rows[rows >= 0]
    exposures = np.bincount(catalog.group_of[there], minlength=floors.size)
    labels = catalog.labels
    if floors.sum() == there.size:  # the floors fill every place, so that only differences of subsidies matter
        subsidies = subsidies - subsidies.min()
    subsidies = np.ldexp(subsidies, lists.exponent)
    return Hindsight(
        *found.in_unit_of_catalog,
        prices={label: -float(subsidy) or 0.0 for label, subsidy in zip(labels, subsidies, strict=True)},
        floors={label: int(floor) for label, floor in zip(labels, floors, strict=True)},
        exposures={label: int(count) for label, count in zip(labels, exposures, strict=True)},
        rows=rows,
    )


def _check_eligible(floors: NDArray[np.int64], catalog: Catalog, k: int, eligible: Eligibility) -> None:
    """Raise :class:`InfeasibleFloorsError` for a floor above what the eligible items of all requests can deliver."""
    most = np.zeros(len(floors), dtype=np.int64)
    for request in range(len(eligible)):
        most += np.minimum(eligible.group_sizes(request, catalog), k)
    for code in np.flatnonzero(floors > most)[:1]:
        reason = f"requests can show eligible items of it {int(most[code])} times at most"
        raise InfeasibleFloorsError(catalog.labels[code], int(floors[code]), reason, int(most[code]))
    total, slots = int(floors.sum()), int(np.minimum(eligible.counts, k).sum())
    if total > slots:
        raise InfeasibleFloorsError(None, total, f"the requests have {slots} slots for eligible items", slots)


@contextmanager
def _bar(shown: bool) -> Iterator[Progress]:
    """Yield a progress callback; it does nothing unless the bar is shown."""
    if not shown:
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressBar

    columns = (TextColumn("hindsight: {task.description}"), BarColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
