"""Shards as the overview shows them."""

import numpy as np

from fairsync.catalog import Catalog
from fairsync.search import ExactIndex, ShardedIndex
from fairsync.service.promises.shards import describe_lost, shard_views
from fairsync.service.schema import ShardView
from service.dashboard.simulated_shop import FailingShards


def test_views_of_every_kind_of_index() -> None:
    catalog = Catalog(np.random.default_rng(0).normal(size=(30, 4)), np.repeat(["a", "b", "c"], 10))
    assert shard_views(ExactIndex(catalog)) == []
    views = shard_views(ShardedIndex(catalog, 3))
    assert sum(view.items for view in views) == 30
    assert all(view.up for view in views)
    lossy = FailingShards(catalog, 3)
    lossy.failed = frozenset({1})
    assert [(view.up, view.error) for view in shard_views(lossy)] == [(True, ""), (False, "no answer"), (True, "")]


def test_a_lost_replica_is_no_lost_shard() -> None:
    shards = [
        ShardView(shard=shard, replica=replica, items=5, up=replica > 0) for shard in range(7) for replica in (0, 1)
    ]
    assert describe_lost(shards) == (
        "7 of 14 replicas do not answer (0.0, 1.0, 2.0, 3.0, 4.0, ...). Others have all their items."
    )
