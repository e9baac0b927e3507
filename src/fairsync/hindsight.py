"""The best plan that could have been made had all requests been known: what floors must cost.

No policy that decides requests as they arrive can give up less relevance than this; so the cost of a
policy is told in multiples of the cost in hindsight.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fairsync.dual import Pool, descend, polish
from fairsync.errors import InvalidInputError
from fairsync.floors import check_feasible, resolve_floors
from fairsync.inputs import check_k, check_users
from fairsync.search import make_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.floors import Floors
    from fairsync.search.base import Index

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]
    Vectors = NDArray[np.floating[Any]]
    Tick = Callable[[str, int, int], None]

__all__ = ["Hindsight", "hindsight"]

_FETCH, _LEAST = 4, 40  # lists hold this many times k, and no less: subsidies can move between searches
_SAMPLE = 4096  # with more requests than this, a sample first finds out roughly where the subsidies are
_FREE = 20_000  # places that the first linear program settles; a problem this small needs nothing else
_ROUNDS = 30  # of search and descent
_STEPS = 40  # of search and linear program; a handful is usual
_CLOSED = 1e-12  # a gap that is rounding, relative to places times the largest relevance
_CHUNK = 1024  # requests searched at a time
_MOST = 50_000_000  # places a pool may hold, about 1.5 GB


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
        (requests, k) the plan: rows of the catalog, best relevance first.
    """

    relevance: float
    feasible_relevance: float
    unconstrained_relevance: float
    prices: dict[Label, float]
    floors: dict[Label, int]
    exposures: dict[Label, int]
    rows: Rows

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
        return (
            f"Hindsight(relevance={self.relevance:.6g}, cost={self.cost:.4g} ({share:.3%}), "
            f"gap={self.gap:.1e}, {len(self.rows)} requests, "
            f"{subsidised} of {len(self.prices)} groups subsidised)"
        )


def hindsight(
    catalog: Catalog,
    users: ArrayLike,
    *,
    k: int,
    floors: Floors,
    index: str | Index = "exact",
    progress: bool = False,
) -> Hindsight:
    """Find the plan of greatest relevance that meets the floors, all requests known.

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
    index
        Searches the catalog. The bounds are proofs if the search is exact.
    progress
        Show a progress bar.

    Returns
    -------
    Hindsight
        Bounds (equal but for rounding, as a rule), prices and the plan.

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
    """
    vectors, k = check_users(users, catalog), check_k(k, catalog)
    wanted = resolve_floors(floors, catalog)
    check_feasible(wanted, catalog, k, len(vectors))
    with _bar(progress) as tick:
        lists = _Lists(catalog, make_index(index, catalog), vectors, k, wanted.astype(np.float64), tick)
        return _solve(lists)


def _solve(lists: _Lists) -> Hindsight:
    """Come near by descent, settle exactly by linear programs, and search again until both bounds meet."""
    requests, groups = len(lists.users), lists.floors.size
    subsidies = np.zeros(groups)
    lists.fetch(subsidies, np.arange(requests))
    if lists.k == lists.rows.shape[1]:  # all items for everyone: nothing to decide
        plain, everything = float(lists.scores.sum()), np.ones(lists.scores.shape, dtype=np.bool_)
        return lists.result(subsidies, (plain, plain, plain), lists.chosen(everything))
    best = lists.pool.best(subsidies)
    plain = float(lists.scores[best.inside].sum())
    if (lists.pool.exposures(best.inside) >= lists.floors).all():
        return lists.result(subsidies, (plain, plain, plain), lists.chosen(best.inside))

    if lists.rows.size > _FREE:
        if requests > _SAMPLE:
            subsidies = _approach(lists.sample(_SAMPLE), subsidies)
            lists.refresh(subsidies)
        subsidies = _approach(lists, subsidies)

    upper, lower, rows = lists.value(subsidies), -np.inf, None
    closed = _CLOSED * float(np.abs(lists.scores).max()) * requests * lists.k
    free, bold = max(_FREE, 20 * groups), 1.0
    for _ in range(_STEPS):
        settled = polish(lists.pool, subsidies, free=free, bold=bold)
        relevance = float(lists.scores[settled.plan].sum())
        if settled.short == 0 and relevance > lower:
            lower, rows = relevance, lists.chosen(settled.plan)
        value = lists.value(settled.subsidies)
        better = value < upper
        if better:
            upper, subsidies = value, settled.subsidies
        if upper - lower <= closed:
            break
        if not better and not lists.widen(subsidies):
            break  # nothing left to learn; the bounds say how far it got
        if not settled.final:
            free, bold = min(2 * free, 200_000), 4 * bold if better else 1.0
    if rows is None:
        rows, lower = lists.dealt()
    return lists.result(subsidies, (max(upper, lower), lower, plain), rows)


