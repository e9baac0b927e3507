"""The best plan that could have been made had all requests been known: what floors must cost.

No policy that decides requests as they arrive can give up less relevance than this; so the cost of a
policy is reported in multiples of the cost in hindsight.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.cold_start.cold_start import MEAN, ColdStart
from fairsync.eligibility.eligible_items import make_eligibility
from fairsync.errors import InvalidInputError
from fairsync.hindsight.best_plan import Effort
from fairsync.hindsight.bound_rows import without_overlap
from fairsync.hindsight.promised_plan import plan_promises
from fairsync.inputs import check_k, check_users
from fairsync.policies.base import Terms
from fairsync.promises.floors import check_feasible, resolve_floors
from fairsync.promises.promise import EVERY_SLOT
from fairsync.promises.resolve import resolve_promises
from fairsync.search import make_index
from fairsync.search.filtering import search_eligible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.cold_start.cold_start import Cold
    from fairsync.eligibility.rules import Exclude
    from fairsync.hindsight.priced_lists import Progress, Search
    from fairsync.hindsight.result import Hindsight
    from fairsync.promises import Promise
    from fairsync.promises.floors import Floors
    from fairsync.search.base import Index
    from fairsync.search.eligibility import Eligibility


_USUAL = Effort()


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
    if eligible is not None and EVERY_SLOT in resolved.names:  # lists that have fewer items are as long as they can be
        floors = np.where(np.array(resolved.names) == EVERY_SLOT, 0, resolved.terms.floors)
        resolved = replace(resolved, terms=replace(resolved.terms, floors=floors))
    by_atom = resolved.atoms.catalog(catalog)
    made = make_index(index, by_atom)
    search: Search = made.search if eligible is None else partial(search_eligible, made)
    best = plan_promises(by_atom, search, users, resolved.terms, resolved.names, progress, effort, eligible)
    caps = {promise.name: promise.cap(len(users) * k) for promise in resolved.promises if not promise.is_rule}
    return replace(best, caps={name: cap for name, cap in caps.items() if cap is not None})


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
    """Find the best plan that meets floors of one attribute.

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
    # Floors that are feasible are a certificate of themselves.
    terms = Terms(
        floors, np.minimum(catalog.group_sizes, k), k, len(users), 1,
        membership=without_overlap(len(floors)), certificate=floors,
    )  # fmt: skip
    best = plan_promises(catalog, search, users, terms, catalog.labels, progress, effort, eligible)
    if floors.sum() < np.count_nonzero(best.rows >= 0):
        return best
    highest = max(best.prices.values())  # only differences matter where floors fill every place
    return replace(best, prices={label: price - highest for label, price in best.prices.items()})


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
