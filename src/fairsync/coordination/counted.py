"""What a coordinator counts: the labels of the group attribute, then selections, each a column of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fairsync.catalog.atoms import Atoms, Membership
from fairsync.catalog.groups import Groups, grow
from fairsync.policies.base import NO_CAP
from fairsync.promises.promise import Promise
from fairsync.promises.resolve import find_atoms
from fairsync.promises.selection import conditions_of, is_selection, selection_name, standard_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog, Where
    from fairsync.catalog.groups import Label
    from fairsync.ledger import Totals
    from fairsync.policies import Terms

# A number that is no label of any item.
_NO_LABEL = -(2**63)


@dataclass(frozen=True, eq=False)
class Counted:
    """The columns of a ledger over the items of a catalog, and the atoms under them.

    A column is never taken away, and columns keep their codes. One that is not counted any more selects nothing.

    Attributes
    ----------
    catalog : Catalog
        The items.
    labels : tuple
        The columns: labels of the group attribute, and names of selections (:mod:`fairsync.promises.selection`).
    selections : frozenset of str
        The selections that are counted.
    atoms : Atoms
        The atoms under them.
    """

    catalog: Catalog
    labels: tuple[Label, ...]
    selections: frozenset[str]
    atoms: Atoms

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        columns: Sequence[Label],
        selections: frozenset[str],
        before: Counted | None = None,
        known: Membership | None = None,
        *,
        grows: bool = True,
    ) -> Counted:
        """Return the columns so far, with those of new labels and selections; the same object if nothing is new.

        Parameters
        ----------
        catalog
            The items.
        columns
            The columns so far. What is new follows them.
        selections
            The selections to be counted.
        before
            What was counted so far, whose atoms keep their codes.
        known
            Atoms that keep their codes if nothing was counted before. By default every column is an atom.
        grows
            Whether new labels and selections get a column. Otherwise they are not counted.
        """
        have, labels = set(columns), tuple(columns)
        if grows:
            new = (label for label in catalog.labels if label not in have)
            labels = (*columns, *new, *sorted(selections - have))
        same = before is not None and before.catalog is catalog and before.selections == selections
        if before is not None and same and before.labels == labels:
            return before
        if before is not None:
            known = before.atoms.membership
        elif known is None:
            known = Membership.of([(code,) for code in range(len(columns))], len(columns))
        promises = _promises(catalog, labels, selections)
        atoms = find_atoms(catalog, promises, Atoms(np.empty(0, dtype=np.int32), known))
        atoms, _ = atoms.extended([(code,) for code in range(len(labels))])  # each may be a home of small atoms
        made = cls(catalog, labels, selections, atoms)
        made.__dict__["promises"] = promises
        return made

    @cached_property
    def promises(self) -> tuple[Promise, ...]:
        """One promise of nothing for each column, which says what it selects."""
        return _promises(self.catalog, self.labels, self.selections)

    @cached_property
    def groups(self) -> Groups:
        """The columns, with the number of items of each."""
        return Groups(list(self.labels), self.atoms.membership.exposures(self.atoms.sizes))

    @cached_property
    def searched(self) -> Catalog:
        """The items, with atoms as their groups."""
        return self.atoms.catalog(self.catalog)


def column_of(where: Where, group_attribute: str) -> Label:
    """Return the label of the column that counts a selection: a label of the group attribute, or a name.

    Examples
    --------
    >>> column_of({"category": "toys"}, "category"), column_of({"new": True}, "category")
    ('toys', '{"new": true}')
    """
    if len(where) == 1:
        label = standard_form(where).get(group_attribute)
        if isinstance(label, str | int) and not isinstance(label, bool):
            return label
    return selection_name(where)


def _promises(catalog: Catalog, labels: Sequence[Label], selections: frozenset[str]) -> tuple[Promise, ...]:
    """Return what each column selects. One that is not counted has conditions that no item meets."""
    attribute = catalog.group_attribute
    nothing = _unmet(catalog)
    return tuple(
        Promise(conditions_of(str(label)), at_least=0)
        if label in selections
        else Promise(nothing if is_selection(label) else {attribute: label}, at_least=0, name=str(label))
        for label in labels
    )


def _unmet(catalog: Catalog) -> Where:
    """Return a condition on the group attribute that no item meets, of the type that its labels have."""
    kind = catalog.attributes[catalog.group_attribute].kind
    return {catalog.group_attribute: _NO_LABEL if kind == "int" else selection_name({})}


def selections_in(labels: Sequence[Label]) -> frozenset[str]:
    """Return the names of selections among the labels of columns."""
    return frozenset(str(label) for label in labels if is_selection(label))


def with_labels(groups: Groups, labels: Sequence[Label]) -> Groups:
    """Return groups with those of further labels, which have no items yet."""
    known = set(groups.labels)
    new = list(dict.fromkeys(label for label in labels if label not in known))
    return (
        groups if not new else Groups([*groups.labels, *new], grow(groups.group_sizes, len(groups.labels) + len(new)))
    )


def bounds_of(counted: Counted, terms: Terms, missing: NDArray[np.int64], totals: Totals) -> list[Promise]:
    """Return what the columns are promised under terms, after these totals; all selections that are counted."""
    n, found = len(terms.floors), []
    caps, limits, prices = terms.caps, terms.list_limits, terms.max_prices
    for code, (label, one) in enumerate(zip(counted.labels[:n], counted.promises, strict=False)):
        at_most = None if caps is None or caps[code] == NO_CAP else max(int(caps[code] - totals.exposures[code]), 0)
        limit = None if limits is None or limits[code] >= terms.k else int(limits[code])
        if label in counted.selections or missing[code] or at_most is not None or limit is not None:
            least = int(missing[code]) if at_most is None else min(int(missing[code]), at_most)
            priority = max(int(terms.order[code]), 1)
            price = None if prices is None or np.isinf(prices[code]) else float(prices[code])
            found.append(
                Promise(
                    one.where, at_least=least, at_most=at_most, at_most_per_list=limit, priority=priority,
                    max_price=price,
                )
            )  # fmt: skip
    return found
