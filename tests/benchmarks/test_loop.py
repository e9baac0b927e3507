"""The claims of the loop benchmark, and its timed index."""

import sys
from pathlib import Path

import numpy as np

from fairsync.catalog import Catalog
from fairsync.search import ExactIndex

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package


from benchmarks import cost, loop


def test_the_loop_claim_is_for_large_catalogs_and_batches() -> None:
    def figure(items: int, batch: int, share: float) -> loop.Measurement:
        return loop.Measurement(items, batch, 100, 1.0, 1.0, share, 1.0, 1.0)

    free = [figure(30_000, 64, 0.5), figure(300_000, 1, 0.5)]
    assert loop.check_claims(free) == []
    assert loop.check_claims([*free, figure(300_000, 16, 0.05)])[0].met
    assert not loop.check_claims([*free, figure(300_000, 16, 0.02), figure(300_000, 64, 0.06)])[0].met


def test_the_timed_index_gives_the_same_answer_and_the_time() -> None:
    items, groups, users, _ = cost.generate(np.array([50, 10]), 4, 0, seed=0)
    index = ExactIndex(Catalog(items, groups))
    timed = loop.TimedIndex(index)
    assert np.array_equal(timed.search(users[:, None], None, 3).rows, index.search(users[:, None], None, 3).rows)
    assert timed.seconds > 0
