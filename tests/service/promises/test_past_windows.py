"""Records of past windows."""

from datetime import UTC, datetime

from fairsync.schedule import Promise, PromiseStatus, Span, Window
from fairsync.service.promises.past_windows import past_window

NOON, ONE = datetime(2026, 3, 2, 12, tzinfo=UTC), datetime(2026, 3, 2, 13, tzinfo=UTC)


def test_only_a_missed_window_blames_the_outage() -> None:
    promise = Promise("toys", 9, Window.hour("UTC"))
    status = PromiseStatus(
        promise, Span(NOON, ONE), exposures=1, at_pace=2, reachable=3, certain=3, impossible_since=NOON, foreseen=6
    )
    missed, kept = (past_window("a", status, exposures, 40, "down") for exposures in (8, 9))
    assert (missed.kept, missed.note, missed.foreseen, missed.requests) == (False, "down", 6, 40)
    assert (kept.kept, kept.note) == (True, "")
    assert (kept.start, kept.end, kept.impossible_since) == (NOON, ONE, NOON)
