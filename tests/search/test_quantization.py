"""Quantized items are scored as the items themselves, nearly."""

import numpy as np
import pytest

from fairsync.search.inverted_lists import InvertedLists
from fairsync.search.quantization import STORAGES, QuantizedItems
from search.approximate import make_case

SOME_PRICES = np.array([0.0, -0.8, 0.4, -0.2, -1.5, 0.0])


@pytest.mark.parametrize("storage", STORAGES)
def test_codes_score_items_as_they_should_with_the_lists_score_taken_in(storage: str) -> None:
    catalog, users = make_case(2, n=2000, dim=7)
    items = np.asarray(catalog.embeddings, dtype=np.float32)
    lists = InvertedLists.of(items, catalog.group_of)
    vectors = users[:, 0].astype(np.float32)
    price = SOME_PRICES.astype(np.float32)
    scores = vectors @ lists.centres.T - price[lists.group_of]
    rows, groups, _ = QuantizedItems(items, lists, storage).search(vectors, scores > -np.inf, scores, fetch=100)
    truth = np.argsort(-(vectors @ items.T - price[catalog.group_of]), axis=1)[:, :20]
    found = np.mean([np.isin(wanted, got).mean() for wanted, got in zip(truth, rows, strict=True)])
    assert found >= {"2-bit": 0.93, "4-bit": 0.995}.get(storage, 1.0)
    assert (groups == catalog.group_of[rows]).all()


def test_lists_not_probed_are_not_read() -> None:
    catalog, users = make_case(3, n=2000)
    items = np.asarray(catalog.embeddings, dtype=np.float32)
    lists = InvertedLists.of(items, catalog.group_of)
    chosen = np.random.default_rng(3).random((40, len(lists.sizes))) < 0.3
    chosen[7] = False
    scores = np.zeros(chosen.shape, dtype=np.float32)
    rows, _, _ = QuantizedItems(items, lists).search(users[:, 0].astype(np.float32), chosen, scores, fetch=2000)
    for row, these in zip(rows, chosen, strict=True):
        assert sorted(row[row >= 0].tolist()) == np.flatnonzero(these[lists.list_of]).tolist()
