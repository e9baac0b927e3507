"""What not knowing the future costs, on a case with a closed form."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))  # the benchmarks are no part of the package

from benchmarks.unknown_future import expected_cost

from fairsync import Catalog, Promise, hindsight


def test_one_promise_whose_item_is_worse_by_a_uniform_margin() -> None:
    # With a margin between 0 and 1 and a share q, the price is q: it costs q²/2 a request, the exposures of a request
    # have the variance q(1 - q), and a price that rises by x gains x exposures a request.
    n, share = 4_000, 0.3
    margin = np.random.default_rng(0).random(n)
    users = np.column_stack([np.ones(n), 1 - margin]).astype(np.float32)
    catalog, promises = Catalog(np.eye(2), ["big", "small"]), (Promise({"group": "small"}, at_least=share),)
    best = hindsight(catalog, users, k=1, promises=promises)
    expected = 1 + share * (1 - share) / 2 * (1 / np.arange(1, n + 1)).sum() / (n * share**2 / 2)
    found = expected_cost(catalog, users, 1, promises, best)
    assert found - 1 == pytest.approx(expected - 1, rel=0.15)
