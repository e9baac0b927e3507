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

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

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
        bound = "at_least" if promise.at_least is not None or promise.at_most is None else "at_most"
        problems = _problems_of_promise(catalog, k, len(vectors), promise, bound, tried, list(promises or ()))
        best = {level: solve(promises=problem, index=index) for level, problem in sorted(problems.items())}
        return _curve(promise.name, best, bound)
    if promises is not None:
        raise InvalidInputError("promises are for a promise: give the other floors as floors.")
    code = catalog.code_of(promise)
    label, others = catalog.labels[code], resolve_floors(0 if floors is None else floors, catalog)
    by_level: dict[int, dict[Label, int]] = {}
    for level in tried:
        # `resolve_floors` checks each level.
        others[code] = resolve_floors({label: level}, catalog)[code]
        by_level[int(others[code])] = dict(zip(catalog.labels, others.tolist(), strict=True))
    for level in sorted(by_level):
        check_feasible(resolve_floors(by_level[level], catalog), catalog, k, len(vectors))
    searched = make_index(index, catalog)
    best = {level: solve(floors=by_level[level], index=searched) for level in sorted(by_level)}
    return _curve(label, best, "at_least")


def _problems_of_promise(
    catalog: Catalog, k: int, requests: int, promise: Promise, bound: str, levels: list[float], others: list[Promise]
) -> dict[int, list[Promise]]:
    """Return {level: all promises}; raise if some of them cannot hold together."""
    others = [other for other in others if other.name != promise.name]
    problems: dict[int, list[Promise]] = {}
    for level in levels:
        if level is None:
            raise InvalidInputError("levels must be numbers of exposures, or shares of all slots, got None.")
        asked: dict[str, Any] = {bound: level}
        changed = replace(promise, **asked)
        number = changed.floor(requests * k) if bound == "at_least" else changed.cap(requests * k)
        problems[number or 0] = [changed, *others]
    for _, problem in sorted(problems.items()):
        resolve_promises(catalog, problem, k, requests, 1)
    return problems


def _curve(promise: Label, best: dict[int, Hindsight], bound: str) -> CostCurve:
    """Return the curve from the best plan of each level."""
    plans, sign = list(best.values()), -1 if bound == "at_least" else 1
    first, plain = plans[0], plans[0].unconstrained_relevance
    return CostCurve(
        promise=promise,
        levels=tuple(best),
        costs=tuple(one.cost for one in plans),
        feasible_costs=tuple(max(0.0, plain - one.feasible_relevance) for one in plans),
        marginal_costs=tuple(max(0.0, sign * one.prices[promise]) for one in plans),
        relevance=plain,
        floors={name: floor for name, floor in first.floors.items() if floor and name != promise},
        requests=first.rows.shape[0],
        k=first.rows.shape[1],
        bound=bound,
        caps={name: cap for name, cap in first.caps.items() if name != promise},
    )
