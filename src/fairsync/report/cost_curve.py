"""The cost curve of a promise: the relevance that it must cost, at several levels of its floor or its cap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.extras import explain_missing
from fairsync.hindsight import Hindsight, hindsight
from fairsync.inputs import check_k, check_users
from fairsync.promises import Promise, resolve_promises
from fairsync.promises.floors import check_feasible, resolve_floors
from fairsync.search import make_index

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike, NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.groups import Label
    from fairsync.eligibility.rules import Exclude
    from fairsync.promises.floors import Floors
    from fairsync.search import Index


@dataclass(frozen=True, repr=False)
class CostCurve:
    """What one promise costs at several levels of its floor or its cap, the other promises fixed.

    Costs are the relevance given up against no promises at all, over the past requests, so that they include what the
    others cost. At a floor of 0 they are the cost of the others alone.

    Attributes
    ----------
    promise : str or int
        Label of the group whose floor is varied, or name of the promise.
    levels : tuple of int
        Its floors, or its caps, in increasing order.
    costs : tuple of float
        Cost that no plan can undercut, for each level: from the dual bound of :func:`fairsync.hindsight`.
    feasible_costs : tuple of float
        Cost of a plan that keeps all promises, for each level. As a rule it equals the bound but for rounding.
    marginal_costs : tuple of float
        Subsidy at each level of a floor: about what one more exposure costs there. For a cap, what it charges: about
        what one exposure less costs.
    relevance : float
        Relevance of the past requests without promises.
    floors : dict
        {label or name: floor} of the other promises that have one.
    requests, k : int
        Number of the past requests, and candidates of each.
    bound : str
        What the levels are: "at_least" or "at_most".
    caps : dict
        {name: cap} of the other promises that have one.
    """

    promise: Label
    levels: tuple[int, ...]
    costs: tuple[float, ...]
    feasible_costs: tuple[float, ...]
    marginal_costs: tuple[float, ...]
    relevance: float
    floors: dict[Label, int]
    requests: int
    k: int
    bound: str = "at_least"
    caps: dict[Label, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary with one row for each level."""
        columns = zip(self.levels, self.costs, self.feasible_costs, self.marginal_costs, strict=True)
        return {
            "promise": self.promise,
            "bound": self.bound,
            "requests": self.requests,
            "k": self.k,
            "relevance": self.relevance,
            "floors": [{"group": label, "floor": floor} for label, floor in self.floors.items()],
            "caps": [{"group": label, "cap": cap} for label, cap in self.caps.items()],
            "levels": [
                {"level": level, "cost": cost, "feasible_cost": feasible, "marginal_cost": marginal}
                for level, cost, feasible, marginal in columns
            ],
        }

    def plot(self, path: str | PathLike[str] | None = None) -> Figure:
        """Plot the cost against the level.

        Parameters
        ----------
        path
            File to write: PNG, SVG or PDF, by suffix. If None, the figure is only returned.
        """
        with explain_missing("a plot"):
            from fairsync.report.cost_curve_plot import plot_cost_curve
        from fairsync.report.plot import save

        figure = plot_cost_curve(self)
        if path is not None:
            save(figure, path)
        return figure

    def __repr__(self) -> str:
        costs = ", ".join(f"{level:,}: {cost:.4g}" for level, cost in zip(self.levels, self.costs, strict=True))
        promise = repr(self.promise) + ("" if self.bound == "at_least" else f" {self.bound}")
        return f"CostCurve({promise}, {{{costs}}}, {self.requests:,} requests, relevance {self.relevance:.6g})"


