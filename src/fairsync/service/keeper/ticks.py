"""Ticks: when each really began, which of them make up a window, and what counts in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from fairsync.service.keeper.set_back import TickTimes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from fairsync.coordination.bookkeeper import Bookkeeper
    from fairsync.ledger import Standing
    from fairsync.windows import Promise, Span


@dataclass(frozen=True)
class Earlier:
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
    shown: NDArray[np.int64]
    requests: int
    counts: Mapping[Promise, int]


class Ticks:
    """The horizons of the ledger, as the ticks of windows.

    Each knows when it began: whatever is killed when, the counts of every window can be read from the ledger alone.
    Where that was by a clock that proved wrong, :mod:`fairsync.service.keeper.set_back` knows better.

    Parameters
    ----------
    coordinator
        Whose ledger it is; what is settled, it may know before the ledger.
    count
        ``"retrieved"`` or ``"shown"``.

    Attributes
    ----------
    earlier : Earlier
        What came before the present tick, as it was last counted; count before you ask.
    """

    earlier: Earlier

    def __init__(self, coordinator: Bookkeeper, count: str) -> None:
        self._coordinator, self._count = coordinator, count
        self.times = TickTimes.load(coordinator.ledger)

    def load(self) -> None:
        """Go on from the times that whoever led wrote down."""
        self.times = TickTimes.load(self._coordinator.ledger)

    def began(self, tick: Standing) -> datetime | None:
        """Return when a tick really began; None if it never did, since nothing was planned before."""
        return datetime.fromtimestamp(self.times.of(tick.began), UTC) if tick.began else None

    def before(self) -> list[Standing]:
        """Return the ticks before the present one, of which the ledger may not know yet."""
        began, last = self._coordinator.standing().began, self._coordinator.ledger.standing()
        past = list(self._coordinator.ledger.past())
        if not past or past[-1].began != last.began:  # otherwise it ended between the two questions
            past.append(last)
        return [one for one in past if one.began < began]

    def all(self) -> list[Standing]:
        """Return all ticks, the present one last."""
        return [*self.before(), self._coordinator.standing()]

    def counted(self, tick: Standing) -> NDArray[np.int64]:
        """Return (G,) what counts in a tick."""
        if self._count == "retrieved":
            return tick.exposures
        return np.zeros_like(tick.exposures) if tick.shown is None else tick.shown

    def recount(self, promises: Collection[Promise], now: datetime, ending: Standing | None = None) -> None:
        """Count again what came before the present tick, or before the one that begins now as another ends."""
        past, began = self.before(), self._coordinator.standing().began
        if ending is not None:
            past.append(ending)
            # Another process may have begun the tick that ends, by a clock that is ahead.
            began = max(now.timestamp(), float(np.nextafter(began, np.inf)))
        n = len(self._coordinator.labels)  # another process may just have added groups
        nothing = np.zeros(n, dtype=np.int64)
        spans = {promise: promise.window.at(now) for promise in promises}
        self.earlier = Earlier(
            began,
            sum((one.exposures[:n] for one in past), nothing),
            sum((one.shown[:n] for one in past if one.shown is not None), nothing),
            sum(one.requests for one in past),
            {promise: self.sum(span, promise, past) for promise, span in spans.items() if span},
        )

    def sum(self, span: Span, promise: Promise, ticks: Sequence[Standing]) -> int:
        """Return the exposures of a promise in those ticks that are of a window."""
        if promise.group not in self._coordinator.labels:
            return 0
        code = self._coordinator.groups.code_of(promise.group)
        within = map(self.counted, self._within(span, ticks))
        return sum(int(counts[code]) for counts in within if code < len(counts))

    def tally(self, span: Span, promise: Promise, ticks: Sequence[Standing]) -> tuple[int, int]:
        """Return the exposures of a promise in those ticks that are of a window, and the requests of all."""
        requests = sum(tick.requests for tick in self._within(span, ticks))
        return self.sum(span, promise, ticks), requests

    def note_time(self, now: datetime, clock: object) -> None:
        """Write down when the tick begins that is about to, where the ledger needs a later time for it."""
        self._save(self.times.at(self.earlier.began, now.timestamp()).by(clock))

    def follow(self, jump: float, now: datetime, clock: object) -> float | None:
        """Have everything count when it was, after a jump of the clock; return since when ticks moved, if any did."""
        ticks = [one.began for one in self.all() if one.began]
        before, after = self.times, self.times.after(jump, ticks, now.timestamp()).by(clock)
        self._save(after)  # also where nothing moved: whoever starts next has to know what the clock is since
        moved = [tick for tick in ticks if before.of(tick) != after.of(tick)]
        return min((min(before.of(tick), after.of(tick)) for tick in moved), default=None)

    def _save(self, times: TickTimes) -> None:
        if times != self.times:
            times.save(self._coordinator.ledger)
            self.times = times

    def _within(self, span: Span, ticks: Sequence[Standing]) -> list[Standing]:
        """Return those ticks that are of a window."""
        began = [(one, self.began(one)) for one in ticks]
        return [one for one, at in began if at is not None and at in span]
