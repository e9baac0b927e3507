"""The cost curve of a promise: the relevance that a floor must cost, at several levels of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.extras import explain_missing
from fairsync.floors import check_feasible, resolve_floors
from fairsync.hindsight import hindsight
from fairsync.inputs import check_k, check_users
from fairsync.search import make_index

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.floors import Floors
    from fairsync.search import Index


@dataclass(frozen=True, repr=False)
class CostCurve:
    """What the floor of one group costs at several levels, the other floors fixed.

    Costs are the relevance given up against no floors at all, over the past requests, so that they include what the
    other floors cost. At level 0 they are the cost of the other floors alone.

    Attributes
    ----------
    promise : str or int
        Label of the group whose floor is varied.
    levels : tuple of int
        Its floors, in increasing order.
    costs : tuple of float
        Cost that no plan can undercut, for each level: from the dual bound of :func:`fairsync.hindsight`.
    feasible_costs : tuple of float
        Cost of a plan that meets all floors, for each level. As a rule it equals the bound but for rounding.
    marginal_costs : tuple of float
        Subsidy of the group at each level: about what one more exposure costs there.
    relevance : float
        Relevance of the past requests without floors.
    floors : dict
        {label: floor} of the other promises.
    requests, k : int
        Number of the past requests, and candidates of each.
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

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary with one row for each level."""
        columns = zip(self.levels, self.costs, self.feasible_costs, self.marginal_costs, strict=True)
        return {
            "promise": self.promise,
            "requests": self.requests,
            "k": self.k,
            "relevance": self.relevance,
            "floors": [{"group": label, "floor": floor} for label, floor in self.floors.items()],
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
        return f"CostCurve({self.promise!r}, {{{costs}}}, {self.requests:,} requests, relevance {self.relevance:.6g})"


def cost_curve(
    catalog: Catalog,
    past_users: ArrayLike,
    k: int,
    promise: Label,
    levels: Iterable[int],
    *,
    floors: Floors = 0,
    index: str | Index = "exact",
    progress: bool = False,
) -> CostCurve:
    """Find what the floor of a group would have cost at several levels, had all past requests been known.

    No policy can cost less; the default policy costs a few per cent to a few tens of per cent more (docs/policy.md).

    Parameters
    ----------
    catalog
        The items.
    past_users
        (T, d) or (T, interests, d): past requests. Floors are over these T requests: for a horizon of H requests, scale
        them by T / H, and the costs by H / T.
    k
        Candidates per request.
    promise
        Label of the group whose floor is varied.
    levels
        The floors to try, each over all past requests. They are sorted, and repeated ones are dropped.
    floors
        Floors of the other groups: one number for all, or {label: number}. The floor of the group itself is ignored.
    index
        Searches the catalog. The bounds are proofs if the search is exact.
    progress
        Show a progress bar for each level.

    Returns
    -------
    CostCurve
        The costs; see :meth:`CostCurve.plot`.

    Raises
    ------
    InfeasibleFloorsError
        If a level cannot be met beside the other floors. Nothing is computed then.

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
    """
    vectors, k = check_users(past_users, catalog), check_k(k, catalog)
    code = catalog.code_of(promise)
    label, others = catalog.labels[code], resolve_floors(floors, catalog)
    others[code] = 0
    fixed = {name: floor for name, floor in zip(catalog.labels, others.tolist(), strict=True) if floor}
    if isinstance(levels, str | bytes) or not isinstance(levels, Iterable):
        raise InvalidInputError(f"levels must be a list of floors, got {levels!r:.80}.")
    # `resolve_floors` checks each level.
    tried = sorted({int(resolve_floors({label: level}, catalog)[code]) for level in levels})
    if not tried:
        raise InvalidInputError("levels are empty: give at least one floor to try.")
    for level in tried:
        check_feasible(resolve_floors({**fixed, label: level}, catalog), catalog, k, len(vectors))
    searched = make_index(index, catalog)
    best = [
        hindsight(catalog, vectors, k=k, floors={**fixed, label: level}, index=searched, progress=progress)
        for level in tried
    ]
    plain = best[0].unconstrained_relevance
    return CostCurve(
        promise=label,
        levels=tuple(tried),
        costs=tuple(one.cost for one in best),
        feasible_costs=tuple(max(0.0, plain - one.feasible_relevance) for one in best),
        marginal_costs=tuple(-one.prices[label] or 0.0 for one in best),
        relevance=plain,
        floors=fixed,
        requests=len(vectors),
        k=k,
    )
