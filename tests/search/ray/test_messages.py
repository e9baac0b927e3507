"""What travels arrives as it was, and nothing else is taken for it."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import effort
from fairsync.catalog import Catalog
from fairsync.catalog.selection import Selection
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, Hits
from fairsync.search.eligibility import Eligibility
from fairsync.search.ray.messages import Query, pack_answer, unpack_answer
from fairsync.search.sharded import Shard, merge

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
    rows = np.array([rng.permutation(20)[:width] for _ in range(n)], dtype=np.int64).reshape(n, width)
    rows[rng.random((n, width)) < 0.3] = -1
    hits = Hits(rows, np.where(rows < 0, -np.inf, rng.normal(size=(n, width))))
    message = pack_answer(version, hits)
    got = unpack_answer(message, version, n, 5, 20)
    assert got.rows.tolist() == hits.rows.tolist()
    assert got.relevance.tolist() == hits.relevance.tolist()
    with pytest.raises(InvalidInputError, match=f"version {version}, asked was version {version + 1}"):
        unpack_answer(message, version + 1, n, 5, 20)


def test_truncated_and_foreign_messages_are_refused() -> None:
    query, answer = Query(1, 2, np.ones((1, 1, 2)), np.ones(3)).pack(), pack_answer(1, Hits.empty(1, 2))
    for message in (b"", b"FSQ2", query[:-1], query + b"0", answer):
        with pytest.raises(InvalidInputError, match="message"):
            Query.unpack(message)
    for message in (b"", query, answer[:-8], answer + b"0"):
        with pytest.raises(InvalidInputError, match="message"):
            unpack_answer(message, 1, 1, 2, 5)


def answer_of(rows: list[list[int]], relevance: list[list[float]]) -> bytes:
    return pack_answer(1, Hits(np.array(rows), np.array(relevance)))


@pytest.mark.parametrize(
    ("message", "match"),
    [
        (None, "type NoneType"),
        ("text", "type str"),
        (answer_of([[1, 2], [1, 2]], [[1, 1], [1, 1]]), "2 items for 2 users, asked was 3 for 1"),
        (answer_of([[1, 2, 3, 4]], [[1, 1, 1, 1]]), "4 items for 1 users"),
        (b"FSA1" + (1).to_bytes(8, "little") + (2**32 - 1).to_bytes(4, "little") + bytes(4), "4294967295 users"),
        (answer_of([[5]], [[1.0]]), "not in the catalog"),
        (answer_of([[-2]], [[1.0]]), "not in the catalog"),
        (answer_of([[-1]], [[1.0]]), "not in the catalog"),
        (answer_of([[0]], [[np.nan]]), "no relevance"),
        (answer_of([[0, 1, 0]], [[3, 2, 1]]), "same item twice"),
    ],
)
def test_answers_to_something_else_are_refused(message: Any, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        unpack_answer(message, version=1, users=1, k=3, items=5)


def query_of(
    n: int = 1, interests: int = 1, dim: int = 2, kind: bytes = b"f8", prices: int = 0, body: bytes = bytes(16)
) -> bytes:
    return struct.pack("<4sQIIII2sIQ", b"FSQ2", 1, 3, n, interests, dim, kind, prices, 0) + body


@pytest.mark.parametrize("kind", [b"O8", b"S0", b"V0", b"i8", b"M8", b"c8", b"\xff\xff", b"zz"])
def test_queries_of_another_type_are_refused(kind: bytes) -> None:
    with pytest.raises(InvalidInputError, match="of type"):
        Query.unpack(query_of(kind=kind))


@pytest.mark.parametrize(("interests", "dim"), [(0, 2), (2, 0), (0, 0)])
def test_a_small_message_has_few_users(interests: int, dim: int) -> None:
    with pytest.raises(InvalidInputError, match="4294967295 users"):
        Query.unpack(query_of(n=2**32 - 1, interests=interests, dim=dim, body=b""))


def corrupted(data: st.DataObject, message: bytes) -> bytes:
    """Return a message with some bytes overwritten, most of them in its head, removed or added."""
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(changed), 48)) | st.integers(0, len(changed)))
        given = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([bytes(4), b"\xff" * 4, NAN, INFINITE]))
        end = at if data.draw(st.integers(0, 5)) == 0 else at + len(given)
        changed[at:end] = given
    return bytes(changed[: data.draw(st.sampled_from([len(changed), len(changed) // 2, len(changed) - 8]))])


NAN, INFINITE = struct.pack("<d", np.nan), struct.pack("<d", np.inf)
CATALOG = Catalog(np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 3)
ROWS = np.arange(1, 12, 2)


def test_no_users_with_any_number_of_dimensions_are_refused() -> None:
    message = bytearray(Query(7, 1, np.empty((0, 2, 3)), None).pack())
    message[20:28] = struct.pack("<II", 0x13000000, 0xD8000000)  # interests and dimensions
    with pytest.raises(InvalidInputError, match="0 users of 318767104 x 3623878656"):
        Query.unpack(bytes(message))


@given(data=st.data(), n=st.integers(0, 3), k=st.integers(1, 9), priced=st.booleans())
@effort(examples=300, seconds_each=0.005)
def test_a_shard_answers_any_query_or_refuses_it(data: st.DataObject, n: int, k: int, priced: bool) -> None:
    pytest.importorskip("ray")
    from fairsync.search.ray.shard import answer

    shard = Shard(CATALOG.part(ROWS), ROWS, ExactIndex)
    users = np.random.default_rng(n).normal(size=(n, 2, 3))
    message = corrupted(data, Query(7, k, users, np.ones(3) if priced else None).pack())
    try:
        found = answer(shard, message)
    except InvalidInputError:
        return
    query = Query.unpack(message)
    hits = unpack_answer(found, query.version, len(query.users), query.k, len(CATALOG))
    assert set(hits.rows.ravel().tolist()) <= {-1, *ROWS.tolist()}
    assert hits.rows.size <= len(message)


@given(data=st.data(), n=st.integers(0, 3), k=st.integers(1, 9), priced=st.booleans())
@effort(examples=300, seconds_each=0.005)
def test_any_answer_is_merged_or_refused(data: st.DataObject, n: int, k: int, priced: bool) -> None:
    prices, users = np.array([0.5, -1.0, np.inf]) if priced else None, np.random.default_rng(n).normal(size=(n, 2, 3))
    shards = [Shard(CATALOG.part(rows), rows, ExactIndex) for rows in (ROWS, ROWS - 1)]
    good, other = (pack_answer(7, shard.search(users, prices, k)) for shard in shards)
    try:
        hits = unpack_answer(corrupted(data, other), 7, n, k, len(CATALOG))
    except InvalidInputError:
        return
    merged = merge([unpack_answer(good, 7, n, k, len(CATALOG)), hits], CATALOG.group_of, CATALOG.rank, prices, k)
    assert merged.rows.shape == (n, k)
    assert ((merged.rows >= -1) & (merged.rows < len(CATALOG))).all()


def test_a_small_query_cannot_ask_for_any_number_of_items(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from fairsync.search.ray import shard

    monkeypatch.setattr(shard, "_MOST_HITS", 20)
    few = Shard(CATALOG.part(ROWS), ROWS, ExactIndex)
    shard.answer(few, Query(1, 2**31, np.ones((3, 1, 3)), None).pack())
    with pytest.raises(InvalidInputError, match="24 items are asked for"):
        shard.answer(few, Query(1, 2**31, np.ones((4, 1, 3)), None).pack())
