"""A catalog that changes in Milvus: only what is new is written, and every index stays exact, old and new."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fairsync as fs
from contract.test_indexes import random_case
from fairsync.catalog import Catalog
from fairsync.catalog.changes import CatalogChange, remove_items, upsert_items
from fairsync.errors import BackendUnavailableError, InvalidInputError
from fairsync.search import ExactIndex, Index
from fairsync.search.milvus import MilvusIndex
from fairsync.search.overlay import Overlay, follow

DIM = 8


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the path of a file of Milvus Lite."""
    pytest.importorskip("pymilvus")
    milvus_lite = pytest.importorskip("milvus_lite")
    path = str(tmp_path_factory.mktemp("milvus") / "lite.db")
    yield path
    milvus_lite.server_manager_instance.release_server(path)


def assert_exact(
    index: Index, catalog: Catalog, users: npt.NDArray[np.floating], seed: int = 0, size: float = 1.0
) -> None:
    truth, rng = ExactIndex(catalog), np.random.default_rng(seed)
    mild, steep = (size * times * rng.normal(size=catalog.n_groups) for times in (1, 20))
    for prices in (None, mild, steep, np.where(rng.random(catalog.n_groups) < 0.4, np.inf, mild)):
        for k in (1, 7, len(catalog)):
            found, right = index.search(users, prices, k), truth.search(users, prices, k)
            assert found.rows.tolist() == right.rows.tolist()
            assert found.relevance.tolist() == right.relevance.tolist()


def some_change(rng: np.random.Generator, catalog: Catalog, kind: str, number: int) -> CatalogChange:
    """Return a change of one kind; ties and twins are likely."""
    ids = rng.choice(catalog.ids, size=min(int(rng.integers(1, 6)), len(catalog) - 1), replace=False)
    rows = [int(np.flatnonzero(catalog.ids == one)[0]) for one in ids]
    other = rng.integers(-1, 2, size=(len(ids), DIM))
    if kind == "put":
        return upsert_items(catalog, other, rng.integers(0, 6, len(ids)), 1000 * (number + 1) + np.arange(len(ids)))
    if kind == "move":
        return upsert_items(catalog, catalog.embeddings[rows], rng.integers(0, 6, len(ids)), ids)
    if kind == "replace":
        return upsert_items(catalog, other, catalog.group_of[rows], ids)
    return remove_items(catalog, ids)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    kinds=st.lists(st.sampled_from(["put", "move", "replace", "remove"]), min_size=1, max_size=6),
    way=st.sampled_from(["one-hot", "over-fetch"]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_after_any_changes_old_and_new_are_exact(
    lite: str, seed: int, kinds: list[str], way: str, dtype: type[np.floating]
) -> None:
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(6), rng.integers(0, 6, 34)])  # label and code are the same
    catalog = Catalog(rng.integers(-1, 2, size=(40, DIM)).astype(dtype), groups, rng.permutation(40))
    users = rng.integers(-1, 2, size=(3, 2, DIM)).astype(float)
    index: Index = MilvusIndex(catalog, lite, "changes", prices=way, upload=True)
    every = [(index, catalog)]
    for number, kind in enumerate(kinds):
        change = some_change(rng, catalog, kind, number)
        index, catalog = follow(index, change, catalog), change.catalog
        assert isinstance(index, MilvusIndex)
        every.append((index, catalog))
    for one, its in every:
        assert_exact(one, its, users, seed)
    # Another process, which knows neither the changes nor the order of rows, finds it all there.
    order = rng.permutation(len(catalog))
    again = Catalog.from_codes(catalog.embeddings[order], catalog.group_of[order], catalog.labels, catalog.ids[order])
    assert_exact(MilvusIndex(again, lite, "changes", prices=way), again, users, seed)


