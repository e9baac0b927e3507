"""A promise of the schedule: a floor on the exposures of a group in each window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairsync.errors import InvalidInputError
from fairsync.inputs import check_positive
from fairsync.schedule.window import Window
from fairsync.text import count

if TYPE_CHECKING:
    from fairsync.catalog.groups import Label


@dataclass(frozen=True)
class ScheduledPromise:
    """A floor on the exposures of a group in each window.

    A group may have several promises. One exposure counts for all of them.

    Parameters
    ----------
    group
        Label of the group.
    floor
        Minimum number of exposures in each window.
    window
        The window, such as ``Window.day("UTC")``.

    Examples
    --------
    >>> promise = ScheduledPromise("toys", 100, Window.day("Europe/Berlin"))
    >>> print(promise)
    100 exposures of 'toys' (each day, Europe/Berlin)
    >>> ScheduledPromise.from_dict(promise.to_dict()) == promise
    True
    """

    group: Label
    floor: int
    window: Window

    def __post_init__(self) -> None:
        if isinstance(self.group, bool) or not isinstance(self.group, str | int):
            raise InvalidInputError(f"group must be a label, text or a whole number, got {self.group!r}.")
        if not isinstance(self.window, Window):
            raise InvalidInputError(f"window must be a Window, such as Window.day('UTC'), got {self.window!r}.")
        object.__setattr__(self, "floor", check_positive(self.floor, f"the floor of group {self.group!r}"))

    def __str__(self) -> str:
        return f"{count(self.floor, 'exposure')} of {self.group!r} ({self.window})"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary."""
        return {"group": self.group, "floor": self.floor, "window": self.window.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ScheduledPromise:
        """Return the object that :meth:`to_dict` describes."""
        return cls(values["group"], values["floor"], Window.from_dict(values["window"]))
