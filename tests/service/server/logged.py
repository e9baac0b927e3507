"""The lines of the service's log, in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable


def logged(records: Iterable[logging.LogRecord]) -> list[tuple[str, dict[str, Any]]]:
    """Return the level and the facts of each line, of which a record of the access log has several."""
    return [
        (one.levelname, facts)
        for one in records
        if one.name == "fairsync.service"
        for facts in getattr(one, "calls", [getattr(one, "facts", {})])
    ]
