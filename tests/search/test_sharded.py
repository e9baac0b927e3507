import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairsync.catalog import Catalog
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex, Hits, IvfIndex, ShardedIndex, make_index
from fairsync.search.sharded import Shard, merge, place
from search.approximate import assert_honest, make_case


@st.composite
def cases(
    draw: st.DrawFn,
) -> tuple[Catalog, npt.NDArray[np.float64], npt.NDArray[np.float64] | None, int, int, npt.NDArray[np.int64] | None]:
    """Small catalogs rich in ties and masks, and placements with shards that are tiny or empty."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, groups = draw(st.integers(1, 50)), draw(st.integers(1, 5))
    ties = draw(st.booleans())

    def values(shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        return rng.integers(-1, 2, shape).astype(float) if ties else rng.standard_normal(shape)

    ids = draw(st.sampled_from([None, rng.permutation(n), [f"item-{i}" for i in rng.permutation(n)]]))
    catalog = Catalog(
        values((n, 3)).astype(draw(st.sampled_from([np.float32, np.float64]))), rng.integers(groups, size=n), ids
    )
    prices = None
    if draw(st.booleans()):
        price = st.sampled_from([0.0, 1.0, -1.0, 0.3, np.inf, -1e6])
        prices = np.array(draw(st.lists(price, min_size=catalog.n_groups, max_size=catalog.n_groups)))
    shards = draw(st.integers(1, 7))
    placement = draw(
        st.sampled_from([None, rng.integers(shards, size=n), np.full(n, shards - 1), np.arange(n) * shards // n])
    )
    users = values((draw(st.integers(0, 3)), draw(st.integers(1, 2)), 3))
    return catalog, users, prices, draw(st.sampled_from([1, 3, n, n + 2])), shards, placement


@pytest.mark.parametrize("name", ["exact", "one-hot"])
@settings(max_examples=200, deadline=None)
@given(case=cases())
def test_shards_give_exactly_the_answer_of_one(
    name: str,
    case: tuple[
        Catalog, npt.NDArray[np.float64], npt.NDArray[np.float64] | None, int, int, npt.NDArray[np.int64] | None
    ],
) -> None:
    catalog, users, prices, k, shards, placement = case
    one = make_index(name, catalog).search(users, prices, k)
    many = ShardedIndex(catalog, shards, name, placement).search(users, prices, k)
    assert many.rows.tolist() == one.rows.tolist()
    assert many.relevance.tolist() == one.relevance.tolist()


def test_a_shard_holds_its_part_only_and_answers_in_rows_of_the_whole() -> None:
    catalog, users = make_case(0, n=200)
    index = ShardedIndex(catalog, 3, placement=np.arange(200) % 3)
    for number, shard in enumerate(index.shards):
        assert isinstance(shard.index, ExactIndex)
        assert shard.index.catalog.ids.tolist() == catalog.ids[number::3].tolist()
        found = shard.search(users, None, 500).rows
        assert found.shape[1] == len(shard.rows)
        assert set(found.ravel().tolist()) == set(range(number, 200, 3))


def test_a_part_of_consecutive_rows_takes_no_memory() -> None:
    catalog, _ = make_case(1, n=100)
    index = ShardedIndex(catalog, 4, placement=np.arange(100) // 25)
    assert all(np.shares_memory(shard.index.catalog.embeddings, catalog.embeddings) for shard in index.shards)  # type: ignore[attr-defined]


def test_merging_needs_no_shard() -> None:
    nothing = Hits.empty(1, 2)
    found = Hits(np.array([[4, 1]]), np.array([[1.0, 1.0]]))
    other = Hits(np.array([[3, -1]]), np.array([[2.0, -np.inf]]))
    group_of, rank = np.array([0, 0, 0, 1, 0]), np.array([4, 3, 2, 1, 0])
    merged = merge([nothing, found, other], group_of, rank, np.array([0.0, 1.0]), 4)
    assert merged.rows.tolist() == [[4, 3, 1, -1]]  # all tie at 1: the ids decide
    assert merged.relevance.tolist() == [[1.0, 2.0, 1.0, -np.inf]]
    assert merge([found], group_of, rank, None, 1).rows.tolist() == [[4]]


def test_items_are_spread_evenly_and_always_the_same_way() -> None:
    catalog, _ = make_case(2, n=4000)
    counts = np.bincount(place(catalog, 5), minlength=5)
    assert counts.min() > 700
    # An item stays where it is when others go.
    assert (place(catalog.part(np.arange(0, 4000, 7)), 5) == place(catalog, 5)[::7]).all()


def test_approximate_shards_are_honest_too() -> None:
    catalog, users = make_case(3)
    index = ShardedIndex(catalog, 3, lambda part: IvfIndex(part, recall=0.6, exact_below=0))
    for k in (10, 4000):
        assert_honest(index, catalog, users[:5], np.array([0.0, -0.8, 0.4, np.inf, -1.5, 0.0]), k)


def test_an_error_of_a_shard_reaches_the_caller() -> None:
    catalog, users = make_case(4, n=50)
    index = ShardedIndex(catalog, 2)

    def broken(*_: object) -> Hits:
        raise RuntimeError("this shard is down")

    index.shards[1].search = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="down"):
        index.search(users, None, 3)


@pytest.mark.parametrize("placement", [[0] * 9, [[0] * 10], [0.5] * 10, [0] * 9 + [2], [-1] + [0] * 9])
def test_placements_without_meaning_are_refused(placement: list[float]) -> None:
    catalog = Catalog(np.ones((10, 2)), [1] * 10)
    with pytest.raises(InvalidInputError, match="placement"):
        ShardedIndex(catalog, 2, placement=placement)


def test_no_shards_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 1"):
        ShardedIndex(Catalog(np.ones((2, 2)), [1, 1]), 0)


def test_a_shard_alone() -> None:
    catalog, users = make_case(5, n=60)
    rows = np.arange(10, 30)
    found = Shard(catalog.part(rows), rows, ExactIndex).search(users, None, 5)
    masked = catalog.embeddings @ users[0, 0]
    assert found.rows[0].tolist() == (10 + np.argsort(-masked[10:30])[:5]).tolist()
