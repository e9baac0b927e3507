"""The float64 scores that decide have the same bits everywhere."""

import numpy as np

import plain
from fairsync.catalog import Catalog
from fairsync.search.scoring import relevance


def test_relevance_adds_from_left_to_right() -> None:
    rng = np.random.default_rng(4)
    for dim in (1, 2, 7, 64, 1000):
        for count in (1, 2, 300):
            catalog = Catalog(rng.standard_normal((count, dim)).astype(np.float32), np.zeros(count, dtype=int))
            user = rng.standard_normal((1, 1, dim))
            got = relevance(catalog, user, np.zeros(count, dtype=np.int64), np.arange(count))
            want = [plain.dot(user[0, 0].tolist(), item.tolist()) for item in catalog.embeddings]
            assert got.tolist() == want
