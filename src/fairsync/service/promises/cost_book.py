"""The cost book: what exposures cost, which floors have given way to the budget, and why promises are given up.

It is part of the saved state.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fairsync.promises.selection import is_selection
from fairsync.service.promises.budget import RelevanceBudget, Spent
from fairsync.service.promises.columns import column_of
from fairsync.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from fairsync.catalog.groups import Label
    from fairsync.report.gave_way import GaveWay
    from fairsync.schedule import PromiseStatus, ScheduledPromise

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


@dataclass(frozen=True)
class CostBook:
    """An immutable record: every entry makes a new one.

    Attributes
    ----------
    budget : RelevanceBudget or None
        The budget, and which floors give way to it; None if promises may cost anything.
    subsidies : Mapping
        The last subsidy of each column that had one, by label: what its exposures would cost if it gave way.
    exposure_costs : Mapping
        What an exposure of columns that give way without ever having had a subsidy would cost, by label: an estimate.

    Examples
    --------
    >>> book = CostBook().with_prices({"toys": -0.5, "wine": 0.0}, []).with_estimates({"wine": 0.25})
    >>> book.subsidies, book.exposure_costs
    ({'toys': 0.5}, {'wine': 0.25})
    >>> CostBook.from_dict(book.to_dict()) == book
    True
    """

    budget: RelevanceBudget | None = None
    subsidies: Mapping[Label, float] = field(default_factory=dict)
    exposure_costs: Mapping[Label, float] = field(default_factory=dict)

    def with_share(self, share: float | None) -> CostBook:
        """Return the book under another budget, a share of the relevance, or under none.

        What has given way to the budget before comes back as under any budget: when it fits.
        """
        if share is None:
            return replace(self, budget=None)
        return replace(
            self, budget=RelevanceBudget(share) if self.budget is None else replace(self.budget, share=share)
        )

    def with_prices(self, prices: Mapping[Label, float], columns: Collection[Label]) -> CostBook:
        """Return the book with the present subsidies, without selections that no promise is about any more.

        Parameters
        ----------
        prices
            The price of each column; a negative one is a subsidy.
        columns
            The columns of promises.
        """
        last = {**self.subsidies, **{label: -price for label, price in prices.items() if price < 0}}
        known = set(columns)
        subsidies, costs = (
            {label: value for label, value in values.items() if label in known or not is_selection(label)}
            for values in (last, self.exposure_costs)
        )
        return replace(self, subsidies=subsidies, exposure_costs=costs)

    def with_estimates(self, costs: Mapping[Label, float]) -> CostBook:
        """Return the book with estimates of what exposures of columns without a subsidy would cost."""
        return replace(self, exposure_costs={**self.exposure_costs, **costs})

    def after(self, spent: Spent, statuses: Iterable[PromiseStatus], left: float, attribute: str = "group") -> CostBook:
        """Return the book after more requests: floors give way to the budget, or come back.

        Parameters
        ----------
        spent
            What promises have cost in the longest window under way.
        statuses
            The promises in their present windows.
        left
            Requests that the longest window is still expected to have.
        attribute
            The attribute of the groups.
        """
        if self.budget is None:
            return self
        ahead: dict[int, float] = {}
        for one in statuses:
            if one.missing:
                cost = one.missing * self.subsidies.get(column_of(one.promise, attribute), 0.0)
                priority = one.promise.promise.priority
                ahead[priority] = ahead.get(priority, 0.0) + cost
        whole = spent.base * (1 + left / max(spent.requests, 1))
        return replace(self, budget=self.budget.after(spent, ahead, whole))

    def given_up(
        self, statuses: Iterable[PromiseStatus], limited: Mapping[Label, GaveWay], attribute: str = "group"
    ) -> dict[ScheduledPromise, GivenUp]:
        """Return the promises that miss exposures and will not get them, each with its reason.

        An exposure costs about the last subsidy, and more than the highest price of a promise that needs more. Of
        promises that were never subsidised, an estimate says it (`exposure_cost` in costs.py).

        Parameters
        ----------
        statuses
            The promises in their present windows.
        limited
            What the coordinator has given up because of highest prices, by column.
        attribute
            The attribute of the groups.

        Examples
        --------
        >>> from datetime import UTC, datetime
        >>> from fairsync.schedule import PromiseStatus, ScheduledPromise, Window
        >>> daily = ScheduledPromise.of_group("toys", 100, Window.day("UTC"))
        >>> span = daily.window.at(datetime(2026, 3, 4, 9, tzinfo=UTC))
        >>> status = PromiseStatus(daily, span, exposures=20, at_pace=60, reachable=90, certain=80)
        >>> CostBook(subsidies={"toys": 0.5}).given_up([status], {})[daily]
        GivenUp(reason='the expected traffic cannot deliver it', would_cost=5.0, exposures=10)
        """
        costs, found = {**self.exposure_costs, **self.subsidies}, {}
        for one in statuses:
            missing, column = one.missing, column_of(one.promise, attribute)
            if not missing:
                continue
            each, number, reason = costs.get(column), missing, ""
            if self.budget is not None and self.budget.gives_way(one.promise):
                reason = "it gives way to the budget"
            elif column in limited and one.promise.promise.max_price is not None:
                reason = "an exposure would cost more than its max_price"
                whole = limited[column].would_cost
                each = each if whole is None else whole / max(limited[column].exposures, 1)
            elif not one.possible:
                others = [other.promise.name for other in one.gives_way_to]
                reason, number = "the expected traffic cannot deliver it", one.shortfall
                if others:
                    reason = f"it gives way to {listed(others, _MOST_NAMED)}"
            if reason:
                found[one.promise] = GivenUp(reason, None if each is None else number * each, number)
        return found

    def never_subsidised(
        self,
        lost: Mapping[ScheduledPromise, GivenUp],
        slots: Mapping[ScheduledPromise, int],
        k: int,
        attribute: str = "group",
    ) -> dict[Label, float]:
        """Return the exposures per request that are given up of columns without a subsidy so far, by label.

        Parameters
        ----------
        lost
            What is given up; see `given_up`.
        slots
            The slots of the present window of each promise.
        k
            Candidates per request.
        attribute
            The attribute of the groups.
        """
        found: dict[Label, float] = {}
        for promise, one in lost.items():
            column, n = column_of(promise, attribute), slots.get(promise, 0)
            if n and column not in self.subsidies:
                found[column] = max(found.get(column, 0.0), one.exposures * k / n)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the book as JSON can hold it."""
        return {
            "budget": None if self.budget is None else asdict(self.budget),
            "subsidies": list(self.subsidies.items()),  # labels may be integers, which no key of JSON is
            "exposure_costs": list(self.exposure_costs.items()),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CostBook:
        """Return the book that `to_dict` describes. Earlier versions saved no budget, or nothing at all."""
        budget = document.get("budget")
        return cls(
            None if budget is None else RelevanceBudget(**{**budget, "at": Spent(**budget["at"])}),
            dict(document.get("subsidies", ())),
            dict(document.get("exposure_costs", ())),
        )
