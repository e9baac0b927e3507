"""What requests may get of a catalog that only an engine holds, which returns excluded items and counts the others."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.conditions import parse_conditions
from fairsync.catalog.names import check_same_kind
from fairsync.eligibility.rules import Rules, id_lists, joined_ids
from fairsync.errors import InvalidInputError
from fairsync.search.engines.engine import Restricted
from fairsync.search.engines.hosted_eligibility import HostedEligibility, all_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog import Where
    from fairsync.catalog.conditions import Condition
    from fairsync.eligibility.rules import Exclude
    from fairsync.search.engines.hosted_catalog import HostedCatalog


class HostedRules(Rules):
    """What each of n requests may get of a catalog that only an engine holds; see `CatalogRules` for the parameters."""

    def __init__(
        self,
        exclude: Exclude | None,
        where: Where | Sequence[Where | None] | None,
        catalog: HostedCatalog,
        n: int,
        *,
        allow_empty: bool = False,
    ) -> None:
        self._hosted = catalog
        if exclude is not None and hasattr(exclude, "tocsr"):
            raise InvalidInputError("a matrix of excluded items needs a copy of the catalog: give lists of ids.")
        self._lists = [] if exclude is None else [list(dict.fromkeys(one)) for one in id_lists(exclude, n)]
        ids = list(dict.fromkeys(chain.from_iterable(self._lists)))
        if ids:
            check_same_kind(joined_ids([ids]), catalog.ids, "ids")
        self._items = catalog.engine.fetch(ids) if ids else None
        rows = np.empty(0, dtype=np.int64) if self._items is None else catalog.combinations_of(self._items)
        names = [] if self._items is None else self._items.ids
        self._place = {name: at for at, name in enumerate(names) if rows[at] >= 0}
        self._rows = rows
        unknown = [sum(name not in self._place for name in one) for one in self._lists] or [0] * n
        super().__init__(where, np.array(unknown, dtype=np.int64), allow_empty=allow_empty)

    def check(self) -> None:
        """Raise for a condition that would be refused, whichever request has it, before any is answered."""
        self._each(range(len(self.unknown)), self._conditions)

    def eligibility_of(self, requests: Sequence[int]) -> HostedEligibility | None:
        """Return the items that these requests may get, in this order; see `Rules.eligibility_of`."""
        conditions = self._each(requests, self._conditions)
        lists = [self._lists[i] if self._lists else [] for i in requests]
        if not any(lists) and not any(conditions):
            return None
        distinct = [one for one in dict.fromkeys(conditions) if one]
        places = [np.array([self._place[name] for name in one if name in self._place], dtype=np.int64) for one in lists]
        meets = {one: self._hosted.meeting(self._items, one) for one in distinct} if self._items is not None else {}
        met = [
            meets[one][at] if one and meets else np.ones(len(at), bool)
            for one, at in zip(conditions, places, strict=True)
        ]
        sizes = (*map(self._hosted.selected, distinct), self._hosted.weights)
        return HostedEligibility(
            len(self._hosted), (), np.array([distinct.index(one) if one else -1 for one in conditions], dtype=np.int64),
            self._rows[all_of(places)], np.concatenate([[0], np.cumsum([len(at) for at in places], dtype=np.int64)]),
            tuple(Restricted(one or (), names) for one, names in zip(conditions, lists, strict=True)),
            sizes, np.concatenate([np.empty(0, dtype=bool), *met]), self._hosted.group_of,
        )  # fmt: skip

    def _conditions(self, where: Where) -> tuple[Condition, ...]:
        conditions = parse_conditions(where, self._hosted.conditioned_attributes)
        if conditions and not self._allow_empty and not self._hosted.selected(conditions).any():
            raise InvalidInputError(f"no item meets the condition {dict(where)!r:.200}.")
        return conditions
