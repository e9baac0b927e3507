"""What the service must not forget, beside the counts: promises, what traffic was like, plans, and windows past."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fairsync.errors import InvalidInputError
from fairsync.schedule import Forecast, Plan, Promise
from fairsync.service.schema import PastWindow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.ledger import Ledger

_NAME, _FORMAT = "service", 1
# Windows past that are kept: of a hundred daily promises, a month.
_MOST_PAST = 3_000


@dataclass(frozen=True)
class SavedState:
    """Never changed, only replaced, and written down before anything goes by them.

    Attributes
    ----------
    labels : tuple
        Of all groups there ever were, in the order of their codes.
    promises : Mapping
        By their ids.
    forecast : Forecast
        Of requests.
    plan : Plan or None
        The last one.
    past : tuple of PastWindow
        The latest windows that are over, oldest first.
    requests : int
        Requests ever, as far as the forecast knows of them.
    """

    labels: tuple[Label, ...]
    promises: Mapping[str, Promise]
    forecast: Forecast
    plan: Plan | None = None
    past: tuple[PastWindow, ...] = ()
    requests: int = 0

    def with_past(self, windows: Sequence[PastWindow]) -> SavedState:
        """Return the notes with more windows past; one that ended before, by a clock that was set back, is replaced."""
        again = {(one.promise, one.start) for one in windows}
        others = [one for one in self.past if (one.promise, one.start) not in again]
        return replace(self, past=(*others, *windows)[-_MOST_PAST:])

    def without_ended(self, now: datetime) -> SavedState:
        """Return the notes without promises per hour, day or week that have ended: another one holds in their place."""
        going_on = {
            name: promise
            for name, promise in self.promises.items()
            if not promise.window.recurs or promise.window.at(now) or promise.window.after(now)
        }
        return replace(self, promises=going_on)

    def with_requests(self, total: int, now: datetime) -> SavedState:
        """Return the notes when so many requests have ever come; the forecast hears how many did in this slot."""
        came, forecast = max(total - self.requests, 0), self.forecast
        at = np.flatnonzero(forecast.slots == int(now.timestamp()) // forecast.slot)
        if not came and len(at):
            return self
        known = int(forecast.counts[at[0]]) if len(at) else 0
        return replace(self, forecast=forecast.observe(now, known + came), requests=total)

    def save(self, ledger: Ledger) -> None:
        """Write them down."""
        document = {
            "format": _FORMAT,
            "labels": list(self.labels),
            "promises": {name: promise.to_dict() for name, promise in self.promises.items()},
            "forecast": self.forecast.to_dict(),
            "plan": None if self.plan is None else self.plan.to_dict(),
            "past": msgspec.to_builtins(self.past),
            "requests": self.requests,
        }
        ledger.save(_NAME, json.dumps(document).encode())

    @classmethod
    def load(cls, ledger: Ledger) -> SavedState | None:
        """Read them; None if there are none."""
        kept = ledger.load(_NAME)
        if kept is None:
            return None
        document = json.loads(kept)
        if document["format"] != _FORMAT:
            raise InvalidInputError(
                f"the ledger holds notes of format {document['format']}, not {_FORMAT}: update FairSync."
            )
        return cls(
            tuple(document["labels"]),
            {name: Promise.from_dict(promise) for name, promise in document["promises"].items()},
            Forecast.from_dict(document["forecast"]),
            None if document["plan"] is None else Plan.from_dict(document["plan"]),
            msgspec.convert(document["past"], tuple[PastWindow, ...]),
            document["requests"],
        )
