"""The items of a front end, the index over them, and how leases of the coordinator apply to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from fairsync.catalog.atoms import Atoms, Membership
from fairsync.catalog.changes import CatalogChange
from fairsync.catalog.groups import grow
from fairsync.cold_start.cold_start import ColdStart
from fairsync.policies.base import sum_at_home
from fairsync.promises.certificate import Certified
from fairsync.promises.floors import capacities_of
from fairsync.promises.resolve import find_atoms
from fairsync.promises.shown import Shown
from fairsync.search import make_index, replace_index
from fairsync.search.engines.hosted_catalog import HostedCatalog
from fairsync.search.engines.hosted_eligibility import HostedEligibility
from fairsync.search.engines.hosted_search import FoundItems, HostedIndex
from fairsync.search.overlay import follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairsync.catalog import Catalog
    from fairsync.cold_start.cold_start import Cold
    from fairsync.eligibility.eligible_slots import EligibleSlots
    from fairsync.loop.batch import Batch, ServedBatch
    from fairsync.policies import Sample
    from fairsync.promises import Promise
    from fairsync.search import Index
    from fairsync.search.eligibility import Eligibility


@dataclass(frozen=True, eq=False)
class SearchedItems:
    """A catalog with all that is needed to search it. It is immutable: a change makes another one.

    Attributes
    ----------
    catalog, searched : Catalog
        The items as they were given, and with atoms as their groups: the same object for floors of groups.
    index : Index
        The index over ``searched``.
    cold_start : ColdStart
        The fallback for cold requests.
    promises, atoms
        The coordinator's promises, and the atoms under them; None for floors of groups.
    """

    catalog: Catalog
    searched: Catalog
    index: Index
    cold_start: ColdStart
    promises: tuple[Promise, ...] | None = None
    atoms: Atoms | None = None

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        promises: tuple[Promise, ...] | None,
        index: str | Index | Callable[[Catalog], Index],
        cold: Cold,
    ) -> SearchedItems:
        """Return the items, with an index that is named, made by a function, or given (for floors of groups)."""
        start = ColdStart(catalog, cold)
        searched, atoms = _under(catalog, promises, None)
        return cls(catalog, searched, _index_of(index, searched), start, promises, atoms)

    @cached_property
    def membership(self) -> Membership:
        """The columns of each group of ``searched``. For floors of groups, each has one of its own."""
        if self.atoms is not None:
            return self.atoms.membership
        n = self.searched.n_groups
        return Membership(n, np.arange(n), np.arange(n + 1))

    def opened(self) -> SearchedItems:
        """Return the items as one batch sees them: of those that only an engine holds, what it has found for it."""
        if not isinstance(self.index, HostedIndex):
            return self
        by_label = by_atom = FoundItems(self.catalog)
        if self.atoms is not None:
            by_atom = FoundItems(self.searched, by_label)
        return replace(
            self,
            catalog=cast("Catalog", by_label),  # it has the members that search and guard use
            searched=cast("Catalog", by_atom),
            index=self.index.over(by_atom),
        )

    def within(self, eligible: Eligibility | None) -> Eligibility | None:
        """Return eligibility by the groups that are searched."""
        return eligible.under(self.searched.group_of) if isinstance(eligible, HostedEligibility) else eligible

    def changed(self, change: CatalogChange, promises: tuple[Promise, ...] | None) -> SearchedItems:
        """Return the items after a change of the catalog or of the promises."""
        if promises is None and self.promises is None:
            index = self._followed(change, self.catalog)
            return SearchedItems(change.catalog, change.catalog, index, self.cold_start)
        searched, atoms = _under(change.catalog, promises, self._atoms_before(promises))
        rows = change.rows.copy()
        kept = np.flatnonzero(rows >= 0)
        rows[kept[self.searched.group_of[kept] != searched.group_of[rows[kept]]]] = -1
        index = self._followed(CatalogChange(searched, rows), self.searched)
        return SearchedItems(change.catalog, searched, index, self.cold_start, promises, atoms)

    def with_promises(self, promises: tuple[Promise, ...] | None) -> SearchedItems:
        """Return the same items under other promises."""
        return self.changed(CatalogChange(self.catalog, np.arange(self.catalog.n_rows)), promises)

    def with_homes(self, membership: Membership, home: NDArray[np.int64]) -> SearchedItems:
        """Return the same items with all atoms of the coordinator that are the home of others, without items if new."""
        assert self.atoms is not None
        homes = np.flatnonzero(np.bincount(home, minlength=len(home)) > 1)
        if np.isin(homes, self._codes(membership)).all():
            return self
        atoms, _ = self.atoms.extended([membership.of_atom(code).tolist() for code in homes.tolist()])
        searched = atoms.catalog(self.catalog)
        index = self._followed(CatalogChange(searched, np.arange(searched.n_rows)), self.searched)
        return SearchedItems(self.catalog, searched, index, self.cold_start, self.promises, atoms)

    def replaced(
        self,
        catalog: Catalog,
        promises: tuple[Promise, ...] | None,
        index: str | Callable[[Catalog], Index] | None,
        cold: Cold | None,
    ) -> SearchedItems:
        """Return other items, in an index of the same kind unless another is given."""
        start = ColdStart(catalog, self.cold_start.fallback if cold is None else cold)
        searched, atoms = _under(catalog, promises, self._atoms_before(promises))
        made = _index_of("", searched) if searched.weights is not None else replace_index(self.index, index, searched)
        return SearchedItems(catalog, searched, made, start, promises, atoms)

    def _followed(self, change: CatalogChange, before: Catalog) -> Index:
        if isinstance(change.catalog, HostedCatalog):
            return _index_of("", change.catalog)
        return follow(self.index, change, before)

    def fit(self, batch: Batch, k: int) -> Batch:
        """Return a batch of the coordinator, whose items may differ, for k candidates of these items."""
        terms = batch.terms
        sizes = self.searched.group_sizes
        if self.atoms is None or terms.membership is None:
            g = self.searched.n_groups
            capacities = np.minimum(terms.capacities[:g], capacities_of(sizes, terms.k, terms.max_exclude))
            if k == terms.k and g == len(terms.floors) and (capacities == terms.capacities).all():
                return batch
            return replace(
                batch,
                k=k,
                prices=batch.prices[:g],
                missing=batch.missing[:g],
                terms=replace(terms, floors=terms.floors[:g], capacities=capacities),
                forecast=None if batch.forecast is None else batch.forecast.of(np.arange(g)),
                watched=batch.watched and k == terms.k,  # a sample is cut at k: another k would mislead the policy
            )
        codes = self._codes(terms.membership)
        known, place = codes >= 0, np.maximum(codes, 0)
        home = None if terms.home is None else _translated(terms.home, codes)
        sizes = sizes if home is None else sum_at_home(sizes, home)
        capacities = capacities_of(sizes, terms.k, terms.max_exclude)
        capacities = np.where(known, np.minimum(capacities, terms.capacities[place]), capacities)
        certificate = None if batch.certificate is None else np.where(known, batch.certificate[place], 0)
        return replace(
            batch,
            k=k,
            prices=self.atoms.membership.atom_prices(batch.prices_by_promise),
            certificate=certificate,
            terms=replace(terms, capacities=capacities, membership=self.atoms.membership, certificate=None, home=home),
            forecast=None if batch.forecast is None else batch.forecast.of(codes),
            watched=batch.watched and k == terms.k,
        )

    def atom_prices(self, prices: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the prices of the groups that are searched, from those of the coordinator's columns."""
        n = self.membership.n_promises
        return self.membership.atom_prices(grow(prices[:n], n))

    def exposures(self, rows: NDArray[np.int64], n_columns: int) -> NDArray[np.int64]:
        """Return (n_columns,) the exposures of each column in some rows."""
        counts = np.bincount(self.searched.group_of[rows], minlength=self.searched.n_groups).astype(np.int64)
        return grow(self.membership.exposures(counts)[:n_columns], n_columns)

    def shown_for(self, membership: Membership, rows: NDArray[np.int64]) -> Certified | None:
        """Return what lists of other searches showed, in the atoms of the coordinator, and an empty plan."""
        if self.atoms is None:
            return None
        codes = self._codes(membership)[self.searched.group_of[rows]]
        counts = np.bincount(codes[codes >= 0], minlength=membership.n_atoms)
        return Certified(np.zeros(membership.n_atoms, dtype=np.int64), Shown.in_all(counts))

    def certified_for(
        self, batch: Batch, served: ServedBatch, less: NDArray[np.int64] | None = None
    ) -> Certified | None:
        """Return the certificate after a batch in the atoms of the coordinator, which made it.

        Parameters
        ----------
        batch, served
            The batch as the coordinator made it, and as it was served.
        less
            (atoms here,) exposures that do not count, because another front end has answered their requests.
        """
        membership = batch.terms.membership
        if membership is None or served.certified is None:
            return None
        codes = self._codes(membership)

        def by_coordinator(values: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.bincount(codes[codes >= 0], values[codes >= 0], membership.n_atoms).astype(np.int64)

        plan, counts = served.certified.plan, served.certified.counts
        counted = by_coordinator(counts if less is None else counts - less)
        shown = Shown.in_all(np.maximum(counted, 0))
        return Certified(by_coordinator(plan), shown, served.certified.too_dear)

    def sample_for(self, membership: Membership | None, sample: Sample | None) -> Sample | None:
        """Return the sample in the atoms of the coordinator; None if the coordinator does not know some of them."""
        if sample is None or membership is None:
            return sample
        groups = self._codes(membership)[sample.groups]
        return None if (groups < 0).any() else replace(sample, groups=groups.astype(np.intp))

    def slots_for(self, membership: Membership | None, slots: EligibleSlots | None) -> EligibleSlots | None:
        """Return what requests could show, in the atoms of the coordinator."""
        if slots is None or membership is None or self.atoms is None:
            return slots
        return slots.in_order(self._codes(membership), membership.n_atoms)

    def _atoms_before(self, promises: tuple[Promise, ...] | None) -> Atoms | None:
        """Return the atoms, if they can keep their codes: the promises known so far come first, as they were.

        If there were no promises, groups become atoms, because the first columns of a coordinator count them.
        """
        if promises is None:
            return None
        if self.promises is None:
            return Atoms(self.searched.group_of, self.membership)
        known = self.promises
        same = [one.where for one in promises[: len(known)]] == [one.where for one in known]
        return self.atoms if same else None

    @cached_property
    def _known(self) -> list[tuple[Membership, NDArray[np.int64]]]:
        """The membership that was asked for last, and the coordinator's code of each atom."""
        return []

    def _codes(self, membership: Membership) -> NDArray[np.int64]:
        """Return (atoms here,) the coordinator's code of each atom; -1 if it does not know the atom."""
        assert self.atoms is not None
        for membership_before, codes in self._known:
            if membership_before is membership:
                return codes
        theirs = {one.tobytes(): code for code, one in enumerate(_lists(membership))}
        codes = np.array([theirs.get(one.tobytes(), -1) for one in _lists(self.atoms.membership)], dtype=np.int64)
        self._known[:] = [(membership, codes)]
        return codes


def _under(
    catalog: Catalog, promises: tuple[Promise, ...] | None, before: Atoms | None
) -> tuple[Catalog, Atoms | None]:
    """Return items with atoms as their groups, and the atoms; for floors of groups the items as they are."""
    if promises is None:
        return catalog, None
    atoms = find_atoms(catalog, promises, before)
    return atoms.catalog(catalog), atoms


def _index_of(index: str | Index | Callable[[Catalog], Index], searched: Catalog) -> Index:
    """Return the index over some items; those that only an engine holds are searched there."""
    if isinstance(searched, HostedCatalog):
        return HostedIndex(searched, FoundItems(searched))
    return make_index(index, searched)


def _translated(home: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the homes of atoms here, given those of the coordinator, and its code of each atom here."""
    here = np.full(len(home), -1)
    known = np.flatnonzero(codes >= 0)
    here[codes[known]] = known
    homes = np.arange(len(codes))
    found = here[home[codes[known]]]
    homes[known] = np.where(found >= 0, found, known)
    return homes


def _lists(membership: Membership) -> list[NDArray[np.int64]]:
    return np.split(membership.promises, membership.offsets[1:-1])
