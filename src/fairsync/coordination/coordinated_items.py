"""What a coordinator has promised about which items: floors of groups, promises, or selections that are counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.catalog import GROUP
from fairsync.catalog.groups import Groups
from fairsync.coordination.counted import Counted, column_of, selections_in, with_labels
from fairsync.coordination.targets import Targets, check_promises, make_targets, needs_every_slot
from fairsync.errors import InvalidInputError
from fairsync.inputs import check_catalog
from fairsync.loop.commitment import Commitment
from fairsync.promises.floors import resolve_floors
from fairsync.promises.promise import Promise
from fairsync.promises.resolve import find_atoms, restore_promises
from fairsync.promises.selection import selection_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairsync.catalog import Where
    from fairsync.catalog.atoms import Atoms, Membership
    from fairsync.catalog.groups import Grouped, Label
    from fairsync.coordination.shared_terms import SharedTerms
    from fairsync.policies import Terms
    from fairsync.promises.floors import Floors

# Caps that this many times the expected requests could not use up leave lists enough to be filled with.
_SPARE = 2


@dataclass(frozen=True, eq=False)
class CoordinatedItems:
    """The items of a coordinator, and what was promised about them. Immutable: a change makes another one.

    Attributes
    ----------
    catalog : Catalog or None
        The items; None if the coordinator knows their groups only, which is enough for floors of groups.
    commitment : Commitment or None
        Promises over a horizon.
    counted : Counted or None
        The columns of the ledger with their atoms, once targets by the clock speak of selections.
    """

    catalog: Catalog | None
    commitment: Commitment | None = None
    counted: Counted | None = None

    @property
    def promises(self) -> tuple[Promise, ...] | None:
        """The promises, or what each column selects, once selections are counted; None for floors of groups."""
        return self.made if self.counted is None else self.counted.promises

    @property
    def made(self) -> tuple[Promise, ...] | None:
        """The promises over a horizon; None if there are none."""
        return None if self.commitment is None else self.commitment.promises

    @property
    def group_attribute(self) -> str:
        """The attribute of the groups."""
        return GROUP if self.catalog is None else self.catalog.group_attribute

    def column_of(self, where: Where, groups: Grouped | None = None) -> Label:
        """Return the label under which a selection is counted, whether it is or not, also in a changed catalog."""
        return column_of(where, groups.group_attribute if isinstance(groups, Catalog) else self.group_attribute)

    def named(self, promises: Sequence[Promise], groups: Grouped | None) -> list[tuple[Label, Promise]]:
        """Return promises, each with the label of its column."""
        return [(self.column_of(promise.where, groups), promise) for promise in check_promises(promises)]

    def aim(
        self,
        more: Floors | None,
        given: Sequence[tuple[Label, Promise]] | None,
        requests: int,
        groups: Grouped | None,
        known: Groups,
        terms: Terms,
        extend: Callable[[Grouped], Groups],
    ) -> tuple[CoordinatedItems, Targets]:
        """Return what is promised with targets for the next requests, and these targets.

        Parameters
        ----------
        more, given
            Additional exposures of each group; or promises, each with the label of its column.
        requests
            Expected number of further requests.
        groups
            A changed catalog, or its groups.
        known, terms
            The columns and the terms so far.
        extend
            Returns the columns with those of changed groups, or refuses them.
        """
        catalog = groups if isinstance(groups, Catalog) else self.catalog
        if given is None and self.counted is None:
            known = known if groups is None else extend(groups)
            targets = Targets(known, requests, (resolve_floors(0 if more is None else more, known),))
            return replace(self, catalog=catalog), targets
        if given is None:
            assert self.counted is not None
            floors = resolve_floors(0 if more is None else more, known)
            given = [
                (label, replace(one, at_least=floor))
                for label, one, floor in zip(known.labels, self.counted.promises, floors.tolist(), strict=True)
                if floor or label in self.counted.selections
            ]
        selections = selections_in([label for label, _ in given])
        known = known if groups is None or self.counted is not None else extend(groups)
        known = with_labels(known, [label for label, _ in given if label not in selections])
        is_plain = not selections and all(
            one.at_most is None and one.at_most_per_list is None and one.max_price is None for _, one in given
        )
        if self.counted is None and is_plain:
            return replace(self, catalog=catalog), make_targets(known, given, requests, terms.k, None)
        if not isinstance(catalog, Catalog) or (groups is not None and groups is not catalog):
            raise InvalidInputError("promises about selections need the catalog, not its groups alone.")
        counted, targets = self._overlapping(check_catalog(catalog), known.labels, given, selections, requests, terms)
        return replace(self, catalog=catalog, counted=counted), targets

    def _overlapping(
        self,
        catalog: Catalog,
        columns: Sequence[Label],
        given: Sequence[tuple[Label, Promise]],
        selections: frozenset[str],
        requests: int,
        terms: Terms,
    ) -> tuple[Counted, Targets]:
        """Return targets with atoms; with those that fill every slot, where lists can be filled only by a plan."""
        every = selection_name({})
        if self.counted is not None and every in self.counted.selections:
            selections |= {every}
        counted = Counted.of(catalog, columns, selections, self.counted)
        targets = make_targets(counted.groups, given, requests, terms.k, counted.atoms, selections)
        if not needs_every_slot(targets, terms.k, terms.max_exclude):
            return counted, targets
        if every not in selections:
            selections |= {every}
            counted = Counted.of(catalog, columns, selections, self.counted)
            targets = make_targets(counted.groups, given, requests, terms.k, counted.atoms, selections)
        if needs_every_slot(targets, terms.k, terms.max_exclude, _SPARE * requests):
            targets = targets.first(every, requests * terms.k)
        return counted, targets

    def restored(self, columns: Sequence[Label], known: Membership | None) -> tuple[CoordinatedItems, Targets] | None:
        """Return the selections that saved prices know, with targets of nothing for them; None if they know none."""
        if self.catalog is None or known is None or known.n_promises > len(columns):
            return None
        selections = selections_in([columns[code] for code in np.unique(known.promises).tolist()])
        counted = Counted.of(self.catalog, columns, selections, known=known)
        nothing = np.zeros(len(counted.labels), dtype=np.int64)
        targets = Targets(counted.groups, 1, (nothing,), atoms=counted.atoms, selections=selections)
        return replace(self, counted=counted), targets

    def followed(
        self, shared: SharedTerms, batch_size: int, saved_membership: Callable[[], Membership | None]
    ) -> tuple[CoordinatedItems, Atoms | None]:
        """Return these items under the promise of a shared ledger, and their atoms; None for floors of groups.

        Parameters
        ----------
        shared
            The promise of the ledger.
        batch_size
            Requests between two price changes.
        saved_membership
            Returns the atoms that saved prices know.
        """
        if not shared.overlaps:
            return (self if self.counted is None else replace(self, counted=None)), None
        if self.catalog is None:
            raise InvalidInputError("the ledger has promises about selections: they need the catalog, not its groups.")
        labels = shared.groups.labels
        if shared.promises is None:
            known = saved_membership() if self.counted is None else None
            if known is not None and known.n_promises > len(labels):
                known = None
            selections = frozenset(shared.selections or ())
            counted = Counted.of(self.catalog, labels, selections, self.counted, known, grows=False)
            return (self if counted is self.counted else replace(self, counted=counted)), counted.atoms
        promises, before = tuple(map(Promise.from_dict, shared.promises)), self.commitment
        resolved = None if before is None else before.resolved
        is_known = before is not None and before.terms.horizon == shared.horizon
        if resolved is not None and resolved.promises == promises and is_known:
            return self, resolved.atoms
        known_wheres = None if resolved is None else [one.where for one in resolved.promises]
        is_continued = known_wheres is not None and known_wheres == [one.where for one in promises[: len(known_wheres)]]
        atoms = find_atoms(self.catalog, promises, resolved.atoms if resolved is not None and is_continued else None)
        terms = shared.terms(batch_size, atoms)
        resolved = restore_promises(self.catalog, promises, terms)
        commitment = Commitment(self.catalog, resolved.atoms.catalog(self.catalog), terms, resolved)
        return replace(self, commitment=commitment), resolved.atoms


def promise_groups(commitment: Commitment) -> Groups:
    """Return the names of the promises, with the number of items of each."""
    membership = commitment.terms.membership
    assert membership is not None
    return Groups(list(commitment.labels), membership.exposures(commitment.searched.group_sizes))
