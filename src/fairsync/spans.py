"""Spans: named parts of the work on a request, for traces. Without a listener they cost one comparison each."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class SpanListener(Protocol):
    """Receives the spans of this process."""

    def span(self, name: str) -> AbstractContextManager[Any]:
        """Return a context manager that is entered when a part begins, and left when it ends."""
        ...

    def capture(self) -> object:
        """Return the span under way, to be named as a cause of work in another thread."""
        ...

    def joined(self, name: str, causes: Sequence[object]) -> AbstractContextManager[Any]:
        """Return the same as `span` for work that several captured spans wait for."""
        ...


_NOTHING = nullcontext()
_listener: SpanListener | None = None


def listen(listener: SpanListener | None) -> SpanListener | None:
    """Send the spans of this process to a listener from now on, None to none; return the one before."""
    global _listener
    before, _listener = _listener, listener
    return before


def span(name: str) -> AbstractContextManager[Any]:
    """Return the context manager of a part of the work.

    Examples
    --------
    >>> with span("search"):
    ...     pass
    """
    return _NOTHING if _listener is None else _listener.span(name)


def capture() -> object:
    """Return the span under way; None if nobody listens."""
    return None if _listener is None else _listener.capture()


def joined(name: str, causes: Sequence[object]) -> AbstractContextManager[Any]:
    """Return the context manager of work that several spans wait for."""
    return _NOTHING if _listener is None else _listener.joined(name, causes)
