"""Impression reports: which groups they count for, and the rate, from reports that arrive late."""

import numpy as np
import pytest

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.service.promises.impressions import ImpressionRate, groups_shown


def test_only_candidates_of_a_stored_answer_count() -> None:
    catalog = Catalog(np.eye(3), ["a", "b", "b"], ids=["x", "y", "z"])
    answer = Candidates.of(catalog, np.array([[0, 1]]), np.array([[0.9, 0.8]]), np.ones(1)).dump(0)
    assert groups_shown(["x", "z", "y", "x"], answer, catalog) == {"x": "a", "y": "b"}
    changed = Catalog(np.eye(3), ["c", "c", "c"], ids=["x", "y", "z"])
    assert groups_shown(["x"], answer, changed) == {"x": "a"}, "the group that it had when it was retrieved"


def test_without_an_answer_items_of_the_catalog_count() -> None:
    """A request without an id, or an answer that is too old to be kept, which is empty."""
    catalog = Catalog(np.eye(3), ["a", "b", "b"], ids=["x", "y", "z"])
    for answer in (None, b""):
        assert groups_shown(["z", "w", "x"], answer, catalog) == {"z": "b", "x": "a"}
        assert groups_shown([1, 2], answer, catalog) == {}


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
