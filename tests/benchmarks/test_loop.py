"""The claims of the loop benchmark, and its timed index."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairsync.catalog import Catalog
from fairsync.data import synthetic
from fairsync.search import ExactIndex

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package


from benchmarks import cost, loop


def test_the_loop_claim_is_for_large_catalogs_and_batches() -> None:
    def figure(items: int, batch: int, share: float) -> loop.Measurement:
        return loop.Measurement(items, batch, 100, 1.0, 1.0, share, 1.0, 1.0)

    free = [figure(30_000, 64, 0.5), figure(300_000, 1, 0.5)]
    assert loop.check_claims(free) == []
    assert loop.check_claims([*free, figure(300_000, 16, 0.08)])[0].met
    assert not loop.check_claims([*free, figure(300_000, 16, 0.02), figure(300_000, 64, 0.09)])[0].met


def test_the_whole_loop_is_compared_with_plain_retrieval_and_with_faiss() -> None:
    world = loop.World(items=400, groups=5, k=4, call=1, floor=1)
    data = synthetic(world.items, world.groups, 20, loop.DIM, 0, n_past=10)
    found = loop.measure_whole(world, data, learns=False, rounds=1)
    assert found.faiss_ms is not None
    assert min(found.none_ms, found.guaranteed_ms, found.faiss_ms) > 0
    assert found.ratio == found.guaranteed_ms / found.none_ms
    many = loop.measure_whole(replace(world, call=8), data, learns=True, rounds=1)
    assert many.faiss_ms is None
    assert len(loop.table_of_whole([found, many]).rows) == 2


def test_the_claims_of_the_whole_loop() -> None:
    single, large, middle = (
        loop.WholeLoop(world, learns, 0.10, 0.114, 0.02 if world.call == 1 else None)
        for world, learns in zip((loop.WORLDS[2], *loop.WORLDS[:2]), (True, False, True), strict=True)
    )
    claims = loop.check_whole([single, large, middle])
    assert [claim.value for claim in claims] == pytest.approx([5.0, 5.7, 1.14, 1.14])
    assert all(claim.met for claim in claims)
    assert not loop.check_whole([replace(large, guaranteed_ms=0.2)])[0].met


def test_the_timed_index_gives_the_same_answer_and_the_time() -> None:
    items, groups, users, _ = cost.generate(np.array([50, 10]), 4, 0, seed=0)
    index = ExactIndex(Catalog(items, groups))
    timed = loop.TimedIndex(index)
    assert np.array_equal(timed.search(users[:, None], None, 3).rows, index.search(users[:, None], None, 3).rows)
    assert timed.seconds > 0
