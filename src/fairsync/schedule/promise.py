"""A promise of the schedule: bounds on the exposures of a selection of items in each window."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive
from fairsync.promises import Promise
from fairsync.promises.selection import selection_name
from fairsync.schedule.window import Window
from fairsync.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fairsync.catalog.groups import Label
    from fairsync.schedule.window import Span


@dataclass(frozen=True, eq=False)
class ScheduledPromise:
    """A promise that holds in each window.

    A selection may have several promises. One exposure counts for all of them.

    Parameters
    ----------
    promise
        The promise: items, bounds on their exposures, priority.
    window
        The window, such as ``Window.day("UTC")``.

    Examples
    --------
    >>> promise = ScheduledPromise(Promise({"category": "toys"}, at_least=100), Window.day("Europe/Berlin"))
    >>> print(promise)
    100 exposures of category=toys (each day, Europe/Berlin)
    >>> ScheduledPromise.from_dict(promise.to_dict()) == promise
    True
    >>> print(ScheduledPromise(Promise({"new": True}, at_least=0.05, at_most=300), Window.hour("UTC")))
    5 % of all slots, at most 300 exposures of new=True (each hour, UTC)
    """

    promise: Promise
    window: Window

    def __post_init__(self) -> None:
        if not isinstance(self.promise, Promise):
            raise InvalidInputError(f"promise must be a Promise, got {self.promise!r:.80}.")
        if not isinstance(self.window, Window):
            raise InvalidInputError(f"window must be a Window, such as Window.day('UTC'), got {self.window!r}.")

    @classmethod
    def of_group(cls, group: Label, floor: int, window: Window, attribute: str = "group") -> ScheduledPromise:
        """Return the promise of a minimum of exposures for all items with one label.

        Parameters
        ----------
        group
            The label.
        floor
            Minimum number of exposures in each window.
        window
            The window.
        attribute
            The attribute that has the label.

        Examples
        --------
        >>> print(ScheduledPromise.of_group("toys", 100, Window.day("UTC")))
        100 exposures of group=toys (each day, UTC)
        """
        if isinstance(group, bool) or not isinstance(group, str | int):
            raise InvalidInputError(f"group must be a label, text or a whole number, got {group!r}.")
        return cls(Promise({attribute: group}, check_positive(floor, f"the floor of group {group!r}")), window)

    @cached_property
    def selection(self) -> str:
        """The canonical name of the items that the promise is about, by which exposures are counted."""
        return selection_name(self.promise.where)

    @property
    def floor(self) -> int:
        """Minimum number of exposures in each window; 0 without one, and for a share, which depends on the traffic."""
        return self.promise.floor(0)

    @property
    def group(self) -> Label:
        """The label of a promise to all items with one label."""
        (label,) = self.promise.where.values()
        return label  # type: ignore[no-any-return]

    @cached_property
    def _key(self) -> tuple[str, Window]:
        # JSON tells 1 exposure from 1.0, all slots, and the label 1 from True, which are equal to Python.
        return json.dumps({**self.promise.to_dict(), "where": self.selection}, sort_keys=True), self.window

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ScheduledPromise) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        given = self.promise
        bounds = [] if given.at_least is None else [_bound(given.at_least)]
        if given.at_most is not None:
            bounds.append(f"at most {_bound(given.at_most)}")
        if given.at_most_per_list is not None:
            bounds.append(f"at most {given.at_most_per_list:,} per list")
        return f"{', '.join(bounds)} of {given.name} ({self.window})"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return {**self.promise.to_dict(), "window": self.window.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any], attribute: str = "group") -> ScheduledPromise:
        """Return the object that :meth:`to_dict` describes.

        Earlier versions wrote ``{"group": label, "floor": number, "window": ...}``, and named no attribute.
        """
        window = Window.from_dict(values["window"])
        if "group" in values:
            return cls.of_group(values["group"], values["floor"], window, attribute)
        return cls(Promise.from_dict({name: one for name, one in values.items() if name != "window"}), window)


def active_spans(promises: Iterable[ScheduledPromise], now: datetime) -> dict[ScheduledPromise, Span]:
    """Return the active window of each promise that has one.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> over = Window.campaign(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), "UTC")
    >>> promises = [ScheduledPromise.of_group("toys", 5, window) for window in (Window.hour("UTC"), over)]
    >>> [span.start.hour for span in active_spans(promises, datetime(2026, 3, 4, 9, 30, tzinfo=UTC)).values()]
    [9]
    """
    promises = list(promises)
    spans = {window: window.at(now) for window in {one.window for one in promises}}  # thousands may have the same few
    return {one: span for one in promises if (span := spans[one.window]) is not None}


def _bound(bound: float) -> str:
    return count(bound, "exposure") if isinstance(bound, int) else f"{100 * bound:g} % of all slots"
