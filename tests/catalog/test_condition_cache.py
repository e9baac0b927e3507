"""The cache of selections: what it keeps, and which selections look at all items."""

import pickle

import numpy as np

from fairsync.catalog import Catalog
from fairsync.catalog.condition_cache import ConditionCache
from fairsync.catalog.lazy_selection import LazySelection


def test_the_cache_keeps_what_was_used_last_within_its_bytes() -> None:
    n = 1000
    catalog = Catalog(np.ones((n, 1)), {"group": ["a"] * n, "price": np.arange(n) / 1.0})
    cache = ConditionCache(catalog.attributes, most_bytes=20_000)
    often = cache.select({"price": {"at_most": 0.5}})
    for limit in range(1000):
        cache.select({"price": {"at_least": limit}})
        assert cache.select({"price": {"at_most": 0.5}}) is often
        assert len(cache) <= 20
    assert len(ConditionCache(catalog.attributes, most_bytes=1)) == 0
    assert len(pickle.loads(pickle.dumps(cache))) == 0, "another process starts with an empty cache"


def test_a_condition_that_many_items_meet_is_looked_up_until_many_items_are_asked_for() -> None:
    n = 20_000
    numbers = np.random.default_rng(0).random(n)
    catalog = Catalog(np.ones((n, 1)), {"group": ["a"] * n, "price": numbers})
    many, few = (catalog.select({"price": {"at_most": share}}) for share in (0.5, 0.1))
    assert isinstance(many, LazySelection)
    assert isinstance(few, LazySelection)
    assert few.share == len(few) / n, "the share of few items is exact"
    assert abs(many.share - 0.5) < 0.1
    rows = np.random.default_rng(1).integers(n, size=300)
    for _ in range(3):
        assert many.has(rows).tolist() == (numbers[rows] <= 0.5).tolist()
    assert many.share == len(many) / n
    named = catalog.select({"id": [3, 4]})
    assert named is not None
    assert named.rows.tolist() == [3, 4]


def test_a_condition_that_few_items_meet_is_never_taken_for_one_that_none_meets() -> None:
    n = 20_000
    catalog = Catalog(np.ones((n, 1)), {"group": ["a"] * n, "price": np.arange(n) / 1.0})
    for row in range(0, n, 997):
        chosen = catalog.select({"price": float(row)})
        assert chosen is not None
        assert chosen.share == 1 / n
    nothing = catalog.select({"price": -1.0})
    assert nothing is not None
    assert nothing.share == 0
