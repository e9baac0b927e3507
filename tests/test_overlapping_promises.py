"""Promises that overlap: every one is kept, whatever the prices and the users are."""

import os
from collections.abc import Callable

import pytest

from fairsync.catalog import Catalog
from fairsync.search import HnswIndex, Index, IvfIndex, ShardedIndex
from overlap_driver import play
from overlap_worlds import make_overlap_world

WORLDS = int(os.environ.get("FAIRSYNC_OVERLAP_WORLDS", "40"))
KINDS = ["floors", "caps", "limits", "caps and limits", "covered", "covered, limits"]

INDEXES: dict[str, Callable[[Catalog], Index]] = {
    "ivf": lambda catalog: IvfIndex(catalog, recall=0.3, storage="2-bit", exact_below=0),
    "hnsw": lambda catalog: HnswIndex(catalog, recall=0.3, exact_below=0),
    "sharded": lambda catalog: ShardedIndex(catalog, 3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_promise_is_kept_at_the_edge_of_what_is_possible(kind: str) -> None:
    for seed in range(WORLDS):
        play(make_overlap_world(seed, caps="caps" in kind, limits="limits" in kind, covered="covered" in kind), seed)


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_exclusions_break_nothing(kind: str) -> None:
    for seed in range(WORLDS // 4):
        world = make_overlap_world(
            seed, caps="caps" in kind, limits="limits" in kind, covered="covered" in kind, max_exclude=1 + seed % 3
        )
        play(world, seed)


@pytest.mark.parametrize("name", INDEXES)
def test_an_approximate_search_breaks_nothing(name: str) -> None:
    for seed in range(WORLDS // 5):
        world = make_overlap_world(seed, caps=seed % 2 == 1, limits=seed % 3 == 1)
        play(world, seed, INDEXES[name](world.catalog))
