"""The archive of past windows: all of them, by the day on which they ended, with the promise as it was then.

The saved state of the service has the latest past windows only. Statements need all windows of a month.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from fairsync.service.schema import PastWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fairsync.ledger import Ledger
    from fairsync.ledger.base import Saved
    from fairsync.schedule import PromiseStatus

# Names under which the ledger saves: the windows that ended on a day of UTC, when the archive began, and when floors of
# the windows under way were reached.
_DAY, _SINCE, _REACHED = "past {}", "past since", "reached"


@dataclass(frozen=True)
class ArchivedWindow:
    """A window that is over.

    Attributes
    ----------
    past : PastWindow
        The record of the window.
    promise : dict
        The promise as it was, as plain values.
    text : str
        The promise as a sentence.
    reached : datetime or None
        When the floor was first seen to be reached; None if it was not.
    """

    past: PastWindow
    promise: dict[str, Any]
    text: str
    reached: datetime | None = None


class WindowArchive:
    """Writes the archive, in the ledger of the service. Only the leader does.

    Parameters
    ----------
    ledger
        The ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._reached: dict[str, str] | None = None

    def observe(self, names: dict[Any, str], statuses: Iterable[PromiseStatus], now: datetime) -> None:
        """Note which promises have reached their floors by now.

        Parameters
        ----------
        names
            Ids of the promises.
        statuses
            The promises in their present windows.
        now
            The time.
        """
        reached = [
            _key(names[one.promise], one.span.start)
            for one in statuses
            if 0 < one.promise.floor <= one.exposures and one.promise in names
        ]
        if self._reached is None:
            self._reached = json.loads(self._ledger.load(_REACHED) or b"{}")
        known = self._reached
        if any(key not in known for key in reached):
            # Windows that are over were archived, and are left out.
            self._reached = {key: known.get(key, now.astimezone(UTC).isoformat()) for key in reached}
            self._ledger.save(_REACHED, json.dumps(self._reached).encode())

    def forget(self) -> None:
        """Read again what another leader may have written."""
        self._reached = None

    def add(self, windows: Sequence[tuple[PastWindow, PromiseStatus]], now: datetime) -> None:
        """Add windows that are over; adding one again replaces it.

        Parameters
        ----------
        windows
            Each with the last status of its promise.
        now
            The time.
        """
        if self._ledger.load(_SINCE) is None:
            self._ledger.save(_SINCE, now.astimezone(UTC).isoformat().encode())
        reached = self._reached if self._reached is not None else json.loads(self._ledger.load(_REACHED) or b"{}")
        days: dict[str, list[dict[str, Any]]] = {}
        for past, status in windows:
            when = reached.get(_key(past.promise, past.start))
            if when is None and past.kept and status.floor > 0:  # a share, or between the last plan and the end
                when = past.end.astimezone(UTC).isoformat()
            record = {
                "past": msgspec.to_builtins(past),
                "promise": status.promise.to_dict(),
                "text": str(status.promise),
                "reached": when,
            }
            days.setdefault(_DAY.format(past.end.astimezone(UTC).date()), []).append(record)
        for name, records in days.items():
            again = {(one["past"]["promise"], one["past"]["start"]) for one in records}
            before = json.loads(self._ledger.load(name) or b"[]")
            kept = [one for one in before if (one["past"]["promise"], one["past"]["start"]) not in again]
            self._ledger.save(name, json.dumps([*kept, *records]).encode())


def archive_since(ledger: Saved) -> datetime | None:
    """Return when the archive began; None if no window has ended yet."""
    value = ledger.load(_SINCE)
    return None if value is None else datetime.fromisoformat(value.decode())


def archived_windows(ledger: Saved, first: date, last: date) -> Iterator[ArchivedWindow]:
    """Yield the windows that ended on some days of UTC, both included."""
    for offset in range((last - first).days + 1):
        for record in json.loads(ledger.load(_DAY.format(first + timedelta(days=offset))) or b"[]"):
            past, reached = msgspec.convert(record["past"], PastWindow), record["reached"]
            moment = None if reached is None else datetime.fromisoformat(reached)
            yield ArchivedWindow(past, record["promise"], record["text"], moment)


def _key(name: str, start: datetime) -> str:
    return f"{name} {start.astimezone(UTC).isoformat()}"
