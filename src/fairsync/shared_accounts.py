"""Accounts that several coordinators share through a record on a server.

The rules are those of :mod:`fairsync.accounts`, and so is the proof: every coordinator works out the next accounts with
the same code, and the server takes them only if nobody else's came first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairsync.accounts import Accounts
from fairsync.floors import group_caps
from fairsync.groups import Groups
from fairsync.ledger.redis import pack, unpack
from fairsync.ledger.redis_store import Change
from fairsync.policies import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairsync.ledger.redis_store import Command, RedisStore, Seen

# Above all numbers that a coordinator alone gives its leases: those may be settled here as well, if it has died.
_FIRST = 1 << 62
_LEASE = "lease "
TERMS = "terms"


@dataclass(frozen=True)
class Shared:
    """What coordinators share, as it was at one version.

    Attributes
    ----------
    version : str
        Of the record.
    horizon : int
        How many horizons there were before.
    terms : int
        How often the promise has changed; 0 if there is none yet.
    accounts : Accounts
        Where things stand. Of lost leases they name only the one that was asked about.
    deadlines : dict
        When each lease that is out is taken for lost, by the server's clock.
    """

    version: str
    horizon: int
    terms: int
    accounts: Accounts
    deadlines: Mapping[int, float]

    @classmethod
    def of(cls, seen: Seen, asked: int | None = None) -> Shared:
        """Return what a record says."""
        fields, out, deadlines = seen.fields, {}, {}
        for name, value in fields.items():
            if name.startswith(_LEASE):
                number = int(name.removeprefix(_LEASE))
                size, deadline = value.split()
                out[number], deadlines[number] = int(size), float(deadline)
        issued = int(fields.get("issued", _FIRST))
        lost = (asked,) if asked is not None and seen.lost else ()
        accounts = Accounts(unpack(fields["standing"]), out=out, lost=lost, first=_FIRST, issued=issued)
        return cls(seen.version, int(fields["horizon"]), int(fields.get("terms", 0)), accounts, deadlines)

    def has_made(self, number: int) -> bool:
        """Return whether a lease is of these accounts, and not of a coordinator before them."""
        return self.accounts.first < number <= self.accounts.issued

    def without_late(self, now: float) -> Shared:
        """Return the same without the leases whose time is over."""
        accounts = self.accounts
        for number, deadline in self.deadlines.items():
            if deadline <= now:
                accounts = accounts.give_back(number)
        return replace(self, accounts=accounts)

    def turned(self, terms: Terms) -> Shared:
        """Return the same at the start of the next horizon, if this one is over and nothing is out."""
        return self if self.accounts.given or not self.accounts.is_over(terms) else self.anew()

    def anew(self, began: float = 0.0) -> Shared:
        """Return the same at the start of a new horizon."""
        # The record opens it at once: no entry needs to.
        return replace(self, accounts=replace(self.accounts.anew(began), opens_horizon=False), horizon=self.horizon + 1)

    def grown(self, n_groups: int) -> Shared:
        """Return the same with more groups."""
        standing = self.accounts.standing
        if len(standing.exposures) >= n_groups:
            return self
        return replace(self, accounts=replace(self.accounts, standing=standing.grown(n_groups)))

    def change_to(self, after: Shared, store: RedisStore) -> Change:
        """Return what makes these accounts those."""
        put: dict[str, bytes | str | int] = {"issued": after.accounts.issued}
        commands: list[Command] = []
        before_out, after_out = self.accounts.out, after.accounts.out
        if after.accounts.standing is not self.accounts.standing:
            put["standing"] = pack(after.accounts.standing)
        if after.horizon != self.horizon:
            put["horizon"] = after.horizon
            commands.append(["RPUSH", store.key("past"), pack(self.accounts.standing)])
        if after.terms != self.terms:
            put["terms"] = after.terms
        for number in after_out.keys() - before_out.keys():
            put[f"{_LEASE}{number}"] = f"{after_out[number]} {after.deadlines[number]:.3f}"
        for number in set(after.accounts.lost) - set(self.accounts.lost):
            commands += store.lose(number)
        for number in set(self.accounts.lost) - set(after.accounts.lost):
            commands += store.find(number)
        return Change(put, [f"{_LEASE}{number}" for number in before_out.keys() - after_out.keys()], commands)

    def written(self, version: str) -> Shared:
        """Return the same as it now stands in the record."""
        deadlines = {number: self.deadlines[number] for number in self.accounts.out}
        return replace(self, version=version, accounts=replace(self.accounts, lost=()), deadlines=deadlines)


@dataclass(frozen=True)
class Promise:
    """What was promised, and to whom: the settings in which all who share accounts must agree.

    Attributes
    ----------
    number : int
        How often it has changed.
    groups : Groups
        To whom.
    floors, k, horizon, rolls
        What; see :class:`fairsync.policies.Terms`.
    guarded : bool
        Whether the guard sees to the floors. One coordinator without it would break the promise of all.
    """

    number: int
    groups: Groups
    floors: tuple[int, ...]
    k: int
    horizon: int
    rolls: bool
    guarded: bool

    @classmethod
    def of(cls, number: int, groups: Groups, terms: Terms, guarded: bool) -> Promise:
        """Return the promise of these terms."""
        return cls(number, groups, tuple(terms.floors.tolist()), terms.k, terms.horizon, terms.rolls, guarded)

    @classmethod
    def load(cls, packed: bytes) -> Promise:
        """Return the promise that was made into these bytes."""
        document = json.loads(packed)
        groups = Groups(document.pop("labels"), np.array(document.pop("sizes"), dtype=np.int64))
        return cls(groups=groups, floors=tuple(document.pop("floors")), **document)

    def dump(self) -> bytes:
        """Return it as bytes."""
        return json.dumps({"number": self.number, **self._facts()}).encode()

    def difference(self, other: Promise) -> str:
        """Say in what another promise differs; nothing if it does not.

        Examples
        --------
        >>> groups = Groups(["a"], np.array([5]))
        >>> Promise(1, groups, (7,), 2, 10, True, True).difference(Promise(4, groups, (7,), 2, 20, True, True))
        'horizon (10 here, 20 there)'
        """
        mine, theirs = self._facts(), other._facts()
        # Items may come and go, as long as no request could hold more or fewer of a group than before.
        mine["sizes"], theirs["sizes"] = (group_caps(one.groups, one.k).tolist() for one in (self, other))
        if not (self.rolls or other.rolls):
            for name in ("sizes", "floors", "horizon"):  # whoever leads sets them all the time
                del mine[name]
            both = min(len(self.groups.labels), len(other.groups.labels))  # groups may have come
            mine["labels"], theirs["labels"] = mine["labels"][:both], theirs["labels"][:both]
        return ", ".join(
            f"{name} ({value} here, {theirs[name]} there)" if isinstance(value, int) else name
            for name, value in mine.items()
            if value != theirs[name]
        )

    def terms(self, batch_size: int) -> Terms:
        """Return what a replica with batches of its own goes by."""
        floors, caps = np.array(self.floors, dtype=np.int64), group_caps(self.groups, self.k)
        return Terms(floors, caps, self.k, self.horizon, batch_size, self.rolls)

    def _facts(self) -> dict[str, Any]:
        return {
            "labels": self.groups.labels,
            "sizes": self.groups.group_sizes.tolist(),
            "floors": list(self.floors),
            "k": self.k,
            "horizon": self.horizon,
            "rolls": self.rolls,
            "guarded": self.guarded,
        }
