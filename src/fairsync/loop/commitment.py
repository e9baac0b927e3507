"""What is promised about which items: floors of groups, or promises that may overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.changes import CatalogChange
from fairsync.errors import InvalidInputError
from fairsync.plan import give_way
from fairsync.promises.floors import changed_terms, make_terms
from fairsync.promises.resolve import ResolvedPromises, resolve_promises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog import Catalog
    from fairsync.catalog.groups import Label
    from fairsync.policies import Terms
    from fairsync.policies.base import Counts
    from fairsync.promises import Promise
    from fairsync.promises.floors import Floors
    from fairsync.promises.plan_bounds import PlanBounds


@dataclass(frozen=True, eq=False)
class Commitment:
    """A catalog, and what was promised about its items.

    Attributes
    ----------
    catalog : Catalog
        The items as they were given.
    searched : Catalog
        The same items, with a price for each of its groups: the catalog itself, or atoms where promises may overlap.
    terms : Terms
        The promises as arrays.
    resolved : ResolvedPromises or None
        Promises that may overlap; None for floors of groups.
    gives_way : bool
        Whether promises that cannot all hold together are accepted, and those of the lowest priority give way.
    """

    catalog: Catalog
    searched: Catalog
    terms: Terms
    resolved: ResolvedPromises | None = None
    gives_way: bool = False

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        k: int,
        floors: Floors,
        promises: Sequence[Promise] | ResolvedPromises | None,
        horizon: int,
        batch_size: int,
        max_exclude: int = 0,
        *,
        gives_way: bool = False,
        before: ResolvedPromises | None = None,
    ) -> Commitment:
        """Return floors of groups, or promises, if there are any; refuse what cannot be kept.

        ``before`` are the promises that a ledger counts, if it is continued.
        """
        if isinstance(promises, ResolvedPromises):
            return cls(catalog, promises.atoms.catalog(catalog), promises.terms, promises, gives_way)
        if promises is None:
            if gives_way:
                raise InvalidInputError("floors of groups have no priorities: give promises, some of which give way.")
            terms = make_terms(catalog, k, floors, horizon, batch_size, max_exclude=max_exclude)
            return cls(catalog, catalog, terms)
        if not isinstance(floors, int) or floors != 0:
            raise InvalidInputError("give floors or promises, not both: a floor is Promise({...}, at_least=...).")
        resolved = resolve_promises(
            catalog, promises, k, horizon, batch_size,
            max_exclude=max_exclude, before=before, give_way=_best_plan if gives_way else None,
            may_give_way=True,
        )  # fmt: skip
        return cls(catalog, resolved.atoms.catalog(catalog), resolved.terms, resolved, gives_way)

    @property
    def labels(self) -> Sequence[Label]:
        """What is counted: the labels of the groups, or the names of the promises."""
        return self.catalog.labels if self.resolved is None else self.resolved.names

    @property
    def names(self) -> list[str]:
        """The names of the promises; none for floors of groups."""
        return [] if self.resolved is None else self.resolved.names

    @property
    def promises(self) -> tuple[Promise, ...] | None:
        """The promises; None for floors of groups."""
        return None if self.resolved is None else self.resolved.promises

    def changed(
        self,
        catalog: Catalog,
        floors: Floors | None,
        promises: Sequence[Promise] | None,
        horizon: int | None = None,
        *,
        is_steady: bool = False,
    ) -> Commitment:
        """Return what is promised about other items, or something else about the same. None keeps what was promised."""
        if self.resolved is None:
            if promises is not None:
                raise InvalidInputError("floors of groups are kept here: give floors, or start with promises.")
            return Commitment(
                catalog, catalog, changed_terms(self.terms, self.catalog.labels, catalog, floors, horizon)
            )
        if floors is not None:
            raise InvalidInputError("promises are kept here: give promises, not floors.")
        terms = self.terms
        resolved = resolve_promises(
            catalog, self.resolved.promises if promises is None else promises, terms.k,
            terms.horizon if horizon is None else horizon, terms.batch_size,
            max_exclude=terms.max_exclude, before=self.resolved, give_way=_best_plan if self.gives_way else None,
            may_give_way=True, is_steady=is_steady,
        )  # fmt: skip
        return Commitment(catalog, resolved.atoms.catalog(catalog), resolved.terms, resolved, self.gives_way)

    def has_late_promises(self, before: Commitment) -> bool:
        """Return whether a change of the items has made promises that :func:`fairsync.each` gives to later ones.

        With few requests left, these may be more than can be kept. Items are not refused for that.
        """
        known = 0 if before.resolved is None else len(before.resolved.promises)
        return any(promise.each is not None for promise in (self.promises or ())[known:])

    def searched_change(self, change: CatalogChange, after: Commitment) -> CatalogChange:
        """Return a change of the catalog as one of the items that are searched, which may move to another atom."""
        if self.resolved is None:
            return change
        rows = change.rows.copy()
        kept = np.flatnonzero(rows >= 0)
        moved = self.searched.group_of[kept] != after.searched.group_of[rows[kept]]
        rows[kept[moved]] = -1
        return CatalogChange(after.searched, rows)


def _best_plan(bounds: PlanBounds, order: Counts) -> Counts:
    """Return a plan that keeps what can be kept, higher priorities first."""
    return give_way(bounds, order).plan
