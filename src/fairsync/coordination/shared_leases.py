"""Accounts that several coordinators share through a record on a server.

The rules are those of :mod:`fairsync.coordination.lease_table`, and so is the proof. Every coordinator works out with
the same code what is to change, from the accounts as it knows them, and the server carries it out if it is right also
beside what others did meanwhile. For that the server knows one number, how many requests are left. A lease says how
many have to be left after it: as many as the missing exposures take. It may know of fewer exposures than there are by
now, never of more, so it may ask for too many requests to be left, never for too few.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairsync.coordination.lease_table import LeaseTable, requests_needed
from fairsync.ledger.redis_changes import Change
from fairsync.ledger.redis_lines import Line, add_up, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairsync.coordination.lease_table import Grant
    from fairsync.ledger.redis_changes import Command, Seen
    from fairsync.ledger.redis_store import RedisStore
    from fairsync.policies import Terms

# Numbers of leases are drawn at random, above all those that a coordinator alone gives to its own: these may be settled
# here as well, if it has died. So no number is ever given twice, also if the server has forgotten some.
_FIRST = 1 << 62
_LEASE = "lease "


@dataclass(frozen=True)
class SharedLeases:
    """What coordinators share, as it was when one of them last heard of it.

    Attributes
    ----------
    version : str
        Of the record.
    lines : int
        How many lines of this version are in these accounts.
    horizon : int
        How many horizons there were before.
    terms : int
        How often the promise has changed; 0 if there is none yet.
    left : int
        Requests of the horizon that are neither settled nor out, as the record has it.
    accounts : LeaseTable
        Where things stand. Of lost leases they name only the one that was asked about.
    deadlines : dict
        When each lease that is out is taken for lost, by the server's clock.
    """

    version: str
    lines: int
    horizon: int
    terms: int
    left: int
    accounts: LeaseTable
    deadlines: Mapping[int, float]

    @classmethod
    def of(cls, seen: Seen, asked: int | None = None) -> SharedLeases:
        """Return what a record says."""
        fields, out, deadlines = seen.fields, {}, {}
        for name, value in fields.items():
            if name.startswith(_LEASE):
                number = int(name.removeprefix(_LEASE))
                size, deadline = value.split()
                out[number], deadlines[number] = int(size), float(deadline)
        lost = (asked,) if asked is not None and seen.lost else ()
        # Fields are always up to date; only what was settled is in the lines.
        totals = add_up(unpack(fields["standing"]), seen.lines)
        accounts = LeaseTable(totals, out=out, lost=lost, first=_FIRST, issued=2 * _FIRST)
        horizon, terms, left = (int(fields.get(name, 0)) for name in ("horizon", "terms", "left"))
        return cls(seen.version, len(seen.lines), horizon, terms, left, accounts, deadlines)

    def after(self, lines: Iterable[Line], lost: tuple[int, ...] = ()) -> SharedLeases:
        """Return the same after some more lines; of lost leases it names these."""
        added = list(lines)
        out, deadlines, left = dict(self.accounts.out), dict(self.deadlines), self.left
        for line in added:
            if line.size:
                out[line.lease], deadlines[line.lease] = line.size, line.deadline
                left -= line.size
            elif line.lease:
                deadlines.pop(line.lease, None)
                left += out.pop(line.lease) - (0 if line.entry is None else line.entry.requests)
        totals = add_up(self.accounts.totals, added)
        accounts = replace(self.accounts, totals=totals, out=out, lost=lost)
        return replace(self, lines=self.lines + len(added), left=left, accounts=accounts, deadlines=deadlines)

    def has_made(self, number: int) -> bool:
        """Return whether a lease is of these accounts, and not of a coordinator before them."""
        return self.accounts.first < number <= self.accounts.issued

    def without_late(self, now: float) -> SharedLeases:
        """Return the same without the leases whose time is over."""
        return self.without([number for number, deadline in self.deadlines.items() if deadline <= now])

    def without(self, numbers: Iterable[int]) -> SharedLeases:
        """Return the same with these leases taken back."""
        accounts = self.accounts
        for number in numbers:
            accounts = accounts.release(number)
        return self if accounts is self.accounts else replace(self, accounts=accounts)

    def turned(self, terms: Terms) -> SharedLeases:
        """Return the same at the start of the next horizon, if this one is over and nothing is out."""
        return self if self.accounts.given or not self.accounts.is_over(terms) else self.anew()

    def anew(self, began: float = 0.0) -> SharedLeases:
        """Return the same at the start of a new horizon."""
        # The record opens it at once: no entry needs to.
        return replace(self, accounts=replace(self.accounts.anew(began), opens_horizon=False), horizon=self.horizon + 1)

    def grown(self, n_groups: int) -> SharedLeases:
        """Return the same with more groups."""
        known = len(self.accounts.totals.exposures)
        return self if known >= n_groups else replace(self, accounts=self.accounts.grown(n_groups))

    def squared(self, terms: Terms) -> SharedLeases:
        """Return the same with as many requests left as the accounts say."""
        return replace(self, left=self.accounts.left(terms))

    def grant(self, terms: Terms, n: int, *, keeps_floors: bool) -> Grant | None:
        """Return up to n requests that may be handed out; None if that has to wait for leases that are out."""
        accounts = replace(self.accounts, issued=_FIRST + secrets.randbits(62))
        granted = accounts.grant(terms, n, keeps_floors=keeps_floors)
        return None if granted is None else granted[1]

    def least(self, terms: Terms, *, keeps_floors: bool) -> int | None:
        """Return how many requests have to be left for these accounts to be right; None if that does not matter.

        Where floors could not be met beside other leases, that is as many as there are: nobody may have had another.
        """
        missing = np.maximum(terms.floors - self.accounts.totals.exposures, 0)
        needed = requests_needed(missing, terms) if keeps_floors else 0
        return min(needed, self.left) if needed or terms.auto_restart else None

    def change_to(self, after: SharedLeases, store: RedisStore) -> Change:
        """Return what makes another version of these accounts, with all lines that are in them."""
        put: dict[str, bytes | str | int] = {"standing": pack(after.accounts.totals)}
        commands: list[Command] = []
        before_out, after_out = self.accounts.out, after.accounts.out
        if after.horizon != self.horizon:
            put["horizon"] = after.horizon
            commands.append(["RPUSH", store.key("past"), pack(self.accounts.totals)])
        if after.terms != self.terms:
            put["terms"] = after.terms
        for number in set(after.accounts.lost) - set(self.accounts.lost):
            commands += store.lose(number)
        for number in set(self.accounts.lost) - set(after.accounts.lost):
            commands += store.find(number)
        new = {
            _field(number): _value(after_out[number], after.deadlines[number])
            for number in after_out.keys() - before_out.keys()
        }
        drop = [_field(number) for number in before_out.keys() - after_out.keys()]
        return Change(put, new, drop, after.left - self.left, commands=commands)

    def written(self, version: str, lines: Iterable[Line]) -> SharedLeases:
        """Return the same as it now stands in the record, with lines that have stayed there."""
        deadlines = {number: self.deadlines[number] for number in self.accounts.out}
        return replace(self, version=version, lines=0, deadlines=deadlines).after(lines)


def addition(line: Line, left: int) -> Change:
    """Return what a line does to the fields of the record, with so many requests more left."""
    if line.size:
        return Change(new={_field(line.lease): _value(line.size, line.deadline)}, left=left)
    return Change(drop=[_field(line.lease)] if line.lease else [], left=left)


def _field(number: int) -> str:
    return f"{_LEASE}{number}"


def _value(size: int, deadline: float) -> str:
    return f"{size} {deadline:.3f}"
