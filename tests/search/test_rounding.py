"""Float32 scores stay within the derived bound of the float64 scores."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.search.rounding import Float32Items, Float32Queries
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
