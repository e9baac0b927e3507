"""Ticks: when each really began, which of them make up a window, and what counts in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from fairsync.service.promises.set_back import PeriodTimes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.coordination.base import CoordinatorBase
    from fairsync.ledger import Totals
    from fairsync.schedule import Promise, Span


@dataclass(frozen=True)
class EarlierTotals:
    """What came before the present tick.

    Attributes
    ----------
    began : float
        When the tick began, as the ledger has it.
    retrieved, shown : numpy.ndarray
        (G,) ever.
    requests : int
        Ever.
    counts : dict
        What counts for each promise, in its window.
    """

    began: float
    retrieved: NDArray[np.int64]
    impressions: NDArray[np.int64]
    requests: int
    counts: Mapping[Promise, int]


class Periods:
    """The horizons of the ledger, as the ticks of windows.

    Each knows when it began: whatever is killed when, the counts of every window can be read from the ledger alone.
    Where that was by a clock that proved wrong, :mod:`fairsync.service.promises.set_back` knows better.

    Parameters
    ----------
    coordinator
        Whose ledger it is; what is settled, it may know before the ledger.
    count
        ``"retrieved"`` or ``"impressions"``.

    Attributes
    ----------
    earlier : EarlierTotals
        What came before the present tick, as it was last counted; count before you ask.
    """

    earlier: EarlierTotals

    def __init__(self, coordinator: CoordinatorBase, count: str) -> None:
        self._coordinator, self._count = coordinator, count
        self.times = PeriodTimes.load(coordinator.ledger)

    def load(self) -> None:
        """Go on from the times that whoever led wrote down."""
        self.times = PeriodTimes.load(self._coordinator.ledger)

    def began(self, period: Totals) -> datetime | None:
        """Return when a tick really began; None if it never did, since nothing was planned before."""
        return datetime.fromtimestamp(self.times.of(period.began), UTC) if period.began else None

    def before(self) -> list[Totals]:
        """Return the ticks before the present one, of which the ledger may not know yet."""
        began, last = self._coordinator.totals().began, self._coordinator.ledger.totals()
        past = list(self._coordinator.ledger.past())
        if not past or past[-1].began != last.began:  # otherwise it ended between the two questions
            past.append(last)
        return [one for one in past if one.began < began]

    def all(self) -> list[Totals]:
        """Return all ticks, the present one last."""
        return [*self.before(), self._coordinator.totals()]

    def counted(self, period: Totals) -> NDArray[np.int64]:
        """Return (G,) what counts in a tick."""
        if self._count == "retrieved":
            return period.exposures
        return np.zeros_like(period.exposures) if period.impressions is None else period.impressions

    def recount(self, promises: Collection[Promise], now: datetime, ending: Totals | None = None) -> None:
        """Count again what came before the present tick, or before the one that begins now as another ends."""
        past, began = self.before(), self._coordinator.totals().began
        if ending is not None:
            past.append(ending)
            # Another process may have begun the tick that ends, by a clock that is ahead.
            began = max(now.timestamp(), float(np.nextafter(began, np.inf)))
        n = len(self._coordinator.labels)  # another process may just have added groups
        nothing = np.zeros(n, dtype=np.int64)
        spans = {promise: promise.window.at(now) for promise in promises}
        self.earlier = EarlierTotals(
            began,
            sum((one.exposures[:n] for one in past), nothing),
            sum((one.impressions[:n] for one in past if one.impressions is not None), nothing),
            sum(one.requests for one in past),
            {promise: self.sum(span, promise, past) for promise, span in spans.items() if span},
        )

    def sum(self, span: Span, promise: Promise, periods: Sequence[Totals]) -> int:
        """Return the exposures of a promise in those ticks that are of a window."""
        if promise.group not in self._coordinator.labels:
            return 0
        code = self._coordinator.groups.code_of(promise.group)
        within = map(self.counted, self._within(span, periods))
        return sum(int(counts[code]) for counts in within if code < len(counts))

    def tally(self, span: Span, promise: Promise, periods: Sequence[Totals]) -> tuple[int, int]:
        """Return the exposures of a promise in those ticks that are of a window, and the requests of all."""
        requests = sum(period.requests for period in self._within(span, periods))
        return self.sum(span, promise, periods), requests

    def note_time(self, now: datetime, clock: object) -> None:
        """Write down when the tick begins that is about to, where the ledger needs a later time for it."""
        self._save(self.times.at(self.earlier.began, now.timestamp()).by(clock))

    def follow(self, jump: float, now: datetime, clock: object) -> float | None:
        """Have everything count when it was, after a jump of the clock; return since when ticks moved, if any did."""
        periods = [one.began for one in self.all() if one.began]
        before, after = self.times, self.times.after(jump, periods, now.timestamp()).by(clock)
        self._save(after)  # also where nothing moved: whoever starts next has to know what the clock is since
        moved = [period for period in periods if before.of(period) != after.of(period)]
        return min((min(before.of(period), after.of(period)) for period in moved), default=None)

    def _save(self, times: PeriodTimes) -> None:
        if times != self.times:
            times.save(self._coordinator.ledger)
            self.times = times

    def _within(self, span: Span, periods: Sequence[Totals]) -> list[Totals]:
        """Return those ticks that are of a window."""
        began = [(one, self.began(one)) for one in periods]
        return [one for one, at in began if at is not None and at in span]
