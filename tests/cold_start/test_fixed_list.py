"""Fixed lists: first and in their order, unless the request bars an item or the guard needs its place."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.candidates import Candidates
from fairsync.catalog import Catalog
from fairsync.cold_start.fixed_list import FixedList
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits
from fairsync.search.eligibility import Eligibility
from worlds import make_world


@given(seed=st.integers(0, 10**6), width=st.integers(1, 12), k=st.integers(1, 5), interests=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_put_first_is_what_a_few_lines_of_python_do(seed: int, width: int, k: int, interests: int) -> None:
    rng = np.random.default_rng(seed)
    k = min(k, width)
    catalog = Catalog(rng.normal(size=(12, 4)), np.arange(12) % 3)
    users = rng.normal(size=(4, interests, 4))
    barred = [rng.permutation(12)[: rng.integers(0, 10)] for _ in range(4)]
    eligible = Eligibility.of(12, [None] * 4, barred) if rng.random() < 0.7 else None
    index = ExactIndex(catalog)
    hits = index.search(users, None, width) if eligible is None else index.search(users, None, width, eligible)
    fixed = FixedList(rng.permutation(12)[: rng.integers(1, 12)], rng.random(4) < 0.6)
    found = fixed.put_first(hits, k, catalog, users, eligible)
    for i in range(4):
        expected = hits.rows[i].tolist()
        if fixed.requests[i]:
            gone = set() if eligible is None else set(barred[i].tolist())
            first = [row for row in fixed.rows.tolist() if row not in gone][:k]
            expected = [*first, *(row for row in expected if row not in first)][:width]
        assert found.rows[i].tolist() == expected
        for row, relevance in zip(expected, found.relevance[i].tolist(), strict=True):
            exact = -np.inf if row < 0 else (users[i] @ catalog.embeddings[row]).max()
            assert relevance == pytest.approx(exact)
    shown = Candidates.of(catalog, found.rows[:, :k], found.relevance[:, :k], np.ones(4))
    if fixed.requests.any():
        ordered = Candidates.of(catalog, found.rows[:, :k], found.relevance[:, :k], np.ones(4), places=fixed.places)
        for i in np.flatnonzero(fixed.requests).tolist():
            listed = [row for row in fixed.rows.tolist() if row in found.rows[i, :k]]
            rest = [row for row in shown.rows[i].tolist() if row not in listed]
            assert ordered.rows[i].tolist() == [*listed, *rest]
        others = ~fixed.requests
        assert ordered.ids[others].tolist() == shown.ids[others].tolist()


def test_only_the_requests_that_begin_with_it_are_taken() -> None:
    fixed = FixedList(np.array([3]), np.array([False, True, False]))
    assert fixed.take(slice(0, 1)) is None
    taken = fixed.take(np.array([2, 1]))
    assert taken is not None
    assert taken.requests.tolist() == [False, True]


@given(seed=st.integers(0, 10**6), batch=st.sampled_from([1, 8]), tightness=st.sampled_from([0.2, 0.9]))
@settings(max_examples=25, deadline=None)
def test_only_the_guard_changes_a_list(seed: int, batch: int, tightness: float) -> None:
    """And no more of it than is reported as forced: prices, which are subsidies here, do not."""
    rng = np.random.default_rng(seed)
    world = make_world(seed, items=25, horizon=50, tightness=tightness)
    order = rng.permutation(25)[:10].tolist()
    retriever = FairRetriever(
        world.catalog, k=4, floors=world.floors, horizon=50, batch_size=batch, cold=order
    ).calibrate(world.users)
    users = np.where(rng.random((50, 1)) < 0.8, 0.0, world.users)
    others = 0
    for user in users:
        forced = retriever.report().forced
        found = retriever.retrieve(user[None])
        rows = found.rows[0].tolist()
        if found.cold[0]:
            kept = [row for row in rows if row in order[:4]]
            assert kept == order[: len(kept)] or len(kept) < 4
            assert kept == [row for row in order if row in kept]
            assert 4 - len(kept) <= retriever.report().forced - forced
        else:
            others += 1
    assert retriever.report().esp == 1


def test_items_out_of_reach_may_be_listed() -> None:
    """The list needs no search. The answer says that the rest of the catalog was not searched."""

    class Half(ExactIndex):
        def search(self, users: np.ndarray, prices: np.ndarray | None, k: int) -> Hits:  # type: ignore[override]
            masked = np.array([0.0, np.inf]) if prices is None else np.where([False, True], np.inf, prices)
            hits = super().search(users, masked, k)
            return Hits(hits.rows, hits.relevance, np.array([10, 0]))

    catalog = Catalog(np.random.default_rng(0).normal(size=(20, 3)), np.repeat([0, 1], 10))
    found = FairRetriever(catalog, k=3, cold=[15, 2], index=Half(catalog)).retrieve(np.zeros((1, 3)))
    assert found.rows[0, :2].tolist() == [15, 2]
    assert found.searched.tolist() == [0.5]
