"""The float64 scores that decide have the same bits everywhere."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import plain
from fairsync.catalog import Catalog
from fairsync.search.scoring import relevance, settle, settle_one


def test_relevance_adds_from_left_to_right() -> None:
    rng = np.random.default_rng(4)
    for dim in (1, 2, 7, 64, 1000):
        for count in (1, 2, 300):
            catalog = Catalog(rng.standard_normal((count, dim)).astype(np.float32), np.zeros(count, dtype=int))
            user = rng.standard_normal((1, 1, dim))
            got = relevance(catalog, user, np.zeros(count, dtype=np.int64), np.arange(count))
            want = [plain.dot(user[0, 0].tolist(), item.tolist()) for item in catalog.embeddings]
            assert got.tolist() == want


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32), users=st.integers(1, 6), k=st.integers(1, 12), ties=st.booleans(), skewed=st.booleans()
)
def test_candidates_are_settled_by_score_and_id(seed: int, users: int, k: int, ties: bool, skewed: bool) -> None:
    rng = np.random.default_rng(seed)
    draw = (lambda shape: rng.integers(-1, 2, shape).astype(float)) if ties else rng.standard_normal
    catalog = Catalog(draw((40, 3)), rng.integers(0, 3, 40), ids=rng.permutation(40).tolist())
    vectors, prices = draw((users, 2, 3)), draw(catalog.n_groups)
    # Every user has some candidates, in any order; one of them may have most.
    pairs = [
        (user, row)
        for user in range(users)
        for row in rng.permutation(40)[: 40 if skewed and user == 0 else int(rng.integers(0, 8))].tolist()
    ]
    pairs = [pairs[at] for at in rng.permutation(len(pairs)).tolist()]
    owners = np.array([user for user, _ in pairs], dtype=np.int64)
    rows = np.array([row for _, row in pairs], dtype=np.int64)
    hits = settle(catalog, vectors, prices, k, owners, rows)
    for user in range(users):
        mine = [row for owner, row in pairs if owner == user]
        scored = []
        for row in mine:
            score = max(plain.dot(vector.tolist(), catalog.embeddings[row].tolist()) for vector in vectors[user])
            scored.append((-(score - prices[catalog.group_of[row]]), int(catalog.ids[row]), row, score))
        best = sorted(scored)[:k]
        missing = k - len(best)
        assert hits.rows[user].tolist() == [row for _, _, row, _ in best] + [-1] * missing
        assert hits.relevance[user].tolist() == [score for _, _, _, score in best] + [-np.inf] * missing
        alone = settle_one(catalog, vectors[user], prices, k, np.array(mine, dtype=np.int64))
        assert alone.rows.tolist() == hits.rows[user : user + 1].tolist()
        assert alone.relevance.tolist() == hits.relevance[user : user + 1].tolist()
