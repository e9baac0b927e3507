from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings

import fairsync as fs
from contract.test_eligibility import (
    assert_plain as assert_plain_eligible,
)
from contract.test_eligibility import (
    random_eligibility,
)
from contract.test_indexes import (  # noqa: F401
    Build,
    Prices,
    assert_plain,
    cases,
    random_case,
    test_a_price_is_subtracted_and_a_subsidy_added,
    test_a_user_of_zeros_gets_the_cheapest_items_by_id,
    test_an_item_counts_once_with_its_best_interest,
    test_calls_at_once_with_different_prices_are_not_torn,
    test_it_agrees_on_a_larger_catalog,
    test_items_that_float32_cannot_tell_apart_are_told_apart,
    test_masked_groups_leave_empty_places,
    test_no_users_give_no_hits,
    test_one_extreme_price_does_not_blur_the_others,
    test_prices_without_meaning_are_refused,
    test_ties_go_to_the_smaller_id_not_the_smaller_row,
    test_users_and_items_of_any_float_type,
)
from fairsync.catalog import Catalog
from fairsync.catalog.changes import upsert_items
from fairsync.errors import InvalidInputError
from fairsync.search import ExactIndex
from fairsync.search.milvus import MilvusIndex
from fairsync.search.overlay import follow
from search.milvus_conditions import assert_conditions_hold, described


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the path of a file of Milvus Lite."""
    pytest.importorskip("pymilvus")
    milvus_lite = pytest.importorskip("milvus_lite")
    path = str(tmp_path_factory.mktemp("milvus") / "lite.db")
    yield path
    milvus_lite.server_manager_instance.release_server(path)


@pytest.fixture(scope="module", params=["one-hot", "over-fetch"])
def build(request: pytest.FixtureRequest, lite: str) -> Build:
    """Return what makes an index, for the tests of every index."""
    return lambda catalog: MilvusIndex(catalog, lite, "contract", prices=request.param, upload=True)


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_the_answer_is_that_of_the_plainest_search(
    build: Build, case: tuple[Catalog, npt.NDArray[np.floating], Prices, int]
) -> None:
    assert_plain(build, *case)


@pytest.mark.parametrize("prices", [None, np.linspace(-0.5, 0.5, 5)])
def test_it_honours_eligibility(build: Build, prices: Prices) -> None:
    catalog, users = random_case(1)
    index = build(catalog)
    for seed in range(6):
        assert_plain_eligible(
            index, catalog, users, prices, 20, random_eligibility(np.random.default_rng(seed), 400, 6)
        )


def test_a_retriever_keeps_its_floors_and_finds_the_same_as_with_exact_search(lite: str) -> None:
    catalog, _ = random_case(20)
    users = np.random.default_rng(0).normal(size=(60, 8)) + 0.5
    found = []
    for index in ("exact", MilvusIndex(catalog, lite, "loop", upload=True)):
        retriever = fs.FairRetriever(catalog, k=10, floors=90, horizon=60, batch_size=8, index=index)
        found.append(retriever.retrieve(users).ids)
        assert retriever.report().esp == 1
    assert (found[0] == found[1]).all()


def test_an_upload_reports_its_progress(lite: str) -> None:
    catalog = Catalog(np.random.default_rng(1).normal(size=(5000, 300)), np.arange(5000) % 3)
    seen: list[tuple[int, int]] = []
    MilvusIndex(catalog, lite, "progress", upload=True, watch=lambda done, total: seen.append((done, total)))
    assert [total for _, total in seen] == [5000] * len(seen)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert len(seen) > 1
    assert seen[-1][0] == 5000
    # What is there is not written again.
    MilvusIndex(catalog, lite, "progress", upload=True, watch=lambda *_: pytest.fail("uploaded twice"))


def test_a_catalog_that_is_not_uploaded_is_refused(lite: str) -> None:
    catalog, _ = random_case(21)
    with pytest.raises(InvalidInputError, match=r"does not hold Catalog\(400 items.*upload=True"):
        MilvusIndex(catalog, lite, "absent")


def test_an_interrupted_upload_is_never_searched_and_can_be_repeated(lite: str) -> None:
    catalog, users = random_case(22)

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MilvusIndex(catalog, lite, "interrupted", upload=True, watch=interrupt)
    with pytest.raises(InvalidInputError, match="in full"):
        MilvusIndex(catalog, lite, "interrupted")
    index = MilvusIndex(catalog, lite, "interrupted", upload=True)
    assert (index.search(users, None, 400).rows == ExactIndex(catalog).search(users, None, 400).rows).all()


def test_another_catalog_is_another_upload_and_the_old_one_stays_until_dropped(lite: str) -> None:
    catalog, users = random_case(23)
    old = MilvusIndex(catalog, lite, "updated", upload=True, timeout=3.0)
    embeddings = catalog.embeddings.copy()
    embeddings[7] = 3 * users[0, 0]
    changed = Catalog(embeddings, catalog.group_of, catalog.ids)
    with pytest.raises(InvalidInputError, match=f"holds other catalogs \\({old.name}\\)"):
        MilvusIndex(changed, lite, "updated")
    new = MilvusIndex(changed, lite, "updated", upload=True)
    other = MilvusIndex(changed, lite, "updated_not", upload=True)
    assert new.search(users[:1], None, 1).rows.tolist() == [[7]]
    for index in (old, new):
        assert (index.search(users, None, 9).rows == ExactIndex(index.catalog).search(users, None, 9).rows).all()
    assert new.drop_others() == [old.name]
    assert new.drop_others() == []
    with pytest.raises(InvalidInputError, match="is gone"):
        old.search(users, None, 9)
    assert new.search(users[:1], None, 1).rows.tolist() == [[7]]
    assert other.search(users[:1], None, 1).rows.tolist() == [[7]]


def test_a_catalog_is_replaced_on_the_same_server(lite: str) -> None:
    catalog, users = random_case(29)
    other, _ = random_case(30)
    index = MilvusIndex(catalog, lite, "replaced", prices="over-fetch", timeout=7.0, upload=True)
    retriever = fs.FairRetriever(catalog, k=5, index=index)
    retriever.replace(other)
    rebuilt = retriever.index
    assert isinstance(rebuilt, MilvusIndex)
    assert (rebuilt.collection, rebuilt.applies_prices, rebuilt.server.timeout) == ("replaced", "over-fetch", 7.0)
    assert (rebuilt.search(users, None, 9).rows == ExactIndex(other).search(users, None, 9).rows).all()
    reader = MilvusIndex(catalog, lite, "replaced", prices="over-fetch")  # it may not write
    assert reader.rebuild(other).name == rebuilt.name
    with pytest.raises(InvalidInputError, match="upload=True"):
        reader.rebuild(random_case(31)[0])


def test_only_what_the_server_holds_decides_the_name(lite: str) -> None:
    catalog, users = random_case(24)
    regrouped = catalog.regrouped(np.arange(400) % 2, 2)
    fetch = MilvusIndex(catalog, lite, "names", prices="over-fetch", upload=True)
    again = MilvusIndex(regrouped, lite, "names", prices="over-fetch")  # atoms are not part of what is ranked
    assert again.name == fetch.name
    prices = np.array([0.7, 0.0])
    assert (again.search(users, prices, 5).rows == ExactIndex(regrouped).search(users, prices, 5).rows).all()
    with pytest.raises(InvalidInputError, match="upload=True"):
        MilvusIndex(regrouped, lite, "names", prices="one-hot")
    with pytest.raises(InvalidInputError, match="upload=True"):  # conditions would find the old labels
        MilvusIndex(Catalog(catalog.embeddings, ["a", "b"] * 200, catalog.ids), lite, "names", prices="over-fetch")


def test_few_groups_become_columns_and_many_are_over_fetched(lite: str) -> None:
    embeddings = np.random.default_rng(2).normal(size=(60, 4))
    few = MilvusIndex(Catalog(embeddings, np.arange(60) % 20), lite, "ways", upload=True)
    many = MilvusIndex(Catalog(embeddings, np.arange(60) % 21), lite, "ways", upload=True)
    assert (few.applies_prices, many.applies_prices) == ("one-hot", "over-fetch")


def test_bad_arguments_are_refused_before_anything_is_asked() -> None:
    catalog, _ = random_case(27)
    with pytest.raises(InvalidInputError, match="'auto', 'one-hot' or 'over-fetch'"):
        MilvusIndex(catalog, prices="bias")
    for name in ("", "7up", "a-b", "a b", "größe"):
        with pytest.raises(InvalidInputError, match="collection"):
            MilvusIndex(catalog, collection=name)
    for timeout in (0, -1, float("nan")):
        with pytest.raises(InvalidInputError, match="timeout"):
            MilvusIndex(catalog, timeout=timeout)
    crowd = Catalog(np.ones((32768, 1)), np.arange(32768))
    with pytest.raises(InvalidInputError, match=r"32,768 columns.*over-fetch"):
        MilvusIndex(crowd, prices="one-hot")


@pytest.mark.parametrize("way", ["one-hot", "over-fetch"])
def test_conditions_are_expressions_of_milvus(lite: str, way: str) -> None:
    catalog = described(3)
    index = MilvusIndex(catalog, lite, "conditions", prices=way, upload=True)
    asked = Asked(index)
    assert_conditions_hold(index, catalog, 3)
    assert any("in [" in one for one in asked.expressions)
    assert any("not in" in one for one in asked.expressions)
    sold_out = upsert_items(catalog, None, {"in_stock": [False] * 50, "region": ["AT"] * 50}, catalog.ids[:50].tolist())
    assert follow(index, sold_out, catalog) is index  # only attributes have changed: nothing is written
    assert_conditions_hold(index, sold_out.catalog, 4)
    assert any(" or key in " in one for one in asked.expressions)
    changed = upsert_items(sold_out.catalog, catalog.embeddings[[7]] + 1, {"price": [2.25]}, [catalog.ids[7]])
    after = follow(index, changed, sold_out.catalog)
    assert isinstance(after, MilvusIndex)
    assert_conditions_hold(after, changed.catalog, 5)
    again = MilvusIndex(changed.catalog, lite, "conditions", prices=way)  # as another process would open it
    assert_conditions_hold(again, changed.catalog, 6)


class Asked:
    """Records the expressions that an index sends to Milvus."""

    def __init__(self, index: MilvusIndex) -> None:
        self.expressions: list[str] = []
        search = index.stored.search

        def recorded(*given: Any) -> Any:
            self.expressions += given[2:3]
            return search(*given)

        index.stored.search = recorded  # type: ignore[assignment, method-assign]