def cost_curve(
    catalog: Catalog,
    past_users: ArrayLike,
    k: int,
    promise: Label | Promise,
    levels: Iterable[float],
    *,
    floors: Floors | None = None,
    promises: Iterable[Promise] | None = None,
    index: str | Index | Callable[[Catalog], Index] = "exact",
    progress: bool = False,
    exclude: Exclude | None = None,
    where: Where | Sequence[Where | None] | None = None,
) -> CostCurve:
    """Find what a promise would have cost at several levels of its floor or its cap, had all past requests been known.

    No policy can cost less; the default policy costs a few per cent to a few tens of per cent more (docs/policy.md).

    Parameters
    ----------
    catalog
        The items.
    past_users
        (T, d) or (T, interests, d): past requests. Bounds are over these T requests: for a horizon of H requests, scale
        them by T / H, and the costs by H / T.
    k
        Candidates per request.
    promise
        Label of the group whose floor is varied, or a promise. Of a promise, `at_least` is varied, or `at_most` if it
        has no `at_least`; its other bounds stay.
    levels
        The bounds to try, each over all past requests; for a promise also shares of all slots. They are sorted, and
        repeated ones are dropped.
    floors
        For a label: floors of the other groups, one number for all, or {label: number}; 0 by default. The floor of the
        group itself is ignored.
    promises
        For a promise: the other promises. One with the name of the promise itself is ignored.
    index
        Searches the catalog. The bounds are proofs if the search is exact.
    progress
        Show a progress bar for each level.
    exclude, where
        The ids that each request must not get, and conditions on attributes; see :func:`fairsync.hindsight`. Costs are
        then against the best of the eligible items.

    Returns
    -------
    CostCurve
        The costs; see :meth:`CostCurve.plot`.

    Raises
    ------
    InfeasibleFloorsError
        If a level cannot be met beside the other promises. Nothing is computed then.

    Examples
    --------
    Both requests prefer "big". The first exposure of "small" is cheap in the second request.

    >>> from fairsync.catalog import Catalog
    >>> catalog = Catalog([[0.9, 0.8], [0.1, 0.6]], groups=["big", "small"])
    >>> curve = cost_curve(catalog, [[1.0, 0.0], [0.0, 1.0]], k=1, promise="small", levels=[0, 1, 2])
    >>> [round(cost, 6) for cost in curve.costs]
    [0.0, 0.2, 1.0]
    >>> curve
    CostCurve('small', {0: 0, 1: 0.2, 2: 1}, 2 requests, relevance 1.7)

    A cap on "big" has the same effect here.

    >>> cost_curve(catalog, [[1.0, 0.0], [0.0, 1.0]], k=1, promise=Promise({"group": "big"}, at_most=2), levels=[0, 1])
    CostCurve('group=big' at_most, {0: 1, 1: 0.2}, 2 requests, relevance 1.7)
    """
    vectors, k = check_users(past_users, catalog), check_k(k, catalog)
    if isinstance(levels, str | bytes) or not isinstance(levels, Iterable):
        raise InvalidInputError(f"levels must be a list of floors, got {levels!r:.80}.")
    tried: list[Any] = list(levels)
    if not tried:
        raise InvalidInputError("levels are empty: give at least one floor to try.")
    solve = partial(hindsight, catalog, vectors, k, progress=progress, exclude=exclude, where=where)
    if isinstance(promise, Promise):
        if floors is not None:
            raise InvalidInputError("floors are for the label of a group: give the other promises as promises.")
        return _curve_of_promise(catalog, vectors, k, promise, tried, list(promises or ()), partial(solve, index=index))
    if promises is not None:
        raise InvalidInputError("promises are for a promise: give the other floors as floors.")
    code = catalog.code_of(promise)
    label, others = catalog.labels[code], resolve_floors(0 if floors is None else floors, catalog)
    others[code] = 0
    fixed = {name: floor for name, floor in zip(catalog.labels, others.tolist(), strict=True) if floor}
    # `resolve_floors` checks each level.
    numbers = sorted({int(resolve_floors({label: level}, catalog)[code]) for level in tried})
    for level in numbers:
        check_feasible(resolve_floors({**fixed, label: level}, catalog), catalog, k, len(vectors))
    searched = make_index(index, catalog)
    best = [solve(floors={**fixed, label: level}, index=searched) for level in numbers]
    return _curve(label, numbers, best, fixed)


def _curve_of_promise(
    catalog: Catalog,
    users: NDArray[np.floating[Any]],
    k: int,
    promise: Promise,
    levels: list[float],
    others: list[Promise],
    solve: Callable[..., Hindsight],
) -> CostCurve:
    bound, slots = "at_least" if promise.at_least is not None or promise.at_most is None else "at_most", len(users) * k
    others = [other for other in others if other.name != promise.name]
    by_level: dict[int, Promise] = {}
    for level in levels:
        if level is None:
            raise InvalidInputError("levels must be numbers of exposures, or shares of all slots, got None.")
        if bound == "at_least":
            changed = replace(promise, at_least=level)
            by_level[changed.floor(slots)] = changed
        else:
            changed = replace(promise, at_most=level)
            by_level[changed.cap(slots) or 0] = changed
    numbers = sorted(by_level)
    for number in numbers:
        resolve_promises(catalog, [by_level[number], *others], k, len(users), 1)
    best = [solve(promises=[by_level[number], *others]) for number in numbers]
    fixed = {name: floor for name, floor in best[0].floors.items() if floor and name != promise.name}
    caps = {name: cap for name, cap in best[0].caps.items() if name != promise.name}
    return _curve(promise.name, numbers, best, fixed, bound, caps)


def _curve(
    promise: Label,
    levels: list[int],
    best: list[Hindsight],
    floors: dict[Label, int],
    bound: str = "at_least",
    caps: dict[Label, int] | None = None,
) -> CostCurve:
    plain, (requests, k) = best[0].unconstrained_relevance, best[0].rows.shape
    sign = -1 if bound == "at_least" else 1
    return CostCurve(
        promise=promise,
        levels=tuple(levels),
        costs=tuple(one.cost for one in best),
        feasible_costs=tuple(max(0.0, plain - one.feasible_relevance) for one in best),
        marginal_costs=tuple(max(0.0, sign * one.prices[promise]) for one in best),
        relevance=plain,
        floors=floors,
        requests=requests,
        k=k,
        bound=bound,
        caps=caps or {},
    )
