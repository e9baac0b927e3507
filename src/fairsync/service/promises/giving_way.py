"""Giving way: why promises are given up, and what keeping them would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairsync.service.promises.columns import column_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairsync.catalog.groups import Label
    from fairsync.report.gave_way import GaveWay
    from fairsync.schedule import PromiseStatus, ScheduledPromise
    from fairsync.service.promises.budget import RelevanceBudget

# Promises that a reason names.
_MOST_NAMED = 3


class GivenUp(NamedTuple):
    """Why a promise is given up, as a whole or in part.

    Attributes
    ----------
    reason : str
        The reason.
    would_cost : float or None
        The relevance that the exposures which are given up would cost, about; None if it is not known.
    exposures : int
        The exposures that are given up.
    """

    reason: str
    would_cost: float | None
    exposures: int = 0


def given_up(
    statuses: Iterable[PromiseStatus],
    costs: Mapping[Label, float],
    limited: Mapping[Label, GaveWay],
    budget: RelevanceBudget | None = None,
    attribute: str = "group",
) -> dict[ScheduledPromise, GivenUp]:
    """Return the promises that miss exposures and will not get them, each with its reason.

    An exposure costs about the last subsidy, and more than the highest price of a promise that needs more. Of
    promises that were never subsidised, an estimate says it (:mod:`fairsync.service.promises.exposure_cost`).

    Parameters
    ----------
    statuses
        The promises in their present windows.
    costs
        What an exposure costs, by column: the last subsidies, and estimates where there was none.
    limited
        What the coordinator has given up because of highest prices, by column.
    budget
        The budget, and which floors give way to it.
    attribute
        The attribute of the groups.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from fairsync.schedule import PromiseStatus, ScheduledPromise, Window
    >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
    >>> span = daily.window.at(datetime(2026, 3, 4, 9, tzinfo=UTC))
    >>> status = PromiseStatus(daily, span, exposures=20, at_pace=60, reachable=90, certain=80)
    >>> given_up([status], {"toys": 0.5}, {})[daily]
    GivenUp(reason='the expected traffic cannot deliver it', would_cost=5.0, exposures=10)
    """
    found = {}
    for one in statuses:
        missing, column = one.missing, column_of(one.promise, attribute)
        if not missing:
            continue
        each, number, reason = costs.get(column), missing, ""
        if budget is not None and budget.gives_way(one.promise):
            reason = "it gives way to the budget"
        elif column in limited and one.promise.promise.max_price is not None:
            reason = "an exposure would cost more than its max_price"
            whole = limited[column].would_cost
            each = each if whole is None else whole / max(limited[column].exposures, 1)
        elif not one.possible:
            reason, number = _to_others(one), one.shortfall
        if reason:
            found[one.promise] = GivenUp(reason, None if each is None else number * each, number)
    return found


def _to_others(status: PromiseStatus) -> str:
    others = [other.promise.name for other in status.gives_way_to]
    if not others:
        return "the expected traffic cannot deliver it"
    more = f" and {len(others) - _MOST_NAMED:,} more" if len(others) > _MOST_NAMED else ""
    return f"it gives way to {', '.join(others[:_MOST_NAMED])}{more}"
