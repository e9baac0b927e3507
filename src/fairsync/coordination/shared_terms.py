"""The promise that several coordinators share, as the ledger saves it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.catalog.groups import Groups
from fairsync.errors import InvalidInputError
from fairsync.policies import Terms
from fairsync.policies.base import NO_CAP
from fairsync.promises.floors import capacities_of
from fairsync.promises.home_atoms import homes_by_promises, under_homes, with_homes
from fairsync.promises.selection import is_selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairsync.catalog.atoms import Atoms
    from fairsync.ledger.base import Saved
    from fairsync.promises import Promise

# Name under which the ledger saves it.
TERMS = "terms"
# The arrays by promise that only terms with atoms have.
_ARRAYS = ("caps", "list_limits", "priorities", "certain", "max_prices")


@dataclass(frozen=True)
class SharedTerms:
    """A promise, and its groups: the settings in which coordinators that share a ledger must agree.

    Attributes
    ----------
    number : int
        Number of changes so far.
    groups : Groups
        The groups.
    floors, k, horizon, auto_restart
        The promise; see :class:`fairsync.policies.Terms`.
    keeps_floors : bool
        Whether the guard keeps the floors. One coordinator without it would break the promise of all.
    max_exclude : int
        The most items that a request excludes.
    caps, list_limits, priorities, certain, max_prices : tuple or None
        The other arrays of promises that may overlap.
    selections : tuple of str or None
        The selections that are counted, if targets speak of any; see :mod:`fairsync.coordination.counted`.
    promises : tuple of dict or None
        Promises over a horizon that may overlap, as values.
    homes : tuple or None
        The homes of small atoms under targets, chosen by what these still asked for when they were set; see
        :func:`fairsync.promises.home_atoms.homes_by_promises`.
    """

    number: int
    groups: Groups
    floors: tuple[int, ...]
    k: int
    horizon: int
    auto_restart: bool
    keeps_floors: bool
    max_exclude: int = 0
    caps: tuple[int, ...] | None = None
    list_limits: tuple[int, ...] | None = None
    priorities: tuple[int, ...] | None = None
    certain: tuple[bool, ...] | None = None
    max_prices: tuple[float, ...] | None = None
    selections: tuple[str, ...] | None = None
    promises: tuple[dict[str, Any], ...] | None = None
    homes: tuple[tuple[list[int], list[int]], ...] | None = None

    @classmethod
    def of(
        cls,
        number: int,
        groups: Groups,
        terms: Terms,
        *,
        keeps_floors: bool,
        selections: frozenset[str] = frozenset(),
        promises: Sequence[Promise] | None = None,
    ) -> SharedTerms:
        """Return the promise of these terms, with the selections that are counted, or the promises over a horizon."""
        floors = tuple(terms.floors.tolist())
        overlap: dict[str, Any] = {}
        if terms.membership is not None:
            arrays = {name: getattr(terms, name) for name in _ARRAYS}
            overlap = {name: None if one is None else tuple(one.tolist()) for name, one in arrays.items()}
            if promises is None:
                overlap |= {"selections": tuple(sorted(selections)), "homes": homes_by_promises(terms)}
            else:
                overlap["promises"] = tuple(promise.to_dict() for promise in promises)
        return cls(
            number, groups, floors, terms.k, terms.horizon, terms.auto_restart, keeps_floors, terms.max_exclude,
            **overlap,
        )  # fmt: skip

    @property
    def overlaps(self) -> bool:
        """Whether promises may overlap, so that there are atoms."""
        return self.selections is not None or self.promises is not None

    @classmethod
    def load(cls, data: bytes) -> SharedTerms:
        """Return the promise from the bytes of `dump`."""
        document = json.loads(data)
        groups = Groups(document.pop("labels"), np.array(document.pop("sizes"), dtype=np.int64))
        lists: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in document.items()}
        return cls(groups=groups, **lists)

    @classmethod
    def saved_in(cls, ledger: Saved) -> SharedTerms | None:
        """Return the promise that is saved in a ledger; None if there is none."""
        data = ledger.load(TERMS)
        return None if data is None else cls.load(data)

    def dump(self) -> bytes:
        """Return the promise as bytes."""
        return json.dumps({"number": self.number, **self._settings()}).encode()

    def difference(self, other: SharedTerms) -> str:
        """Say in which settings two promises differ; empty if they agree.

        Examples
        --------
        >>> groups = Groups(["a", "b"], np.array([10, 10]))
        >>> mine = SharedTerms(0, groups, (5, 5), k=2, horizon=100, auto_restart=True, keeps_floors=True)
        >>> other = SharedTerms(3, groups, (5, 9), k=3, horizon=100, auto_restart=True, keeps_floors=True)
        >>> mine.difference(other)
        'floors, k (2 here, 3 there)'
        """
        mine, theirs = self._settings(), other._settings()
        # Items may come and go as long as a request can hold as many of each group as before.
        mine["sizes"], theirs["sizes"] = (
            capacities_of(one.groups.group_sizes, self.k, self.max_exclude).tolist() for one in (self, other)
        )
        if not (self.auto_restart or other.auto_restart):
            # The leader sets them with every plan.
            for name in ("sizes", "floors", "horizon", "selections", "homes", *_ARRAYS):
                mine.pop(name, None)
            labels = [[one for one in some["labels"] if not is_selection(one)] for some in (mine, theirs)]
            both = min(map(len, labels))  # groups may have been added
            mine["labels"], theirs["labels"] = (some[:both] for some in labels)
        return ", ".join(
            f"{name} ({value} here, {theirs.get(name)} there)" if isinstance(value, int) else name
            for name, value in mine.items()
            if value != theirs.get(name)
        )

    def check_agrees(self, shared: SharedTerms, address: str) -> None:
        """Refuse another promise than the one in a ledger."""
        difference = self.difference(shared)
        if difference:
            raise InvalidInputError(
                f"the promise in {address} differs in {difference}: give the settings of the ledger, or another ledger;"
                " with if_differs a coordinator can follow or take over."
            )

    def terms(self, batch_size: int, atoms: Atoms | None = None) -> Terms:
        """Return the terms of a coordinator with this batch size, and these atoms, if promises may overlap."""
        floors, capacities = (
            np.array(self.floors, dtype=np.int64),
            capacities_of(self.groups.group_sizes, self.k, self.max_exclude),
        )
        terms = Terms(floors, capacities, self.k, self.horizon, batch_size, self.auto_restart, self.max_exclude)
        if atoms is None:
            return terms
        values = {name: getattr(self, name) for name in _ARRAYS}
        arrays: dict[str, Any] = {name: None if one is None else np.array(one) for name, one in values.items()}
        capacities = capacities_of(atoms.sizes, self.k, self.max_exclude)
        terms = replace(terms, capacities=capacities, membership=atoms.membership, **arrays)
        return with_homes(atoms, terms)[1] if self.homes is None else under_homes(atoms, terms, self.homes)

    def grown(self, groups: Groups) -> SharedTerms:
        """Return the same promise with further groups, which are promised nothing."""
        n = len(groups.labels) - len(self.floors)
        padding: dict[str, Any] = {"caps": NO_CAP, "list_limits": self.k, "priorities": 1}
        padding |= {"certain": True, "max_prices": math.inf}
        arrays: dict[str, Any] = {
            name: None if (one := getattr(self, name)) is None else (*one, *[padding[name]] * n) for name in _ARRAYS
        }
        return replace(self, number=self.number + 1, groups=groups, floors=(*self.floors, *[0] * n), **arrays)

    def _settings(self) -> dict[str, Any]:
        return {
            "labels": self.groups.labels,
            "sizes": self.groups.group_sizes.tolist(),
            "floors": list(self.floors),
            "k": self.k,
            "horizon": self.horizon,
            "auto_restart": self.auto_restart,
            "keeps_floors": self.keeps_floors,
            "max_exclude": self.max_exclude,
            **{
                name: list(one)
                for name in (*_ARRAYS, "selections", "promises", "homes")
                if (one := getattr(self, name)) is not None
            },
        }
