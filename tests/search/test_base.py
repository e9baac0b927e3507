"""An index can be rebuilt over another catalog, and a retriever that replaces its catalog keeps the kind of index."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from fairsync.catalog import Catalog
from fairsync.catalog.changes import remove_items
from fairsync.coordination.coordinator import Coordinator
from fairsync.coordination.front_end import FrontEnd
from fairsync.errors import InvalidInputError
from fairsync.retriever import FairRetriever
from fairsync.search import ExactIndex, Hits, HnswIndex, Index, IvfIndex, OneHotIndex, ShardedIndex, rebuild_index
from fairsync.search.base import check_prices
from fairsync.search.overlay import Overlay, follow
from search.approximate import assert_honest, make_case

BEFORE, _ = make_case(0, n=300)
AFTER, USERS = make_case(1, n=200, users=5)
WIDER = Catalog(np.random.default_rng(2).normal(size=(50, 3)), [0, 5] * 25)

KINDS: dict[str, Callable[[Catalog], Index]] = {
    "exact": lambda catalog: ExactIndex(catalog, threads=3),
    "one-hot": OneHotIndex,
    "ivf": lambda catalog: IvfIndex(catalog, recall=0.8, storage="8-bit", exact_below=10, seed=4),
    "hnsw": lambda catalog: HnswIndex(catalog, recall=0.8, exact_below=10, seed=4),
    "shards": lambda catalog: ShardedIndex(catalog, 3, "one-hot"),
}


def settings(index: Index) -> list[object]:
    """Return the kind of an index and the settings that it must keep."""
    found: list[object] = [type(index)]
    found += [getattr(index, name, None) for name in ("threads", "recall", "storage", "exact_below", "seed")]
    if isinstance(index, ShardedIndex):
        found += [len(index.shards), type(index.shards[0].index)]
    return found


class Custom:
    """An index as a user may write it, with the required members only."""

    applies_prices = "bias"

    def __init__(self, catalog: Catalog) -> None:
        self.exact = ExactIndex(catalog)

    def search(self, users: npt.NDArray[np.floating], prices: npt.NDArray[np.float64] | None, k: int) -> Hits:
        return self.exact.search(users, prices, k)


class CustomThatRebuilds(Custom):
    def rebuild(self, catalog: Catalog) -> "CustomThatRebuilds":
        return CustomThatRebuilds(catalog)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rebuilt_index_has_the_same_kind_and_settings(kind: str) -> None:
    index = KINDS[kind](BEFORE)
    rebuilt = rebuild_index(index, AFTER)
    assert settings(rebuilt) == settings(index)
    assert_honest(rebuilt, AFTER, USERS, np.array([0.0, -0.8, 0.4, np.inf, -1.5, 0.0]), 20)
    other = rebuild_index(index, WIDER)  # other dimensions and groups
    assert_honest(other, WIDER, np.ones((1, 1, 3)), None, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_after_changes_the_index_is_rebuilt_without_its_overlay(kind: str) -> None:
    index = KINDS[kind](BEFORE)
    change = remove_items(BEFORE, BEFORE.ids[:10])
    changed = follow(index, change, BEFORE)
    assert isinstance(changed, ExactIndex | Overlay)
    assert settings(rebuild_index(changed, change.catalog)) == settings(index)


@pytest.mark.parametrize("kind", KINDS)
def test_replacing_the_catalog_keeps_the_kind_of_index(kind: str) -> None:
    index = KINDS[kind](BEFORE)
    retriever = FairRetriever(BEFORE, k=5, index=index)
    front_end = FrontEnd(BEFORE, Coordinator(BEFORE, k=5), index=index)
    retriever.replace(AFTER)
    front_end.replace(AFTER)
    assert settings(retriever.index) == settings(front_end.index) == settings(index)
    for found in (retriever.retrieve(USERS), front_end.retrieve(USERS)):
        rows = AFTER.rows_of(found.ids)
        np.testing.assert_allclose(found.relevance, np.einsum("nkd,nd->nk", AFTER.embeddings[rows], USERS[:, 0]))
    retriever.replace(AFTER, index="exact")
    front_end.replace(AFTER, index=OneHotIndex)
    assert (type(retriever.index), type(front_end.index)) == (ExactIndex, OneHotIndex)


def test_an_index_that_cannot_be_rebuilt_is_refused_with_the_remedy() -> None:
    retriever = FairRetriever(BEFORE, k=5, index=Custom(BEFORE))
    with pytest.raises(InvalidInputError, match=r"Custom has no method rebuild.*give index="):
        retriever.replace(AFTER)
    assert retriever.catalog is BEFORE
    placed = ShardedIndex(BEFORE, 2, placement=np.arange(300) % 2)
    with pytest.raises(InvalidInputError, match=r"placement=.*give index="):
        rebuild_index(placed, AFTER)
    assert isinstance(rebuild_index(CustomThatRebuilds(BEFORE), AFTER), CustomThatRebuilds)


def test_prices_of_zero_are_no_prices() -> None:
    assert check_prices(np.zeros(3), 3) is None
    assert check_prices(None, 3) is None
