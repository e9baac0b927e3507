"""Impression reports: which groups they count for."""

import numpy as np

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.service.promises.impressions import groups_shown


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
