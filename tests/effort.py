"""How long property tests search: seconds by default, hours before a release."""

import os

from hypothesis import HealthCheck, settings

HOURS = float(os.environ.get("FAIRSYNC_HOURS", "0"))
FRESH = HOURS > 0 or os.environ.get("FAIRSYNC_FRESH", "0") != "0"  # other examples in each run


def effort(examples: int, seconds_each: float) -> settings:
    """Return settings for a number of examples, or for as many as take about ``FAIRSYNC_HOURS``."""
    most = max(examples, int(HOURS * 3600 / seconds_each))
    return settings(max_examples=most, deadline=None, suppress_health_check=list(HealthCheck))