def _approach(lists: _Lists, subsidies: Floats) -> Floats:
    """Alternate between descent on what was fetched and search where it leads, while that leads down."""
    value, bold = lists.value(subsidies), 1.0
    for _ in range(_ROUNDS):
        spread = lists.pool.spread(subsidies)
        moved = descend(lists.pool, subsidies, reach=bold * spread, near=4.0 * subsidies.size)
        far = float(np.abs(moved - subsidies).max())
        renewed = lists.refresh(moved)
        reached = lists.pool.best(moved).value
        if reached >= value:  # it went where the lists knew too little
            lists.refresh(subsidies)
            if far < spread / 20:
                break
            bold = far / spread / 4
            continue
        value, subsidies = reached, moved
        # Floors close to what is possible at all need subsidies far away: stride towards them.
        stopped = far > 0.999 * bold * spread
        if not stopped and (far < spread / 5 or renewed < len(lists.users) / 100):
            break
        bold = 2 * bold if stopped else max(bold, 1.0)
    return subsidies


class _Lists:
    """The best items of every request under some subsidies, and whether they suffice under others."""

    def __init__(self, catalog: Catalog, index: Index, users: Vectors, k: int, floors: Floats, tick: Tick) -> None:
        self.catalog, self.index, self.tick = catalog, index, tick
        self.users, self.k, self.floors = users, k, floors
        self._size(min(max(_FETCH * k, _LEAST), len(catalog)))

    def _size(self, size: int) -> None:
        shape = (len(self.users), size)
        self.rows: Rows = np.empty(shape, dtype=np.int64)
        self.scores: Floats = np.empty(shape)
        self.groups: NDArray[np.intp] = np.empty(shape, dtype=np.intp)
        self._worst: Floats = np.empty(shape[0])  # no item that was left out had a better priced score
        self._under = np.zeros((shape[0],), dtype=np.intp)  # the subsidies it was fetched under
        self._history: list[Floats] = []

    @property
    def pool(self) -> Pool:
        return Pool(self.scores, self.groups, self.k, self.floors)

    def sample(self, size: int) -> _Lists:
        """Return a copy with ``size`` of the requests, evenly spread, and as much less to reach."""
        which = np.linspace(0, len(self.users) - 1, size).astype(np.intp)
        floors = self.floors * (size / len(self.users))
        part = _Lists(self.catalog, self.index, self.users[which], self.k, floors, self.tick)
        part.rows, part.scores, part.groups = self.rows[which], self.scores[which], self.groups[which]
        part._worst, part._under, part._history = self._worst[which], self._under[which], [*self._history]
        return part

    def fetch(self, subsidies: Floats, which: NDArray[np.intp]) -> None:
        """Search for the requests in ``which``, and replace their lists."""
        self._history.append(subsidies)
        size = self.rows.shape[1]
        for start in range(0, which.size, _CHUNK):
            chunk = which[start : start + _CHUNK]
            hits = self.index.search(self.users[chunk], -subsidies, size)
            if (hits.rows < 0).any():
                raise InvalidInputError(f"the index finds fewer than {size} items: use index='exact'.")
            self.rows[chunk], self.scores[chunk] = hits.rows, hits.relevance
            self.groups[chunk] = groups = self.catalog.group_of[hits.rows]
            self._worst[chunk] = (hits.relevance + subsidies[groups]).min(axis=1)
            self._under[chunk] = len(self._history) - 1
            self.tick("searching", start + chunk.size, which.size)

    def refresh(self, subsidies: Floats) -> int:
        """Search again where an item left out might now be among the best; return for how many requests."""
        if self.rows.shape[1] == len(self.catalog):
            return 0
        raised = np.array([float((subsidies - old).max()) for old in self._history])
        last = self.pool.best(subsidies).last
        unsure = np.flatnonzero(self._worst + raised[self._under] > last)
        self.fetch(subsidies, unsure)
        return unsure.size

    def value(self, subsidies: Floats) -> float:
        """Return the value of the dual over the whole catalog."""
        self.refresh(subsidies)
        return self.pool.best(subsidies).value

    def widen(self, subsidies: Floats) -> bool:
        """Fetch twice as much for everyone, unless there is no more, or no room."""
        size = min(2 * self.rows.shape[1], len(self.catalog))
        if size == self.rows.shape[1] or size * len(self.users) > _MOST:
            return False
        self._size(size)
        self.fetch(subsidies, np.arange(len(self.users)))
        return True

    def chosen(self, plan: NDArray[np.bool_]) -> Rows:
        """Turn a plan over the lists into (T, k) rows of the catalog, best first."""
        shape = (len(self.users), self.k)
        order = np.argsort(-self.scores[plan].reshape(shape), axis=1, kind="stable")
        return np.take_along_axis(self.rows[plan].reshape(shape), order, axis=1)

    def dealt(self) -> tuple[Rows, float]:
        """Return a plan that surely meets the floors: deal each group's floor to the requests in turn.

        A group never comes round to a request more often than it has items, and no request is dealt more than
        k, because the floors are feasible. What is left is filled with the best. Only a last resort.
        """
        requests, groups, group_of = len(self.users), self.floors.size, self.catalog.group_of
        deck = np.repeat(np.arange(groups), self.floors.astype(np.int64))
        sizes, ends = self.catalog.group_sizes, np.cumsum(self.catalog.group_sizes)
        place = np.arange(len(group_of)) - np.repeat(ends - sizes, sizes)  # 0, 1, ... in each group
        plan, total = np.empty((requests, self.k), dtype=np.int64), 0.0
        for request in range(requests):
            hits = self.index.search(self.users[request : request + 1], None, len(group_of))
            due = np.bincount(deck[request::requests], minlength=groups)
            group = group_of[hits.rows[0]]
            by_group = np.argsort(group, kind="stable")  # the best of each group first
            taken = by_group[place < due[group[by_group]]]
            rest = np.setdiff1d(np.arange(len(group_of)), taken)[: self.k - taken.size]
            chosen = np.sort(np.concatenate([taken, rest]))
            plan[request] = hits.rows[0, chosen]
            total += float(hits.relevance[0, chosen].sum())
            self.tick("dealing", request + 1, requests)
        return plan, total

    def result(self, subsidies: Floats, bounds: tuple[float, float, float], rows: Rows) -> Hindsight:
        """Put labels on what was found."""
        exposures = np.bincount(self.catalog.group_of[rows].ravel(), minlength=self.floors.size)
        labels = self.catalog.labels
        if self.floors.sum() == rows.size:  # no place is left over, so that only differences matter
            subsidies = subsidies - subsidies.min()
        return Hindsight(
            *bounds,
            prices={label: -float(subsidy) or 0.0 for label, subsidy in zip(labels, subsidies, strict=True)},
            floors={label: int(floor) for label, floor in zip(labels, self.floors, strict=True)},
            exposures={label: int(count) for label, count in zip(labels, exposures, strict=True)},
            rows=rows,
        )


@contextmanager
def _bar(shown: bool) -> Iterator[Tick]:
    """Yield what is to be called as (what, done, total) while work goes on."""
    if not shown:
        yield lambda what, done, total: None
        return
    columns = (TextColumn("hindsight: {task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
