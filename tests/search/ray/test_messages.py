"""What travels arrives as it was, and nothing else is taken for it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairsync.catalog.selection import Selection
from fairsync.errors import InvalidInputError
from fairsync.search import Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.ray.messages import Query, pack_answer, unpack_answer

SIZES = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 5))


@given(
    SIZES,
    st.sampled_from(["<f2", "<f4", "<f8", ">f8"]),
    st.integers(0, 2**63),
    st.integers(0, 2**31),
    st.integers(0, 4),
)
def test_a_query_arrives_as_it_was(
    shape: tuple[int, int, int], dtype: str, version: int, k: int, n_prices: int
) -> None:
    rng = np.random.default_rng(k)
    users, prices = rng.normal(size=shape).astype(dtype), np.append(rng.normal(size=n_prices), np.inf)
    for given_prices in (None, prices):
        got = Query.unpack(Query(version, k, users, given_prices).pack())
        assert (got.version, got.k) == (version, k)
        assert got.users.tolist() == users.tolist()
        assert got.users.dtype == np.dtype(dtype).newbyteorder("<")
        assert (None if got.prices is None else got.prices.tolist()) == (
            None if given_prices is None else prices.tolist()
        )


@given(st.integers(1, 20), st.integers(0, 4), st.integers(0, 2**31))
def test_eligibility_arrives_as_it_was(n_items: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = [None, *(Selection(rng.random(n_items) < 0.5) for _ in range(3))]
    chosen = [pool[at] for at in rng.integers(4, size=n)]
    eligible = Eligibility.of(n_items, chosen, [rng.integers(n_items, size=rng.integers(4)) for _ in range(n)])
    some = eligible.take(np.flatnonzero(rng.random(n) < 0.7))  # it knows selections that none of them uses
    got = Query.unpack(Query(1, 2, np.ones((len(some), 1, 1)), np.ones(2), some).pack())
    assert got.eligible is not None
    assert got.prices is not None
    assert got.prices.tolist() == [1.0, 1.0]
    assert len(got.eligible) == len(some)
    assert len(got.eligible.selections) <= len(some)
    assert [got.eligible.mask(i).tolist() for i in range(len(some))] == [
        some.mask(i).tolist() for i in range(len(some))
    ]


@given(st.integers(0, 4), st.integers(0, 5), st.integers(0, 2**63))
def test_an_answer_arrives_as_it_was_and_only_under_its_own_prices(n: int, width: int, version: int) -> None:
    rng = np.random.default_rng(version)
    hits = Hits(rng.integers(-1, 2**40, (n, width)), np.where(rng.random((n, width)) < 0.5, -np.inf, rng.random()))
    message = pack_answer(version, hits)
    got = unpack_answer(message, version)
    assert got.rows.tolist() == hits.rows.tolist()
    assert got.relevance.tolist() == hits.relevance.tolist()
    with pytest.raises(InvalidInputError, match=f"version {version}, asked was version {version + 1}"):
        unpack_answer(message, version + 1)


def test_truncated_and_foreign_messages_are_refused() -> None:
    query, answer = Query(1, 2, np.ones((1, 1, 2)), np.ones(3)).pack(), pack_answer(1, Hits.empty(1, 2))
    for message in (b"", b"FSQ1", query[:-1], query + b"0", answer):
        with pytest.raises(InvalidInputError, match="message"):
            Query.unpack(message)
    for message in (b"", query, answer[:-8], answer + b"0"):
        with pytest.raises(InvalidInputError, match="message"):
            unpack_answer(message, 1)
