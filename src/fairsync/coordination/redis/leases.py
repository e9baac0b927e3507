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

from fairsync.coordination.lease_table import LeaseTable
from fairsync.coordination.redis.changes import Change
from fairsync.coordination.redis.lines import Line, add_up, pack, unpack
from fairsync.loop import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from fairsync.batch import Batch
    from fairsync.coordination.lease import Lease
    from fairsync.coordination.redis.changes import Command, Seen
    from fairsync.coordination.redis.store import RedisStore
    from fairsync.policies import Terms

# Numbers of leases are drawn at random, above all those that a coordinator alone gives to its own: these may be settled
# here as well, if it has died. So no number is ever given twice, also if the server has forgotten some.
_FIRST = 1 << 62
_LEASE = "lease "
# More requests than ever come.
_NEVER = 1 << 53


def requests_needed(missing: NDArray[np.int64], terms: Terms) -> int:
    """Return the least number of requests that can deliver the missing exposures.

    Examples
    --------
    >>> import numpy as np
    >>> from fairsync.policies import Terms
    >>> requests_needed(np.array([4, 2]), Terms(np.array([9, 9]), np.array([2, 1]), k=2, horizon=9, batch_size=1))
    3
    """
    due = missing > 0
    if (terms.caps[due] == 0).any():
        return _NEVER
    each = -(-missing[due] // terms.caps[due])
    return max(int(each.max(initial=0)), -(-int(missing.sum()) // terms.k))


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
    progress : Progress
        The counts of the horizon.
    table : LeaseTable
        The leases. Of lost leases it names only the one that was asked about.
    deadlines : dict
        When each lease that is out is taken for lost, by the server's clock.
    """

    version: str
    lines: int
    horizon: int
    terms: int
    left: int
    progress: Progress
    table: LeaseTable
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
        table = LeaseTable(out, lost, first=_FIRST, issued=2 * _FIRST)
        horizon, terms, left = (int(fields.get(name, 0)) for name in ("horizon", "terms", "left"))
        return cls(seen.version, len(seen.lines), horizon, terms, left, Progress(totals), table, deadlines)

    def after(self, lines: Iterable[Line], lost: tuple[int, ...] = ()) -> SharedLeases:
        """Return the same after some more lines; of lost leases it names these."""
        added = list(lines)
        out, deadlines, left = dict(self.table.open), dict(self.deadlines), self.left
        for line in added:
            if line.size:
                out[line.lease], deadlines[line.lease] = line.size, line.deadline
                left -= line.size
            elif line.lease:
                deadlines.pop(line.lease, None)
                left += out.pop(line.lease) - (0 if line.entry is None else line.entry.requests)
        progress, table = Progress(add_up(self.progress.totals, added)), replace(self.table, open=out, lost=lost)
        return replace(
            self, lines=self.lines + len(added), left=left, progress=progress, table=table, deadlines=deadlines
        )

    def has_made(self, number: int) -> bool:
        """Return whether a lease is of these accounts, and not of a coordinator before them."""
        return self.table.first < number <= self.table.issued

    def without_late(self, now: float) -> SharedLeases:
        """Return the same without the leases whose time is over."""
        return self.without([number for number, deadline in self.deadlines.items() if deadline <= now])

    def without(self, numbers: Iterable[int]) -> SharedLeases:
        """Return the same with these leases taken back."""
        table = self.table
        for number in numbers:
            table = table.release(number)
        return self if table is self.table else replace(self, table=table)

    def turned(self, terms: Terms) -> SharedLeases:
        """Return the same at the start of the next horizon, if this one is over and nothing is out."""
        return self if self.table.requests or not self.progress.is_over(terms) else self.restart()

    def restart(self, began: float = 0.0) -> SharedLeases:
        """Return the same at the start of a new horizon."""
        # The record opens it at once: no entry needs to.
        progress = replace(self.progress.restart(began), opens_horizon=False)
        return replace(self, progress=progress, horizon=self.horizon + 1)

    def grown(self, n_groups: int) -> SharedLeases:
        """Return the same with more groups."""
        known = len(self.progress.totals.exposures)
        return self if known >= n_groups else replace(self, progress=self.progress.grown(n_groups))

    def with_left(self, terms: Terms) -> SharedLeases:
        """Return the same with as many requests left as counts and leases say."""
        return replace(self, left=self.progress.left(terms) - self.table.requests)

    def grant(self, batch: Batch) -> Lease | None:
        """Return a lease of a batch; None if it has to wait for open leases."""
        granted = replace(self.table, issued=_FIRST + secrets.randbits(62)).grant(batch)
        return None if granted is None else granted[1]

    def least(self, terms: Terms, *, keeps_floors: bool) -> int | None:
        """Return how many requests have to be left for these accounts to be right; None if that does not matter.

        Where floors could not be met beside other leases, that is as many as there are: nobody may have had another.
        """
        needed = requests_needed(self.progress.missing(terms), terms) if keeps_floors else 0
        return min(needed, self.left) if needed or terms.auto_restart else None

    def change_to(self, after: SharedLeases, store: RedisStore) -> Change:
        """Return what makes another version of these accounts, with all lines that are in them."""
        put: dict[str, bytes | str | int] = {"standing": pack(after.progress.totals)}
        commands: list[Command] = []
        before_out, after_out = self.table.open, after.table.open
        if after.horizon != self.horizon:
            put["horizon"] = after.horizon
            commands.append(["RPUSH", store.key("past"), pack(self.progress.totals)])
        if after.terms != self.terms:
            put["terms"] = after.terms
        for number in set(after.table.lost) - set(self.table.lost):
            commands += store.lose(number)
        for number in set(self.table.lost) - set(after.table.lost):
            commands += store.find(number)
        new = {
            _field(number): _value(after_out[number], after.deadlines[number])
            for number in after_out.keys() - before_out.keys()
        }
        drop = [_field(number) for number in before_out.keys() - after_out.keys()]
        return Change(put, new, drop, after.left - self.left, commands=commands)

    def written(self, version: str, lines: Iterable[Line]) -> SharedLeases:
        """Return the same as it now stands in the record, with lines that have stayed there."""
        deadlines = {number: self.deadlines[number] for number in self.table.open}
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