@pytest.mark.parametrize("way", ["one-hot", "over-fetch"])
def test_only_what_is_new_is_written(lite: str, way: str) -> None:
    catalog, users = random_case(40)
    index = MilvusIndex(catalog, lite, f"few_{way[:3]}", prices=way, upload=True)
    ids = catalog.ids[:20]

    def written(change: CatalogChange) -> int:
        nonlocal index
        before = index.stored.size
        after = index.follow(change)
        assert isinstance(after, MilvusIndex)
        index = after
        counted = MilvusIndex(change.catalog, lite, index.collection, prices=way).stored.size
        assert counted == index.stored.size
        return counted - before

    moved = (catalog.group_of[:20] + 1) % 5
    assert written(upsert_items(catalog, catalog.embeddings[:20] * 2, catalog.group_of[:20], ids)) == 20
    assert written(remove_items(index.catalog, ids)) == 0
    # Rows that were there once are there still.
    assert written(upsert_items(index.catalog, catalog.embeddings[:20], catalog.group_of[:20], ids)) == 0
    assert written(upsert_items(index.catalog, catalog.embeddings[:20], moved, ids)) == 20
    assert index.wear == 40 / 400
    assert_exact(index, index.catalog, users)


def test_a_retriever_upserts_and_removes_in_milvus(lite: str) -> None:
    rng = np.random.default_rng(0)
    catalog, _ = random_case(41)
    pair = [
        fs.FairRetriever(catalog, k=10, floors=40, horizon=120, batch_size=8, index=index)
        for index in ("exact", MilvusIndex(catalog, lite, "loop", upload=True))
    ]
    for part in range(4):
        users = rng.normal(size=(30, 8)) + 0.5
        found = [retriever.retrieve(users).ids for retriever in pair]
        assert (found[0] == found[1]).all()
        new, ids = rng.normal(size=(6, 8)) + 0.5, [*catalog.ids[part : part + 3].tolist(), *range(900, 903)]
        for retriever in pair:
            retriever.upsert(new, [0, 1, 2, 3, 4, 5 + part], ids)
            retriever.remove(catalog.ids[-1 - part : len(catalog) - part].tolist())
    assert isinstance(pair[1].index, MilvusIndex)
    assert pair[1].report().esp == 1


def test_an_index_that_may_not_write_searches_new_items_itself(lite: str) -> None:
    catalog, users = random_case(42)
    MilvusIndex(catalog, lite, "reader", upload=True)
    reader = MilvusIndex(catalog, lite, "reader")
    change = upsert_items(catalog, users[:, 0], [0] * 6, np.arange(6))
    after = reader.follow(change)
    assert isinstance(after, Overlay)
    assert_exact(after, change.catalog, users)
    with pytest.raises(InvalidInputError, match="does not hold"):
        MilvusIndex(change.catalog, lite, "reader")
    with pytest.raises(InvalidInputError, match="upload=True"):
        reader.renew()


def test_without_a_spare_column_a_new_group_is_searched_in_this_process(lite: str) -> None:
    catalog, users = random_case(43)
    index: Index = MilvusIndex(catalog, lite, "columns", prices="one-hot", upload=True)
    kinds = []
    for group in range(5, 15):
        change = upsert_items(catalog, users[:1, 0], [group], [1000 + group])
        index, catalog = follow(index, change, catalog), change.catalog
        kinds.append(type(index))
        assert_exact(index, catalog, users)
    assert kinds == [MilvusIndex] * 8 + [Overlay] * 2


@pytest.mark.parametrize(("times", "kind"), [(1e-9, MilvusIndex), (1e9, MilvusIndex), (1e18, Overlay)])
def test_items_of_another_scale_lose_no_precision(lite: str, times: float, kind: type[Index]) -> None:
    rng = np.random.default_rng(44)
    catalog = Catalog(rng.normal(size=(60, DIM)), np.arange(60) % 3)
    index = MilvusIndex(catalog, lite, "sizes", upload=True)
    change = upsert_items(catalog, rng.normal(size=(30, DIM)) * times, [0] * 30, np.arange(30, 60))
    after = index.follow(change)
    assert isinstance(after, kind)
    for size in (1, times):
        assert_exact(after, change.catalog, rng.normal(size=(3, 1, DIM)), size=size)


