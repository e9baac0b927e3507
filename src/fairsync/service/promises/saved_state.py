"""The saved state of the service, in the ledger beside the counts: promises, forecast, plan, costs and past windows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.schedule import Forecast, Plan, ScheduledPromise
from fairsync.service.promises.clock import ClockReading
from fairsync.service.promises.cost_book import CostBook
from fairsync.service.promises.ledger_time import LedgerTime
from fairsync.service.schema import PastWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairsync.catalog.groups import Label
    from fairsync.ledger import Ledger
    from fairsync.ledger.audit import AuditRecord
    from fairsync.ledger.base import Saved

_NAME, _FORMAT = "service", 1
MOST_PAST = 3_000
"""Past windows that are saved: a month of a hundred daily promises."""


@dataclass(frozen=True)
class SavedState:
    """An immutable state: every change makes a new one, which is saved before anything depends on it.

    Attributes
    ----------
    labels : tuple
        Labels of all groups there ever were, in the order of their codes.
    promises : Mapping
        Promises by id.
    forecast : Forecast
        Forecast of requests.
    plan : Plan or None
        The last plan.
    past : tuple of PastWindow
        The latest windows that are over, oldest first.
    requests : int
        Requests ever, as far as the forecast has observed them.
    ledger_time : LedgerTime
        The time axis on which the ledger's periods begin.
    reading : ClockReading or None
        The clock when the state was last saved.
    series : Mapping
        Promises for each label of an attribute, by id; see :mod:`fairsync.service.promises.promise_series`.
    counted : Mapping
        Since when the exposures of each selection that is no group have been counted, by name.
    costs : CostBook
        What exposures cost, and which floors have given way to the budget.
    """

    labels: tuple[Label, ...]
    promises: Mapping[str, ScheduledPromise]
    forecast: Forecast
    plan: Plan | None = None
    past: tuple[PastWindow, ...] = ()
    requests: int = 0
    ledger_time: LedgerTime = field(default_factory=LedgerTime)
    reading: ClockReading | None = None
    series: Mapping[str, ScheduledPromise] = field(default_factory=dict)
    counted: Mapping[str, datetime] = field(default_factory=dict)
    costs: CostBook = field(default_factory=CostBook)

    def with_past(self, windows: Sequence[PastWindow]) -> SavedState:
        """Return the state with more past windows; one that ended before, by a clock that was set back, is replaced."""
        again = {(one.promise, one.start) for one in windows}
        others = [one for one in self.past if (one.promise, one.start) not in again]
        return replace(self, past=(*others, *windows)[-MOST_PAST:])

    def without_ended(self, now: datetime) -> SavedState:
        """Return the state without recurring promises that have ended: others have replaced them."""
        remaining = {
            name: promise
            for name, promise in self.promises.items()
            if not promise.window.recurs or promise.window.at(now) or promise.window.after(now)
        }
        return replace(self, promises=remaining)

    def with_requests(self, total: int, now: datetime) -> SavedState:
        """Return the state after `total` requests ever; the forecast observes those that came since the last call."""
        came, forecast = max(total - self.requests, 0), self.forecast
        at = np.flatnonzero(forecast.slots == int(now.timestamp()) // forecast.slot)
        if not came and len(at):
            return self
        known = int(forecast.counts[at[0]]) if len(at) else 0
        return replace(self, forecast=forecast.observe(now, known + came), requests=total)

    def save(self, ledger: Ledger, audit: Sequence[AuditRecord] = ()) -> None:
        """Save the state in the ledger, and add records to its audit in the same transaction."""
        for name, value in self.dump().items():
            ledger.save(name, value, audit)

    def dump(self) -> dict[str, bytes]:
        """Return what the ledger saves, by name."""
        document = {
            "format": _FORMAT,
            "labels": list(self.labels),
            "promises": {name: promise.to_dict() for name, promise in self.promises.items()},
            "forecast": self.forecast.to_dict(),
            "plan": None if self.plan is None else self.plan.to_dict(),
            "past": msgspec.to_builtins(self.past),
            "requests": self.requests,
            "ledger_time": self.ledger_time.offsets,
            "reading": None if self.reading is None else asdict(self.reading),
            "series": {name: promise.to_dict() for name, promise in self.series.items()},
            "counted": {name: since.isoformat() for name, since in self.counted.items()},
            **self.costs.to_dict(),
        }
        return {_NAME: json.dumps(document).encode()}

    @classmethod
    def load(cls, ledger: Saved, attribute: str = "group") -> SavedState | None:
        """Load the state from the ledger; None if there is none.

        Parameters
        ----------
        ledger
            The ledger.
        attribute
            The attribute of the groups, which earlier versions did not save.
        """
        saved = ledger.load(_NAME)
        if saved is None:
            return None
        document = json.loads(saved)
        reading = document.get("reading")
        if document["format"] != _FORMAT:
            raise InvalidInputError(
                f"the ledger holds a service's state of format {document['format']}, not {_FORMAT}: update FairSync."
            )
        return cls(
            tuple(document["labels"]),
            {name: ScheduledPromise.from_dict(promise, attribute) for name, promise in document["promises"].items()},
            Forecast.from_dict(document["forecast"]),
            None if document["plan"] is None else Plan.from_dict(document["plan"], attribute),
            msgspec.convert(document["past"], tuple[PastWindow, ...]),
            document["requests"],
            LedgerTime(tuple((since, seconds) for since, seconds in document.get("ledger_time", ()))),
            None if reading is None else ClockReading(**reading),
            {name: ScheduledPromise.from_dict(promise) for name, promise in document.get("series", {}).items()},
            {name: datetime.fromisoformat(since) for name, since in document.get("counted", {}).items()},
            CostBook.from_dict(document),
        )
