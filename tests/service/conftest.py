"""What tests of the service share."""

import pytest

from service.running import MiddayClock


@pytest.fixture
def midday(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let services of this process run after noon by their clock. Without promises, a period ends with each hour."""
    monkeypatch.setattr("fairsync.service.promises.promise_service.MonotonicClock", MiddayClock)
