"""A clock that was wrong, and was set back: what was counted by it belongs to an earlier time."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import structs

from fairsync.schedule import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from fairsync.ledger import Ledger
    from fairsync.schedule import Plan, Promise
    from fairsync.service.schema import PastWindow

_NAME = "clock"
# A jump is another one taken back if the two differ by less: in between, small steps are followed.
_SAME_JUMP = 30.0
# Two who look at their clocks need not agree to the second.
SLACK = 2.0


@dataclass(frozen=True)
class PeriodTimes:
    """When ticks began, where the ledger has another time for it: the clock was wrong, and was set right since.

    The ledger has ticks in order, each later than the one before. The clock's last word counts: what began in what is
    now the future cannot have, and moves back with the clock. Where a jump of the clock is taken back, by another one
    of the same size, all that began in between moves along, and all that began before is where it was.

    Attributes
    ----------
    moved : dict
        The time when a tick began, by the one that the ledger has.
    jump : float
        Seconds by which the clock last jumped; 0 if that was taken back.
    is_exact : bool
        Whether that is exactly how much, and not the least that it can have been.
    last : float
        The last tick before that, as the ledger has it.
    before : dict
        What had moved before that.
    run, zero : str, float
        The clock when this was written down: what its steady seconds count from, and the time at which they were 0.

    Examples
    --------
    A clock goes wrong by an hour, a tick begins at 5000, and two minutes later the clock is right again.

    >>> times = PeriodTimes().after(jump=3600.0, periods=[1000.0], now=5000.0)
    >>> times = times.after(jump=-3600.0, periods=[1000.0, 5000.0], now=1520.0)
    >>> times.of(1000.0), times.of(5000.0)
    (1000.0, 1400.0)
    """

    moved: Mapping[float, float] = field(default_factory=dict)
    jump: float = 0.0
    is_exact: bool = True
    last: float = 0.0
    before: Mapping[float, float] = field(default_factory=dict)
    run: str = ""
    zero: float = 0.0

    def of(self, began: float) -> float:
        """Return when a tick really began."""
        return self.moved.get(began, began)

    def at(self, began: float, really: float) -> PeriodTimes:
        """Return the same with a tick that begins now, while the ledger has later ones."""
        if began - really <= SLACK:
            return self
        return replace(self, moved={**self.moved, began: really})

    def by(self, clock: object) -> PeriodTimes:
        """Return the same as of now, by a clock that may be able to tell what it goes by."""
        return replace(self, run=getattr(clock, "run", ""), zero=getattr(clock, "zero", 0.0))

    def jump_to(self, clock: object) -> float:
        """Return by how much the clock jumped since this was written down; nan if that is not known.

        It is known to whoever runs on the same machine, if that was not started again.
        """
        now = self.by(clock)
        if not now.run or now.run != self.run:
            return math.nan
        jump = now.zero - self.zero
        return jump if abs(jump) > SLACK else 0.0

    def after(self, jump: float, periods: Sequence[float], now: float) -> PeriodTimes:
        """Return the times after a jump of the clock.

        Parameters
        ----------
        jump
            In seconds, forward or back; nan if it is not known whether it has jumped.
        ticks
            When each began, as the ledger has it.
        now
            The time.
        """
        last = max(periods, default=0.0)
        if self._is_taken_back_by(jump):
            between = {began: self.of(began) + jump for began in periods if began > self.last}
            return PeriodTimes({**self.before, **between})
        ahead = {began: self.of(began) for began in periods if self.of(began) > now + SLACK}
        if math.isnan(jump):  # it is only known that what was counted had been counted by now
            if not ahead:
                return self
            moved = {**self.moved, **dict.fromkeys(ahead, now)}
            return PeriodTimes(moved, now - max(ahead.values()), False, last, self.moved)
        moved = {**self.moved, **{began: min(time + jump, now) for began, time in ahead.items()}}
        return PeriodTimes(moved, jump, True, last, self.moved)

    def _is_taken_back_by(self, jump: float) -> bool:
        near = min(_SAME_JUMP, abs(self.jump) / 2)
        return abs(self.jump + jump) < near or (not self.is_exact and jump + self.jump > -near)

    def save(self, ledger: Ledger) -> None:
        """Write them down."""
        pairs = {"moved": list(self.moved.items()), "before": list(self.before.items())}
        ledger.save(_NAME, json.dumps({**vars(self), **pairs}).encode())

    @classmethod
    def load(cls, ledger: Ledger) -> PeriodTimes:
        """Read them."""
        kept = ledger.load(_NAME)
        if kept is None:
            return cls()
        read = json.loads(kept)
        if isinstance(read, list):  # as it was first written down: what had moved, and nothing else
            return cls(dict(read))
        return cls(**{**read, "moved": dict(read["moved"]), "before": dict(read["before"])})


def count_again(
    past: Sequence[PastWindow],
    promises: Mapping[str, Promise],
    since: float,
    count: Callable[[Span, Promise], tuple[int, int]],
) -> tuple[PastWindow, ...]:
    """Return windows past as they have ended after all, where ticks have moved.

    Parameters
    ----------
    past
        Windows past.
    promises
        By their names. Windows of promises that are gone stay as they were.
    since
        No tick before this moved.
    count
        Returns the exposures of a promise in a window, and its requests.
    """
    counted = []
    for one in past:
        if one.end.timestamp() > since and one.promise in promises:
            exposures, requests = count(Span(one.start, one.end), promises[one.promise])
            kept = exposures >= one.floor
            note = "" if kept else one.note
            counted.append(structs.replace(one, exposures=exposures, requests=requests, kept=kept, note=note))
        else:
            counted.append(one)
    return tuple(counted)


def without_future(plan: Plan, now: datetime) -> Plan:
    """Return the last plan without warnings that were given in what is now the future: they are given again."""

    def until_now(moment: datetime | None) -> datetime | None:
        return moment if moment and moment <= now else None

    statuses = [
        replace(one, at_risk_since=until_now(one.at_risk_since), impossible_since=until_now(one.impossible_since))
        for one in plan.statuses
    ]
    return replace(plan, statuses=tuple(statuses))
