"""The impression rate, from reports that arrive late."""

import numpy as np
import pytest

from fairsync.service.promises.impression_rate import ImpressionRate


def test_before_the_first_report_every_candidate_counts() -> None:
    rate = ImpressionRate(within=60.0)
    assert rate.shares(2).tolist() == [1.0, 1.0]
    assert rate.pending(2).tolist() == [0, 0]


def test_it_learns_the_share_of_each_group_although_reports_lag() -> None:
    """Reports arrive 30 seconds late; a group that came later has the overall rate."""
    rate, shown = ImpressionRate(within=60.0), np.array([0.5, 0.1])
    for second in range(0, 3600, 10):
        retrieved = np.array([100, 100]) * (second // 10 + 1)
        reported = np.array([100, 100]) * max((second - 30) // 10 + 1, 0) * shown
        rate.observe(float(second), retrieved, reported.astype(np.int64))
    assert rate.shares(2) == pytest.approx(shown, abs=0.02)
    assert rate.pending(2) == pytest.approx(600 * shown, rel=0.1), "a minute's worth"
    assert rate.shares(3)[2] == pytest.approx(0.3, abs=0.02)


def test_a_share_is_never_zero() -> None:
    rate = ImpressionRate(within=1.0)
    for second in range(10):
        rate.observe(float(second), np.array([10**7]), np.array([0]))
    assert rate.shares(1).tolist() == [0.01]
