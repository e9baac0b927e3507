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
    """

    reason: str
    would_cost: float | None


def given_up(
    statuses: Iterable[PromiseStatus],
    subsidies: Mapping[Label, float],
    limited: Mapping[Label, GaveWay],
    budget: RelevanceBudget | None = None,
    attribute: str = "group",
) -> dict[ScheduledPromise, GivenUp]:
    """Return the promises that miss exposures and will not get them, each with its reason.

    An exposure costs about the last subsidy, and more than the highest price of a promise that needs more.

    Parameters
    ----------
    statuses
        The promises in their present windows.
    subsidies
        The last subsidies, by column.
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
    GivenUp(reason='the expected traffic cannot deliver it', would_cost=5.0)
    """
    found = {}
    for one in statuses:
        missing, column = one.missing, column_of(one.promise, attribute)
        if not missing:
            continue
        subsidy = subsidies.get(column) or None
        if budget is not None and budget.gives_way(one.promise):
            cost = None if subsidy is None else missing * subsidy
            found[one.promise] = GivenUp("it gives way to the budget", cost)
        elif column in limited and one.promise.promise.max_price is not None:
            each = limited[column].would_cost
            cost = None if each is None else missing * each / max(limited[column].exposures, 1)
            found[one.promise] = GivenUp("an exposure would cost more than its max_price", cost)
        elif not one.possible:
            found[one.promise] = GivenUp(_to_others(one), None if subsidy is None else one.shortfall * subsidy)
    return found


def _to_others(status: PromiseStatus) -> str:
    others = [other.promise.name for other in status.gives_way_to]
    if not others:
        return "the expected traffic cannot deliver it"
    more = f" and {len(others) - _MOST_NAMED:,} more" if len(others) > _MOST_NAMED else ""
    return f"it gives way to {', '.join(others[:_MOST_NAMED])}{more}"
