"""Replays refuse a log that makes no sense; whole days are in test_days.py."""

from datetime import UTC, datetime, timedelta

import pytest

from fairsync.errors import InvalidInputError
from fairsync.service.promises.replay import replay

START = datetime(2026, 3, 2, tzinfo=UTC)


def test_arguments_that_make_no_sense_are_refused() -> None:
    def fail(*_: object) -> None:
        raise AssertionError("nothing is opened or served")

    for times, every, why in (([2.0, 1.0], timedelta(hours=1), "ascend"), ([1.0], timedelta(0), "every must be")):
        with pytest.raises(InvalidInputError, match=why):
            replay(fail, times, fail, START, START + timedelta(days=1), every=every)  # type: ignore[arg-type]
