"""Float32 scores stay within the derived bound of the float64 scores."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.search.rounding import Float32Items, Float32Queries, GroupBonus
from fairsync.search.scoring import reference_price, relevance


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    dim=st.sampled_from([1, 5, 64, 300]),
    scale=st.sampled_from([1.0, 1e-30, 1e25]),
    price_scale=st.sampled_from([1e-6, 1.0, 1e9]),
)
def test_float32_scores_keep_within_their_margin(seed: int, dim: int, scale: float, price_scale: float) -> None:
    """No item of the best k may be below the k-th best float32 score by more than the margin."""
    rng = np.random.default_rng(seed)
    # All scores close together, so that rounding decides the float32 order.
    embeddings = ((1 + 1e-6 * rng.standard_normal((200, dim))) * scale).astype(np.float64)
    catalog = Catalog(embeddings, rng.integers(0, 4, 200))
    user = 1 + 1e-6 * rng.standard_normal((1, 1, dim))
    prices = rng.standard_normal(4) * price_scale * scale
    items = Float32Items.of(catalog.embeddings)
    queries = Float32Queries.of(items, user, prices, reference_price(catalog.group_sizes, prices, 20)[1])
    assert queries.bonus is not None
    narrow = (items.values @ queries.columns)[:, 0] + queries.bonus[catalog.group_of]
    owners, rows = np.zeros(200, dtype=np.int64), np.arange(200)
    true = relevance(catalog, user, owners, rows) - prices[catalog.group_of]
    best = np.argsort(-true, kind="stable")[:20]
    assert narrow[best].min() >= np.sort(narrow)[-20] - queries.margin[0]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([1e-6, 1.0, 1e9]), masked=st.booleans())
def test_bonuses_of_some_groups_are_those_of_all(seed: int, scale: float, masked: bool) -> None:
    rng = np.random.default_rng(seed)
    prices = scale * rng.standard_normal(100)
    if masked:
        prices[rng.integers(100, size=5)] = np.inf
    bonus, groups = GroupBonus.of(prices, float(prices.min()), 3), rng.integers(100, size=(4, 9))
    assert (bonus.take(groups) == bonus.all()[groups]).all()
    part = np.empty(30, dtype=np.float32)
    bonus.write(20, part)
    assert (part == bonus.all()[20:50]).all()
