"""The claim of the benchmark of explanations, and that it measures what it says."""

import sys
from pathlib import Path

import numpy as np

from fairsync.catalog import Catalog
from fairsync.data import synthetic
from fairsync.search import ExactIndex

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks import explain


def test_the_claim_is_about_the_slowest() -> None:
    def figure(recorded: float, looked_at: float) -> explain.ExplainTime:
        return explain.ExplainTime(300_000, 16, 1.0, recorded, looked_at, 0.1)

    assert explain.check_claims([figure(1.5, 9.0), figure(2.0, 3.0)])[0].met
    assert not explain.check_claims([figure(1.5, 1.6), figure(2.1, 2.2)])[0].met
    assert explain.median([figure(1.0, 2.0), figure(5.0, 6.0), figure(3.0, 3.0)]).times_recorded == 3.0


def test_there_is_something_to_explain() -> None:
    data = synthetic(400, explain.GROUPS, 32, explain.DIM, 0, n_past=100)
    catalog = Catalog(np.asarray(data.embeddings), data.groups)
    found = explain.measure(catalog, ExactIndex(catalog), data.users, data.past_users, 16, 6_000)
    assert found.by_promise > 0
    assert min(found.ms_per_request, found.times_recorded, found.times_looked_at) > 0
