"""Invalid promises are refused."""

from typing import Any

import pytest

from fairsync.errors import InvalidInputError
from fairsync.schedule import ScheduledPromise, Window


@pytest.mark.parametrize(
    ("group", "floor", "window"), [(True, 1, Window.day("UTC")), ("a", 0, Window.day("UTC")), ("a", 1, "day")]
)
def test_invalid_promises_are_refused(group: Any, floor: Any, window: Any) -> None:
    with pytest.raises(InvalidInputError):
        ScheduledPromise.of_group(group, floor, window)