def test_an_interrupted_update_affects_no_index_and_can_be_repeated(lite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, users = random_case(45)
    index = MilvusIndex(catalog, lite, "interrupted", upload=True)
    change = upsert_items(catalog, users[:, 0], [0] * 6, np.arange(6))

    def interrupt(*_: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(index.server, "set_alias", interrupt)
        with pytest.raises(KeyboardInterrupt):
            index.follow(change)
    assert_exact(index, catalog, users)
    with pytest.raises(InvalidInputError, match="in full"):
        MilvusIndex(change.catalog, lite, "interrupted")
    after = index.follow(change)
    assert isinstance(after, MilvusIndex)
    assert after.stored.size == 406
    assert_exact(after, change.catalog, users)
    assert_exact(MilvusIndex(change.catalog, lite, "interrupted"), change.catalog, users)


def test_a_worn_collection_is_renewed_and_the_old_one_dropped(lite: str) -> None:
    catalog, users = random_case(46)
    old = MilvusIndex(catalog, lite, "worn", upload=True, timeout=3.0)
    change = upsert_items(catalog, catalog.embeddings[::-1].copy(), catalog.group_of, catalog.ids)
    new = old.follow(change)
    assert isinstance(new, MilvusIndex)
    assert (old.stored.name, new.wear) == (new.stored.name, 1.0)
    assert_exact(new, change.catalog, users)
    seen: list[int] = []
    new.renew(lambda done, _: seen.append(done))
    assert (seen[-1], new.wear) == (400, 0.0)
    assert old.stored.name != new.stored.name
    for index in (old, new, MilvusIndex(change.catalog, lite, "worn")):
        assert_exact(index, index.catalog, users)
    new.renew()  # it may be done again
    assert new.drop_others() == [old.name]
    assert_exact(new, change.catalog, users)
    with pytest.raises(InvalidInputError, match="is gone"):
        old.search(users, None, 9)
    with pytest.raises(InvalidInputError, match="is gone"):
        old.follow(change)


def test_dropping_others_spares_those_in_the_same_collection(lite: str) -> None:
    catalog, users = random_case(47)
    old = MilvusIndex(catalog, lite, "shared", upload=True)
    new = old.follow(remove_items(catalog, catalog.ids[:5]))
    assert isinstance(new, MilvusIndex)
    assert new.drop_others() == [old.name]
    for index in (old, new):
        assert_exact(index, index.catalog, users)
    assert new.drop_others() == []


def test_many_may_upload_and_update_at_once(lite: str) -> None:
    catalog, users = random_case(49)
    change = upsert_items(catalog, users[:, 0], [0] * 6, np.arange(6))

    def work(_: int) -> MilvusIndex:
        after = MilvusIndex(catalog, lite, "crowd", upload=True).follow(change)
        assert isinstance(after, MilvusIndex)
        return after

    with ThreadPoolExecutor(4) as pool:
        every = list(pool.map(work, range(4)))
    for index in (*every, MilvusIndex(catalog, lite, "crowd"), MilvusIndex(change.catalog, lite, "crowd")):
        assert_exact(index, index.catalog, users)


def test_an_upload_that_comes_second_uses_the_first(lite: str) -> None:
    catalog, users = random_case(50)
    first: list[MilvusIndex] = []

    def overtake(*_: int) -> None:
        if not first:
            first.append(MilvusIndex(catalog, lite, "second", upload=True))

    second = MilvusIndex(catalog, lite, "second", upload=True, watch=overtake)
    written = [name for name in second.server.collections() if name.startswith(second.name)]
    assert written == [first[0].stored.name] == [second.stored.name]
    assert_exact(second, catalog, users)


def test_an_update_without_the_server_changes_nothing(lite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, users = random_case(48)
    index = MilvusIndex(catalog, lite, "away", upload=True, timeout=3.0)
    retriever = fs.FairRetriever(catalog, k=5, index=index)

    def away(*_: object, **__: object) -> None:
        raise index.server.milvus.MilvusException(message="server unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(index.server.client, "upsert", away)
        with pytest.raises(BackendUnavailableError, match=r"server unavailable.*timeout="):
            retriever.upsert(users[:, 0], [0] * 6, np.arange(6))
    assert retriever.catalog is catalog
    assert retriever.index is index
    retriever.upsert(users[:, 0], [0] * 6, np.arange(6))
    assert retriever.index is not index
